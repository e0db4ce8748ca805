# ruff: noqa: PT012, SIM117
"""Broken connections: redeliveries, losses, and the times of new attempts."""

import random
from contextlib import suppress

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.support.client_fakes import (
    QUICK,
    Links,
    Scripted,
    confirm,
    just_open,
    open_broker,
    open_keeper,
    open_linked,
    open_played,
    playing,
    read_until,
    receipt_of,
)
from tests.support.fakes import open_dial
from trio_stomp.broker import DestinationPolicy
from trio_stomp.client import (
    BrokerError,
    Client,
    ClientEvent,
    ConnectFailed,
    LinkLost,
    ReconnectPolicy,
    Refused,
    Subscription,
    open_client,
)

STUBBORN = ReconnectPolicy(0.1, random=lambda: 1.0, retry_first=True)
STREAM = ("/topic/s", DestinationPolicy(stream=True))
CUTS = st.lists(st.tuples(st.integers(60, 3000), st.integers(60, 3000)), max_size=6)


def passed(client: Client) -> list[ClientEvent]:
    """The events so far."""
    events = []
    with suppress(trio.WouldBlock, trio.EndOfChannel):
        while True:
            events.append(client.events.receive_nowait())
    return events


# --- sending and receiving over links that break anywhere -------------------------------------


