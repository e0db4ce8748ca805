"""/metrics: parsed as by Prometheus, compared with the actions and with the DIAG topics."""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import trio
from attrs import define, evolve
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from tests.support.core import Bench
from tests.support.durable_dial import dialled
from tests.support.fakes import MEMORY, WS_MEMORY, Dial, open_dial, until
from tests.support.site import QUIET, add_all, ask, ask_over_wire, empty_queues, whole
from tests.support.site import dial as dial
from trio_stomp import CloseReason
from trio_stomp.base import ClusterFigures, NodeFigures
from trio_stomp.broker import Destination, Histogram
from trio_stomp.broker.names import Kind
from trio_stomp.cluster.routing import Forward, Forwards
from trio_stomp.diag import Figures, Reporter
from trio_stomp.diag._figures import summed
from trio_stomp.frames import SEND, Head
from trio_stomp.web import WebOptions
from trio_stomp.web._ranking import OTHER, Counts, QueueCount, Ranking

ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "conf" / "grafana-dashboard.json"
ALERTS = ROOT / "conf" / "prometheus-alerts.yml"
DOCUMENT = ROOT / "docs" / "operate" / "metrics.md"
OPENMETRICS = ((b"accept", b"application/openmetrics-text; version=1.0.0, text/plain;q=0.5"),)
NASTY = '/topic/"a\\b\n{}=#\r\x00\u2028\U0001f4a5'

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def figures_of(dial: Dial) -> Figures:
    diagnostics = dial.server.diagnostics
    assert isinstance(diagnostics, Reporter)
    return diagnostics.figures


def read(families: Iterable[Metric]) -> Samples:
    """All samples, each of which there is once."""
    found: Samples = {}
    for family in families:
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


@define
class Scrape:
    """One answer of /metrics."""

    samples: Samples

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples["trio_stomp_" + name, frozenset(labels.items())]

    def by(self, name: str, label: str) -> dict[str, float]:
        """Samples that have one label, by its value."""
        return {
            dict(labels)[label]: value
            for (each, labels), value in self.samples.items()
            if each == "trio_stomp_" + name
        }

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


def scrape(dial: Dial) -> Scrape:
    reply = ask(dial, "/metrics")
    assert reply.status == 200
    return Scrape(read(plain(reply.text)))


def is_cumulative(one: Samples, later: Samples) -> bool:
    """Return whether no counter of ``later`` is below that of ``one``."""
    ends = ("_total", "_bucket", "_count", "_sum")
    return all(later[key] >= value for key, value in one.items() if key[0].endswith(ends))


# --- the page -------------------------------------------------------------------------------------


async def test_both_formats_tell_the_same_in_their_own_way(dial: Dial) -> None:
    await dial.connect()
    old, new = ask(dial, "/metrics"), ask(dial, "/metrics", headers=OPENMETRICS)
    assert old.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert new.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert new.text.endswith("# EOF\n")
    one, other = read(plain(old.text)), read(openmetrics(new.text))
    assert {key for key in one if key[0].startswith("trio_stomp")} == {
        key for key in other if key[0].startswith("trio_stomp")
    }
    assert ask(dial, "/metrics", "HEAD").body == b""
    assert ask(dial, "/metrics", "POST").status == 405


@pytest.mark.parametrize(
    "accept",
    [
        b"application/openmetrics-text; version=x",
        b"application/openmetrics-text; version=9.9.9.9; escaping=\xff",
        b"text/plain; version=1.0.0; escaping=allow-utf-8",
        b"application/openmetrics-text;version=1" + b"1" * 5000,
        b"\xff" * 100,
        b";=,;version",
    ],
)
async def test_no_accept_header_is_too_odd(dial: Dial, accept: bytes) -> None:
    reply = ask(dial, "/metrics", headers=((b"accept", accept),))
    assert reply.status == 200
    assert "trio_stomp_build_info" in reply.text


