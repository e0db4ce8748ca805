"""Hostile or vanished peers: slow, half-open, reset, never reading, and far too many.

It also tests bulk requests of one client: subscriptions, patterns, selectors, transactions,
  receipts.
Work is counted in steps and calls, never in seconds; time is virtual. After each attack nothing is
left: no connection, no admission, no byte of the budget (``open_dial`` looks at its end, too).
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.core import Core
from tests.support.fakes import (
    MEMORY,
    TCP,
    WS_MEMORY,
    Dial,
    abort,
    bodies,
    frame_bytes,
    open_dial,
    until,
)
from tests.support.hostile import (
    BINARY,
    CONTINUATION,
    HELLO,
    PING,
    QUIET,
    TEXT,
    calls_of,
    connect_narrow,
    endings,
    expect_left,
    octets,
    open_session,
    open_socket,
    pieces,
    request,
    send,
    ws,
)
from tests.support.hostile import dial as dial
from trio_stomp.base import RemoteError
from trio_stomp.broker import BrokerPolicies
from trio_stomp.broker.names import WildcardTrie, compile_pattern
from trio_stomp.transport import Wire

FIRST_BYTES, RECEIVE_BYTES = 8 * 1024, 64 * 1024
"""Of a read, at first and later."""

MIB = 1 << 20


# --- slow loris -----------------------------------------------------------------------------------


@pytest.mark.covers("C14", "W24")
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\n" * 100, id="line-feeds"),
        pytest.param(b"CONNECT\naccept-version:1.2\nhost:" + b"x" * 100, id="connect"),
        pytest.param(request(X=b"x" * 100), id="http"),
        pytest.param(request() + ws(TEXT, HELLO), id="websocket"),
        pytest.param(request() + ws(PING) * 50, id="pings"),
    ],
)
async def test_a_byte_in_a_while_opens_no_session(autojump_clock, data: bytes) -> None:
    """Before CONNECT a trickle keeps no connection open: its time runs from its acceptance."""
    async with open_dial(**QUIET, connect_timeout_s=10.0) as dial:
        stream = await dial.stream()
        before = trio.current_time()
        with suppress(trio.BrokenResourceError):
            for octet in octets(data):
                await stream.send_all(octet)
                await trio.sleep(0.5)
                if not dial.server.connections:
                    break
        assert trio.current_time() - before == pytest.approx(10, abs=2.5)  # and the linger
        await expect_left(dial, 0, {"connect-timeout": 1})
        await stream.aclose()


@pytest.mark.covers("H09", "F40")
@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
@pytest.mark.parametrize(
    ("start", "code"),
    [
        pytest.param(b"SEND\ndestination:/t\nx:", "headers-too-large", id="header"),
        pytest.param(b"SEND\ndestination:/t\n\n", "body-too-large", id="body"),
        pytest.param(b"", "invalid-command", id="command"),
    ],
)
async def test_a_trickle_in_a_session_is_alive_charged_and_bounded(
    autojump_clock, transport: str, start: bytes, code: str
) -> None:
    """Any byte is a sign of life, so only the limits end it. Its memory is in the budget."""
    limits = {"max_body_bytes": 400, "max_header_block_bytes": 400}
    async with open_dial(transport, **QUIET, **limits) as dial:
        client = await dial.open()
        await client.connect("1.2", {"heart-beat": "1000,0"})
        other = await dial.connect()
        await client.send_bytes(start)
        await trio.testing.wait_all_tasks_blocked()
        held = len(start)
        mine = next(iter(dial.server.connections))
        while mine.lifecycle.pending_error is None and mine.session.decoder.error is None:
            assert dial.server.memory.used_bytes == held
            assert held < 500
            await trio.sleep(0.9)  # sooner than it promised: a dead peer is silent for longer
            await client.send_bytes(b"A")
            held += 1
            await trio.testing.wait_all_tasks_blocked()
            if held % 50 == 0:
                assert await other.fence() == []
        await client.expect_error(code)
        assert held >= (33 if not start else 400)
        await expect_left(dial, 1)


# --- gone without a word --------------------------------------------------------------------------

TALK = b"".join(
    [
        HELLO,
        frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "1", "receipt": "r"}),
        frame_bytes("SUBSCRIBE", {"destination": "/queue/q", "id": "2", "ack": "client"}),
        frame_bytes("BEGIN", {"transaction": "a"}),
        frame_bytes("SEND", {"destination": "/t", "transaction": "a"}, b"in"),
        frame_bytes("SEND", {"destination": "/t"}, b"out"),
        frame_bytes("COMMIT", {"transaction": "a"}),
        frame_bytes("UNSUBSCRIBE", {"id": "1"}),
        frame_bytes("DISCONNECT", {"receipt": "bye"}),
    ]
)


@pytest.mark.covers("R12", "C11", "T05")
@pytest.mark.parametrize("how", ["plain", "websocket"])
async def test_a_peer_may_go_at_any_byte(dial: Dial, autojump_clock, how: str) -> None:
    """At each of them everything that was its own is given back."""
    talk = TALK if how == "plain" else request() + ws(TEXT, TALK)
    for cut in range(len(talk)):
        stream = await dial.stream()
        await stream.send_all(talk[:cut])
        if cut % 2:
            await trio.testing.wait_all_tasks_blocked()
        abort(stream)
        await expect_left(dial, 0)
        assert len(dial.server.broker.subscriptions) == 0
    assert dial.server.admission.admitted == 0


@pytest.mark.covers("R12", "C11")
@pytest.mark.parametrize("how", ["plain", "websocket"])
async def test_a_reset_at_any_byte_of_a_real_connection(how: str) -> None:
    talk = TALK if how == "plain" else request() + ws(TEXT, TALK)
    async with open_dial(TCP, **QUIET) as dial:
        for number, cut in enumerate(range(0, len(talk), 13)):
            stream = await dial.stream()
            await stream.send_all(talk[:cut])
            if number % 2:
                for _ in range(5):
                    await trio.lowlevel.checkpoint()
            abort(stream)
        await until(lambda: dial.server.accepted == number + 1)
        await expect_left(dial, 0)
        assert dial.server.admission.admitted == 0


@pytest.mark.covers("H07", "H08", "R12")
@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_a_crowd_that_vanished_is_found_by_its_silence(
    autojump_clock, transport: str
) -> None:
    """Half-open: no FIN, no reset, no further data, and messages for it wait."""
    async with open_dial(transport, **QUIET) as dial:
        for number in range(100):
            client = await dial.open()
            await client.connect("1.2", {"heart-beat": "5000,5000"})
            await client.subscribe("/t", id=f"{number}")
        other = await dial.connect()
        before = trio.current_time()
        await other.publish("/t", b"x" * 1000)
        await other.fence()
        await expect_left(dial, 1, {"heart-beat-timeout": 100})
        assert trio.current_time() - before < 5 * 2 + 1 + 2 + 1  # tolerance, margin, linger
        assert len(dial.server.broker.subscriptions) == 0


# --- far too many ---------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.covers("C11")
async def test_ten_thousand_connects_in_a_minute(
    autojump_clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some connect and stay a while, some stay silent, some leave immediately; 50 are admitted."""
    async with open_dial(**QUIET, max_connections=50, connect_timeout_s=1.0, linger_s=0.1) as dial:
        await dial.start()
        server, most = dial.server, 0
        admitting = type(server.admission)
        enter = admitting.enter

        def entered(admission: Any, wire: Wire) -> RemoteError | None:
            nonlocal most
            refusal = enter(admission, wire)
            most = max(
                most, admission.admitted
            )  # immediately: some leave before they can be counted
            return refusal

        monkeypatch.setattr(admitting, "enter", entered)
        base = trio.lowlevel.current_statistics().tasks_living
        hanging: list[trio.abc.Stream] = []
        before = trio.current_time()
        for _ in range(100):
            streams = [dial.listener.connect() for _ in range(100)]
            for place, stream in enumerate(streams):
                if place % 3:
                    await stream.send_all(HELLO)
                if place % 3 == 2:
                    await stream.send_eof()
            await trio.sleep(0.3)
            assert server.admission.admitted <= 50
            assert server.memory.used_bytes < 10_000
            for stream in streams[10:]:
                abort(stream)
            hanging += streams[:10]
            while len(hanging) > 40:  # after some seconds
                abort(hanging.pop(0))
            await trio.sleep(0.3)
        assert trio.current_time() - before == pytest.approx(60, abs=1)
        for late in hanging:
            abort(late)
        await until(lambda: not server.connections, 0.1)
        assert server.accepted == 10_000
        assert sum(endings(dial).values()) == 10_000
        assert endings(dial)["too-many-connections"] > 0
        assert most == 50
        assert (server.admission.admitted, server.memory.used_bytes) == (0, 0)
        assert len(server.watchdog._wheel) < 5000
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == base
        last = await dial.connect()
        assert await last.fence() == []


