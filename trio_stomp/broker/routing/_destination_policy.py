"""Policies of destinations: limits, lifetimes, overflow, redelivery, persistence."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from attrs import field, frozen

from trio_stomp.base import OptionError, ProtocolError, option
from trio_stomp.broker.delivery import DISCONNECT, DROP_NEWEST, DROP_OLDEST
from trio_stomp.broker.names import (
    DEAD_LETTERS,
    MONITOR,
    STOMPSERVER_DEAD_LETTERS,
    Kind,
    WildcardTrie,
    check_sendable,
    classify,
    compile_pattern,
)

REJECT = "reject"
DEAD_LETTER = "dead-letter"
BLOCK = "block"

HEADER = "header"
ALWAYS = "always"
NEVER = "never"

MAX_BACKOFF_S = 86_400.0


_QUEUE = "/queue/"
_KEEP_DEAD = (Kind.QUEUE, Kind.WORK, Kind.TOPIC)
_COMPOSITE_OR_OWN = re.compile(r",|^/(temp|reply|remote-temp)-(queue|topic)/")
_WANTED = {int: "a whole number", bool: "true or false", str: "text", tuple: "a list of numbers"}


def _waits(given: Iterable[float]) -> tuple[float, ...]:
    return tuple(given)


def _check_backoff(_: object, __: object, value: tuple[float, ...]) -> None:
    # Comparisons with NaN are false, so this refuses it as well.
    if not all(0 <= delay <= MAX_BACKOFF_S for delay in value):
        raise ValueError(
            f"backoff_s is {list(value)}, but each number must be between 0 and {MAX_BACKOFF_S:g}"
        )


def _check_dead_letter(_: object, __: object, value: str) -> None:
    try:
        check_sendable(value, "native")
        is_good = classify(value) in _KEEP_DEAD and not _COMPOSITE_OR_OWN.search(value)
    except ProtocolError:
        is_good = False
    if value and not is_good:
        raise ValueError(
            f"dead_letter is {value!r}, but must be one queue, work queue or topic that exists for"
            " all clients"
        )


@frozen
class DestinationPolicy:
    """The policy for the destinations of one pattern.

    Args:
      backoff_s: Delays in seconds before the first, second, … redelivery. The last one repeats;
        empty = no delay.
      dead_letter: Destination of dead letters; "" = ``/queue/DLQ.<name>``.

    Raises:
      ValueError: A field is invalid. ``read_policy`` turns this into an OptionError.
    """

    ttl_ms: int = option(0, "maximum lifetime of a message; 0 = as its headers say", minimum=0)
    max_messages: int = option(
        0,
        "maximum number of messages in one destination; 0 = limited by memory and disk",
        minimum=0,
    )
    max_bytes: int = option(
        0, "maximum memory of the messages of one destination; 0 = the process's budget", minimum=0
    )
    overflow: str = option(
        REJECT,
        "policy for a SEND to a full destination",
        choices=(REJECT, DROP_OLDEST, DROP_NEWEST, DEAD_LETTER, BLOCK),
    )
    max_redeliveries: int = option(
        4, "redeliveries after which a failed message becomes a dead letter", minimum=0
    )
    backoff_s: tuple[float, ...] = field(
        default=(0.0, 1.0, 2.0, 4.0), converter=_waits, validator=_check_backoff
    )
    dead_letter: str = field(default="", validator=_check_dead_letter)
    dead_letter_expired: bool = option(
        False, "whether expired messages become dead letters instead of being dropped"
    )
    slow_consumer: str = option(
        DISCONNECT,
        "policy for a topic subscriber whose outbox or backlog is full",
        choices=(DISCONNECT, DROP_OLDEST, DROP_NEWEST),
    )
    priority: bool = option(True, "whether the header priority decides the order")
    exclusive: bool = option(False, "whether one consumer is active, even if none requests that")
    ack_timeout_ms: int = option(
        0, "time to acknowledge before redelivery; 0 = no limit", minimum=0
    )
    dedup_window: int = option(
        10_000, "number of ids remembered to detect duplicates; 0 = no detection", minimum=0
    )
    persistent: str = option(
        HEADER, "which messages are stored before RECEIPT", choices=(HEADER, ALWAYS, NEVER)
    )
    stream: bool = option(False, "whether a topic's messages are stored as a stream, for replay")
    stream_max_bytes: int = option(
        256 * 1024 * 1024, "maximum size of a topic's stream; 0 = limited by age only", minimum=0
    )
    stream_max_age_ms: int = option(
        86_400_000,
        "maximum age of messages in a topic's stream; 0 = limited by size only",
        minimum=0,
    )
    retain: str = option(
        HEADER, "which messages of a topic become its last value", choices=(HEADER, ALWAYS, NEVER)
    )

    @property
    def drops_old(self) -> bool:
        """Return whether a full destination drops or dead-letters its oldest messages."""
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
        """Return the dead-letter destination of destination ``name``, or "" if it has none."""
        if self.dead_letter:
            return "" if self.dead_letter == name else self.dead_letter
        if name == STOMPSERVER_DEAD_LETTERS or name.startswith(DEAD_LETTERS):
            return ""
        return DEAD_LETTERS + name.removeprefix(_QUEUE).lstrip("/#")


DEFAULT_POLICY = DestinationPolicy()


def read_policy(
    pattern: str, values: Mapping[str, object], base: DestinationPolicy = DEFAULT_POLICY
) -> DestinationPolicy:
    """Return a policy from configured values.

    Args:
      pattern: The pattern, for error messages.
      values: Fields by name.
      base: The policy that has the values of all other fields.

    Raises:
      OptionError: A field is unknown, or its value has the wrong type or range.
    """
    declared = attrs.fields_dict(DestinationPolicy)
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if name not in declared:
            raise OptionError(
                f"policy {pattern!r}: unknown field {name!r}; there are {', '.join(declared)}"
            )
        kind = type(declared[name].default)
        # Not isinstance: True is an int in Python, but a mistake in a configuration.
        if not _are_numbers(value) if kind is tuple else type(value) is not kind:
            raise OptionError(
                f"policy {pattern!r}: {name} is {value!r}, but must be {_WANTED[kind]}"
            )
        fields[name] = value
    try:
        return attrs.evolve(base, **fields)
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
    """The policies of all patterns, in the order of the configuration.

    A destination has the policy of the first pattern that matches. Policies are not merged.
    Patterns are those of SUBSCRIBE, except that ``*`` alone includes queues. Wildcards match
    dead-letter queues and ``/queue/monitor`` only if they begin with their name, so that
    ``/queue/>`` does not shorten the TTL of dead letters.

    Args:
      policies: Pairs of pattern and policy.
      default: The policy of destinations that no pattern matches.
      locations: File and line of each pattern, as ``" (policies.toml:12)"``.

    Raises:
      OptionError: A pattern is invalid or occurs twice.
    """

    policies: tuple[tuple[str, DestinationPolicy], ...] = field(default=(), converter=_in_order)
    default: DestinationPolicy = DEFAULT_POLICY
    locations: Mapping[str, str] = field(factory=dict, eq=False)
    _exact: dict[str, int] = field(init=False, factory=dict, repr=False, eq=False)
    _wild: WildcardTrie[int] = field(init=False, factory=WildcardTrie, repr=False, eq=False)
    _dead: set[str] = field(init=False, factory=set, repr=False, eq=False)
    """The dead-letter destinations that policies name."""

    def __attrs_post_init__(self) -> None:
        seen: set[str] = set()
        for index, (text, policy) in enumerate(self.policies):
            if policy.dead_letter:
                self._dead.add(policy.dead_letter)
            if not text or text in seen:
                rule = "is there twice" if text else "must not be empty"
                raise OptionError(f"policy {text!r}: pattern is {text!r}, but {rule}")
            seen.add(text)
            try:
                pattern = compile_pattern(text, "native", max_words=None)
            except ProtocolError as error:
                raise OptionError(f"policy {text!r}: {error}") from None
            if pattern is None:
                self._exact[text] = index
            else:
                self._wild.add(pattern, index)

    def where(self, name: str) -> str:
        """Describe for operators which policy applies to destination ``name``."""
        index = self._index_of(name)
        if index is None:
            return "none names it, so the options hold"
        pattern = self.policies[index][0]
        return f"{pattern!r}{self.locations.get(pattern, '')}"

    def names(self, name: str) -> bool:
        """Return whether the pattern of a policy is exactly ``name``."""
        return name in self._exact

    def takes_dead_letters(self, name: str) -> bool:
        """Return whether ``name`` is a dead-letter destination."""
        return name.startswith(DEAD_LETTERS) or name in self._dead

    def policy_for(self, name: str) -> DestinationPolicy:
        """Return the policy of destination ``name``."""
        index = self._index_of(name)
        return self.default if index is None else self.policies[index][1]

    def _index_of(self, name: str) -> int | None:
        """Return the index of the policy that applies to ``name``, or None for the default."""
        beginning = ""  # of the wildcards that may match
        if name in (MONITOR, STOMPSERVER_DEAD_LETTERS):
            beginning = name
        elif name.startswith(DEAD_LETTERS):
            beginning = DEAD_LETTERS.rstrip(".")
        indexes = [
            index
            for table in self._wild.tables(name)
            for index in table
            if self.policies[index][0].startswith(beginning)
        ]
        if name in self._exact:
            indexes.append(self._exact[name])
        return min(indexes, default=None)