async def test_parameters_are_refused(dial: Dial) -> None:
    reply = ask(dial, "/metrics?name[]=x")
    assert (reply.status, reply.text) == (
        400,
        "unknown parameter 'name[]'; this page has none\n",
    )
    assert ask(dial, "/metrics?access_token=secret").status == 200


async def test_without_its_library_the_page_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "trio_stomp.web._metrics", raising=False)
    async with open_dial(**QUIET) as dial:
        await dial.start()
        add_all(dial)
        reply = ask(dial, "/metrics")
        assert reply.status == 501
        assert "pip install prometheus-client" in reply.text
        assert ask(dial, "/metrics", "HEAD").body == b""
        assert ask(dial, "/varz").status == 200


async def test_over_the_wire_for_this_machine_only(dial: Dial) -> None:
    reply = await ask_over_wire(await dial.stream(), "/metrics")
    assert "trio_stomp_connections_accepted_total 1.0\n" in reply.text
    for page in ("/metrics", "/healthz", "/varz", "/connz", "/subsz", "/queuez"):
        # A name that was made to mean this machine is not on it.
        assert (await ask_over_wire(await dial.stream(), page, host="evil.example")).status in (
            401,
            403,
        )
    await until(lambda: dial.server.ended[CloseReason.HTTP_ANSWERED] == 7)
    assert scrape(dial).by("connections_closed_total", "reason")["http-answered"] == 7


# --- the figures ----------------------------------------------------------------------------------


async def test_metrics_match_the_events(dial: Dial) -> None:
    one = await dial.connect("1.2")
    other = await dial.connect("1.0")
    await one.subscribe("/topic/t")
    await one.subscribe("/queue/q", "2", {"ack": "client-individual"})
    await other.publish("/topic/t", b"a", b"bc", receipt=True)
    await other.publish("/topic/nobody", b"x", receipt=True)
    await other.publish("/queue/q", b"1", b"2", b"3", receipt=True)
    frames = await one.receive_many(5)
    await one.send("ACK", {"id": frames[2]["ack"]})
    await one.send("NACK", {"id": frames[3]["ack"], "requeue": "false"})
    await one.send("BEGIN", {"transaction": "x"})
    await one.fence()
    metrics = scrape(dial)
    assert metrics("connections", transport="tcp", tls="false", version="1.2") == 1
    assert metrics("connections", transport="tcp", tls="false", version="1.0") == 1
    assert metrics("connections_opened_total", transport="tcp", tls="false") == 2
    assert metrics("subscriptions") == 2
    assert metrics("transactions_open") == 1
    assert metrics("messages_received_total") == 7  # the fence too
    assert metrics("messages_delivered_total") == 5
    assert metrics("messages_unroutable_total") == 2
    assert metrics.by("messages_dropped_total", "reason")["no-subscriber"] == 2
    assert metrics("messages_acked_total") == 1
    assert metrics("messages_nacked_total") == 1
    assert metrics("messages_dead_lettered_total", reason="rejected") == 1
    assert metrics("messages_dropped_total", reason="rejected") == 0
    assert metrics("quota_refusals_total") == 0
    assert metrics("queue_messages", state="unacked") == 1
    assert metrics("queue_messages", state="ready") == 1  # the dead letter
    assert metrics("queue_bytes") == 2
    assert metrics("queues") == 2
    dead = next(each.name for each in dial.server.broker.queues if each.name != "/queue/q")
    assert metrics.by("queue_consumers", "queue") == {"/queue/q": 1, dead: 0, OTHER: 0}
    assert metrics("queue_depth", queue=dead, state="ready") == 1
    assert metrics("delivery_seconds_count") == 5
    assert metrics("delivery_seconds_bucket", le="+Inf") == 5
    assert metrics("destination_messages_received_total", destination="/topic/t") == 0
    assert metrics("frames_sent_total", command="MESSAGE") == 5
    assert metrics("memory_used_bytes") == dial.server.memory.used_bytes > 0
    await one.publish("/topic/t", b"d", receipt=True)
    later = scrape(dial)
    assert later("destination_messages_received_total", destination="/topic/t") == 1
    assert later("destination_messages_delivered_total", destination="/topic/t") == 1
    assert is_cumulative(metrics.samples, later.samples)
    empty_queues(dial)