async def test_earlier_client_is_served_during_the_storm(autojump_clock) -> None:
    async with open_dial(**QUIET, max_connections=20) as dial:
        old = await dial.connect()
        await old.subscribe("/t")
        for turn in range(20):
            storm = [await dial.stream() for _ in range(50)]
            for stream in storm:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(HELLO + send(b"from the storm", "/elsewhere"))
            await old.publish("/t", b"%d" % turn)
            assert (await old.receive()).body == b"%d" % turn
            for stream in storm:
                abort(stream)
            dial._streams[1:] = []
            await until(lambda: len(dial.server.connections) == 1, 0.1)
        assert dial.server.admission.admitted == 1


# --- never reading --------------------------------------------------------------------------------


def receipts_of(command: bytes) -> Callable[[int], bytes]:
    return lambda n: b"".join(
        b"%b\nreceipt:%d-%b\n\n\0" % (command, number, b"r" * 400) for number in range(n)
    )


def pairs_of_subscribe(count: int) -> bytes:
    """SUBSCRIBE and UNSUBSCRIBE of the same, each with a receipt."""
    receipt = "r" * 400
    both = frame_bytes("SUBSCRIBE", {"destination": "/u", "id": "1", "receipt": receipt})
    return (both + frame_bytes("UNSUBSCRIBE", {"id": "1", "receipt": receipt})) * (count // 2)


def pairs_of_begin(count: int) -> bytes:
    receipt = "r" * 400
    both = frame_bytes("BEGIN", {"transaction": "a", "receipt": receipt})
    return (both + frame_bytes("ABORT", {"transaction": "a", "receipt": receipt})) * (count // 2)


def queries(count: int) -> bytes:
    """The answer is much larger than the question, which only local clients may ask."""
    return frame_bytes("DIAG", (), b"subs") * count


@pytest.mark.covers("R01")
@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(receipts_of(b"SEND\ndestination:/u"), id="send"),
        pytest.param(pairs_of_subscribe, id="subscribe"),
        pytest.param(pairs_of_begin, id="begin"),
        pytest.param(queries, id="diag"),
    ],
)
async def test_a_client_that_does_not_read_its_answers_is_disconnected(
    autojump_clock, flood: Callable[[int], bytes]
) -> None:
    """The receipt bomb: each frame wants an answer, and none is taken. One read more, at most."""
    async with open_dial(**QUIET, max_outbox_bytes=100_000, write_stall_s=1000.0) as dial:
        holder = await dial.connect()
        for number in range(40):
            await holder.subscribe("/" + "s" * 40 + f"/{number}", id=f"{number}")
        rude = await connect_narrow(dial)
        peak = 0
        with trio.move_on_after(60), suppress(trio.BrokenResourceError):
            while len(dial.server.connections) == 2:
                await rude.pipe.stream.send_all(flood(20))  # type: ignore[attr-defined]
                peak = max(peak, dial.server.memory.used_bytes)
        assert 50_000 < peak < 250_000
        assert await holder.fence() == []
        await expect_left(dial, 1, {"slow-consumer": 1})


