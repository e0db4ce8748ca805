"""The overview of a whole cluster: sums of what its partitions and nodes report.

Sessions, logins and processes are of nodes; messages, destinations and stores of partitions; memory
and input queues of both.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from trio_stomp.base import Identity
from trio_stomp.broker import Action
from trio_stomp.server import Send
from trio_stomp.startup.pages._exchange import Absent, Partition, Place, as_get, ask_all, with_query
from trio_stomp.startup.pages._lists import HEADERS
from trio_stomp.transport import HttpRequest, encode_response

Record = dict[str, Any]

_OF_NODES = ("connections", "logins", "transactions", "outbox_bytes", "process")
_OF_PARTITIONS = ("stale", "messages", "destinations", "wildcards", "quota_refusals_total")
_OF_BOTH = ("memory", "input")
_SESSIONS = ("clients", "websockets", "stomp_connected")
"""Fields of ``session`` that nodes count; partitions count the others."""
_STORE = (
    "store_bytes",
    "store_live_messages",
    "store_syncs_total",
    "store_sync_s_total",
    "store_damaged_total",
)
"""Fields of ``process`` that partitions count."""
_GREATEST = ("uptime_s", "max_ms")
"""Fields of which the greatest counts, not the sum, beside those that end with ``_ENDINGS``."""
_ENDINGS = ("_p50", "_p99", "_max")
_LARGEST_QUOTAS = 10


@frozen
class WholeOverview:
    """A request for the overview of a cluster. Implements ``WebOperation``.

    Args:
      partitions: The owners of all partitions.
      nodes: The routers of all nodes, this one first.
      request: The request.
    """

    partitions: Sequence[Partition]
    nodes: Sequence[Place]
    request: HttpRequest
    max_body_bytes: int = 0
    rights: Sequence[tuple[Action, str]] = ()
    """Each broker checks them for the user."""

    async def run(self, identity: Identity, send: Send, _body: bytes) -> None:
        """Implement ``WebOperation.run``.

        Raises:
          HttpError: A partition has no owner, or this node is about to end.
        """
        request = as_get(with_query(self.request, self.request.target.partition("?")[2]))
        count = len(self.partitions)
        places: list[Place] = [*self.partitions, *self.nodes]
        found = await ask_all([(each, request) for each in places], identity, send.hold)
        # The first of the nodes is this one.
        for place, answer in zip(places[: count + 1], found[: count + 1], strict=True):
            if answer is None:
                raise Absent(place)
        # A node that was lost a moment ago has no sessions any more.
        answers = [each for each in found if each is not None]
        for each in answers:
            if each.status != 200:
                await send(each.data)
                return
        records = [each.record() for each in answers]
        owners = [each.owner for each in self.partitions]
        text = json.dumps(whole(records[:count], records[count:], owners)) + "\n"
        is_head = self.request.method == "HEAD"
        await send(encode_response(200, HEADERS, text.encode(), head_only=is_head))


def whole(partitions: Sequence[Record], nodes: Sequence[Record], owners: Sequence[str]) -> Record:
    """Return the overview of a cluster.

    Args:
      partitions: The overview of each partition.
      nodes: That of each node's router, the one that answers first.
      owners: The node that owns each partition, or "".
    """
    everything = [*partitions, *nodes]
    return {
        **nodes[0],
        **{name: _sum([each[name] for each in nodes]) for name in _OF_NODES},
        **{name: _sum([each[name] for each in partitions]) for name in _OF_PARTITIONS},
        **{name: _sum([each[name] for each in everything]) for name in _OF_BOTH},
        "session": {
            **_sum([each["session"] for each in partitions]),
            **_sum([_only(each["session"], _SESSIONS) for each in nodes]),
        },
        "stale": {
            **_sum([each["stale"] for each in partitions]),
            "input_queue_size": sum(each["input"]["frames"] for each in everything),
            "output_queue_size": sum(each["stale"]["output_queue_size"] for each in nodes),
        },
        "process": {
            **_sum([each["process"] for each in nodes]),
            "pid": nodes[0]["process"]["pid"],
            **_sum(
                [
                    {
                        name: value
                        for name, value in each["process"].items()
                        if name.startswith(_STORE)
                    }
                    for each in partitions
                ]
            ),
        },
        "quotas": _quotas(partitions),
        "latency": _sum([each["latency"] for each in partitions]),
        "cluster": _cluster([each["cluster"] for each in partitions], owners),
    }


def _only(record: Record, names: Sequence[str]) -> Record:
    return {name: record[name] for name in names}


def _sum(values: Sequence[Any], name: str = "") -> Any:  # noqa: ANN401
    """Return the sum of figures, field by field; of other values, the first."""
    values = [each for each in values if each is not None]
    if not values:
        return None
    first = values[0]
    if isinstance(first, Mapping):
        names = dict.fromkeys(name for each in values for name in each)
        return {name: _sum([each.get(name) for each in values], name) for name in names}
    if isinstance(first, list):
        return [_sum(each, name) for each in zip(*values, strict=False)]
    if isinstance(first, bool) or not isinstance(first, int | float):
        return first
    return max(values) if name in _GREATEST or name.endswith(_ENDINGS) else sum(values)


def _quotas(partitions: Sequence[Record]) -> list[Record]:
    """Return the largest quotas: each user has one in each partition."""
    found: dict[tuple[str, str], list[Record]] = {}
    for each in partitions:
        for quota in each["quotas"]:
            found.setdefault((quota["owner"], quota["kind"]), []).append(quota)
    sums = [_sum(each) for each in found.values()]
    return sorted(sums, key=_held, reverse=True)[:_LARGEST_QUOTAS]


def _held(quota: Record) -> float:
    return float(sum(value for name, value in quota.items() if name.endswith("_bytes")))


def _cluster(partitions: Sequence[Record], owners: Sequence[str]) -> Record:
    """Return the figures of the cluster: the owner of each partition, and each node once."""
    nodes: dict[str, list[Record]] = {}
    for each in partitions:
        for node in each["nodes"]:
            nodes.setdefault(node["node"], []).append(node)
    return {
        **_sum([{**each, "nodes": None, "epoch": 0} for each in partitions]),
        "epoch": max(each["epoch"] for each in partitions),
        "owners": owners,
        "nodes": [
            {
                **_sum(each),
                "role": "owner" if name in owners else each[0]["role"],
                "differs": sorted({text for one in each for text in one["differs"]}),
            }
            for name, each in sorted(nodes.items())
        ],
    }
