"""Lists over all partitions or nodes of a cluster, in one order.

Each broker has its part of a list in the same order, so the parts are merged: of each, at most a
thousand records are held at once.
"""

import heapq
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, urlencode

from attrs import define, evolve, field, frozen

from trio_stomp.base import Identity
from trio_stomp.broker import Action
from trio_stomp.cluster.routing import mark
from trio_stomp.server import Send
from trio_stomp.startup.pages._exchange import (
    Absent,
    Answer,
    Hold,
    Place,
    as_get,
    ask,
    with_query,
)
from trio_stomp.startup.pages._peers import NODE, Peer
from trio_stomp.transport import HttpError, HttpRequest, encode_response
from trio_stomp.web import LIST_BYTES, MORE, Number
from trio_stomp.web.management.requests import COPIES, LIMIT, OFFSET

HEADERS = (("Content-Type", "application/json"), ("Cache-Control", "no-store"))

Record = dict[str, Any]
Key = Callable[[Record], Any]


def _none(_: Record) -> int:
    """Return the key of lists whose order no field has: one part comes after the other."""
    return 0


def _most(*names: str) -> Key:
    """Return the key of an order by the sum of some fields, greatest first."""
    return lambda record: -sum([record[name] or 0 for name in names])


def _by(name: str) -> Key:
    return lambda record: record[name]


@frozen
class Kind:
    """A list of the management interface.

    Args:
      title: The name of the list in the answer.
      orders: The keys of its orders by their names; another order is that of each part, one part
        after the other.
      label: The field that each record gets, with the partition or node that it is of.
      is_marked: Whether each partition counts their ids, so that these get its mark.
      added: The figures of a record to which those of its copies in other partitions are added.
    """

    title: str
    orders: Mapping[str, Key] = MappingProxyType({})
    label: str = "partition"
    added: Sequence[str] = ()
    is_marked: bool = False


_OLDEST = _by("connected_at")
_NAME = {"name": _by("destination")}
QUEUES = {
    "held": _most("input_depth", "ack_depth", "stale_depth"),
    "depth": _most("input_depth"),
    "unacked": _most("ack_depth"),
    "bytes": _most("input_bytes"),
    "consumers": _most("consumers"),
    "redelivered": _most("redelivered_total"),
    **_NAME,
}
DESTINATIONS = {
    "enqueued": _most("enqueued_total"),
    "delivered": _most("delivered_total"),
    "dropped": _most("dropped_total"),
    "bytes_in": _most("bytes_in_total"),
    "bytes_out": _most("bytes_out_total"),
    **_NAME,
}
_CONNECTIONS = {
    "start": _OLDEST,
    "subscriptions": _most("subscriptions"),
    "pending_bytes": _most("pending_bytes"),
    "bytes_in": _most("bytes_in_total"),
    "bytes_out": _most("bytes_out_total"),
    "frames_in": _most("frames_in_total"),
    "frames_out": _most("frames_out_total"),
    "idle": _most("last_in_age_s"),
    "last": _by("last_in_age_s"),
}
CONNECTIONS = {
    **_CONNECTIONS,
    "cid": _OLDEST,
    "subs": _CONNECTIONS["subscriptions"],
    "pending": _CONNECTIONS["pending_bytes"],
    "bytes_from": _CONNECTIONS["bytes_in"],
    "bytes_to": _CONNECTIONS["bytes_out"],
    "msgs_from": _CONNECTIONS["frames_in"],
    "msgs_to": _CONNECTIONS["frames_out"],
}
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "queues": Kind("queues", QUEUES),
        "destinations": Kind("destinations", DESTINATIONS),
        "streams": Kind("streams", {"name": _by("stream")}),
        "subscriptions": Kind("subscriptions", added=("waiting", "unacked")),
        "durables": Kind("durables", added=("waiting", "unacked")),
        "schedules": Kind("schedules", is_marked=True),
        "last-values": Kind("last_values", _NAME),
        "connections": Kind("connections", CONNECTIONS, NODE),
    }
)
"""The lists that are merged, by the names of their requests."""
_SAME = ("session_id", "subscription_id", "name", "client_id", "owner", "destination")
"""The fields by which a subscription and its copies in other partitions are recognized."""
_SUMS = ("total", "wildcards", "destinations")
"""Numbers beside a list that are added."""


@define(eq=False, repr=False)
class Part:
    """The part of a list that one broker has.

    Args:
      place: The broker.
      label: What its records are labelled with.
      hold: Charges its last answer.
      page: Records that are requested at once.
    """

    kind: Kind
    place: Place
    label: object
    request: HttpRequest
    identity: Identity
    hold: Hold
    page: int
    _held_bytes: int = field(default=0, init=False)

    async def head(self, pairs: Sequence[tuple[str, str]]) -> Record | None:
        """Return the first records, with the fields beside them; None = the node is lost.

        Raises:
          HttpError: The broker does not answer.
          Refused: It refuses.
        """
        try:
            return await self._ask(pairs, 0)
        except Absent:
            if isinstance(self.place, Peer):  # a node that was lost has no connections
                return None
            raise

    async def records(
        self, pairs: Sequence[tuple[str, str]], first: Record
    ) -> AsyncGenerator[Record, None]:
        """Yield all records, given the first answer. Raises: as ``head``."""
        offset, found = 0, first
        while True:
            listed: list[Record] = found[self.kind.title]
            for record in listed:
                yield record
            offset += len(listed)
            if not listed or offset >= found["total"]:
                return
            found = await self._ask(pairs, offset)

    async def _ask(self, pairs: Sequence[tuple[str, str]], offset: int) -> Record:
        query = urlencode([*pairs, ("limit", str(self.page)), ("offset", str(offset))])
        request = as_get(with_query(self.request, query))
        self.hold(-self._held_bytes)  # its records have been merged
        self._held_bytes = 0
        answer = await ask(self.place, request, self.identity, self.hold)
        if answer is None:
            raise Absent(self.place)
        self._held_bytes = len(answer.data)
        if answer.status != 200:
            raise Refused(answer)
        return answer.record()


