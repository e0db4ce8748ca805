"""Every limit that a peer can reach, tested at the limit and one above.

Other tests cover each limit beside its code. Here a client reaches it over the wire: at the limit
it is served, one above it receives the documented code, and its connection ends for the documented
reason, with the matching WebSocket code. ``WHERE`` lists each limit of
docs/reference/limits.md with the test that holds it to one; a limit that is not there fails a test.
"""

import re
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import trio

from tests.support.core import head_bytes
from tests.support.fakes import (
    MEMORY,
    TCP,
    WS_MEMORY,
    Client,
    StreamPipe,
    frame_bytes,
    open_dial,
    until,
)
from tests.support.hostile import (
    QUIET,
    endings,
    expect_left,
    pieces,
    read_all,
    read_head,
    request,
    send_chunks,
)
from tests.support.limits import (
    CAPACITY,
    HEAD_CODES,
    JOIN_BYTES,
    LIMITS,
    MAX_BROWSES,
    MAX_COMMAND_BYTES,
    MAX_COMPOSITE,
    MAX_DEPTH,
    MAX_DURABLES,
    MAX_GROUPS,
    MAX_PAGES,
    MAX_PENDING,
    MAX_TEMPORARY,
    MAX_WORDS,
    RECEIPT,
    REFUSALS_AT_ONCE,
    Limit,
    id_of,
)
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.selectors import SelectorCompiler
from trio_stomp.config import options
from trio_stomp.frames import HeadCache

TESTS = Path(__file__).parents[1]
DOCUMENT = (TESTS.parent / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
HERE = "test_hostile_limits"

AT_THE_LIMIT = f"{HERE}::test_at_the_limit_it_is_served_and_one_above_refused"
NO_PEERS = "no peer's: "

WHERE = {
    # Options, in the order of docs/reference/limits.md.
    "max_body_bytes": AT_THE_LIMIT,
    "max_headers": AT_THE_LIMIT,
    "max_header_line_bytes": AT_THE_LIMIT,
    "max_header_block_bytes": AT_THE_LIMIT,
    "max_opening_bytes": f"{HERE}::test_the_limit_of_an_opening",
    "max_connections": f"{HERE}::test_the_limit_of_connections",
    "max_connections_per_address": f"{HERE}::test_the_limit_of_one_address",
    "max_subscriptions_per_connection": AT_THE_LIMIT,
    "max_destination_bytes": AT_THE_LIMIT,
    "max_destinations": AT_THE_LIMIT,
    "max_input_queue_size": "test_inbox::test_a_batch_beyond_a_bound_waits_for_the_first",
    "max_input_queue_bytes": "test_inbox::test_a_batch_beyond_a_bound_waits_for_the_first",
    "max_outbox_bytes": "test_outbox::test_over_the_limit_nothing_is_kept",
    "max_memory_bytes": f"{HERE}::test_the_limit_of_messages_waiting_in_queues",
    "max_transactions": AT_THE_LIMIT,
    "max_transaction_actions": AT_THE_LIMIT,
    "max_transaction_bytes": AT_THE_LIMIT,
    "max_waiting_logins": "test_authenticator::test_login_threads_and_waiting_logins_are_bounded",
    "max_token_session_s": "test_security_attacks::test_no_token_holds_a_session_for_ever",
    "max_redeliveries": f"{HERE}::test_the_limit_of_redeliveries",
    "max_stale_queue_size": "test_stale::test_the_count_is_exact",
    "max_stale_queue_bytes": "test_stale::test_bytes_are_exact",
    "max_durables_per_user": (
        "test_authorizer::test_one_user_leaves_others_room_for_durable_subscriptions"
    ),
    "max_schedules_per_user": "test_quotas::test_schedules_of_one_user_are_limited_in_number",
    "max_share_per_user": "test_quotas::test_one_user_leaves_room_for_the_next",
    "max_backlog_bytes": "test_catch_up::test_the_bound_is_exact",
    "max_store_bytes": (
        "test_store_journal::test_a_full_store_refuses_messages_and_accepts_records_that_make_room"
    ),
    "diag_stream_max_bytes": NO_PEERS + "the broker writes that stream, and its oldest goes",
    "diag_stream_max_age_s": NO_PEERS + "the broker writes that stream, and its oldest goes",
    # Fields of a destination's policy.
    "max_messages": "test_overflow::test_reject_accepts_messages_that_fit_and_reports_their_number",
    "max_bytes": "test_overflow::test_reject_accepts_messages_that_fit_and_reports_their_number",
    "stream_max_bytes": "test_stream::test_the_window_keeps_the_newest_within_its_size",
    "stream_max_age_ms": "test_stream::test_without_a_store_age_ends_all_of_it",
    # Without an option.
    "command": f"{HERE}::test_the_limit_of_a_command",
    "composite destination": f"{HERE}::test_the_limit_of_a_composite",
    "content-length digits": (
        "test_decoder::test_invalid_data_is_refused_however_the_bytes_are_split"
    ),
    "cron text": "test_schedule::test_senseless_schedule_is_refused",
    "durable subscriptions": "test_bindings::test_durable_subscriptions_are_bounded",
    "events of a turn": "test_broker::test_events_of_a_turn_are_bounded_and_the_rest_is_counted",
    "header cache": "test_decoder::test_the_cache_is_bounded_in_entries_and_in_their_size",
    "message groups": "test_queue::test_the_oldest_group_is_forgotten_when_there_are_too_many",
    "prefetch": "test_consumer::test_no_more_than_the_prefetch_is_unacknowledged",
    "refusals at once": "test_connection::test_a_flood_of_refusals_is_closed_without_a_word",
    "schedule": "test_schedule::test_bounds_hold_exactly",
    "selector depth": AT_THE_LIMIT,
    "selector length": AT_THE_LIMIT,
    "streams": "test_streams::test_a_pattern_gives_each_of_its_topics_a_stream_up_to_a_limit",
    "temporary destinations": AT_THE_LIMIT,
    "words of a wildcard": AT_THE_LIMIT,
    "websocket control frame": "test_websocket_rfc6455::test_case_on_a_connection",
    "websocket message": "test_websocket_rfc6455_limits::test_the_limit_of_a_message",
    "write": "test_outbox::test_the_writer_joins_but_within_bounds",
}  # fmt: skip


# --- the table is whole, and true -----------------------------------------------------------------


def test_no_limit_is_missing_from_the_table() -> None:
    named = {spec.name for spec in options()} | {it.name for it in attrs.fields(DestinationPolicy)}
    limits = {name for name in named if re.search(r"(\A|_)max_", name)}
    assert len(limits) > 20
    assert sorted(limits - WHERE.keys()) == []
    found = set(re.findall(r"`(max_\w+)`", DOCUMENT.partition("## Limits without an option")[0]))
    assert sorted(found - WHERE.keys()) == []


def test_each_test_of_the_table_is_there() -> None:
    for limit, place in WHERE.items():
        if not place.startswith(NO_PEERS):
            file, _, name = place.partition("::")
            (path,) = TESTS.rglob(f"{file}.py")
            text = path.read_text(encoding="utf-8")
            assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), (limit, place)