async def test_memory_for_subscribers_that_never_read_is_bounded(autojump_clock) -> None:
    """200 of them, one publisher: the budget bounds what waits for all, and then they go."""
    async with open_dial(**QUIET, max_memory_bytes=4 * MIB, max_outbox_bytes=MIB) as dial:
        for number in range(200):
            rude = await connect_narrow(dial)
            await rude.subscribe("/t", id=f"{number}")
        publisher = await dial.connect()
        for _ in range(40):
            with trio.move_on_after(5):
                await publisher.publish("/t", b"x" * 5000)
                assert dial.server.memory.used_bytes <= 4 * MIB + 10_000
        await until(lambda: len(dial.server.connections) == 1, 1.0, 600)
        assert dial.server.memory.used_bytes == 0
        assert await publisher.fence() == []


# --- bombs of subscriptions and patterns ----------------------------------------------------------


def trie_of(patterns: list[str]) -> WildcardTrie[int]:
    trie: WildcardTrie[int] = WildcardTrie()
    for number, text in enumerate(patterns):
        pattern = compile_pattern(text, "native")
        assert pattern is not None, text
        trie.add(pattern, number)
    return trie


def stars(number: int, words: int) -> str:
    """A pattern that matches a.a.a..., one of two to the power of ``words``."""
    return ".".join("*" if number >> place & 1 else "a" for place in range(words)) + ".>"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda n: f"a.{n}.*", id="words"),
        pytest.param(lambda n: f"{n}.*", id="first-words"),
        pytest.param(lambda n: f"*.*.{n}.>", id="behind-stars"),
        pytest.param(lambda n: f"*.{n}.*.{n}.*", id="between-stars"),
        pytest.param(lambda n: f"b/{n}/" + "*/" * 8 + ">", id="deep"),
    ],
)
def test_patterns_that_do_not_match_cost_nothing(make: Callable[[int], str]) -> None:
    """One publish among 10,000 patterns takes as many steps as among ten."""
    name = "a.x.y.z"
    few, many = trie_of([make(n) for n in range(10)]), trie_of([make(n) for n in range(10_000)])
    assert few.match(name) == many.match(name) == []
    assert calls_of(lambda: many.match(name)) == calls_of(lambda: few.match(name))


