"""Durable messages of queues: on their way to the store, in it only, or read back from it."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import (
    UNBOUNDED,
    BrokenInvariant,
    Identity,
    MemoryBudget,
    Quota,
    RemoteError,
    Stake,
)
from trio_stomp.broker.delivery import ASK, NEVER, DayEnd, Publication, WallTime
from trio_stomp.broker.durability import Log, StoreRead
from trio_stomp.broker.headers import PRIORITY_DEFAULT, decode_head, encode_head, owner_line
from trio_stomp.broker.queues._message import Message, force, refund
from trio_stomp.broker.queues._queue import LOW_COUNT, Queue
from trio_stomp.broker.queues._readers import PAGE_BYTES, PageRead, Readers
from trio_stomp.broker.queues._windows import Windows
from trio_stomp.store import Put, charged_to, stored_cost

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Client, Destination
    from trio_stomp.broker.headers import SendOptions
    from trio_stomp.frames import Head
    from trio_stomp.store import Page, PlaceState, Store, Stored

Shown = Callable[[list[Message], int, float], None]
PAGE_SHARE = 0.5
"""If this share of the memory for waiting messages, or of the sender's quota, is in use, long
queues leave messages in the store."""


@define(eq=False, repr=False)
class ArrivalEffect:
    """The effect of storing messages of a queue: they become visible.

    Those of a temporary queue are not stored themselves, but are part of an atomic group that is.
    """

    storage: "Storage"
    queue: Queue
    origin: Publication
    bodies: list[bytes]
    level: int
    first: int
    size: int
    stake: Stake | None
    """Their charge in the store; None = they are not stored."""
    client: "Client | None"

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""
        self.storage.arrive(self, now)

    def withdraw(self, _now: float) -> None:
        """Implement ``Effect.withdraw``."""
        self.end()
        self.give_up()

    def end(self) -> None:
        """Record that they are no longer on their way."""
        self.queue.unexpect(len(self.bodies), self.size)
        is_spilling = not self.origin.is_stored
        self.queue.spilling -= is_spilling
        self.storage.spilling -= is_spilling

    @property
    def stored(self) -> int:
        """Return their charge in the store."""
        return 0 if self.stake is None else self.size + self.stake.each * len(self.bodies)

    def give_up(self) -> None:
        """Release all of their charges."""
        self.refund()
        self.storage.memory.give_stored(self.stored, self.origin.quota)

    def refund(self) -> None:
        """Release their charge in memory."""
        origin, count = self.origin, len(self.bodies)
        refund(self.storage.memory, origin.head, count, self.size, origin.quota)


@define(eq=False, repr=False)
class Storage:
    """Writes and reads messages of queues.

    Args:
      options_of: Returns the options in the headers of a message that was read back.
      make: Makes messages of stored ones (``QueueBook.stored_messages``).
      insert: Puts messages into a queue that are not stored (``QueueBook.insert``).
    """

    log: Log
    memory: MemoryBudget
    options_of: "Callable[[Head], SendOptions | None]"
    make: Callable[[Publication, list[bytes], int, int], list[Message]]
    insert: Callable[..., None]
    wall: WallTime
    payer_of: Callable[[bytes], Quota | None]
    """Returns the quota that a line of a stored header block names."""
    readers: Readers
    """Chooses the quotas for pages."""
    lost: int = 0
    """Messages that could not be read back."""
    spilling: int = 0
    """Runs that are on their way to the store only to save memory or to keep the order, of all
    queues. Nobody's next frames wait for these."""
    windows: Windows = field(init=False)
    """The messages that consumers examine in the store."""
    _reads: dict[Queue, list[int]] = field(factory=dict)
    """The commit numbers known at the beginning of each use of a page, in order."""
    _heads: "dict[bytes, Head]" = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.windows = Windows(self)

    # To the store.

    def gets(self, queue: Queue, origin: Publication, level: int) -> bool:
        """Return whether messages go to the store, on this level of this queue.

        They do if they are durable, or if earlier ones are paged or on their way to the store. A
        client's frames wait until its durable messages are stored; others may overtake those.
        """
        earlier = queue.spilling if origin.sender is not None else queue.arriving
        is_stored = origin.is_stored or earlier or queue.waiting.is_paging(level)
        return bool(is_stored and queue.place)

    def lacks_room(self, queue: Queue, origin: Publication, count: int, size: int) -> bool:
        """Return whether messages go to the store and exceed their user's share of it."""
        room = self.memory.stored_room_for(origin.quota)
        if room >= UNBOUNDED:
            return False
        level = queue.level_of(origin.options.priority if origin.options else PRIORITY_DEFAULT)
        return self.gets(queue, origin, level) and self.cost(origin, count, size) > room

    def cost(self, origin: Publication, count: int, size: int) -> int:
        """Return the charge of messages in the store."""
        return stored_cost(len(_line(origin.quota)) + len(head_lines(origin.head)), count, size)

    def accept(
        self, queue: Queue, origin: Publication, bodies: list[bytes], level: int, size: int
    ) -> None:
        """Write charged messages to the log. They enter the queue when they are stored.

        Those of a temporary queue are not written, but enter when their atomic group is stored.
        """
        sender = origin.sender if origin.is_stored else None
        quota = origin.quota
        head = _line(quota) + head_lines(origin.head)
        stake = Stake(quota, stored_cost(len(head), 1, 0)) if queue.place else None
        arrival = ArrivalEffect(
            self,
            queue=queue,
            origin=origin,
            bodies=bodies,
            level=level,
            first=0,
            size=size,
            stake=stake,
            client=sender,
        )
        if stake is not None:
            arrival.first = self._put(
                queue.place, origin, bodies, level, head=head, is_durable=origin.is_stored
            )
        self.log.when_safe(arrival)
        queue.expect(len(bodies), size)
        self.memory.force_stored(arrival.stored, quota)
        queue.spilling += not origin.is_stored
        self.spilling += not origin.is_stored

    def arrive(self, arrival: ArrivalEffect, now: float) -> None:
        """Put stored messages into their queue, or leave them in the store if memory is short."""
        queue, level, bodies = arrival.queue, arrival.level, arrival.bodies
        arrival.end()
        stake = arrival.stake
        if queue.on_orphan is not None:
            arrival.give_up()
            queue.destination.dropped += len(bodies) if stake is None else 0
            return
        if stake is None:
            first = self.log.take_numbers(len(bodies))
            self.insert(queue, arrival.origin, bodies, level, size=arrival.size, first=first)
        elif queue.waiting.is_paging(level) or self._is_deep(queue, arrival.origin):
            arrival.refund()
            queue.put_paged(level, arrival.first, arrival.origin, len(bodies), arrival.size)
            self.charge_paged(queue, level, stake.quota, arrival.stored)
        else:
            origin = arrival.origin.without_bodies()
            origin.sender, origin.stake = None, stake  # this copy is not shared yet
            messages = self.make(origin, bodies, level, arrival.first)
            queue.put_all(level, messages, arrival.size)
        queue.host.shorten(queue, now, kept=1)

    def charge_paged(self, queue: Queue, level: int, quota: Quota | None, cost: int) -> None:
        """Record the quota and charge of paged messages."""
        paged = queue.waiting.paging(level)
        assert paged is not None
        paged.charge(quota, cost)

    def restore(self, queue: Queue, level: int, state: "PlaceState", last: int) -> None:
        """Add messages found in the store up to id ``last``, charged to the quotas named there."""
        queue.size += state.bytes
        paged = queue.waiting.restore(level, state.count, state.bytes, last)
        if state.expires_ms:
            paged.expires_at = self.wall.stored_s(state.expires_ms, state.first)
            paged.day_s = state.expires_ms / 1000
        unclaimed = stored_cost(0, state.count, state.bytes) - sum(state.charged.values())
        for line, cost in ((b"", max(0, unclaimed)), *state.charged.items()):
            quota = self.payer_of(line)
            self.memory.force_stored(cost, quota)
            self.charge_paged(queue, level, quota, cost)

    def put_aside(
        self, place: str, origin: Publication, bodies: list[bytes], owner: Identity | None
    ) -> int:
        """Write messages that belong to no queue, and return the id of the first.

        Args:
          place: The key in the store.
          origin: The publication.
          bodies: The bodies of the messages.
          owner: The user they belong to; None = unknown.
        """
        line = b"" if owner is None else owner_line(owner)
        head = line + head_lines(origin.head)
        return self._put(place, origin, bodies, PRIORITY_DEFAULT, head=head, is_durable=True)

    def _put(
        self,
        place: str,
        origin: Publication,
        bodies: list[bytes],
        level: int,
        *,
        head: bytes,
        is_durable: bool,
    ) -> int:
        put = Put(
            place,
            first=self.log.take_numbers(len(bodies)),
            head=head,
            bodies=bodies,
            level=level,
            received_ms=self.wall.ms(origin.received_at),
            expires_ms=self.wall.expiry_ms(origin.ends_at),
            transient=not is_durable,
        )
        # Without a sender, nobody can be refused.
        return self.log.put(put, must_retry=origin.sender is None or not is_durable)

    def _is_deep(self, queue: Queue, origin: Publication) -> bool:
        few, size = queue.waiting.count < LOW_COUNT, queue.size
        if few and size >= PAGE_BYTES:
            size -= sum(paged.size for _, paged in queue.waiting.paged_levels())
        if few and size < PAGE_BYTES:
            return self.memory.kept_room < 0  # a dead letter is not refused
        return self.memory.has_much(origin.quota, PAGE_SHARE)

    # From the store.

    def page_in(self, queue: Queue, level: int) -> bool:
        """Request the next page of a queue's level, if a consumer's quota has room.

        Returns:
          Whether it is being read.
        """
        paged = queue.waiting.paging(level)
        assert paged is not None
        if paged.is_loading:
            return True
        if self.memory.has_much(None, PAGE_SHARE):
            if queue.sought and queue.waiting.count:
                return False  # what was loaded is not wanted, and would fill the memory
            if not queue.waiting.has_few(level, 1):
                return False  # what is needed later leaves room for the first ones of other queues
        request = PageRead(queue, level, paged.last)
        if not self.readers.let_in(request, paged):
            return False
        paged.is_loading = True
        self.read(queue, level, paged.after, partial(self._loaded, request))
        return True

    def look(self, queue: Queue, level: int, after: int, last: int, shown: Shown) -> None:
        """Request a page of a queue's level for browsing. It changes nothing.

        Args:
          queue: The queue to browse.
          level: The priority to browse.
          after: The id after which to begin.
          last: The id of the last message to show.
          shown: Called with the messages, the last id that they cover, and the time.
        """

        def take(page: "Page | None", now: float) -> None:
            if page is None:
                self.look(queue, level, after, last, shown)
                return
            self.note_lost(queue, level, page.lost)
            found: list[Message] = []
            for run in page.runs:
                origin = self.origin(queue, run)
                if origin is not None:
                    found += self.made(queue, origin, run, level, last)
            shown(found, last if page.is_last else page.next, now)

        self.read(queue, level, after, take)

    def read(
        self,
        queue: Queue,
        level: int,
        after: int,
        take: "Callable[[Page | None, float], None]",
        most: int = PAGE_BYTES,
    ) -> None:
        """Request a page of a queue's level, of about ``most`` bytes, after an id."""
        read, known = partial(_read_page, queue.place, level, after), self.begin(queue)

        def took(page: "Page | None", now: float) -> None:
            self.end(queue, known)
            take(page, now)

        self.log.reads.append(StoreRead(read, most, took))

    def begin(self, queue: Queue) -> int:
        """Begin to use a page of a queue that will be read. Return what ``end`` needs.

        Until then it is known which of its messages were taken, also if their end is stored.
        """
        known, reads = self.log.committed, self._reads.setdefault(queue, [])
        reads.append(known)
        if queue.taken is not None:
            queue.taken.forget(reads[0])
        return known

    def end(self, queue: Queue, known: int) -> None:
        """End the use of a page: all of its messages are made."""
        reads = self._reads[queue]
        reads.remove(known)
        if not reads:
            del self._reads[queue]

    def _loaded(self, request: PageRead, page: "Page | None", now: float) -> None:
        queue, level = request.queue, request.level
        self.readers.end(request)
        paged = queue.waiting.paging(level)
        if paged is None or queue.on_orphan is not None:
            return
        paged.is_loading = False
        if page is None:
            queue.host.mark(queue)
            return
        self.note_lost(queue, level, page.lost)
        messages: list[Message] = []
        for run in page.runs:
            messages += self.messages(request, run, paged.last)
        missing = paged.count - len(messages)
        paged.after = page.next
        # More may have been paged out since the request.
        is_last = page.is_last and request.last == paged.last
        is_last |= page.next >= paged.last or missing <= 0
        for message in messages:
            origin, size = message.publication, len(message.body)
            force(self.memory, origin.head, 1, size, origin.quota)
            if origin.stake is not None:  # pragma: no branch (set by _origin)
                paged.uncharge(self.memory, origin.stake.quota, size + origin.stake.each)
        queue.load(level, messages, is_last)
        queue.host.shorten(queue, now)
        if is_last and not 0 <= missing <= paged.lost:
            state = f"{missing} counted ones are not in it, of which {paged.lost} may be damaged"
            # The queue has what there is, and goes on: it is not named alone, which would pause it.
            raise BrokenInvariant("queue-counts", state, f"the stored messages of {queue.name}")

    def note_lost(self, queue: Queue, level: int, count: int) -> None:
        """Note messages of a queue's level that are damaged in the store."""
        self.lost += count
        paged = queue.waiting.paging(level)
        if paged is not None:
            paged.lost += count

    def messages(self, request: PageRead, run: "Stored", last: int) -> list[Message]:
        """Return the messages of a run that was read back, up to id ``last``.

        A run with an unreadable header block is counted as lost.
        """
        level, origin = request.level, self.origin(request.queue, run)
        if origin is None:
            self.note_lost(request.queue, level, len(run.ids))
            return []
        origin.quota = request.reader  # this copy is not shared yet
        found = self.made(request.queue, origin, run, level, last)
        for message in found:
            self.log.deliveries.pop(message.stored, None)
        return found

    def made(
        self, queue: Queue, origin: Publication, run: "Stored", level: int, last: int
    ) -> list[Message]:
        """Return the messages of a run up to id ``last``, without those that were taken."""
        log, taken = self.log, () if queue.taken is None else queue.taken.ids
        found: list[Message] = []
        for id, body in zip(run.ids, run.bodies, strict=True):
            if id <= last and id not in taken:
                deliveries = log.deliveries.get(id, run.deliveries)
                deliveries = max(deliveries, id < log.doubtful_below)
                message = Message(id, origin, body, level, stored=id, deliveries=deliveries)
                message.failures = log.failed.counts.get(id, 0)
                found.append(message)
        return found

    def origin(self, queue: Queue, run: "Stored") -> Publication | None:
        """Return the publication of a stored run, or None if its header block is unreadable."""
        line = charged_to(run.head)
        try:
            head = self._head(run.head[len(line) :])
        except RemoteError:
            return None
        origin = self.origin_of(queue.destination, run, head)
        origin.stake = Stake(self.payer_of(line), stored_cost(len(run.head), 1, 0))
        return origin

    def origin_of(self, destination: "Destination", run: "Stored", head: "Head") -> Publication:
        """Return the publication of a stored run, at a current ``Destination``."""
        wall, first, options = self.wall, run.ids[0], self._options(head)
        received_at = wall.stored_s(run.received_ms, first)
        origin = Publication(destination, head, [], received_at, NEVER, options=options)
        if options is not None and 0 < run.expires_ms == options.expires_ms:
            origin.end = DayEnd(run.expires_ms, NEVER, wall)
            origin.expires_at = ASK
        elif run.expires_ms:
            origin.expires_at = wall.stored_s(run.expires_ms, first)
        return origin

    def _options(self, head: "Head") -> "SendOptions | None":
        try:
            return self.options_of(head)
        except RemoteError:
            # The message was sent in another dialect. Deliver it all the same.
            return None

    def _head(self, lines: bytes) -> "Head":
        """Return the header block of stored lines. Equal lines share one object while cached."""
        head = self._heads.get(lines)
        if head is None:
            head = decode_head(lines)
            if len(lines) > MAX_CACHED_BYTES:
                return head
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[lines] = head
        return head


MAX_HEADS = 256
"""Limit of cached header blocks of messages read back."""
MAX_CACHED_BYTES = 1024
"""The longest header block cached, here and in its stored form on ``Head``."""


def _line(quota: Quota | None) -> bytes:
    return b"" if quota is None else quota.line


def head_lines(head: "Head") -> bytes:
    """Return a header block in its stored form, cached on it unless it is long."""
    if head.stored is not None:
        return head.stored
    lines = encode_head(head)
    if len(lines) <= MAX_CACHED_BYTES:
        head.stored = lines
    return lines


def _read_page(place: str, level: int, after: int, store: "Store", max_bytes: int) -> "Page":
    return store.read(place, level, after, max_bytes)
