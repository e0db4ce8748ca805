"""Lists and the overview over several brokers, which answer as real ones do."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

import pytest
import trio
from attrs import define, field

from trio_stomp.base import ANONYMOUS
from trio_stomp.cluster import Contact
from trio_stomp.startup.pages._exchange import Absent, Speak
from trio_stomp.startup.pages._lists import KINDS, MergedList
from trio_stomp.startup.pages._overview import WholeOverview, whole
from trio_stomp.startup.pages._together import Together, sums
from trio_stomp.transport import HttpError, HttpRequest, encode_response

CONTACT = Contact("n", "127.0.0.1", 1, "secret")


@define
class Broker:
    """A broker with queues of these names and depths, in the order by depth."""

    name: str
    depths: dict[str, int]
    status: int = 200
    is_lost: bool = False
    choice: Sequence[tuple[str, str]] = ()
    asked: list[dict[str, str]] = field(factory=list)

    async def reach(self, speak: Speak) -> None:
        if self.is_lost:
            return
        ours, theirs = map(trio.SocketStream, trio.socket.socketpair())
        async with trio.open_nursery() as tasks:
            tasks.start_soon(self._answer, theirs)
            async with ours:
                await speak(ours, CONTACT)

    async def _answer(self, stream: trio.SocketStream) -> None:
        data = b""
        async with stream:
            while b"HTTP/1.1\r\n" not in data or not data.endswith(b"\r\n\r\n"):
                data += await stream.receive_some()
            target = data[data.index(b"/api") :].partition(b" ")[0].decode()
            given = dict(parse_qsl(target.partition("?")[2]))
            self.asked.append(given)
            if "offset" not in given:
                answer = {"done": 1, "name": "n", "error": "no room", "code": "memory-limit"}
                await stream.send_all(encode_response(self.status, (), json.dumps(answer).encode()))
                return
            await stream.send_all(
                encode_response(self.status, (), json.dumps(self._part(given)).encode())
            )

    def _part(self, given: dict[str, str]) -> dict[str, object]:
        offset, limit = int(given["offset"]), int(given["limit"])
        part = sorted(self.depths, key=lambda name: -self.depths[name])[offset : offset + limit]
        return {
            "total": len(self.depths),
            "offset": offset,
            "limit": limit,
            "count": len(part),
            "sort": "held",
            "input": {"destination": "input", "input_depth": 2},
            "queues": [
                {
                    "destination": name,
                    "input_depth": self.depths[name],
                    "ack_depth": 0,
                    "stale_depth": 0,
                }
                for name in part
            ],
        }


class Sent:
    """A ``Send`` that records the parts of an answer, and the most bytes held at a time."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.held = self.most = 0

    async def __call__(self, data: bytes) -> None:
        self.parts.append(data)
        await trio.lowlevel.checkpoint()

    def hold(self, size: int) -> None:
        self.held += size
        self.most = max(self.most, self.held)


async def listed(
    brokers: Sequence[Broker], query: str = "", method: str = "GET", sent: Sent | None = None
) -> bytes:
    request = HttpRequest(method, f"/api/v1/queues?{query}", ())
    operation = MergedList(KINDS["queues"], [(each, each.name) for each in brokers], request)
    sent = sent or Sent()
    await operation.run(ANONYMOUS, sent, b"")
    return b"".join(sent.parts)


async def found(brokers: Sequence[Broker], query: str = "") -> Any:
    return json.loads((await listed(brokers, query)).partition(b"\r\n\r\n")[2])


async def test_a_window_of_a_merged_list_is_that_of_one_list_and_asks_for_no_more() -> None:
    brokers = [
        Broker(f"p{each}", {f"q{number}": number for number in range(each, 90, 3)})
        for each in range(3)
    ]
    answer = await found(brokers, "offset=5&limit=4&state=waiting")
    assert [each["destination"] for each in answer["queues"]] == ["q84", "q83", "q82", "q81"]
    assert [each["partition"] for each in answer["queues"]] == ["p0", "p2", "p1", "p0"]
    assert {name: answer[name] for name in ("total", "offset", "limit", "count")} == {
        "total": 90,
        "offset": 5,
        "limit": 4,
        "count": 4,
    }
    assert answer["input"] == {"destination": "input", "input_depth": 6}
    for each in brokers:
        assert each.asked == [{"state": "waiting", "limit": "9", "offset": "0"}]


