"""Policies per destination pattern: how much a destination keeps, for how long, and then what."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from attrs import field, frozen

from trio_stomp.base import OptionError, ProtocolError, option
from trio_stomp.broker.delivery import DISCONNECT, DROP_NEWEST, DROP_OLDEST
from trio_stomp.broker.names import WildcardTrie, check_sendable, compile_pattern

REJECT = "reject"
DEAD_LETTER = "dead-letter"
BLOCK = "block"

HEADER = "header"
ALWAYS = "always"
NEVER = "never"

DEAD_LETTERS = "/queue/DLQ."
"""What the name of a default dead-letter queue begins with."""

MAX_BACKOFF_S = 86_400.0

MONITOR = "/queue/monitor"
STOMPSERVER_DEAD_LETTERS = "/queue/deadletter"

_QUEUE = "/queue/"
_WANTED = {int: "a whole number", bool: "true or false", str: "text", tuple: "a list of numbers"}


def _waits(given: Iterable[float]) -> tuple[float, ...]:
    return tuple(given)


def _check_backoff(_: object, __: object, value: tuple[float, ...]) -> None:
    # NaN is between no two numbers, so it is refused as well.
    if not all(0 <= delay <= MAX_BACKOFF_S for delay in value):
        raise ValueError(
            f"backoff_s is {list(value)}, but each number must be between 0 and {MAX_BACKOFF_S:g}"
        )


def _check_dead_letter(_: object, __: object, value: str) -> None:
    try:
        check_sendable(value, "native")
    except ProtocolError:
        raise ValueError(
            f"dead_letter is {value!r}, but must be a destination that takes a SEND"
        ) from None


@frozen
class DestinationPolicy:
    """The policy for the destinations of one pattern.

    Args:
      backoff_s: Waits in seconds before the first, second, … redelivery; the last one repeats,
        and none at all = at once.
      dead_letter: Where rejected and poisoned messages go; "" = ``/queue/DLQ.<name>``.

    Raises:
      ValueError: naming field, value and rule; ``read_policy`` makes an OptionError of it.
    """

    ttl_ms: int = option(0, "longest life of a message; 0 = as its headers say", minimum=0)
    max_messages: int = option(
        0, "messages kept in one destination; 0 = as many as memory and disk take", minimum=0
    )
    max_bytes: int = option(
        0, "memory of the messages of one destination; 0 = the budget of the process", minimum=0
    )
    overflow: str = option(
        REJECT,
        "what happens to a SEND when the destination is full",
        choices=(REJECT, DROP_OLDEST, DROP_NEWEST, DEAD_LETTER, BLOCK),
    )
    max_redeliveries: int = option(
        4, "failed deliveries after the first, before a message is dead", minimum=0
    )
    backoff_s: tuple[float, ...] = field(
        default=(0.0, 1.0, 2.0, 4.0), converter=_waits, validator=_check_backoff
    )
    dead_letter: str = field(default="", validator=_check_dead_letter)
    dead_letter_expired: bool = option(False, "expired messages are dead-lettered, not dropped")
    slow_consumer: str = option(
        DISCONNECT,
        "what happens to a topic subscriber whose outbox is full",
        choices=(DISCONNECT, DROP_OLDEST, DROP_NEWEST),
    )
    priority: bool = option(True, "the header priority decides who comes first")
    exclusive: bool = option(False, "one active consumer, even if none asks for that")
    ack_timeout_ms: int = option(
        0, "time to acknowledge before redelivery; 0 = no limit", minimum=0
    )
    dedup_window: int = option(
        10_000, "duplicate-detection ids remembered; 0 = no detection", minimum=0
    )
    persistent: str = option(
        HEADER, "which messages are stored before RECEIPT", choices=(HEADER, ALWAYS, NEVER)
    )
    stream: bool = option(False, "a topic's messages are kept for replay, as a stream")
    stream_max_bytes: int = option(
        256 * 1024 * 1024, "size of a topic's stream; 0 = no bound but its age", minimum=0
    )
    stream_max_age_ms: int = option(
        86_400_000, "age of a stream's oldest message; 0 = no bound but its size", minimum=0
    )
    retain: str = option(
        HEADER, "which messages of a topic become its last value", choices=(HEADER, ALWAYS, NEVER)
    )

    @property
    def drops_old(self) -> bool:
        """Return whether a full destination loses what stands first in it."""
        return self.overflow in (DROP_OLDEST, DEAD_LETTER)

    def delay_s(self, failures: int) -> float:
        """Return the delay before a message is redelivered.

        Args:
          failures: Deliveries that failed so far, at least 1.
        """
        if not self.backoff_s:
            return 0.0
        return self.backoff_s[min(failures, len(self.backoff_s)) - 1]

    def dead_letter_for(self, name: str) -> str:
        """Return where the dead messages of destination ``name`` go, or "" for nowhere."""
        if self.dead_letter:
            return "" if self.dead_letter == name else self.dead_letter
        if name == STOMPSERVER_DEAD_LETTERS or name.startswith(DEAD_LETTERS):
            return ""
        return DEAD_LETTERS + name.removeprefix(_QUEUE).lstrip("/#")


DEFAULT_POLICY = DestinationPolicy()


def read_policy(
    pattern: str, values: Mapping[str, object], base: DestinationPolicy = DEFAULT_POLICY
) -> DestinationPolicy:
    """Return the policy that an operator wrote for ``pattern``.

    Args:
      pattern: The pattern.
      values: Fields by name; what is missing is as in ``base``.
      base: The policy for fields that are not set.

    Raises:
      OptionError: an unknown field, or a value of the wrong type or range: it names pattern,
        field, value and rule.
    """
    known = attrs.fields_dict(DestinationPolicy)
    chosen: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise OptionError(
                f"policy {pattern!r}: unknown field {name!r}; there are {', '.join(known)}"
            )
        kind = type(known[name].default)
        # Not isinstance: True is an int to Python, and a typing error to an operator.
        if not _are_numbers(value) if kind is tuple else type(value) is not kind:
            raise OptionError(
                f"policy {pattern!r}: {name} is {value!r}, but must be {_WANTED[kind]}"
            )
        chosen[name] = value
    try:
        return attrs.evolve(base, **chosen)
    except ValueError as error:
        raise OptionError(f"policy {pattern!r}: {error}") from None


def _are_numbers(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(type(each) in (int, float) for each in value)


def _in_order(
    given: Iterable[tuple[str, DestinationPolicy]],
) -> tuple[tuple[str, DestinationPolicy], ...]:
    return tuple(given)


@frozen
class PolicyBook:
    """The policies of all patterns, in the operator's order.

    The first pattern that matches decides alone: nothing is merged, so that one line of the
    configuration tells all that holds for a destination. Patterns are those of SUBSCRIBE, except
    that ``*`` alone means queues too. A wildcard leaves out the dead-letter queues and the broker's
    own, unless it begins with their name: ``/queue/>`` shall not shorten the life of the dead.

    Args:
      policies: Pattern and policy; the first that matches counts.
      default: For all that no pattern matches.
      places: By pattern, where it is written, as ``" (policies.toml:12)"``.

    Raises:
      OptionError: a pattern that is none, or is there twice.
    """

    policies: tuple[tuple[str, DestinationPolicy], ...] = field(default=(), converter=_in_order)
    default: DestinationPolicy = DEFAULT_POLICY
    places: Mapping[str, str] = field(factory=dict, eq=False)
    _exact: dict[str, int] = field(init=False, factory=dict, repr=False, eq=False)
    _wild: WildcardTrie[int] = field(init=False, factory=WildcardTrie, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        seen: set[str] = set()
        for place, (text, _) in enumerate(self.policies):
            if not text or text in seen:
                rule = "is there twice" if text else "must not be empty"
                raise OptionError(f"policy {text!r}: pattern is {text!r}, but {rule}")
            seen.add(text)
            try:
                pattern = compile_pattern(text, "native", max_words=None)
            except ProtocolError as error:
                raise OptionError(f"policy {text!r}: {error}") from None
            if pattern is None:
                self._exact[text] = place
            else:
                self._wild.add(pattern, place)

    def where(self, name: str) -> str:
        """Which policy holds for a destination, for people."""
        place = self._place_of(name)
        if place is None:
            return "none names it, so the options hold"
        pattern = self.policies[place][0]
        return f"{pattern!r}{self.places.get(pattern, '')}"

    def names(self, name: str) -> bool:
        """Return whether a policy is for destination ``name`` alone."""
        return name in self._exact

    def policy_for(self, name: str) -> DestinationPolicy:
        """Return the policy of destination ``name``. Asked once, when the destination is made."""
        place = self._place_of(name)
        return self.default if place is None else self.policies[place][1]

    def _place_of(self, name: str) -> int | None:
        """Return the place of the policy that holds for ``name``, or None for the default."""
        must = _must_be_spelled_out(name)
        places = [
            place for place in self._wild.match(name) if self.policies[place][0].startswith(must)
        ]
        if name in self._exact:
            places.append(self._exact[name])
        return min(places, default=None)


def _must_be_spelled_out(name: str) -> str:
    """Return what a wildcard must begin with to match ``name``."""
    if name in (MONITOR, STOMPSERVER_DEAD_LETTERS):
        return name
    return DEAD_LETTERS.rstrip(".") if name.startswith(DEAD_LETTERS) else ""
