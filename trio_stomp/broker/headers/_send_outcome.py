"""The outcome of a SEND, and the header lines that report it in the RECEIPT."""

from collections.abc import Sequence

from attrs import define, evolve, field

from trio_stomp.broker.names import nearly

HINTS = {
    "/queue/": "the name of a queue begins with /queue/",
    "/topic/": "this topic differs from the one whose name begins with /topic/",
}
"""Hints for messages without subscribers, by a prefix similar to that of the destination."""
MEMORY = "memory"
"""The value of ``stored`` for messages that are not durable."""
_SHARED = 256
"""Most SENDs match no more subscribers than this, and share one outcome for each number."""


@define(frozen=True)
class SendOutcome:
    """The outcome of a SEND. Common outcomes are shared, so that most runs create none.

    Attributes:
      matched: The number of subscribers; None = they were not counted.
      hint: A possible reason why there are no subscribers.
      is_duplicate: The message is a duplicate, and was not accepted again.
      stored: Where the messages are: ``memory``, or the name of the store; "" = nowhere.
      offset: The offset of the first message in its stream. The others of its run follow.
      job: The number of the first scheduled message, by which it can be removed. The others follow.
      removed: The number of scheduled messages that were removed.
      dedup_window: The number of ids that the destination remembers; None = the message has none.
      dropped: Why a message was dropped instead of taken; "" = it was taken.
      ignored: The headers with an invalid value, separated by commas; "" = none.
      each: The outcome of each message, if they differ.
    """

    matched: int | None = None
    hint: str = ""
    is_duplicate: bool = False
    stored: str = ""
    offset: int | None = None
    job: int | None = None
    removed: int | None = None
    dedup_window: int | None = None
    dropped: str = ""
    ignored: str = ""
    each: "tuple[SendOutcome, ...]" = ()
    _lines: bytes = field(init=False, default=b"", eq=False, repr=False)
    """The header lines for the first message, cached."""

    @property
    def is_lost(self) -> bool:
        """Return whether the messages were neither delivered nor kept."""
        is_unmatched = self.matched == 0 and not self.stored and self.offset is None
        return bool(self.dropped) or is_unmatched

    def of(self, index: int) -> "SendOutcome":
        """Return the outcome of one message of the run."""
        return self.each[index] if self.each else self

    def __or__(self, other: "SendOutcome") -> "SendOutcome":
        """Return the union of two outcomes for one destination, which have different fields."""
        if other is NOTHING:
            return self
        if self is NOTHING:
            return other
        return SendOutcome(
            matched=other.matched if self.matched is None else self.matched,
            hint=self.hint or other.hint,
            is_duplicate=self.is_duplicate or other.is_duplicate,
            stored=self.stored or other.stored,
            offset=other.offset if self.offset is None else self.offset,
            job=other.job if self.job is None else self.job,
            removed=other.removed if self.removed is None else self.removed,
            dedup_window=other.dedup_window if self.dedup_window is None else self.dedup_window,
            dropped=self.dropped or other.dropped,
            ignored=self.ignored or other.ignored,
            each=self.each or other.each,
        )

    def header_lines(self, index: int = 0) -> bytes:
        """Return the header lines of the RECEIPT of one message of the run."""
        if self.each:
            return self.each[index].header_lines()
        if index and not (self.offset is self.job is None):
            return self._encode(index)
        if not self._lines:
            object.__setattr__(self, "_lines", self._encode(0))
        return self._lines

    def _encode(self, index: int) -> bytes:
        lines = b""
        if self.matched is not None:
            lines = b"matched:%d\n" % self.matched
        if self.hint:
            lines += b"hint:%b\n" % self.hint.encode()
        if self.removed is not None:
            lines += b"removed:%d\n" % self.removed
        if self.is_duplicate:
            lines += b"duplicate:true\n"
        if self.dedup_window is not None:
            lines += b"dedup-window:%d\n" % self.dedup_window
        if self.stored:
            lines += b"stored:%b\n" % self.stored.encode()
        if self.dropped:
            lines += b"dropped:%b\n" % self.dropped.encode()
        if self.offset is not None:
            lines += b"x-stream-offset:%d\n" % (self.offset + index)
        if self.ignored:
            lines += b"ignored:%b\n" % self.ignored.encode()
        if self.job is not None:
            lines += b"scheduledJobId:%d\n" % (self.job + index)
        return lines