async def test_totals_equal_those_of_diag() -> None:
    async with open_dial(diag_interval_s=1.0, monitor_interval_s=0.0, diag_stream=False) as dial:
        client = await dial.connect()
        add_all(dial)
        await client.subscribe("/topic/t")
        await client.publish("/topic/t", b"a", b"b", b"c")
        await client.receive_many(3)
        scrape(dial)
        await client.publish("/topic/t", b"d", b"e")
        await client.receive_many(2)
        destination = dial.server.broker.destinations.find_current("/topic/t")
        assert destination is not None
        assert destination.delivery is not None
        metrics = scrape(dial)
        assert metrics("destination_messages_received_total", destination="/topic/t") == 2
        assert destination.enqueued == 5
        assert metrics("delivery_seconds_count") == destination.delivery.count == 5
        assert metrics("delivery_seconds_sum") == pytest.approx(destination.delivery.sum_s)
        figures = figures_of(dial)
        (connection,) = dial.server.connections
        record = figures.connection(connection)
        assert metrics("frames_received_total") == record["frames_in_total"]
        assert metrics("bytes_received_total") == record["bytes_in_total"]
        assert metrics("bytes_sent_total") == record["bytes_out_total"]
        assert metrics("frames_sent_total", command="MESSAGE") == record["frames_out_total"]
        session, stale = figures.session_and_stale()
        assert metrics("subscriptions") == session["subscriptions"] == 1
        assert metrics("stale_messages") == stale["stale_queue_size"]


@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_nothing_is_forgotten_when_connections_go(transport: str) -> None:
    async with open_dial(transport, **QUIET) as dial:
        await dial.start()
        add_all(dial)
        before = scrape(dial)
        for _ in range(3):
            client = await dial.connect()
            await client.subscribe("/topic/t")
            await client.publish("/topic/t", b"x")
            await client.receive()
            during = scrape(dial)
            assert is_cumulative(before.samples, during.samples)
            await client.disconnect()
            await until(lambda: not dial.server.connections)
            after = scrape(dial)
            assert is_cumulative(during.samples, after.samples)
            before = after
        kind = "ws" if transport == WS_MEMORY else "tcp"
        assert after("connections_opened_total", transport=kind, tls="false") == 3
        assert after("connections", transport=kind, tls="false", version="1.2") == 0
        assert after("frames_sent_total", command="MESSAGE") == 3
        assert after("frames_received_total") == 3 * 4
        assert after("connections_closed_total", reason="client-disconnect") == 3


async def test_nothing_is_forgotten_when_destinations_go() -> None:
    async with open_dial(max_destinations=16, **QUIET) as dial:
        client = await dial.connect()
        add_all(dial, limit=4)
        await client.subscribe("/topic/keep.*", headers={"ack": "client"})
        before = scrape(dial)
        for number in range(100):
            await client.publish(f"/topic/{number}", b"x", receipt=True)
            later = scrape(dial)
            names = ("destination_messages_received_total", "destination_messages_dropped_total")
            for name in names:
                assert later(name, destination=OTHER) >= before(name, destination=OTHER)
            assert later("delivery_seconds_count") >= before("delivery_seconds_count")
            before = later
        await client.publish("/topic/keep.1", b"x", receipt=True)
        await client.receive()
        # It waited in a queue of a wildcard subscription, which has a name of its own.
        assert scrape(dial)("delivery_seconds_count") == 1
        past = dial.server.broker.destinations.past
        assert past.enqueued > 80
        assert len(dial.server.broker.destinations) <= 16


