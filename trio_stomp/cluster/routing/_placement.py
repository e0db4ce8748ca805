"""The partition of a destination, from its name. Every node must come to the same result.

A name is placed by a hash of its subject: the name without the prefixes of queues, dead letters and
streams, so that a queue and its dead letters, or a topic and its stream, are in one partition.
"""

import re
from collections.abc import Sequence
from zlib import crc32

from attrs import define, evolve, field

from trio_stomp.base import OptionError, ProtocolError
from trio_stomp.broker import Broker, PolicyBook, Setup, assemble
from trio_stomp.broker.names import (
    DIAG_STREAM,
    EXPLAIN,
    LEFT,
    MONITOR,
    PRIVATE_QUEUE,
    PRIVATE_TOPIC,
    RESERVED,
    STREAM,
    TRACE,
    Pattern,
    compile_pattern,
    matches,
)
from trio_stomp.broker.sending import Later, SendLater
from trio_stomp.cluster.routing._forwards import Forwards
from trio_stomp.frames import Headers

MAX_PARTITIONS = 64
"""Maximum number of partitions. Each costs two streams and a broker in each node."""
_DEAD = "/queue/DLQ."
_QUEUE = "/queue/"
_MARK = re.compile(r"(\d{1,3})_")
_TEMPORARY = ("/temp-queue/", "/temp-topic/")
REQUESTS = frozenset({EXPLAIN, LEFT, TRACE})
"""Requests to the broker, which each partition answers for its own content."""
_DIAG = "DIAG"
CHOICE = "x-partition"
"""The header that chooses the partition whose broker answers a request or sends figures."""


def mark(partition: int) -> str:
    """Return the prefix of ids and names that the broker of a partition makes."""
    return f"{partition}_"


def make_core(placement: "Placement", partition: int, setup: Setup) -> Broker:
    """Return the core of a partition's broker, whose ids and names begin with the partition.

    Args:
      placement: Which partition has a destination.
      partition: The partition.
      setup: What its core is made of.
    """

    def later(own: SendLater) -> Later:
        return Forwards(own, lambda: core, lambda name: placement.lacks(partition, name))

    def counts(names: Sequence[str], headers: Headers) -> bool:
        grammar, book = core.dialect.wildcards, core.queues.policies
        return placement.holders(names, grammar, book, headers)[0] == partition

    core = assemble(evolve(setup, mark=mark(partition), later=later, counts=counts))
    return core


def _subject(name: str) -> str:
    for prefix in (_DEAD, _QUEUE, STREAM):
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    return name.lstrip("/#")


@define(eq=False)
class Placement:
    """Places destinations in partitions.

    Args:
      partitions: The number of partitions.
      colocate: Groups of patterns, as in the option ``cluster_colocate``. Destinations that match a
        group are in one partition.

    Raises:
      OptionError: A pattern is invalid.
    """

    partitions: int
    colocate: str = ""
    _groups: Sequence[tuple[int, Sequence[Pattern | str]]] = field(init=False)
    """Partitions and patterns of each group."""

    def __attrs_post_init__(self) -> None:
        groups = (
            [each.strip() for each in group.split(",") if each.strip()]
            for group in self.colocate.split(";")
        )
        self._groups = [
            (self._hash(_subject(group[0])), [_compiled(each) for each in group])
            for group in groups
            if group
        ]

    @property
    def all(self) -> tuple[int, ...]:
        """Return all partitions."""
        return tuple(range(self.partitions))

    def of(self, name: str) -> int:
        """Return the partition to which a SEND to a destination goes.

        Args:
          name: The native name, without wildcards.
        """
        for prefix in (PRIVATE_QUEUE, PRIVATE_TOPIC):
            if name.startswith(prefix):
                # The name has the mark of the partition whose broker made it.
                return self.marked(name[len(prefix) :])
        subject = _subject(name)
        for partition, patterns in self._groups:
            for pattern in patterns:
                if pattern == subject or (
                    isinstance(pattern, Pattern) and matches(pattern, subject)
                ):
                    return partition
        return self._hash(subject)

    def lacks(self, partition: int, name: str) -> bool:
        """Return whether a SEND to a destination is for another partition than this one.

        Temporary destinations of the sender itself, and requests to the broker, are for any.
        """
        return not _is_anywhere(name) and self.of(name) != partition

    def goals(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the partitions to which SENDs to destinations go, except those for any."""
        return tuple({self.of(name) for name in names if not _is_anywhere(name)})

    def targets(self, name: str, headers: Headers) -> tuple[int, ...]:
        """Return the partitions to which a SEND to a destination goes.

        Args:
          name: The native name.
          headers: The headers of the SEND.

        Raises:
          ProtocolError: ``x-partition`` names no partition.
        """
        if name in REQUESTS:
            return self._chosen(headers) or self.all
        return (self.of(name),)

    def sources(self, name: str, grammar: str, headers: Headers = ()) -> tuple[int, ...]:
        """Return the partitions to which a SUBSCRIBE to a destination goes.

        Args:
          name: The native name.
          grammar: The wildcard grammar.
          headers: The headers of the SUBSCRIBE.

        Raises:
          ProtocolError: A wildcard is misplaced, or ``x-partition`` names no partition.
        """
        if name in RESERVED or name in (MONITOR, DIAG_STREAM):  # figures of one broker
            return self._chosen(headers) or (0,)
        if name.startswith((_DIAG, *_TEMPORARY)):
            return self._chosen(headers) or self.all
        if compile_pattern(name, grammar) is not None:
            return self.all
        return (self.of(name),)

    def holders(
        self, names: Sequence[str], grammar: str, book: PolicyBook, headers: Headers = ()
    ) -> tuple[int, ...]:
        """Return the partitions that have a subscription. The first one counts it.

        Args:
          names: The native names of its destinations.
          grammar: The wildcard grammar.
          book: The policies: any partition may have dead letters of others.
          headers: The headers of the SUBSCRIBE.

        Raises:
          ProtocolError: As ``sources``.
        """
        found = set[int]()
        for name in names:
            is_shared = any(policy.dead_letter == name for _, policy in book.policies)
            found.update(self.all if is_shared else self.sources(name, grammar, headers))
        return tuple(sorted(found))

    def _chosen(self, headers: Headers) -> tuple[int, ...]:
        """Return the partition that the header ``x-partition`` names, or none without it."""
        text = next((text for name, text in headers if name == CHOICE), None)
        if text is None:
            return ()
        if not text.isdecimal() or int(text) >= self.partitions:
            raise ProtocolError(
                "invalid-header-value",
                f"{CHOICE}:{text[:20]} is no partition: this cluster has those from 0 to"
                f" {self.partitions - 1}",
            )
        return (int(text),)

    def marked(self, text: str) -> int:
        """Return the partition whose mark begins a name or id, or 0 if there is none."""
        found = _MARK.match(text)
        partition = int(found[1]) if found is not None else 0
        return partition if partition < self.partitions else 0

    def is_marked(self, text: str) -> bool:
        """Return whether a name or id begins with the mark of a partition."""
        return text.startswith(mark(self.marked(text)))

    def _hash(self, subject: str) -> int:
        return crc32(subject.encode()) % self.partitions


def _is_anywhere(name: str) -> bool:
    """Return whether any partition takes SENDs to a destination."""
    return name.startswith((_DIAG, *_TEMPORARY))


def _compiled(text: str) -> Pattern | str:
    subject = _subject(text)
    try:
        return compile_pattern(subject, "native", max_words=None) or subject
    except ProtocolError as error:
        raise OptionError(f"cluster_colocate: {error}") from None
