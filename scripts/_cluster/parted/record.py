"""A record of what clients of simulated partitions sent and got, and checks of it."""

from collections.abc import Callable, Hashable, Sequence

from attrs import define, field

HOP = "/queue/hop"
"""Its messages are moved to other queues, in transactions."""
OPEN, COMMITTING, COMMITTED, ABORTED = "open", "committing", "committed", "aborted"


@define(eq=False)
class Sent:
    """A message.

    Args:
      place: Its destination.
      series: Messages of one series to one destination arrive in the order of their numbers.
      is_receipted: It must arrive.
      is_seen: It has arrived.
      is_ending: A client has acknowledged it, perhaps in vain.
      is_acked: Its ACK has a RECEIPT.
      origin: The message that was moved by it; None = none.
    """

    body: str
    place: str
    series: Hashable
    number: int
    is_receipted: bool = False
    is_seen: bool = False
    is_ending: bool = False
    is_acked: bool = False
    origin: "Sent | None" = None

    @property
    def key(self) -> str:
        """Return what tells it from all others."""
        return f"{self.place} {self.body}"


@define(eq=False)
class Whole:
    """The messages of a transaction or composite SEND, which arrive all or not at all."""

    messages: Sequence[Sent]
    state: str = OPEN

    def commit(self) -> None:
        """Take note of its RECEIPT."""
        self.state = COMMITTED
        for each in self.messages:
            each.is_receipted = True


@define(eq=False)
class Record:
    """All messages.

    Args:
      wrong: Called with each violation.
    """

    wrong: Callable[[str], None]
    sent: dict[str, Sent] = field(factory=dict)
    wholes: list[Whole] = field(factory=list)
    deliveries: int = 0
    repeated: int = 0
    waiting: int = 0
    """About how many messages are in the cluster."""
    _made: int = 0
    _numbers: dict[Hashable, int] = field(factory=dict)

    def new(self, place: str, series: Hashable, origin: Sent | None = None) -> Sent:
        """Return a new message of a series, to be sent."""
        number = self._numbers[series] = self._numbers.get(series, 0) + 1
        self._made += 1
        sent = Sent(f"m{self._made}", place, (series, place), number, origin=origin)
        self.sent[sent.key] = sent
        self.waiting += 1
        return sent

    def rename(self, sent: Sent, body: str) -> None:
        """Give a message another body, which others may have at other destinations."""
        del self.sent[sent.key]
        sent.body = body
        self.sent[sent.key] = sent

    def whole(self, messages: Sequence[Sent]) -> Whole:
        """Return a new transaction or composite."""
        found = Whole(messages)
        self.wholes.append(found)
        return found

    def deliver(
        self,
        place: str,
        body: str,
        last: dict[Hashable, int],
        *,
        is_marked: bool,
        is_late: bool = False,
    ) -> Sent | None:
        """Check a delivery.

        Args:
          place: The queue.
          body: The message.
          last: The numbers that this consumer has got last, by series.
          is_marked: Whether it has ``redelivered:true``.
          is_late: It may have been on its way while a node or the network stood still. So others
            may have received and acknowledged it since.
        """
        self.deliveries += 1
        sent = self.sent.get(f"{place} {body}")
        if sent is None:
            self.wrong(f"{place} has {body!r}, which nobody sent there")
            return None
        if sent.is_acked and not is_late:
            self.wrong(f"{place} delivers {body} after the RECEIPT of its ACK")
        if sent.is_seen:
            self.repeated += 1
            if not (is_marked or is_late):
                self.wrong(f"{place} delivers {body} again, without a mark")
        else:
            self.waiting -= 1
        sent.is_seen = True
        before = last.get(sent.series, 0)
        if sent.number <= before and not is_marked:
            self.wrong(
                f"{place} delivers {body}, number {sent.number} of {sent.series}, after "
                f"number {before}"
            )
        last[sent.series] = max(before, sent.number)
        return sent

    def missing(self) -> list[str]:
        """Return the messages that must arrive until a client acknowledges them, and have not."""
        moved = {whole.messages[0].origin for whole in self.wholes if whole.messages[0].is_seen}
        return [
            each.body
            for each in self.sent.values()
            if each.is_receipted and not (each in moved if each.place == HOP else each.is_ending)
        ]

    def judge(self) -> None:
        """Check everything, after all queues were emptied."""
        if missing := self.missing():
            self.wrong(f"{len(missing)} messages with a RECEIPT are lost: {missing[:5]}")
        for whole in self.wholes:
            came = sum(each.is_seen for each in whole.messages)
            if whole.state in (OPEN, ABORTED) and came:
                self.wrong(f"{came} messages of a transaction {whole.state} came")
            elif came not in (0, len(whole.messages)):
                names = [(each.body, each.place, each.is_seen) for each in whole.messages]
                self.wrong(f"{came} of {len(names)} messages came: {names} ({whole.state})")
        moved: dict[str, int] = {}
        for whole in self.wholes:
            origin = whole.messages[0].origin
            if origin is not None and whole.messages[0].is_seen:
                moved[origin.body] = moved.get(origin.body, 0) + 1
        for body, times in moved.items():
            if times > 1:
                self.wrong(f"{body} was moved {times} times")