@pytest.mark.parametrize("words", [4, 8, 12])
def test_stars_in_every_place_cost_a_step_for_each_pattern(words: int) -> None:
    """All 2 to the n patterns match; each is found once, along branches that are walked once."""
    count = 1 << words
    trie = trie_of([stars(number, words) for number in range(1, count)])
    name = ".".join(["a"] * (words + 1))
    assert sorted(trie.match(name)) == list(range(count - 1))
    assert calls_of(lambda: trie.match(name)) < 12 * count + 200
    longer = name + ".a" * 100  # what is behind the patterns costs nothing but its own words
    assert calls_of(lambda: trie.match(longer)) < 12 * count + 500


@pytest.mark.parametrize(
    "pattern",
    ["*" * 1000, "*.*" * 300, ".*" * 500, "**." * 300 + "*", ">.>", "a*b*c", "*/" * 500 + "*a*"],
)
def test_a_pattern_of_stars_is_a_pattern_or_an_error_in_steps_of_its_length(pattern: str) -> None:
    core = Core()
    peer, publisher = core.peer(), core.peer()

    def subscribe() -> None:
        peer.subscribes(pattern)

    assert calls_of(subscribe) < 30 * len(pattern) + 2000
    publisher.sends("." * 500, "x")
    publisher.sends("/".join("a" * 500), "x")
    peer.is_gone()
    core.ends()