NOTHING = SendOutcome()
"""Nothing to report, or not yet."""
IN_MEMORY = SendOutcome(stored=MEMORY)
"""Outcome for messages in a queue that are not durable."""
DUPLICATE = SendOutcome(is_duplicate=True)
"""Outcome for duplicates, which are not accepted again."""
DROPPED = SendOutcome(dropped="queue-full")
"""Outcome for messages that a full queue dropped, by its policy."""
EXPIRED = SendOutcome(dropped="expired")
"""Outcome for messages whose expiry time was past when they came."""
_MATCHED = tuple(SendOutcome(matched=count) for count in range(_SHARED + 1))
_UNMATCHED = {near: SendOutcome(matched=0, hint=HINTS.get(near, "")) for near in ("", *HINTS)}
_PARKED = {near: outcome | IN_MEMORY for near, outcome in _UNMATCHED.items()}


def matched(count: int) -> SendOutcome:
    """Return the outcome for messages with ``count`` subscribers."""
    return _MATCHED[count] if count <= _SHARED else SendOutcome(matched=count)


def unmatched(name: str) -> SendOutcome:
    """Return the outcome for messages to ``name`` that have no subscribers."""
    return _UNMATCHED[nearly(name)]


def parked(name: str) -> SendOutcome:
    """Return the outcome for messages to ``name`` that wait for a subscriber."""
    return _PARKED[nearly(name)]


def hint_of(name: str) -> str:
    """Return the hint for a destination that looks like another kind, or ""."""
    return HINTS.get(nearly(name), "")


def of_run(outcomes: Sequence[SendOutcome]) -> SendOutcome:
    """Return the outcome of a run from those of its messages."""
    if all(outcome is outcomes[0] for outcome in outcomes):
        return outcomes[0] if outcomes else NOTHING
    return evolve(committed(outcomes), each=tuple(outcomes))


def committed(outcomes: Sequence[SendOutcome]) -> SendOutcome:
    """Return what the outcomes of all SENDs of a transaction promise together.

    ``stored`` is the strongest promise, ``dropped`` and ``ignored`` hold for any of them.
    """
    stored = {each.stored for each in outcomes} - {""}
    dropped = next((each.dropped for each in outcomes if each.dropped), "")
    ignored = next((each.ignored for each in outcomes if each.ignored), "")
    return SendOutcome(
        stored=max(stored - {MEMORY} or stored, default=""), dropped=dropped, ignored=ignored
    )


def combined(parts: Sequence[SendOutcome]) -> SendOutcome:
    """Combine the outcomes of all parts of a composite SEND.

    The matches are added up, all parts must be duplicates. ``stored`` and ``dedup_window`` are the
    weakest promises.
    """
    if count := max((len(part.each) for part in parts), default=0):
        return of_run([combined([part.of(index) for part in parts]) for index in range(count)])
    counts = [part.matched for part in parts if part.matched is not None]
    stored = sorted({part.stored for part in parts if part.stored})
    hints = sorted({part.hint for part in parts if part.hint})
    windows = [part.dedup_window for part in parts if part.dedup_window is not None]
    return SendOutcome(
        matched=sum(counts) if counts else None,
        hint=hints[0] if hints and not sum(counts) else "",
        is_duplicate=all(part.is_duplicate for part in parts),
        # The weakest promise counts for the whole: "memory", if any.
        stored=MEMORY if MEMORY in stored else "".join(stored[:1]),
        dedup_window=min(windows, default=None),
        dropped=next((part.dropped for part in parts if part.dropped), ""),
        ignored=next((part.ignored for part in parts if part.ignored), ""),
    )


def volatile_warning(name: str) -> str:
    """Return the log line for a persistent message on a broker without a store."""
    return (
        f"a message to {name[:80]} is persistent, but this broker stores nothing on disk: start "
        "it with --data-dir DIR (until then RECEIPTs say stored:memory)"
    )
