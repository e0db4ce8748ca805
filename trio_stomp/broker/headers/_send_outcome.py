"""The outcome of a SEND, and the header lines that report it in the RECEIPT."""

from collections.abc import Sequence

from attrs import define, field

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
      is_duplicate: The messages are duplicates, and were not accepted again.
      stored: Where the messages are: ``memory``, or the name of the store; "" = nowhere.
      offset: The offset of the last message in its stream.
      job: The number of the last scheduled message, by which it can be removed.
      removed: The number of scheduled messages that were removed.
      dedup_window: The number of ids that the destination remembers; None = the message has none.
    """

    matched: int | None = None
    hint: str = ""
    is_duplicate: bool = False
    stored: str = ""
    offset: int | None = None
    job: int | None = None
    removed: int | None = None
    dedup_window: int | None = None
    _lines: bytes = field(init=False, default=b"", eq=False, repr=False)
    """The header lines for the last message, cached."""

    @property
    def is_lost(self) -> bool:
        """Return whether the messages were neither delivered nor kept."""
        return self.matched == 0 and not self.stored and self.offset is None

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
        )

    def header_lines(self, later: int = 0) -> bytes:
        """Return the header lines of the RECEIPT.

        Args:
          later: The number of messages of the run after the RECEIPT's one. Its numbers are lower
            by this.
        """
        if later and not (self.offset is self.job is None):
            return self._encode(later)
        if not self._lines:
            object.__setattr__(self, "_lines", self._encode(0))
        return self._lines

    def _encode(self, later: int) -> bytes:
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
        if self.offset is not None:
            lines += b"x-stream-offset:%d\n" % (self.offset - later)
        if self.job is not None:
            lines += b"scheduledJobId:%d\n" % (self.job - later)
        return lines


NOTHING = SendOutcome()
"""Nothing to report, or not yet."""
IN_MEMORY = SendOutcome(stored=MEMORY)
"""Outcome for messages in a queue that are not durable."""
DUPLICATE = SendOutcome(is_duplicate=True)
"""Outcome for duplicates, which are not accepted again."""
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


def combined(parts: Sequence[SendOutcome]) -> SendOutcome:
    """Combine the outcomes of all parts of a composite SEND.

    The matches are added up, all parts must be duplicates, and ``stored`` is the weakest promise.
    """
    counts = [part.matched for part in parts if part.matched is not None]
    stored = sorted({part.stored for part in parts if part.stored})
    hints = sorted({part.hint for part in parts if part.hint})
    return SendOutcome(
        matched=sum(counts) if counts else None,
        hint=hints[0] if hints and not sum(counts) else "",
        is_duplicate=all(part.is_duplicate for part in parts),
        # The weakest promise counts for the whole: "memory", if any.
        stored=MEMORY if MEMORY in stored else "".join(stored[:1]),
    )


def volatile_warning(name: str) -> str:
    """Return the log line for a persistent message on a broker without a store."""
    return (
        f"a message to {name[:80]} is persistent, but this broker stores nothing on disk: start "
        "it with --data-dir DIR (until then RECEIPTs say stored:memory)"
    )