async def test_hostile_names_are_kept_unchanged(dial: Dial) -> None:
    names = [
        NASTY.replace("\x00", "").replace("\r", ""),
        "other",
        "/topic/ä\t",
        "/topic/" + "x" * 900,
    ]
    client = await dial.connect()
    for name in names:
        await client.publish(name, b"x", receipt=True)
    for reply, parser in (
        (ask(dial, "/metrics"), plain),
        (ask(dial, "/metrics", headers=OPENMETRICS), openmetrics),
    ):
        metrics = Scrape(read(parser(reply.text)))
        by_name = metrics.by("destination_messages_received_total", "destination")
        assert set(names) <= set(by_name)
        # "other" appears once, as the destination of that name is among the others.
        assert by_name["other"] >= 1


async def test_number_of_named_series_is_bounded(dial: Dial) -> None:
    client = await dial.connect()
    add_all(dial, limit=3)
    for number in range(10):
        await client.publish(f"/topic/{number}", *[b"x"] * (number + 1), receipt=True)
    scrape(dial)
    await client.publish("/topic/9", b"x", receipt=True)
    metrics = scrape(dial).by("destination_messages_received_total", "destination")
    assert metrics == {"/topic/9": 1, "/topic/8": 0, "/topic/7": 0, OTHER: 55}
    add_all(dial, limit=0)
    assert scrape(dial).by("destination_messages_received_total", "destination") == {OTHER: 56}


async def test_diag_itself_is_not_among_the_destinations() -> None:
    async with open_dial(diag_interval_s=1.0, monitor_interval_s=0.0) as dial:
        client = await dial.connect()
        add_all(dial)
        await client.subscribe("DIAG*")
        await client.publish("/topic/t", b"x")
        metrics = scrape(dial).by("destination_messages_received_total", "destination")
        assert not [name for name in metrics if name.startswith("DIAG")]


async def test_the_lag_counts_on_over_the_intervals_of_diag(autojump_clock) -> None:
    async with open_dial(diag_interval_s=1.0, monitor_interval_s=0.0, diag_stream=False) as dial:
        client = await dial.connect()
        add_all(dial)
        before = scrape(dial)
        for _ in range(5):
            await client.fence()
            await trio.sleep(1.0)
            later = scrape(dial)
            assert is_cumulative(before.samples, later.samples)
            assert later("event_loop_lag_seconds_count") > before("event_loop_lag_seconds_count")
            before = later
        assert before("event_loop_lag_seconds_count") == pytest.approx(dial.server.dispatcher.turns)


async def test_store_metrics_exist_with_a_store() -> None:
    async with dialled(monitor_interval_s=0.0) as dial:
        client = await dial.connect()
        add_all(dial)
        await client.publish("/queue/q", b"x", headers={"persistent": "true"}, receipt=True)
        metrics = scrape(dial)
        statistics = dial.store.statistics()
        assert metrics("journal_commits_total") == statistics.commits
        assert metrics("journal_fsync_seconds_count") == statistics.syncs
        assert metrics("journal_fsync_seconds_sum") == pytest.approx(statistics.sync_s)
        assert metrics("journal_bytes") == statistics.bytes
        assert metrics("journal_messages") == statistics.live_messages == 1
        record = figures_of(dial).process()
        assert record["store_syncs_total"] == statistics.syncs


def test_a_queue_that_is_called_like_the_others_is_one_of_them() -> None:
    bench = Bench()
    for name in ("other", "/queue/q"):
        bench.broker.queues.open(name)
    count = QueueCount(5)
    count.add(list(bench.broker.queues))
    figures = whole(count.figures())
    assert figures.count == 2
    assert list(figures.fullest) == ["/queue/q", OTHER]


async def test_a_full_queue_drops_or_makes_dead_letters() -> None:
    for policy, dead in (("drop-oldest", 0), ("dead-letter", 2)):
        async with open_dial(**QUIET) as dial:
            client = await dial.connect()
            add_all(dial)
            await client.publish("/queue/q", b"x", receipt=True)
            queue = next(iter(dial.server.broker.queues))
            queue.policy = evolve(queue.policy, max_messages=1, overflow=policy)
            await client.publish("/queue/q", b"y", b"z", receipt=True)
            metrics = scrape(dial)
            assert metrics("messages_dropped_total", reason="queue-full") == 2
            assert metrics("messages_dead_lettered_total", reason="overflow") == dead
            empty_queues(dial)