async def test_a_window_far_behind_is_reached_a_thousand_records_at_a_time() -> None:
    large = Broker("large", {f"q{number}": number for number in range(2_500)})
    brokers = [large, Broker("small", {"x": 5_000})]
    answer = await found(brokers, "offset=2400&limit=1000")
    assert [each["destination"] for each in answer["queues"]] == [
        f"q{n}" for n in range(100, -1, -1)
    ]
    assert [each["offset"] for each in large.asked] == ["0", "1000", "2000"]


async def test_of_each_broker_the_last_answer_is_charged() -> None:
    few, many = Sent(), Sent()
    large = Broker("large", {f"q{number:04}": number for number in range(2_500)})
    await listed([large], "offset=0&limit=1000", sent=few)
    await listed([large], "offset=2400&limit=1000", sent=many)
    assert few.most > 50_000
    assert few.most <= many.most < few.most + 1_000


async def test_an_answer_that_refuses_is_that_of_the_whole() -> None:
    brokers = [Broker("a", {"q": 1}), Broker("b", {"q": 1}, status=403)]
    assert (await listed(brokers)).startswith(b"HTTP/1.1 403 ")


async def test_a_partition_without_an_owner_is_an_error_that_names_it() -> None:
    with pytest.raises(Absent, match="b does not answer"):
        await listed([Broker("a", {}), Broker("b", {}, is_lost=True)])


async def test_an_overview_without_this_node_is_an_error_that_names_it() -> None:
    partitions: Any = [Broker("p", {})]
    nodes: Any = [Broker("n", {}, is_lost=True)]
    overview = WholeOverview(partitions, nodes, HttpRequest("GET", "/api/v1/overview", ()))
    with pytest.raises(Absent, match="n does not answer"):
        await overview.run(ANONYMOUS, Sent(), b"")


@pytest.mark.parametrize("query", ["limit=1001", "limit=0", "offset=-1", "limit=x"])
async def test_a_window_that_no_list_has_is_refused(query: str) -> None:
    with pytest.raises(HttpError, match="must be a whole number from"):
        await listed([Broker("a", {})], query)


async def test_head_has_no_body() -> None:
    assert (await listed([Broker("a", {"q": 1})], method="HEAD")).endswith(b"\r\n\r\n")


async def asked_together(brokers: Sequence[Broker], rehearsal: str = "") -> Any:
    request = HttpRequest("POST", "/api/v1/do", ())
    rehearsed = [(each, HttpRequest("POST", rehearsal, ())) for each in brokers if rehearsal]
    together = Together(request, [(each, request) for each in brokers], sums, rehearsed)
    sent = Sent()
    await together.run(ANONYMOUS, sent, b"")
    return json.loads(b"".join(sent.parts).partition(b"\r\n\r\n")[2])


async def test_what_some_partitions_have_done_is_said_if_others_do_not_answer() -> None:
    found = await asked_together([Broker("a", {}), Broker("b", {}), Broker("c", {}, status=404)])
    assert (found["done"], found["name"]) == (2, "n")  # whoever does not have it is no failure
    with pytest.raises(Absent, match="c does not answer at the moment; a, b did it: ask again"):
        await asked_together([Broker("a", {}), Broker("b", {}), Broker("c", {}, is_lost=True)])
    with pytest.raises(HttpError, match="no room; a did it: ask again") as caught:
        await asked_together([Broker("a", {}), Broker("b", {}, status=503)])
    assert (caught.value.status, caught.value.code) == (503, "memory-limit")
    with pytest.raises(HttpError) as caught:
        await asked_together([Broker("a", {}, status=404), Broker("b", {}, status=404)])
    assert caught.value.status == 404


