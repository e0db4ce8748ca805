"""The dashboard for everybody: axe, narrow screens, both themes, and very many things."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise, product
from typing import Any
from urllib.request import urlopen

import pytest

from tests.support.chromium import Chromium, Page
from tests.support.dashboard import (
    VIEWS,
    anonymous,
    dead_letter,
    live,
    open_queue,
    press,
    shows,
    url,
)
from tests.support.foreign import JS, PATIENCE_S, running_broker

pytestmark = [pytest.mark.foreign, pytest.mark.full]

WIDTHS = (1280, 768, 390)
SCHEMES = ("light", "dark")
AXE = JS / "node_modules" / "axe-core" / "axe.min.js"

QUEUES, CONNECTIONS = 2_000, 5_000
SHOWN_S = 1.0
"""The longest time in which a view is there."""
SHARE = 0.05
"""The largest share of a core that the page takes while it is watched."""

BUSY_QUEUES, BUSY_CONNECTIONS = 200, 300
LONG_HISTORY = 20 << 20
"""Bytes of history: more than twice what the page reads before it begins later in time."""

STROKES = """(() => {
  const strokes = window.strokes = new Map();
  const brush = CanvasRenderingContext2D.prototype;
  const noting = (name, note) => {
    const real = brush[name];
    brush[name] = function (...values) {
      note(this.canvas, ...values);
      return real.apply(this, values);
    };
  };
  let path = [];
  noting("clearRect", (canvas) => strokes.set(canvas, []));
  noting("beginPath", () => (path = []));
  noting("moveTo", (_, x, y) => path.push([x, y]));
  noting("lineTo", (_, x, y) => path.push([x, y]));
  noting("stroke", (canvas) => strokes.get(canvas)?.push(path.slice()));
})()"""
"""Keeps the lines of which each chart consists."""
LINES = """(() => {
  const tiles = [...document.querySelectorAll("#tiles article")];
  const tile = tiles.find((each) => each.querySelector("h3").textContent === %r);
  const canvas = tile.querySelector("canvas");
  return [window.strokes.get(canvas) ?? [], canvas.clientWidth, canvas.clientHeight];
})()"""
"""The lines of a tile's chart, and its width and height."""

SESSION = """fetch("api/v1/connections?name=anna").then((each) => each.json())
  .then(({connections}) => connections[0].session_id)"""
CLUSTER = """(() => {
  const real = window.fetch;
  const node = (name, role, behind, differs) =>
    ({node: name, role, behind, clients: 17, address: "10.0.0.1:6000", version: "0.1.0", differs});
  const nodes = [node("north", "owner", 0, []), node("south", "standby", 41, ["rules", "users"])];
  const cluster = {name: "shop", epoch: 7, appends: 90, records: 5000, append_s: 0.3, nodes};
  window.fetch = async (address, options) => {
    const answer = await real(address, options);
    if (!address.includes("/overview")) return answer;
    return Response.json({...(await answer.json()), cluster});
  };
})()"""
"""The broker's answers, as if it were part of a cluster."""

RULES_OF_AXE = """axe.run(document, {resultTypes: ["violations"]}).then(({violations}) =>
  violations.map(({id, nodes}) => `${id}: ${nodes.map(({html}) => html.slice(0, 200))}`))"""


@contextmanager
def everything(page: Page, port: int) -> Iterator[list[str]]:
    """Something in each view; the addresses of all of them, pages of single things too."""
    peer = anonymous(port, login="anna", passcode="x")
    peer.subscribe("/queue/jobs", ack="client-individual", headers={"selector": "a = 1"})
    peer.subscribe("/topic/prices", id="2")
    dead_letter(port, "/queue/dead", "one", "two", trace="7")
    peer.send("/topic/prices", "x")
    peer.send("/queue/jobs", "x", {"a": "1"})
    peer.send("/queue/later", "x", {"AMQ_SCHEDULED_DELAY": "3600000"})
    peer.settle()
    page.js(CLUSTER)
    pages = [
        "cluster",
        "queue?name=/queue/DLQ.dead",
        "queue?name=/queue/jobs",
        f"connection?session={page.js(SESSION)}",
        "stream?name=/stream/DIAG",
        "explain?destination=/queue/jobs",
    ]
    yield [*VIEWS, *pages]
    peer.leave()


def go_to(page: Page, address: str) -> None:
    """Open a view by its address, and wait until its tables are filled."""
    page.js(f"location.hash = {address!r}")
    view = address.partition("?")[0]
    page.until(f"!document.getElementById({view!r}).hidden")
    if "?" in address:
        page.until(f"document.querySelectorAll('#{view} :is(dd, tr, li)').length > 1")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_complains_of_nothing(chromium: Chromium, port: int, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("AXE IS NOT THERE (npm ci in tests/js): nobody looked for barriers")
    with chromium.page(url(port)) as page:
        live(page)
        media = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in media.items()]
        page.call("Emulation.setEmulatedMedia", features=features)
        page.js(AXE.read_text() + ";0")
        with everything(page, port) as addresses:
            for width, address in product(WIDTHS, addresses):
                page.resize(width, 900)
                go_to(page, address)
                assert page.js(RULES_OF_AXE) == [], (address, width)
            open_queue(page, "/queue/DLQ.dead")
            press(page, "queue", "Purge …")
            shows(page, "#confirm", "Purge")
            assert page.js(RULES_OF_AXE) == [], "dialog"


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off_at_the_side(chromium: Chromium, port: int, width: int) -> None:
    with chromium.page(url(port), width, 900) as page:
        live(page)
        with everything(page, port) as addresses:
            for address in addresses:
                go_to(page, address)
                assert page.js("document.documentElement.scrollWidth") <= width, address
                inside = "[...document.querySelectorAll('button, input, select, a, .card')]"
                beyond = page.js(
                    f"{inside}.filter((each) => !each.closest('nav, .scroll') &&"
                    f" each.checkVisibility() && each.getBoundingClientRect().right > {width})"
                    ".map((each) => each.outerHTML)"
                )
                assert beyond == [], address