async def test_nothing_is_computed_before_somebody_asks(
    dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await dial.connect()
    asked: list[str] = []
    for name in ("counting", "queue", "process", "turns"):
        monkeypatch.setattr(Figures, name, lambda self, *a, _name=name: asked.append(_name))
    await client.publish("/topic/t", b"x", receipt=True)
    assert asked == []


async def test_every_label_is_bounded(dial: Dial) -> None:
    clients = [await dial.connect() for _ in range(20)]
    add_all(dial, limit=2)
    few = len(scrape(dial).samples)
    for number, client in enumerate(clients):
        await client.subscribe(f"/topic/{number}")
        await client.publish(f"/topic/{number}", b"x", receipt=True)
    many = len(scrape(dial).samples)
    assert many - few <= 2 * 3 + 2 * 3


# --- the ranking ----------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 7), st.integers(1, 50)),
        st.tuples(st.just("drop"), st.integers(0, 7), st.integers(1, 5)),
        st.tuples(st.just("forget"), st.integers(0, 7), st.just(0)),
        st.tuples(st.just("scrape"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(0, 4))
def test_counters_never_decrease_and_show_all_increases(
    steps: list[tuple[str, int, int]], limit: int
) -> None:
    names = [*(f"/topic/{number}" for number in range(7)), OTHER]
    table: dict[str, Destination] = {}
    past, ranking = Destination("", Kind.TOPIC), Ranking(limit)
    before: dict[Destination | str, Counts] = {OTHER: (0, 0, 0)}
    sent = dropped = told_sent = told_dropped = 0
    for step, place, count in [*steps, ("scrape", 0, 0)]:
        destination = table.setdefault(names[place], Destination(names[place], Kind.TOPIC))
        if step == "send":
            destination.enqueued += count
            sent += count
        elif step == "drop":
            destination.dropped += count
            dropped += count
        elif step == "forget":
            past.add(table.pop(destination.name))
        else:
            look = ranking.begin(past)
            for destination in table.values():
                look.add([destination])
            found = whole(ranking.end(look))
            assert len(found) <= limit + 1
            after: dict[Destination | str, Counts] = {
                (name if name == OTHER else table[name]): found[name] for name in found
            }
            for each, counts in after.items():
                was = before.get(each, (0, 0, 0))
                assert all(new >= old for new, old in zip(counts, was, strict=True))
                told_sent += counts[0] - was[0]
                told_dropped += counts[2] - was[2]
            before = after
            # Each message is in one series, once.
            assert (told_sent, told_dropped) == (sent, dropped)


def test_sums_of_histograms() -> None:
    one, other = Histogram(), Histogram()
    one.observe(0.001, 3)
    other.observe(60.0, 1)
    both = summed([one, other])
    one.add(other)
    assert (both.count, both.max_s) == (one.count, one.max_s) == (4, 60.0)
    assert both.sum_s == one.sum_s == pytest.approx(60.003)
    assert both.buckets == one.buckets
    assert sum(both.buckets) == 4
    assert summed([Histogram()]).count == 0


# --- what stands beside ---------------------------------------------------------------------------


class OneNode:
    """A cluster of one node."""

    def doubts(self) -> str:
        return ""

    def figures(self) -> ClusterFigures:
        node = NodeFigures("a", "owner", address="a:1", version="1", behind=0, clients=2)
        return ClusterFigures("c", epoch=7, appends=3, records=9, append_s=0.5, nodes=[node])


async def exported() -> set[str]:
    """The names of all samples of a broker with a store that owns a cluster."""
    async with dialled(monitor_interval_s=0.0) as dial:
        client = await dial.connect()
        await client.send("ACK", {"id": "unknown"})
        await client.expect_error("unknown-ack")
        add_all(dial)
        dial.server.cluster = OneNode()
        return scrape(dial).names


async def test_a_cluster_exports_who_follows_and_what_waits_for_other_partitions() -> None:
    roles = {"a": "owner", "b": "standby", "c": "reading", "d": "watching"}

    class Nodes(OneNode):
        def figures(self) -> ClusterFigures:
            found = super().figures()
            nodes = [evolve(found.nodes[0], node=node, role=role) for node, role in roles.items()]
            return evolve(found, nodes=nodes)

    async with dialled(monitor_interval_s=0.0) as dial:
        await dial.connect()
        dial.server.cluster = Nodes()
        head = Head(SEND, (("destination", "/queue/there"),))
        item = Forward("/queue/there", head, [b"x"], [1], owner=None, quota=None, cost=1)
        broker = dial.server.broker
        forwards = Forwards(broker.publisher.later, lambda: broker, lambda _: False)
        forwards.waiting[item] = None
        broker.publisher.later = forwards
        found = scrape(dial)
        assert found("cluster_forwards_waiting") == 1
        assert found.by("cluster_node_follows", "node") == {"a": 0, "b": 1, "c": 1, "d": 0}


async def test_the_dashboard_uses_only_exported_metrics() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    names = await exported()
    expressions = [
        target["expr"] for panel in board["panels"] for target in panel.get("targets", ())
    ]
    assert len(expressions) > 40
    used = {
        name
        for text in expressions
        for name in re.findall(r"\b((?:trio_stomp|process)_[a-z_]+)", text)
    }
    assert used - names == set()
    for wanted in (
        "delivery_seconds_bucket",
        "messages_dropped_total",
        "queue_depth",
        "memory_used_bytes",
        "journal_bytes",
        "connections",
    ):
        assert f"trio_stomp_{wanted}" in used


async def test_the_alerts_use_only_exported_metrics_and_are_documented() -> None:
    text = ALERTS.read_text(encoding="utf-8")
    names = await exported()
    expressions = re.findall(r"^ +expr: (.+)$", text, re.MULTILINE)
    used = set(re.findall(r"\b(?:trio_stomp|process)_[a-z_]+", " ".join(expressions)))
    assert used - names == set()
    alerts = re.findall(r"^ +- alert: (\w+)$", text, re.MULTILINE)
    assert len(alerts) == len(expressions) > 10
    output = re.findall(r"`(Stomp\w+)`", DOCUMENT.read_text(encoding="utf-8"))
    assert sorted(output) == sorted(alerts)


def test_the_dashboard_is_one_that_grafana_10_imports() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert board["schemaVersion"] >= 38
    assert board["id"] is None
    assert board["uid"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    variables = {each["name"] for each in board["templating"]["list"]}
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["expr"].count("(") == target["expr"].count(")")
            assert target["expr"].count("{") == target["expr"].count("}")
            found = set(re.findall(r"\$(\w+)", target["expr"]))
            assert found <= variables | {"__rate_interval"}


async def test_the_document_tells_of_every_metric_and_of_no_other() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(trio_stomp_[a-z_]+)", text, re.MULTILINE))
    names = {name for name in await exported() if name.startswith("trio_stomp_")}
    bases = {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}
    assert listed == bases


async def test_the_labels_equal_those_of_the_documentation(dial: Dial) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(trio_stomp_[a-z_]+)\{?([a-z, ]*)\}?` ", text, re.MULTILINE))
    client = await dial.connect()
    await client.publish("/topic/t", b"x", receipt=True)
    for name, labels in scrape(dial).samples:
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        if base.startswith("trio_stomp_"):
            found = {each.strip() for each in listed[base].split(",")} - {""}
            assert {label for label, _ in labels} - {"le"} == found, name


def test_metrics_destinations_is_bounded() -> None:
    assert WebOptions().metrics_destinations == 50
    with pytest.raises(ValueError, match="10000 or less"):
        WebOptions(metrics_destinations=10_001)