def test_each_limit_without_an_option_is_as_documented() -> None:
    """The sentence in docs/reference/limits.md; who changes a number changes both."""
    _, _, table = DOCUMENT.partition("## Limits without an option")
    compiler = SelectorCompiler()
    for written in (
        f"{MAX_DURABLES:,} durable subscriptions",
        f"{MAX_TEMPORARY:,} temporary destinations of a connection",
        f"{MAX_COMPOSITE} parts of a composite destination",
        f"{MAX_GROUPS:,} message groups of a queue",
        f"{MAX_BROWSES} browses that a connection is shown at once, and {MAX_PAGES} pages of the"
        " store",
        f"{MAX_WORDS} words of a wildcard",
        f"{compiler.max_bytes // 1024} KiB, {compiler.max_words:,} words and {MAX_DEPTH} levels"
        " of a selector",
        f"a command has at most {MAX_COMMAND_BYTES} bytes",
        f"{CAPACITY} batches lie in the inbox at once",
        f"{HeadCache().max_entries:,} parsed header blocks a version",
        f"one write is at most {JOIN_BYTES // 1024} KiB",
        f"{MAX_PENDING:,} events of one turn wait to be told",
    ):
        assert f"\n| {written}" in table
    assert f"beyond {REFUSALS_AT_ONCE} being refused at once" in DOCUMENT


# --- limits that earn an ERROR --------------------------------------------------------------------


def test_every_limit_of_the_table_has_its_cases() -> None:
    served_here = {limit for limit, place in WHERE.items() if place == AT_THE_LIMIT}
    assert {limit.name for limit in LIMITS} == served_here


@pytest.mark.covers("F40", "R06", "R08", "T09", "X10")
@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
@pytest.mark.parametrize("case", LIMITS, ids=id_of)
async def test_at_the_limit_it_is_served_and_one_above_refused(
    autojump_clock, case: Limit, transport: str
) -> None:
    async with open_dial(transport, **QUIET, **case.options) as dial:
        for excess in (0, 1):
            client = await dial.connect()
            await client.send_bytes(case.act(case.most + excess))
            frame = await client.receive()
            if not excess:
                assert frame.command == "RECEIPT", frame
                assert frame["receipt-id"].startswith(RECEIPT)
                client.abort()
            else:
                assert (frame.command, frame["code"]) == ("ERROR", case.code), frame
                # A frame without a complete header block has no known receipt.
                assert frame.get("receipt-id") in (RECEIPT, None)
                if case.code not in HEAD_CODES:
                    assert frame["receipt-id"] == RECEIPT
                await client.expect_closed()
                if transport == WS_MEMORY:
                    assert client.websocket.close_code == case.reason.websocket_code
                    assert client.websocket.close_reason == case.reason.text
            await expect_left(dial, 0)
        assert endings(dial) == {"client-closed": 1, case.reason.text: 1}