async def test_nothing_is_done_if_one_partition_does_not_answer_a_rehearsal() -> None:
    brokers = [Broker("a", {}), Broker("b", {}, is_lost=True)]
    with pytest.raises(Absent, match="b does not answer at the moment; try again"):
        await asked_together(brokers, "/api/v1/do?dry_run=1")
    assert brokers[0].asked == [{"dry_run": "1"}]


def overview(scale: int, **fields: object) -> dict[str, Any]:
    """Return an overview whose figures are multiples of ``scale``."""
    session = ("clients", "websockets", "stomp_connected", "subscriptions", "received_total")
    return {
        "boot": f"b{scale}",
        "session": dict.fromkeys(session, scale),
        "stale": {"input_queue_size": scale, "output_queue_size": scale, "stale_bytes": scale},
        "connections": {"now": scale, "closed_total": {"x": scale}},
        "logins": {"failed_total": scale},
        "messages": {"received_total": scale, "dropped_total": {f"r{scale}": 1}},
        "process": {
            "pid": scale,
            "rss_bytes": scale,
            "uptime_s": scale,
            "loop_lag_ms_p99": scale,
            **dict.fromkeys(
                ("store_bytes", "store_live_messages", "store_syncs_total", "store_sync_s_total"),
                scale,
            ),
            "store_damaged_total": 0,
            "gc_collections_total": [scale, 0],
        },
        "memory": {"used_bytes": scale},
        "input": {"frames": scale},
        "transactions": scale,
        "outbox_bytes": scale,
        "destinations": scale,
        "wildcards": scale,
        "quota_refusals_total": scale,
        "quotas": [{"owner": "u", "kind": "user", "kept_bytes": scale}],
        "latency": {"delivery": {"count_total": scale, "max_ms": scale, "bucket_counts": [scale]}},
        "cluster": {
            "name": "stomp",
            "epoch": scale,
            "appends": scale,
            "records": 0,
            "append_s": 0.5,
            "nodes": [
                {
                    "node": "n0",
                    "role": "standby",
                    "behind": scale,
                    "clients": 1,
                    "differs": ["users"],
                }
            ],
        },
        **fields,
    }


def test_the_overview_takes_sessions_from_nodes_and_messages_from_partitions() -> None:
    record = whole([overview(1), overview(2)], [overview(10), overview(20)], ["n0", ""])
    assert record["boot"] == "b10"
    assert record["session"] == {
        **dict.fromkeys(("clients", "websockets", "stomp_connected"), 30),
        **dict.fromkeys(("subscriptions", "received_total"), 3),
    }
    assert record["messages"] == {"received_total": 3, "dropped_total": {"r1": 1, "r2": 1}}
    assert record["connections"] == {"now": 30, "closed_total": {"x": 30}}
    assert record["memory"] == {"used_bytes": 33}
    assert record["stale"] == {"input_queue_size": 33, "output_queue_size": 30, "stale_bytes": 3}
    process = record["process"]
    assert (process["pid"], process["rss_bytes"], process["store_bytes"]) == (10, 30, 3)
    assert (process["uptime_s"], process["loop_lag_ms_p99"]) == (20, 20)
    assert process["gc_collections_total"] == [30, 0]
    assert record["quotas"] == [{"owner": "u", "kind": "user", "kept_bytes": 3}]
    assert record["latency"]["delivery"] == {"count_total": 3, "max_ms": 2, "bucket_counts": [3]}


def test_the_overview_shows_each_node_once_and_the_owners() -> None:
    cluster = whole([overview(1), overview(2)], [overview(10)], ["n0", ""])["cluster"]
    assert (cluster["epoch"], cluster["appends"], cluster["owners"]) == (2, 3, ["n0", ""])
    (node,) = cluster["nodes"]
    assert (node["role"], node["behind"], node["differs"]) == ("owner", 3, ["users"])