def test_a_pattern_costs_no_more_nodes_than_it_has_reason_to() -> None:
    """512 words in 1 KiB make 1,023 nodes, half a MiB, which no budget knows; 10,000 make 5 GiB.

    And a SEND to a.a.a... walks them all: a second of everybody's time for each new name.
    """
    trie = WildcardTrie[int]()
    count = 64
    for number in range(count):
        text = stars(number, 6).removesuffix(">") + "*." * 500 + "*"
        assert len(text) <= BrokerPolicies().max_destination_bytes
        with suppress(Exception):  # to refuse it is right, too
            pattern = compile_pattern(text, "native")
            assert pattern is not None
            trie.add(pattern, number)
    steps = calls_of(lambda: trie.match(".".join(["a"] * 507)))
    assert steps < count * 200


def test_a_new_name_in_a_table_that_is_nearly_full_costs_no_look_at_all_others() -> None:
    """One idle place among thousands subscribed to: each SEND to a new name evicts one.

    Those subscribed to are checked once, by the first few names.
    """

    def cost(size: int) -> int:
        core = Core(BrokerPolicies(max_destinations=size))
        holder, sender = core.peer(), core.peer()
        for number in range(size - 1):
            holder.subscribes(f"a{number}", f"{number}")
        for number in range(20):
            sender.sends(f"first{number}")

        def send_to_new_names() -> None:
            for number in range(20):
                sender.sends(f"new{number}")

        return calls_of(send_to_new_names)

    assert cost(2000) < 2 * cost(100)


def test_subscribing_and_leaving_in_turn_leaves_nothing() -> None:
    """The same id, ten thousand times: no table of tags, ids or patterns keeps a trace."""
    core = Core()
    peer = core.peer()
    for number in range(5_000):
        peer.subscribes(f"a.{number}" if number % 2 else f"b.{number}.*", "same")
        peer.unsubscribes("same")
    assert (len(peer.client.subscriptions), len(peer.client.tags)) == (0, 0)
    assert len(core.broker.subscriptions) == 0
    assert core.broker.destinations.wildcards == 0
    assert core.broker.destinations._wildcards._root.is_empty()
    core.ends()


# --- selectors ------------------------------------------------------------------------------------


@pytest.mark.covers("S12")
@pytest.mark.parametrize(
    "selector",
    [
        pytest.param("x LIKE '" + "%a" * 2000 + "b'", id="like-many"),
        pytest.param("x LIKE '" + "%_" * 2000 + "b'", id="like-any-one"),
        pytest.param("x LIKE '" + "_" * 4000 + "%b'", id="like-long"),
        pytest.param("x NOT LIKE '" + "%" * 4000 + "'", id="not-like"),
        pytest.param(" OR ".join(["x LIKE '%a%a%a%b'"] * 150), id="many-likes"),
        pytest.param("x IN (" + ",".join(["'b'"] * 450) + ")", id="in-many"),
        pytest.param("x = " + " + ".join(["1"] * 450), id="sums"),
    ],
)
async def test_a_hostile_selector_is_evaluated_in_bounded_time(
    dial: Dial, autojump_clock, selector: str
) -> None:
    """Against a header that makes a backtracking matcher look for ever: it would never return."""
    pytest.importorskip("lark")
    bomber, publisher, other = [await dial.connect() for _ in range(3)]
    for number in range(20):
        pairs = {"selector": selector}
        await bomber.subscribe("/t", id=f"{number}", headers=pairs)
    await other.subscribe("/t")
    await publisher.publish("/t", b"x", headers={"x": "a" * 16_000}, receipt=True)
    assert bodies(await other.fence()) == [b"x"]
    assert bodies(await bomber.fence()) == []


# --- bombs of transactions ------------------------------------------------------------------------


async def hold(dial: Dial, command: str, count: int, size: int, **pairs: str) -> int:
    """Let clients each make the broker store a body of this size. Return the number that it
    accepted."""
    taken = 0
    for _ in range(count):
        client = await dial.connect()
        await client.send("BEGIN", {"transaction": "a"})
        with suppress(trio.TooSlowError):
            await client.send("SEND", {"receipt": "r", **pairs}, b"x" * size)
            frame = await client.receive()
            if frame.command == "ERROR":
                assert frame["code"] == "transaction-too-large"
            taken += frame.command == "RECEIPT"
    return taken