@pytest.mark.covers("F41")
@pytest.mark.parametrize("step", [1, 100])
async def test_the_limit_of_a_command(autojump_clock, step: int) -> None:
    """At 32 bytes it is an unknown command; at 33 its end is not awaited."""
    async with open_dial(**QUIET) as dial:
        for data, code in (
            (b"A" * MAX_COMMAND_BYTES + b"\n\n\0", "unknown-command"),
            (b"A" * (MAX_COMMAND_BYTES + 1), "invalid-command"),
        ):
            client = await dial.connect()
            for piece in pieces(data, step):
                await client.send_bytes(piece)
            await client.expect_error(code)


@pytest.mark.parametrize(
    ("parts", "code"), [(MAX_COMPOSITE, None), (MAX_COMPOSITE + 1, "invalid-destination")]
)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
async def test_the_limit_of_a_composite(
    autojump_clock, command: str, parts: int, code: str | None
) -> None:
    name = ",".join(f"/t/{number}" for number in range(parts))
    async with open_dial(**QUIET) as dial:
        client = await dial.connect()
        await client.send(command, {"destination": name, "id": "1", "receipt": "r"})
        if code is None:
            assert (await client.receive())["receipt-id"] == "r"
            assert await client.fence() == []
        else:
            await client.expect_error(code)
            assert endings(dial).keys() <= {"protocol-error"}
            names = [destination.name for destination in dial.server.broker.destinations]
            assert [name for name in names if name.startswith("/t")] == []


# --- the opening ----------------------------------------------------------------------------------


def connect_of(size: int) -> bytes:
    start = b"CONNECT\naccept-version:1.2\nhost:x\nlogin:"
    return start + b"x" * (size - len(start) - 3) + b"\n\n\0"


def http_of(size: int) -> bytes:
    start = b"GET / HTTP/1.1\r\nHost: x\r\nX-Filler: "
    return start + b"x" * (size - len(start) - 4) + b"\r\n\r\n"


@pytest.mark.covers("C15", "W24")
@pytest.mark.parametrize("step", [1, 100, 2000])
@pytest.mark.parametrize("speech", ["stomp", "http", "noise"])
async def test_the_limit_of_an_opening(autojump_clock, speech: str, step: int) -> None:
    build = {"stomp": connect_of, "http": http_of, "noise": lambda n: b"\n" * n}[speech]
    async with open_dial(**QUIET, max_opening_bytes=1024) as dial:
        for size in (1024, 1025):
            stream = await dial.stream()
            data = build(size)
            assert len(data) == size
            with suppress(trio.BrokenResourceError):
                await send_chunks(stream, pieces(data, step))
            if speech == "noise" and size == 1024:
                with trio.move_on_after(1) as waiting:
                    await stream.receive_some()
                assert waiting.cancelled_caught  # it may still become a session
                await stream.aclose()
            elif speech == "http":
                answer = await read_all(stream)
                assert answer.startswith(b"HTTP/1.1 200 " if size == 1024 else b"HTTP/1.1 431 ")
            elif size == 1024:
                with trio.fail_after(5):
                    assert (await stream.receive_some()).startswith(b"CONNECTED\n")
                await stream.aclose()
            else:
                answer = await read_all(stream)
                assert b"\ncode:opening-too-large\n" in answer
            await expect_left(dial, 0)
        served = "http-answered" if speech == "http" else "client-closed"
        assert endings(dial) == {served: 1, "limit-exceeded": 1}


@pytest.mark.covers("C15", "W24")
async def test_the_opening_of_a_websocket_counts_its_frames(autojump_clock) -> None:
    """Handshake and pings count: a client without a STOMP frame is still in its opening."""
    async with open_dial(**QUIET, max_opening_bytes=1024) as dial:
        for excess in (0, 1):
            stream = await dial.stream()
            await stream.send_all(request())
            head, _ = await read_head(stream)
            assert head.startswith(b"HTTP/1.1 101 ")
            left = 1024 - len(request()) + excess
            count, rest = divmod(left, 6)
            await stream.send_all(b"\x8a\x80mask" * (count - 1) + b"\x8a")
            await stream.send_all(bytes([0x80 | rest]) + b"mask" + b"x" * rest)
            if not excess:
                with trio.move_on_after(1) as waiting:
                    await stream.receive_some()
                assert waiting.cancelled_caught
                await stream.aclose()
            else:
                answer = await read_all(stream)
                assert b"\ncode:opening-too-large\n" in answer
                assert answer.endswith(b"\x03\xf1limit-exceeded")
            await until(lambda: not dial.server.connections, 0.1)


