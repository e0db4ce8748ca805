"""Routes requests to a node with partitions to the brokers that answer them.

A request is for the partition of its parameter ``partition``, or for the node of its parameter
``node``; else for the partition of the destination or message that it names. Lists, the overview
and definitions are of all partitions, connections of all nodes. Each node has settings of its own,
so it answers for them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from urllib.parse import parse_qsl, urlencode

import trio
from attrs import define, field, frozen

from trio_stomp.base import Identity, RemoteError
from trio_stomp.broker import Action
from trio_stomp.cluster import Gate
from trio_stomp.cluster.routing import Placement, mark
from trio_stomp.config import toml
from trio_stomp.server import API, Send, WebOperation
from trio_stomp.startup.pages._exchange import (
    Absent,
    Answer,
    Asked,
    Partition,
    Place,
    as_get,
    ask,
    pass_on,
    with_query,
)
from trio_stomp.startup.pages._lists import HEADERS, KINDS, MergedList, Refused
from trio_stomp.startup.pages._overview import WholeOverview
from trio_stomp.startup.pages._peers import NODE, Peer, Peers
from trio_stomp.startup.pages._together import Together, as_json, definitions, sums
from trio_stomp.transport import HttpError, HttpRequest, encode_response
from trio_stomp.web import PAGES, Page, Site
from trio_stomp.web.management import MAX_BYTES, as_toml
from trio_stomp.web.management.requests import LIMIT

PARTITION = "partition"
SHARE_S = 0.001
"""Time share for building a page of this node, and pause between two shares."""
_NAMING = ("queue", "destination", "source", "stream")
"""Parameters that name a destination."""
_IDS = ("q", "id")
"""Parameters with the id of a message."""
_OVERVIEW = "overview"
SUBSCRIPTIONS = "subscriptions"
_OF_SESSIONS = frozenset({"connection", "close"})
"""Requests about one connection, which one of the nodes has."""
_OF_THIS_NODE = frozenset({"settings", "policies", "whoami", "users", "rules", "reload"})
"""Requests about what each node has of its own."""
_DEFINITIONS = "definitions"
_IN_TOML = ("format", "toml")
_METRICS = "/metrics"
_NAMES: Mapping[str, str] = MappingProxyType({path: name for name, path in PAGES.items()})

Make = Callable[[HttpRequest], WebOperation]


def answer_for_all(
    site: Site,
    placement: Placement,
    gates: Sequence[Gate],
    peers: Peers,
    *,
    max_body_bytes: int,
    wildcards: str,
) -> None:
    """Have the pages of a router answer for the whole cluster.

    Args:
      site: The pages of the router.
      placement: The partition of each destination.
      gates: The connections to the owners.
      peers: The routers of all nodes.
      max_body_bytes: The largest body of a request.
      wildcards: The grammar of wildcards.
    """
    own = {path: page for path, page in site.pages.items() if page.rights is not None}
    operations = dict(site.operations)
    requests = Requests(
        placement,
        gates,
        peers,
        max_body_bytes=max_body_bytes,
        wildcards=wildcards,
        pages=own,
        operations=operations,
    )
    for key in operations:
        site.operations[key] = requests.route
    for path in own:
        site.operations["GET", path] = site.operations["HEAD", path] = requests.route


@define(eq=False, repr=False)
class Requests:
    """Routes requests for pages and operations.

    Args:
      placement: The partition of each destination.
      gates: The connections to the owners.
      peers: The routers of all nodes.
      max_body_bytes: The largest body of a request.
      wildcards: The grammar of wildcards.
      pages: The pages of this node's router.
      operations: Its operations.
    """

    placement: Placement
    gates: Sequence[Gate]
    peers: Peers
    max_body_bytes: int
    wildcards: str
    pages: Mapping[str, Page]
    operations: Mapping[tuple[str, str], Make]
    _partitions: Sequence[Partition] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._partitions = [Partition(number, gate) for number, gate in enumerate(self.gates)]

    def route(self, request: HttpRequest) -> WebOperation:
        """Return the operation that answers a request.

        Raises:
          HttpError: There is no such partition or node, or a parameter is wrong.
        """
        pairs = parse_qsl(request.target.partition("?")[2], keep_blank_values=True)
        given = dict(pairs)
        rest = [pair for pair in pairs if pair[0] not in (PARTITION, NODE)]
        request = with_query(request, urlencode(rest))
        if PARTITION in given:
            return self._relayed(request, self._partitions[self._chosen(given[PARTITION])])
        if NODE in given:
            peer = self._peer(given[NODE])
            is_own = peer.contact == self.peers.own
            return self._own(request) if is_own else self._relayed(request, peer)
        path = request.path
        name = _NAMES.get(path) or path.removeprefix(API)
        if name in KINDS and request.method != "POST":
            return self._list(name, request)
        if name == _OVERVIEW:
            return WholeOverview(self._partitions, self.peers.all(), request)
        if name in _OF_SESSIONS:
            listed = None
            if name == "connection" and request.method == "GET":
                query = urlencode({LIMIT.name: LIMIT.most, **dict(rest)})
                asked = as_get(request, f"{API}{SUBSCRIPTIONS}?{query}")
                listed = self._list(SUBSCRIPTIONS, asked)
            return OfSession(request, self.peers.all(), listed)
        if name == _DEFINITIONS:
            return self._definitions(request, given)
        if name == "cancel":
            return self._cancel(request, rest)
        if name == "end":
            return self._end(request, given)
        if name in _OF_THIS_NODE or path == _METRICS:
            return self._own(request)
        return self._relayed(request, self._partitions[self._holders(given)[0]])

    def _list(self, name: str, request: HttpRequest) -> MergedList:
        kind = KINDS[name]
        places: list[tuple[Place, object]]
        if kind.label == NODE:
            places = [(each, each.contact.node) for each in self.peers.all()]
        else:
            places = [(each, each.number) for each in self._partitions]
        return MergedList(kind, places, request)

    def _definitions(self, request: HttpRequest, given: Mapping[str, str]) -> Together:
        """Return the export or import of what the partitions have, each its part."""
        if request.method == "POST":
            dry = with_query(request, urlencode({**given, "dry_run": "1"}))
            rehearsal = self._all(dry) if given.get("dry_run") != "1" else ()
            asked = self._all(request)
            return Together(
                request,
                asked,
                definitions,
                rehearsal,
                max_body_bytes=MAX_BYTES,
                rights=self._own(request).rights,
            )
        rest = {name: text for name, text in given.items() if (name, text) != _IN_TOML}
        show = as_json if len(rest) == len(given) else partial(as_toml, value=toml)
        asked = self._all(as_get(with_query(request, urlencode(rest))))
        return Together(request, asked, definitions, shown=show)

    def _all(self, request: HttpRequest) -> Asked:
        return [(each, request) for each in self._partitions]

    def _cancel(self, request: HttpRequest, pairs: Sequence[tuple[str, str]]) -> Together:
        """Return the end of scheduled messages, each in the partition with which its id begins.

        Raises:
          HttpError: An id begins with none.
        """
        parts: dict[int, list[tuple[str, str]]] = {}
        for name, text in pairs:
            if name != "id":
                raise HttpError(400, f"unknown parameter {name[:40]!r}; known are id")
            if not self.placement.is_marked(text):
                raise HttpError(
                    400,
                    f"id={text[:40]!r} names no partition: give ids of GET schedules, such as"
                    f" {mark(0)}17, or {PARTITION}=N",
                )
            number = self.placement.marked(text)
            parts.setdefault(number, []).append((name, text.removeprefix(mark(number))))
        if not parts:
            raise HttpError(400, "id is missing; give ids of GET schedules")
        asked = [
            (self._partitions[number], with_query(request, urlencode(ids)))
            for number, ids in parts.items()
        ]
        return Together(request, asked, sums)

    def _end(self, request: HttpRequest, given: Mapping[str, str]) -> Together:
        """Return the end of a durable subscription in the partitions that have it.

        Raises:
          HttpError: Its destination is missing or invalid.
        """
        if "destination" not in given:
            # Others of this name in other partitions would end, too.
            raise HttpError(
                400, "destination is missing: it tells which partitions have the subscription"
            )
        holders = [(self._partitions[each], request) for each in self._holders(given)]
        return Together(request, holders, lambda records: records[0])

    def _relayed(self, request: HttpRequest, place: Place) -> WebOperation:
        if request.method != "POST":
            return Relayed(request, place)
        return Relayed(request, place, self.max_body_bytes, self._own(request).rights)

    def _own(self, request: HttpRequest) -> WebOperation:
        """Return the operation by which this node's router answers.

        Raises:
          HttpError: A parameter is wrong.
        """
        make = self.operations.get((request.method, request.path))
        return make(request) if make is not None else OwnPage(request, self.pages[request.path])

    def _peer(self, name: str) -> Peer:
        peers = {each.contact.node: each for each in self.peers.all()}
        if name not in peers:
            raise HttpError(
                400, f"{NODE}={name[:40]!r} is no node: those that answer are {', '.join(peers)}"
            )
        return peers[name]

    def _holders(self, given: Mapping[str, str]) -> Sequence[int]:
        """Return the partitions of the destination or message that a request names, or 0.

        Raises:
          HttpError: The destination is invalid.
        """
        for name in _NAMING:
            if name in given:
                try:
                    return self.placement.sources(given[name], self.wildcards)
                except RemoteError as error:
                    raise HttpError(400, error.message) from None
        return [next((self.placement.marked(given[name]) for name in _IDS if name in given), 0)]

    def _chosen(self, text: str) -> int:
        """Return the partition that a request names.

        Raises:
          HttpError: There is no such partition.
        """
        partitions = self.placement.partitions
        if not text.isdecimal() or int(text) >= partitions:
            raise HttpError(
                400,
                f"{PARTITION}={text[:20]} is no partition: this cluster has those from 0 to "
                f"{partitions - 1}",
            )
        return int(text)


@frozen
class Relayed:
    """A request that another broker answers. Implements ``WebOperation``."""

    request: HttpRequest
    place: Place
    max_body_bytes: int = 0
    rights: Sequence[tuple[Action, str]] = ()
    """The broker checks them for the user. Those of a request with a body are known before it."""

    async def run(self, identity: Identity, send: Send, body: bytes) -> None:
        """Implement ``WebOperation.run``.

        Raises:
          HttpError: The broker does not answer.
        """
        if not await pass_on(self.place, self.request, identity, body, send):
            raise Absent(self.place)


@frozen
class OfSession:
    """A request about a connection, which the node that has it answers.

    Implements ``WebOperation``.

    Args:
      request: The request.
      peers: The routers of all nodes.
      subscriptions: The list of its subscriptions, which the owners of partitions have, if the
        answer has one.
    """

    request: HttpRequest
    peers: Sequence[Peer]
    subscriptions: MergedList | None = None
    max_body_bytes: int = 0
    rights: Sequence[tuple[Action, str]] = ()
    """Each node checks them for the user."""

    async def run(self, identity: Identity, send: Send, _body: bytes) -> None:
        """Implement ``WebOperation.run``.

        Raises:
          HttpError: No node answers.
        """
        found: Answer | None = None
        for each in self.peers:
            answer = await ask(each, self.request, identity, send.hold)
            found = answer or found
            if answer is not None and answer.status != 404:
                break
        if found is None:
            raise Absent(self.peers[0])
        data = found.data
        if self.subscriptions is not None and found.status == 200:
            try:
                listed = await self.subscriptions.merged(identity, send.hold)
            except Refused as refused:
                data = refused.answer.data
            else:
                own = {name: listed[name] for name in ("total", SUBSCRIPTIONS)}
                text = json.dumps({**found.record(), **own}) + "\n"
                data = encode_response(200, HEADERS, text.encode())
        await send(data)


@frozen
class OwnPage:
    """A page of this node. Implements ``WebOperation``."""

    request: HttpRequest
    page: Page
    max_body_bytes: int = 0

    @property
    def rights(self) -> Sequence[tuple[Action, str]]:
        """Implement ``WebOperation.rights``."""
        rights = self.page.rights
        return (rights() if callable(rights) else rights) or ()

    async def run(self, identity: Identity, send: Send, _body: bytes) -> None:
        """Implement ``WebOperation.run``: build the page in time shares."""
        building = self.page.answer(self.request, identity)
        until = trio.current_time() + SHARE_S
        while True:
            try:
                next(building)
            except StopIteration as made:
                data: bytes = made.value
                break
            if trio.current_time() >= until:
                await trio.sleep(SHARE_S)
                until = trio.current_time() + SHARE_S
        await send(data)