async def test_transactions_of_many_share_one_budget(autojump_clock) -> None:
    async with open_dial(**QUIET, max_memory_bytes=MIB) as dial:
        pairs = {"destination": "/t", "transaction": "a"}
        taken = await hold(dial, "SEND", 24, 60_000, **pairs)
        assert 10 < taken < 18
        assert taken * 60_000 < dial.server.memory.used_bytes <= MIB
        dial.hang_up()
        await expect_left(dial, 0)


async def test_transactions_that_never_end_do_not_stop_other_clients(autojump_clock) -> None:
    """A client within its own limits must not be able to stop all traffic of others."""
    async with open_dial(**QUIET, max_memory_bytes=MIB) as dial:
        await hold(dial, "SEND", 18, 60_000, destination="/t", transaction="a")
        other = await dial.connect()
        with trio.fail_after(60):
            await other.send("SEND", {"destination": "/u", "receipt": "r"})
            while (frame := other.reader.next()) is None:
                other.reader.feed(await other.pipe.receive_bytes())
        assert frame.command == "RECEIPT"


async def test_a_full_queue_and_frames_that_never_end_do_not_lock_its_consumers_out(
    autojump_clock,
) -> None:
    """Four fifths wait in a queue, a tenth in incomplete frames: consumers must still be read."""
    async with open_dial(**QUIET, max_memory_bytes=MIB) as dial:
        publisher = await dial.connect()
        await publisher.publish("/queue/q", *[b"x" * 50_000] * 16, receipt=True)
        for _ in range(4):
            client = await dial.connect()
            await client.send_bytes(b"SEND\ndestination:/t\n\n" + b"x" * 40_000)
            await trio.testing.wait_all_tasks_blocked()
        try:
            consumer = await dial.connect()
            await consumer.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1"})
            with trio.fail_after(60):
                while not await consumer.pipe.receive_bytes():
                    pass
        finally:
            dial.hang_up()
            await until(lambda: not dial.server.connections, 0.1)
            await empty(dial)


async def empty(dial: Dial) -> None:
    """Consume the messages in the queue, so that the test ends as it began."""
    reader = await dial.connect()
    await reader.subscribe("/queue/q", headers={"x-prefetch-count": "1000"})
    while dial.server.memory.used_bytes:
        await reader.receive()
        await trio.testing.wait_all_tasks_blocked()


# --- names are memory, too ------------------------------------------------------------------------


async def test_groups_and_ids_of_subscriptions_are_charged_too(dial: Dial, autojump_clock) -> None:
    """Names of 15 KB each, which only their number would bound."""
    client, memory = await dial.connect(), dial.server.memory
    await client.fence()
    before = memory.tables_bytes
    for number in range(20):
        pairs = {"id": f"{number}" + "i" * 15_000, "destination": "/t", "receipt": "r"}
        await client.send("SUBSCRIBE", pairs)
        await client.receive()
    assert memory.tables_bytes - before > 20 * 2 * 15_000
    before = memory.tables_bytes
    await client.subscribe("/queue/q", id="q", headers={"ack": "client"})
    for number in range(20):
        pairs = {"message_group": f"{number}" + "g" * 15_000}
        await client.publish("/queue/q", b"x", headers=pairs)
    await client.receive_many(20)
    assert memory.tables_bytes - before > 20 * 15_000
    client.abort()
    await until(lambda: not dial.server.connections, 0.1)
    assert memory.tables_bytes < 15_000  # less than one of those names
    reader = await dial.connect()
    await reader.subscribe("/queue/q")
    await reader.receive_many(20)