# --- connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize("speech", [MEMORY, WS_MEMORY, "http"])
async def test_the_limit_of_connections(autojump_clock, speech: str) -> None:
    async with open_dial(**QUIET, max_connections=3) as dial:
        clients = [await dial.connect() for _ in range(3)]
        for client in clients:
            assert await client.fence() == []
        stream = await dial.stream()
        if speech == MEMORY:
            await stream.send_all(frame_bytes("CONNECT"))
            assert b"\ncode:too-many-connections\n" in await read_all(stream)
        else:
            await stream.send_all(request() if speech == WS_MEMORY else http_of(100))
            assert (await read_all(stream)).startswith(b"HTTP/1.1 503 ")
        reason = "too-many-connections" if speech == MEMORY else "http-answered"
        await expect_left(dial, 3, {reason: 1})
        await clients.pop().disconnect()
        await expect_left(dial, 2)
        assert await (await dial.connect()).fence() == []


async def test_the_limit_of_one_address() -> None:
    """A proxy tells the addresses."""
    # A remote client could not connect without a login.
    options = {**QUIET, "anonymous": "always", "max_connections_per_address": 2}
    async with open_dial(TCP, **options, proxy_addresses="127.0.0.1") as dial:

        async def client_of(host: str) -> Client:
            stream = await dial.stream()
            await stream.send_all(f"PROXY TCP4 {host} 127.0.0.1 5 61613\r\n".encode())
            return Client(StreamPipe(stream))

        first, second = [await client_of("10.0.0.1") for _ in range(2)]
        await first.connect()
        await second.connect()
        third = await client_of("10.0.0.1")
        await third.send("CONNECT")
        await third.expect_error("too-many-from-address")
        await (await client_of("10.0.0.2")).connect()
        await first.disconnect()
        await until(lambda: len(dial.server.connections) == 2, 0.1)
        await (await client_of("10.0.0.1")).connect()
        assert endings(dial) == {"too-many-from-address": 1, "client-disconnect": 1}


# --- waiting data
# -----------------------------------------------------------------------------------


@pytest.mark.covers("S02")
async def test_the_limit_of_messages_waiting_in_queues(autojump_clock) -> None:
    """Four fifths of the memory: the byte that does not fit is refused, earlier ones stay."""
    async with open_dial(**QUIET, max_memory_bytes=1 << 20) as dial:
        share, each = (1 << 20) * 4 // 5, 50_000
        # A message costs 256 beside its body; all of them have the same headers.
        head = head_bytes((("destination", "/queue/q"),))
        count, rest = divmod(share - head, each + 256)
        for excess in (0, 1):
            client = await dial.connect()
            sizes = [*[each] * count, rest - 256 + excess]
            await client.publish("/queue/q", *[b"x" * each] * count, receipt=True)
            pairs = {"destination": "/queue/q", "receipt": RECEIPT}
            await client.send("SEND", pairs, b"x" * sizes[-1])
            frame = await client.receive()
            if excess:
                assert (frame.command, frame["code"]) == ("ERROR", "queue-full"), frame
                await client.expect_closed()
                sizes.pop()
            else:
                assert frame["receipt-id"] == RECEIPT
                assert dial.server.memory.used_bytes == share
                client.abort()
            reader = await dial.connect()
            await reader.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1"})
            assert [len((await reader.receive()).body) for _ in sizes] == sizes
            await reader.disconnect()
            await expect_left(dial, 0)


@pytest.mark.parametrize("most", [0, 1, 4])
async def test_the_limit_of_redeliveries(autojump_clock, most: int) -> None:
    """One delivery more than redeliveries; then it is a dead letter, and only available there."""
    async with open_dial(**QUIET, max_redeliveries=most) as dial:
        client = await dial.connect()
        await client.subscribe("/queue/q", headers={"ack": "client-individual"})
        await client.publish("/queue/q", b"poison")
        for _ in range(most + 1):
            frame = await client.receive()
            assert frame.body == b"poison"
            await client.send("NACK", {"id": frame["ack"]})
        assert await client.fence() == []
        await trio.sleep(100)
        assert await client.fence() == []
        await client.subscribe("/queue/DLQ.q", id="dead")
        assert (await client.receive()).body == b"poison"
        assert await client.fence() == []