class Refused(Exception):
    """A broker refuses a request, and its answer is that of the whole.

    Attributes:
      answer: The answer.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@frozen
class MergedList:
    """A request for a list over all partitions or nodes. Implements ``WebOperation``.

    Args:
      kind: The list.
      places: The brokers, each with its label.
      request: The request.
    """

    kind: Kind
    places: Sequence[tuple[Place, object]]
    request: HttpRequest
    max_body_bytes: int = 0
    rights: Sequence[tuple[Action, str]] = ()
    """Each broker checks them for the user."""

    async def run(self, identity: Identity, send: Send, _body: bytes) -> None:
        """Implement ``WebOperation.run``."""
        try:
            text = json.dumps(await self.merged(identity, send.hold)) + "\n"
        except Refused as refused:
            await send(refused.answer.data)
            return
        is_head = self.request.method == "HEAD"
        await send(encode_response(200, HEADERS, text.encode(), head_only=is_head))

    async def merged(self, identity: Identity, hold: Hold) -> Record:
        """Return the list for a user.

        Raises:
          HttpError: A partition has no owner, or a parameter is wrong.
          Refused: A broker refuses.
        """
        pairs = parse_qsl(self.request.target.partition("?")[2], keep_blank_values=True)
        given = dict(pairs)
        offset, limit = _number(given, OFFSET), _number(given, LIMIT)
        pairs = [pair for pair in pairs if pair[0] not in (OFFSET.name, LIMIT.name)]
        page = min(LIMIT.most, offset + limit)
        parts = [
            Part(self.kind, place, label, self.request, identity, hold=hold, page=page)
            for place, label in self.places
        ]
        return await self._merged(parts, pairs, offset, limit)

    async def _merged(
        self, parts: Sequence[Part], pairs: Sequence[tuple[str, str]], offset: int, limit: int
    ) -> Record:
        heads = [(each, await each.head(pairs)) for each in parts]
        parts = [each for each, first in heads if first is not None]
        firsts = [first for _, first in heads if first is not None]
        key = self.kind.orders.get(str(firsts[0].get("sort")), _none)
        rest = [each.records(pairs, first) for each, first in zip(parts, firsts, strict=True)]
        heap: list[tuple[Any, int, Record]] = []
        for number, records in enumerate(rest):
            async for record in records:
                heap.append((key(record), number, record))
                break
        heapq.heapify(heap)
        found: list[Record] = []
        skipped, left = 0, LIST_BYTES
        while heap and len(found) < limit:
            _, number, record = heap[0]
            if skipped < offset:
                skipped += 1
            else:
                found.append({**record, self.kind.label: parts[number].label})
                if self.kind.is_marked:
                    found[-1]["id"] = f"{mark(number)}{record['id']}"
                left -= len(json.dumps(found[-1])) + 2
                if left < 0 and len(found) > 1:
                    found.pop()
                    break
            following = await anext(rest[number], None)
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (key(following), number, following))
        for records in rest:
            await records.aclose()
        if self.kind.added and found and COPIES.name not in dict(pairs):
            await self._add_copies(parts, [*pairs, (COPIES.name, "1")], found)
        more = {MORE: left < 0}
        return self._fields(firsts, given=(offset, limit), found=found) | more

    async def _add_copies(
        self, parts: Sequence[Part], pairs: Sequence[tuple[str, str]], found: Sequence[Record]
    ) -> None:
        """Add the figures of copies to records. This reads all copies, a thousand at a time."""
        known = {_same(each): each for each in found}
        for part in [evolve(each, page=LIMIT.most) for each in parts]:
            first = await part.head(pairs)
            assert first is not None  # for it is a partition
            async for record in part.records(pairs, first):
                mine = known.get(_same(record), {})
                for name in self.kind.added:
                    if mine.get(name) is not None:
                        mine[name] += record[name] or 0

    def _fields(
        self, firsts: Sequence[Record], *, given: tuple[int, int], found: list[Record]
    ) -> Record:
        fields = {**firsts[0]}
        for name in _SUMS:
            if isinstance(fields.get(name), int):
                fields[name] = sum(each[name] for each in firsts)
        if "input" in fields:
            inputs = [each["input"] for each in firsts]
            fields["input"] = {
                name: sum(each[name] for each in inputs) if isinstance(value, int) else value
                for name, value in fields["input"].items()
            }
        fields["offset"], fields["limit"], fields["count"] = *given, len(found)
        del fields[self.kind.title]
        return {**fields, self.kind.title: found}


def _same(record: Record) -> tuple[object, ...]:
    return tuple(record[name] for name in _SAME)


def _number(given: Mapping[str, str], declared: Number) -> int:
    """Return a whole number of the query.

    Raises:
      HttpError: It is none, or too large or small.
    """
    text = given.get(declared.name)
    if text is None:
        return declared.default
    if (rule := declared.refuse(text)) != "":
        raise HttpError(400, f"{declared.name} is {text[:40]!r}, but {rule}")
    return int(text)