@given(plans=CUTS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_send_with_a_receipt_is_taken_once_and_in_order(plans: list[tuple[int, int]]) -> None:
    async def main() -> None:
        async with open_dial() as dial:
            await dial.start()
            async with open_client(Links(dial.stream, plans), reconnect=STUBBORN) as client:
                for number in range(20):
                    await client.send("/queue/a", str(number))
            async with open_client(dial.stream) as client, client.subscribe("/queue/a") as got:
                for number in range(20):
                    assert (await got.receive()).text == str(number)
                await client.send("/queue/a", "end")
                assert (await got.receive()).text == "end"

    trio.run(main, clock=MockClock(autojump_threshold=0))


@given(plans=CUTS, prefetch=st.integers(1, 5))
@settings(max_examples=60)
def test_each_message_is_acknowledged_once_whatever_breaks(
    plans: list[tuple[int, int]], prefetch: int
) -> None:
    """At least once: what is handled twice was marked as redelivered."""

    async def take(messages: Subscription, handled: list[str]) -> None:
        async for message in messages:
            async with message:
                if message.text in handled:
                    assert message.redelivered
                else:
                    handled.append(message.text)
            if message.text == "end":
                return

    async def main() -> None:
        handled: list[str] = []
        async with open_dial(max_redeliveries=100) as dial:
            await dial.start()
            async with open_client(dial.stream) as client:
                for number in range(15):
                    await client.send("/queue/a", str(number))
                await client.send("/queue/a", "end", headers={"priority": "0"})
            async with open_client(Links(dial.stream, plans), reconnect=STUBBORN) as client:
                subscription = client.subscribe(
                    "/queue/a", ack="client-individual", prefetch=prefetch, on_stale="ignore"
                )
                async with subscription as messages:
                    await take(messages, handled)
            async with open_client(dial.stream) as client, client.subscribe("/queue/a") as left:
                await trio.sleep(1)
                with suppress(trio.WouldBlock):
                    while True:
                        assert left.receive_nowait().text in handled
        assert sorted(handled) == sorted([*map(str, range(15)), "end"])

    trio.run(main, clock=MockClock(autojump_threshold=0))


@given(plans=CUTS, ack=st.sampled_from(["auto", "client-individual"]))
@settings(max_examples=60)
def test_a_stream_is_read_on_without_gap_or_repetition(
    plans: list[tuple[int, int]], ack: str
) -> None:
    async def main() -> None:
        async with open_keeper(STREAM) as dial:
            async with open_client(dial.stream) as sender:
                for number in range(20):
                    await sender.send("/topic/s", str(number), receipt=False)
                await sender.send("/topic/s", "20")
                async with open_client(Links(dial.stream, plans), reconnect=STUBBORN) as client:
                    subscription = client.subscribe(
                        "/topic/s",
                        offset="first",
                        prefetch=3,
                        ack=ack,  # type: ignore[arg-type]
                    )
                    async with subscription as messages:
                        for number in range(21):
                            assert messages.next_offset in (None, number)
                            async with await messages.receive() as message:
                                assert message.text == str(number)
                                assert message.stream_offset == number
                        assert messages.next_offset == 21

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_subscriptions_are_in_force_again(autojump_clock) -> None:
    async with open_broker() as dial:
        links = Links(dial.stream)
        async with (
            open_client(links, reconnect=QUICK) as client,
            client.subscribe("/topic/a") as first,
            client.subscribe("/topic/b", selector="n > 1") as second,
        ):
            await client.send("/topic/a", b"kept")  # in the buffer while the link breaks
            links.cut()
            await trio.sleep(1)
            assert client.is_connected
            assert (await client.send("/topic/a", b"1")).matched == 1
            assert (await client.send("/topic/b", b"2", headers={"n": "1"})).matched == 0
            assert (await client.send("/topic/b", b"3", headers={"n": "2"})).matched == 1
            assert [(await first.receive()).body for _ in range(2)] == [b"kept", b"1"]
            assert (await second.receive()).body == b"3"
        assert len(links.opened) == 2


async def test_a_subscription_that_is_refused_the_second_time(autojump_clock) -> None:
    async def serve(peer: Scripted) -> None:
        stream = await peer.accept()
        await confirm(stream)
        await stream.aclose()
        stream = await peer.accept()
        result = await read_until(stream, b"\n\n\0")
        receipt = receipt_of(result)
        await stream.send_all(b"ERROR\nreceipt-id:%b\ncode:not-authorized\n\n\0" % receipt)
        await stream.aclose()
        stream = await peer.accept()
        assert b"SUBSCRIBE" not in await read_until(stream, b"DISCONNECT")

    async with open_played(serve) as client:
        async with client.subscribe("/topic/a") as messages:
            with pytest.raises(Refused) as caught:
                await messages.receive()
            assert caught.value.code == "not-authorized"
        await trio.sleep(5)


async def test_unconfirmed_frames_are_resent_in_the_next_version(
    autojump_clock,
) -> None:
    written = list[bytes]()

    async def serve(peer: Scripted) -> None:
        stream = await peer.accept()
        written.append(await read_until(stream, b"hello\0"))
        await stream.aclose()
        stream = await peer.listener.accept()
        await read_until(stream, b"\n\n\0")
        await stream.send_all(b"CONNECTED\nversion:1.0\n\n\0")
        written.append(await read_until(stream, b"hello\0"))
        receipt = receipt_of(written[1])
        await stream.send_all(b"RECEIPT\nreceipt-id:%b\nduplicate:true\n\n\0" % receipt)

    async with open_played(serve) as client:
        async with trio.open_nursery() as senders:

            async def lost() -> None:
                with pytest.raises(LinkLost, match="not sent again"):
                    await client.send("a", b"", headers={"x": "no\nway"})

            senders.start_soon(lost)
            receipt = await client.send("a", b"hello", headers={"y": "a:b"})
        assert receipt.duplicate
    assert b"\ny:a\\cb\n" in written[0]
    assert b"\ny:a:b\n" in written[1]
    ids = [
        each.partition(b"y:")[2].partition(b"x-dedup-id:")[2].split(b"\n")[0] for each in written
    ]
    assert ids[0] == ids[1] != b""


async def test_frames_that_cannot_be_repeated_are_lost(autojump_clock) -> None:
    async def serve(peer: Scripted) -> None:
        stream = await peer.accept()
        await read_until(stream, b"?\0")
        await stream.aclose()

    async with open_played(serve) as client:
        with pytest.raises(LinkLost):
            await client.request("/queue/a", b"?", timeout_s=1000)


async def test_a_commit_without_an_answer(autojump_clock) -> None:
    async def serve(peer: Scripted) -> None:
        stream = await peer.accept()
        await read_until(stream, b"COMMIT")
        await stream.aclose()

    async with open_played(serve) as client:
        with pytest.raises(LinkLost, match="before the answer arrived"):
            async with client.transaction():
                pass


async def test_stream_with_a_new_epoch_is_reported(autojump_clock) -> None:
    lead = b"MESSAGE\nsubscription:s1\nmessage-id:1\nx-stream-offset:%d\nx-stream-epoch:%b\n"

    async def serve(peer: Scripted) -> None:
        stream = await peer.accept()
        assert b"\nx-stream-offset:timestamp=5\n" in await confirm(stream)
        await stream.send_all(lead % (7, b"e1") + b"\nhi\0")
        await stream.aclose()
        stream = await peer.accept()
        result = await read_until(stream, b"\n\n\0")
        assert b"\nx-stream-offset:offset=8\n" in result
        assert b"timestamp" not in result
        assert b"\nx-stream-epoch:e1\n" in result
        await stream.send_all(lead % (0, b"e2") + b"x-stream-end:true\n\n\0")

    async with open_played(serve) as client:
        client_side = client.subscribe("/topic/s", offset="timestamp=5")
        async with client_side as messages:
            assert (await messages.receive()).body == b"hi"
            with pytest.raises(BrokerError) as caught:
                await messages.receive()
            assert caught.value.code == "stream-lost"


async def test_a_stored_offset_with_its_epoch_is_not_used_in_another_one(autojump_clock) -> None:
    end = b"x-stream-offset:0\nx-stream-epoch:e2\nx-stream-end:true\n\n\0"

    async def serve(peer: Scripted) -> None:
        stream = await peer.accept()
        assert b"\nx-stream-epoch:e1\n" in await confirm(stream)
        await stream.send_all(b"MESSAGE\nsubscription:s1\nmessage-id:1\n" + end)

    async with open_played(serve) as client:
        known = {"x-stream-epoch": "e1"}
        async with client.subscribe("/topic/s", offset=7, headers=known) as messages:
            with pytest.raises(BrokerError) as caught:
                await messages.receive()
            assert caught.value.code == "stream-lost"


async def test_a_stream_without_an_epoch_is_read_on(autojump_clock) -> None:
    """Some brokers send offsets without an epoch; the client then sends only the offset."""
    written = list[bytes]()

    async def serve(peer: Scripted) -> None:
        for offset in (7, 8):
            stream = await peer.accept()
            written.append(await confirm(stream))
            await stream.send_all(
                b"MESSAGE\nsubscription:s1\nmessage-id:1\nx-stream-offset:%d\n\n\0" % offset
            )
            await stream.aclose()

    async with open_played(serve) as client:
        async with client.subscribe("/topic/s", offset="first") as messages:
            for offset in (7, 8):
                assert (await messages.receive()).stream_offset == offset
    assert b"\nx-stream-offset:first\n" in written[0]
    assert b"\nx-stream-offset:offset=8\n" in written[1]
    assert b"epoch" not in written[1]


async def test_a_stream_read_to_its_end_is_not_read_again(autojump_clock) -> None:
    async with open_keeper(STREAM) as dial:
        links = Links(dial.stream)
        async with open_client(links, reconnect=QUICK) as client:
            for number in range(3):
                await client.send("/topic/s", str(number))
            subscription = client.subscribe("/topic/s", offset=1, headers={"x-stream-until": "2"})
            async with subscription as messages:
                assert (await messages.receive()).text == "1"
                assert (await messages.receive()).headers["x-stream-end"] == "true"
                links.cut()
                await trio.sleep(1)
                await client.send("/topic/s", b"")
                with pytest.raises(trio.WouldBlock):
                    messages.receive_nowait()


async def test_messages_of_a_topic_that_were_not_handled_are_kept(autojump_clock) -> None:
    """The broker does not hand them out again, so they must not be thrown away."""
    async with open_linked() as (client, links):
        async with client.subscribe("/topic/a", ack="client-individual") as messages:
            await client.send("/topic/a", b"1")
            links.cut()
            await trio.sleep(1)
            async with await messages.receive() as message:
                assert message.body == b"1"
            await client.send("/topic/a", b"2")
            async with await messages.receive() as message:
                assert message.body == b"2"


# --- heart-beats ------------------------------------------------------------------------------


async def test_heart_beats_go_both_ways(autojump_clock) -> None:
    async with open_broker() as dial:
        links = Links(dial.stream)
        async with open_client(links, heart_beat=(2, 3), reconnect=None) as client:
            sent, received = links.opened[0].sent, links.opened[0].received
            await trio.sleep(600)
            assert client.is_connected
            assert links.opened[0].sent - sent >= 300
            assert links.opened[0].received - received >= 200


async def test_a_dead_link_is_noticed(autojump_clock) -> None:
    dead = list[float]()

    async def serve(peer: Scripted) -> None:
        stream = await peer.accept(b"heart-beat:1000,0\n")
        for _ in range(30):
            await trio.sleep(1)
            await stream.send_all(b"\n")
        dead.append(trio.current_time())

    async with playing(serve) as peer:
        with pytest.raises(LinkLost, match="silent for 2 s"):
            async with open_client(peer, heart_beat=(0, 1), reconnect=None):
                await trio.sleep_forever()
        assert trio.current_time() - dead[0] == pytest.approx(2)


# --- when it is tried again -------------------------------------------------------------------


async def test_the_waits_grow_and_are_random(autojump_clock) -> None:
    shares = iter([1.0, 0.5, 1.0, 1.0, 1.0, 1.0])
    policy = ReconnectPolicy(1.0, 4.0, max_attempts=5, random=lambda: next(shares))
    async with open_broker() as dial:
        links = Links(dial.stream)
        with pytest.raises(ConnectFailed, match="nobody is there"):
            async with open_client(links, reconnect=policy) as client:
                start = trio.current_time()
                links.is_down = True
                links.cut()
                await trio.sleep_forever()
        times = [time - start for time in links.times[1:]]
        assert times == pytest.approx([1, 2, 6, 10, 14])
        kinds = [(event.kind, event.attempt, event.delay_s) for event in passed(client)]
        assert kinds == [
            ("connected", 0, 0),
            ("disconnected", 0, 0),
            *(("reconnecting", n, s) for n, s in enumerate([1, 1, 4, 4, 4], 1)),
        ]


async def test_a_link_that_held_has_the_waits_begin_anew(autojump_clock) -> None:
    policy = ReconnectPolicy(1.0, 60.0, stable_after_s=20.0, random=lambda: 1.0)
    async with open_linked(policy) as (client, links):
        for stays_s in (1, 1, 30, 1):
            await trio.sleep(stays_s)
            links.cut()
            while client.is_connected:
                await trio.lowlevel.checkpoint()
            await client.send("/topic/a")
        waits = [event.delay_s for event in passed(client) if event.kind == "reconnecting"]
        assert waits == [1, 2, 1, 2]


async def test_the_broker_says_when_to_come_back(autojump_clock) -> None:
    times = list[float]()
    policy = ReconnectPolicy(1.0, retry_first=True, random=lambda: 1.0)

    async def serve(peer: Scripted) -> None:
        stream = await peer.listener.accept()
        times.append(trio.current_time())
        await read_until(stream, b"\n\n\0")
        await stream.send_all(b"ERROR\ncode:too-many-attempts\nretry-after-ms:30500\n\n\0")
        await peer.accept()
        times.append(trio.current_time())

    async with playing(serve) as peer, open_client(peer, reconnect=policy, close_timeout_s=1):
        pass
    assert times[1] - times[0] == pytest.approx(31.5)


async def test_the_first_attempt_is_the_only_one(autojump_clock) -> None:
    links = Links(Scripted(), is_down=True)
    with pytest.raises(ConnectFailed):
        await just_open(links, reconnect=QUICK)
    assert len(links.times) == 1


@pytest.mark.parametrize("farewell", ["close", "error"])
async def test_a_broker_that_stops_is_come_back_to(autojump_clock, farewell: str) -> None:
    async with open_broker(farewell=farewell) as first, open_broker() as second:
        ways = iter([first.stream, second.stream])

        async def dial() -> trio.abc.Stream:
            return await next(ways)()

        async with open_client(dial, reconnect=QUICK) as client:
            await first.stop()
            await client.send("/topic/a")
            events = passed(client)
        assert [event.kind for event in events] == [
            "connected",
            "disconnected",
            "reconnecting",
            "connected",
        ]
        error = events[1].error
        if farewell == "close":
            assert isinstance(error, LinkLost)
        else:
            assert isinstance(error, Refused)
            assert error.code == "shutting-down"


async def test_events_are_bounded(autojump_clock) -> None:
    async with open_linked() as (client, links):
        for _ in range(40):
            links.cut()
            await trio.sleep(60)
        events = passed(client)
        assert len(events) == 64
        assert events[-1].kind == "connected"
        assert events[-1].headers["version"] == "1.2"


async def test_leaving_while_there_is_no_link(autojump_clock) -> None:
    async with open_broker() as dial:
        links = Links(dial.stream)
        start = trio.current_time()
        async with open_client(links, reconnect=QUICK) as client, client.subscribe("/topic/a"):
            links.is_down = True
            links.cut()
            await trio.sleep(5)
            assert not client.is_connected
        assert trio.current_time() - start == pytest.approx(5)


def test_full_jitter() -> None:
    policy = ReconnectPolicy(0.2, 30.0, random=random.Random(1).random)
    for attempt in (1, 5, 100, 10_000):
        most = min(0.2 * 2.0 ** min(attempt - 1, 99), 30.0)
        waits = [policy.delay_s(attempt, LinkLost("")) for _ in range(500)]
        assert 0 <= min(waits) < most * 0.05
        assert most * 0.95 < max(waits) <= most