@contextmanager
def crowd(port: int) -> Iterator[None]:
    """Very many queues with messages, and very many connections that are silent."""
    filler = anonymous(port)
    for number in range(QUEUES):
        filler.try_send(f"/queue/many.{number}", "x" * (number % 50))
    filler.settle()
    connect = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
    with ExitStack() as stack:
        peers = []
        for _ in range(CONNECTIONS):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            peer.sendall(connect)
            peers.append(peer)
        for peer in peers:
            peer.settimeout(PATIENCE_S)
            assert peer.recv(4096).startswith(b"CONNECTED")
        yield
    filler.leave()


def test_two_thousand_queues_and_five_thousand_connections(chromium: Chromium) -> None:
    options = ("--diag-interval-s", "5")
    with running_broker(*options) as port, crowd(port), chromium.page(url(port)) as page:
        live(page)
        # Figures come every 5 s: the views are measured once they have the whole crowd.
        go_to(page, "destinations")
        shows(page, "#destinations-count", "2,0")
        took = {}
        for address, place, text in (
            ("connections", "#connections-count", "5,00"),
            ("queues", "#queues-count", "2,000"),
            ("queue?name=/queue/many.7", "#queue .messages-count", "1 shown"),
            ("destinations", "#destinations-count", "2,0"),
            ("durables", "#durables-table", "No durable"),
            ("streams", "#streams-table", "/stream/DIAG"),
            ("stream?name=/stream/DIAG", "#stream .messages", "DIAG/"),
            ("schedules", "#schedules-table", "No message matches"),
            ("last-values", "#last-values-table", "No topic"),
            ("explain?destination=/queue/many.7", "#explain-summary", "1 sent"),
            ("settings", "#settings", "max_connections"),
            ("latency", "#latency-figures", "latency"),
            ("events", "#events-table", "connect"),
            ("overview", "#tiles", "5,00"),
        ):
            began = time.monotonic()
            go_to(page, address)
            shows(page, place, text)
            took[address] = round(time.monotonic() - began, 2)
        print(took)
        assert max(took.values()) < SHOWN_S, took
        page.call("Performance.enable")
        shares = {}
        for address in ("overview", "queues", "connections"):
            go_to(page, address)
            began, before = time.monotonic(), task_seconds(page)
            page.js("new Promise((resolve) => setTimeout(resolve, 60000))")
            shares[address] = (task_seconds(page) - before) / (time.monotonic() - began)
        print(shares)
        assert max(shares.values()) < SHARE, shares
        assert page.complaints == []


def write_history(port: int) -> None:
    """Be many busy clients, until the broker's statistics are too long for the page to read."""
    stream = url(port) + "api/v1/stream?stream=%2Fstream%2FDIAG"
    connect = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
    deadline = time.monotonic() + PATIENCE_S
    with ExitStack() as stack:
        here = ("127.0.0.1", port)
        peers = [
            stack.enter_context(socket.create_connection(here)) for _ in range(BUSY_CONNECTIONS)
        ]
        for peer in peers:
            peer.sendall(connect)
        while True:
            with urlopen(stream, timeout=PATIENCE_S) as answer:
                if json.load(answer)["bytes"] > LONG_HISTORY:
                    return
            assert time.monotonic() < deadline
            for number, peer in enumerate(peers):
                queue = f"/queue/busy.{number % BUSY_QUEUES}"
                peer.sendall(f"SEND\ndestination:{queue}\n\nx\0".encode())
            time.sleep(0.1)


def lines(page: Page, title: str) -> tuple[list[list[list[float]]], float, float]:
    """Return the lines of a tile's chart, its width and its height."""
    found: tuple[Any, float, float] = page.js(LINES % title)
    return found


def test_charts_of_a_history_too_long_to_read_have_no_hole(chromium: Chromium) -> None:
    with running_broker("--diag-interval-s", "0.2") as port:
        began = time.monotonic()
        write_history(port)
        with chromium.page(url(port)) as page:
            page.js(STROKES)
            live(page)
            shows(page, "#overview .span-note", "a reading every")
            page.js("new Promise((resolve) => setTimeout(resolve, 3000))")
            for title in ("Sessions", "Memory", "Received", "Delivered", "Dropped", "Processor"):
                found, width, _ = lines(page, title)
                assert len(found) == 1, (title, found)
                places = [x for x, _ in found[0]]
                # The chart is of a minute at least, from the first sample to now.
                expected = (time.monotonic() - began) / 60 * width
                assert places[-1] - places[0] > 0.8 * min(expected, width), title
                assert max(after - before for before, after in pairwise(places)) < 0.05 * width
            # The samples do not have what waits: that is unknown then, and not nothing.
            found, _, height = lines(page, "Waiting")
            assert found
            assert max(y for line in found for _, y in line) < height / 2
            assert page.complaints == []


def task_seconds(page: Page) -> float:
    """The processor time of the page's process."""
    metrics = page.call("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "ProcessTime"))