# --- WebSocket peers ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 100, 4000])
async def test_the_start_of_a_frame_is_charged(dial: Dial, autojump_clock, size: int) -> None:
    """Bytes that the codec holds until the frame is complete are memory as well."""
    socket = await open_session(dial)
    await socket.send(ws(TEXT, send(b"x" * 5000))[:size])
    await trio.testing.wait_all_tasks_blocked()
    assert dial.server.memory.used_bytes == size
    await socket.send(ws(TEXT, send(b"x" * 5000))[size:])
    await socket.until(lambda it: it.bodies == [b"x" * 5000])
    assert dial.server.memory.used_bytes == 0
    await socket.send(ws(TEXT, send(b"x" * 5000))[:size])
    await trio.testing.wait_all_tasks_blocked()
    abort(socket.stream)
    await expect_left(dial, 0)


@pytest.mark.covers("W14", "W22")
async def test_a_message_that_never_ends_holds_nothing(autojump_clock) -> None:
    """Endless fragments: their payload is passed on, and STOMP's own limits bound the rest."""
    async with open_dial(**QUIET, max_body_bytes=100_000) as dial:
        socket = await open_session(dial)
        await socket.send(ws(BINARY, fin=False))
        for _ in range(20):
            await socket.send(ws(CONTINUATION, send(b"x"), fin=False) * 10)
        await socket.until(lambda it: len(it.bodies) == 200)
        assert dial.server.memory.used_bytes == 0
        rest = b"\n" * 5000
        while not socket.is_ended:
            await socket.send(ws(CONTINUATION, rest, fin=False) * 5)
            with trio.move_on_after(0.1):
                await socket.read()
        assert socket.close_code == 1009


@pytest.mark.covers("W19")
async def test_a_flood_of_pings_costs_a_pong_for_each_read(dial: Dial, autojump_clock) -> None:
    """Section 5.5.3: the latest is answered, so no flood is answered by another."""
    socket = await open_socket(dial)
    await socket.send(ws(TEXT, HELLO))
    flood = b"".join(ws(PING, b"%d" % number) for number in range(5000))
    await socket.send(*pieces(flood, RECEIVE_BYTES))
    await socket.until(lambda it: it.pongs[-1:] == (b"4999",))
    # A new client is read in smaller pieces at first.
    assert len(socket.pongs) <= 1 + math.ceil((len(flood) - FIRST_BYTES) / RECEIVE_BYTES)


async def test_many_idle_websockets_with_half_a_frame(dial: Dial, autojump_clock) -> None:
    """Each holds the received part of a small frame, at most 8 KiB, until it leaves."""
    half = ws(BINARY, b"x" * 8000)[:4000]
    sockets = [await open_session(dial) for _ in range(50)]
    for socket in sockets:
        await socket.send(half)
    await trio.testing.wait_all_tasks_blocked()
    assert dial.server.census().ws_allocated == 50 * 4000
    for socket in sockets:
        abort(socket.stream)
    await until(lambda: not dial.server.connections, 0.1)
    assert dial.server.census().ws_allocated == 0


async def test_a_stranger_between_friends(autojump_clock) -> None:
    """All of them at once, and two who only talk to each other notice nothing."""
    async with open_dial(**QUIET, max_outbox_bytes=100_000, connect_timeout_s=3.0) as dial:
        one, two = await dial.connect(), await dial.connect()
        await two.subscribe("/friends")
        rude = await connect_narrow(dial)
        await rude.send("SUBSCRIBE", {"destination": "/friends", "id": "1"})
        strangers = [
            b"",
            HELLO + b"SEND\n",
            b"\xff" * 100,
            request()[:-1],
            request() + b"\xff" * 100,
            request() + ws(TEXT, HELLO) + ws(TEXT, b"x", mask=None),
            HELLO + b"SEND\ndestination:/t\ncontent-length:1000000\n\n",
        ]
        for turn in range(60):
            stream = await dial.stream()
            await stream.send_all(strangers[turn % len(strangers)])
            body = b"%d" % turn + b"." * 3000
            await one.publish("/friends", body)
            assert (await two.receive()).body == body
        before = trio.current_time()
        assert await one.fence() == await two.fence() == []
        assert trio.current_time() - before < 0.1
