# ruff: noqa: PT012, SIM117
"""The client with a real broker in memory: messages, receipts, requests, transactions, errors."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from itertools import count

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.client_fakes import (
    QUICK,
    BreakingStream,
    CutStream,
    Links,
    Scripted,
    confirm,
    just_open,
    open_broker,
    open_linked,
    open_played,
    playing,
    read_until,
    receipt_of,
)
from tests.support.fakes import gather
from trio_stomp import OptionError
from trio_stomp.client import (
    AuthenticationError,
    BrokerError,
    Client,
    ClientClosed,
    ConnectFailed,
    LinkLost,
    NoResponder,
    NotAuthorized,
    ProtocolViolation,
    Refused,
    RequestTimedOut,
    SlowConsumer,
    StaleMessage,
    open_client,
)

MESSAGE = b"MESSAGE\nsubscription:s1\nmessage-id:m-%d\ndestination:/topic/a\n\n%b\0"


@pytest.fixture(name="client")
async def _client() -> AsyncIterator[Client]:
    """Return a client with its own broker."""
    async with open_broker() as dial, open_client(dial.stream) as client:
        yield client


async def echo(client: Client, destination: str) -> None:
    """Answer every request."""
    async with client.subscribe(destination) as requests:
        async for request in requests:
            await client.send(
                request.headers["reply-to"],
                b"re: " + request.body,
                headers={"correlation-id": request.headers["correlation-id"]},
                receipt=False,
            )


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
async def test_a_message_there_and_acknowledged(autojump_clock, version: str) -> None:
    async with open_broker() as dial, open_client(dial.stream, versions=(version,)) as client:
        assert client.connected_headers["version"] == version
        async with client.subscribe("/queue/a", ack="client-individual") as messages:
            receipt = await client.send("/queue/a", '{"n": 1}', headers={"x": "y"})
            assert receipt.stored == "memory"
            assert receipt.matched is None
            message = await messages.receive()
            async with message:
                assert message.text == '{"n": 1}'
                assert message.json() == {"n": 1}
                assert message.headers["x"] == "y"
                assert message.destination == "/queue/a"
                assert message.message_id in repr(message)
                assert message.headers["message-id"] == message.message_id
                assert not message.redelivered
            assert message.is_settled
            await message.ack()  # the first word counts: nothing is said twice
            await message.nack()
        with trio.move_on_after(60) as scope:
            async with client.subscribe("/queue/a") as messages:
                await messages.receive()
        assert scope.cancelled_caught  # it was acknowledged


async def test_receipts_report_the_outcome(client: Client, autojump_clock) -> None:
    assert (await client.send("/topic/a", b"")).matched == 0
    async with client.subscribe("/topic/a") as messages:
        receipt = await client.send("/topic/a", b"1", headers={"x-dedup-id": "7"})
        assert (receipt.matched, receipt.duplicate, receipt.stream_offset) == (1, False, None)
        again = await client.send("/topic/a", b"1", headers={"x-dedup-id": "7"})
        assert again.duplicate
        assert (await messages.receive()).body == b"1"
        with pytest.raises(trio.WouldBlock):
            messages.receive_nowait()


async def test_without_a_receipt_order_is_kept(client: Client, autojump_clock) -> None:
    async with client.subscribe("/topic/a", prefetch=10) as messages:
        for number in range(3000):
            await client.send("/topic/a", str(number), receipt=False)
        await client.send("/topic/a", "last")
        got = [message.text for message in await messages.receive_batch()]
        while got[-1] != "last":
            got.append((await messages.receive()).text)
        assert got == [*map(str, range(3000)), "last"]


async def test_an_exception_says_nack_and_passes(client: Client, autojump_clock) -> None:
    async with client.subscribe("/queue/a", ack="client-individual") as messages:
        await client.send("/queue/a", b"1")
        with pytest.raises(ZeroDivisionError):
            async with await messages.receive():
                raise ZeroDivisionError
        with trio.move_on_after(5):
            async with await messages.receive() as message:
                assert message.redelivered
                assert message.headers["delivery-count"] == "2"
                await trio.sleep_forever()
        async with await messages.receive() as message:
            assert message.headers["delivery-count"] == "3"
            await message.nack(requeue=False)
    async with client.subscribe("/queue/DLQ.a") as dead:
        assert (await dead.receive()).headers["x-death-reason"] == "rejected"


async def test_prefetch_bounds_unacknowledged_messages(client: Client, autojump_clock) -> None:
    for number in range(5):
        await client.send("/queue/a", str(number))
    async with client.subscribe("/queue/a", ack="client", prefetch=2) as messages:
        await trio.sleep(1)
        batch = await messages.receive_batch()
        assert [message.text for message in batch] == ["0", "1"]
        await batch[-1].ack()  # both: the mode is client
        await trio.sleep(1)
        batch = await messages.receive_batch()
        assert [message.text for message in batch] == ["2", "3"]
        await batch[-1].ack()
        async with await messages.receive() as last:
            assert last.text == "4"


async def test_selectors_and_headers_are_passed_on(client: Client, autojump_clock) -> None:
    subscription = client.subscribe(
        "/topic/a", selector="n > 1", id="mine", headers={"no-local": "false"}
    )
    async with subscription as messages:
        for number in range(3):
            await client.send("/topic/a", headers={"n": str(number)})
        message = await messages.receive()
        assert (message.headers["n"], message.headers["subscription"]) == ("2", "mine")
        with pytest.raises(OptionError, match="in use"):
            async with client.subscribe("/topic/b", id="mine"):
                pass  # pragma: no cover


async def test_a_durable_subscription_stays_until_it_is_forgotten(autojump_clock) -> None:
    async with open_broker() as dial, open_client(dial.stream, client_id="me") as client:
        durable = {"ack": "client-individual", "durable": "d"}
        async with client.subscribe("/topic/a", **durable):  # type: ignore[arg-type]
            pass
        await client.send("/topic/a", b"kept")
        async with client.subscribe("/topic/a", **durable) as messages:  # type: ignore[arg-type]
            async with await messages.receive() as message:
                assert message.body == b"kept"
            await messages.forget()
            with pytest.raises(ClientClosed):
                await messages.receive()
        assert (await client.send("/topic/a", b"gone")).matched == 0


@pytest.mark.parametrize("version", ["1.0", "1.2"])
@pytest.mark.parametrize("client_id", ["me", None])
async def test_a_durable_subscription_is_ended_by_its_name(
    autojump_clock, version: str, client_id: str | None
) -> None:
    def opened() -> AbstractAsyncContextManager[Client]:
        return open_client(dial.stream, client_id=client_id, versions=(version,))

    async with open_broker() as dial:
        async with opened() as client, client.subscribe("/topic/a", durable="d"):
            pass
        async with opened() as client:
            assert (await client.send("/topic/a", b"kept")).matched == 1
            await client.end_durable("d")
            assert (await client.send("/topic/a", b"gone")).matched == 0
            with pytest.raises(ProtocolViolation) as caught:
                await client.end_durable("d")
            assert caught.value.code == "unknown-subscription"
            async with client.subscribe("/topic/a", durable="d") as messages:
                await client.send("/topic/a", b"new")
                assert (await messages.receive()).body == b"new"
            with pytest.raises(OptionError, match="is empty"):
                await client.end_durable("")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
async def test_destination_selects_among_durable_subscriptions_of_one_name(
    autojump_clock, version: str
) -> None:
    def opened() -> AbstractAsyncContextManager[Client]:
        return open_client(dial.stream, versions=(version,), reconnect=None)

    async with open_broker() as dial:
        for destination in ("/topic/a", "/topic/b", "/topic/c"):
            async with opened() as client, client.subscribe(destination, durable="d"):
                pass
        async with opened() as client:
            with pytest.raises(ProtocolViolation) as caught:
                await client.end_durable("d")
            assert caught.value.code == "ambiguous-subscription"
            assert "/topic/a, /topic/b, /topic/c; send" in str(caught.value)
        async with opened() as client:
            with pytest.raises(OptionError, match="the destination is empty"):
                await client.end_durable("d", "")
            await client.end_durable("d", "/topic/b")
            found = [(await client.send(f"/topic/{each}", b"1")).matched for each in "abc"]
            assert found == [1, 0, 1]
            with pytest.raises(ProtocolViolation) as caught:
                await client.end_durable("d", "/topic/b")
            assert caught.value.code == "unknown-subscription"
        async with opened() as client:
            await client.end_durable("d", destination="/topic/a")
            await client.end_durable("d")  # there is but one


async def test_the_name_of_a_durable_subscription_may_be_the_id_of_another(autojump_clock) -> None:
    async with open_broker() as dial, open_client(dial.stream, reconnect=None) as client:
        async with client.subscribe("/topic/a", durable="d"):
            pass
        async with client.subscribe("/topic/b", id="d") as other:
            await client.end_durable("d")
            assert (await client.send("/topic/a", b"gone")).matched == 0
            assert (await client.send("/topic/b", b"1")).matched == 1
            assert (await other.receive()).body == b"1"


async def test_remaining_subscription_continues_when_another_ends(autojump_clock) -> None:
    async with (
        open_broker() as dial,
        open_client(dial.stream) as client,
        open_client(dial.stream) as other,
    ):
        async with client.subscribe("/topic/a", durable="d") as messages:
            await other.end_durable("d")
            assert (await other.send("/topic/a", b"1")).matched == 1
            assert (await messages.receive()).body == b"1"
        await client.send("/topic/b")  # behind its UNSUBSCRIBE
        assert (await other.send("/topic/a", b"2")).matched == 0


async def test_a_durable_subscription_is_ended_at_other_brokers(autojump_clock) -> None:
    written = list[bytes]()

    async def serve(peer: Scripted) -> None:
        stream = await peer.accept()
        written.append(await read_until(stream, b"\n\n\0"))
        await stream.aclose()

    async with open_played(serve) as client:
        with pytest.raises(LinkLost):  # it may have been ended, so it is not said again
            await client.end_durable("a:b")
    lines = written[0].split(b"\n")
    assert lines[:2] == [b"UNSUBSCRIBE", b"id:a\\cb"]
    assert {b"durable-subscription-name:a\\cb", b"activemq.subscriptionName:a\\cb"} < {*lines}


async def test_left_subscriptions_end(client: Client, autojump_clock) -> None:
    async with client.subscribe("/topic/a") as messages:
        await client.send("/topic/a", b"1")
    assert [message async for message in messages] == []
    with pytest.raises(ClientClosed):
        messages.receive_nowait()
    assert (await client.send("/topic/a", b"2")).matched == 0


async def test_messages_after_unsubscribing_are_returned(client: Client, autojump_clock) -> None:
    for number in range(9):
        await client.send("/queue/a", str(number))
    async with client.subscribe("/queue/a", ack="client-individual") as messages:
        async with await messages.receive():
            pass
    async with client.subscribe("/queue/a", ack="client-individual") as messages:
        for number in range(1, 9):
            async with await messages.receive() as message:
                assert message.text == str(number)


# --- requests ---------------------------------------------------------------------------------


async def test_requests_get_their_own_answers(autojump_clock) -> None:
    async with open_broker() as dial, trio.open_nursery() as nursery:
        async with open_client(dial.stream) as server, open_client(dial.stream) as client:
            nursery.start_soon(echo, server, "/queue/ask")
            numbers = count()

            async def ask() -> None:
                question = str(next(numbers))
                reply = await client.request("/queue/ask", question, timeout_s=9)
                assert reply.text == f"re: {question}"
                await reply.ack()  # does nothing
                await reply.nack()
                async with reply:
                    pass

            await gather(*[ask] * 50)
            assert client._core.awaited == client._core.replies == {}
            nursery.cancel_scope.cancel()


async def test_a_request_without_an_answer_times_out(client: Client, autojump_clock) -> None:
    start = trio.current_time()
    with pytest.raises(NoResponder, match=r"nobody is subscribed to /topic/ask$"):
        await client.request("/topic/ask", b"?", timeout_s=7)
    with pytest.raises(NoResponder, match="subscribed to /topics/ask; this topic differs"):
        await client.request("/topics/ask", b"?", timeout_s=7)
    assert trio.current_time() - start < 1
    start = trio.current_time()
    async with client.subscribe("/topic/silent"):
        with pytest.raises(RequestTimedOut, match="/topic/silent: no answer within 7 s"):
            await client.request("/topic/silent", b"?", timeout_s=7)
    assert trio.current_time() - start == pytest.approx(7)
    with pytest.raises(ProtocolViolation) as caught:
        await client.request("/topic/*", b"?", timeout_s=7)
    assert caught.value.code == "wildcard-in-send"
    assert client._core.awaited == client._core.replies == {}


# --- transactions -----------------------------------------------------------------------------


async def test_a_transaction_happens_as_a_whole(client: Client, autojump_clock) -> None:
    await client.send("/queue/in", b"work")
    async with (
        client.subscribe("/queue/in", ack="client-individual") as messages,
        client.subscribe("/queue/out") as results,
    ):
        message = await messages.receive()
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as transaction:
                await transaction.send("/queue/out", "torn")
                await transaction.ack(message)
                raise ZeroDivisionError
        assert not message.is_settled
        async with client.transaction() as transaction:
            await transaction.send("/queue/out", "done", headers={"a": "b"}, persistent=True)
            await transaction.ack(message)
            await transaction.ack(message)
            assert transaction.receipt is None
        assert transaction.receipt is not None
        assert (await results.receive()).text == "done"
        await client.send("/queue/in", b"more")
        async with client.transaction() as transaction:
            await transaction.nack(await messages.receive(), requeue=False)
    async with client.subscribe("/queue/DLQ.in") as dead:
        assert (await dead.receive()).body == b"more"


async def test_a_refused_commit(autojump_clock) -> None:
    async with open_broker() as dial, open_client(dial.stream, reconnect=QUICK) as client:
        with pytest.raises(ProtocolViolation):
            async with client.transaction() as transaction:
                await transaction.send("/topic/*", b"")
        assert (await client.send("/topic/a")).matched == 0


async def test_a_transaction_does_not_outlive_its_link(autojump_clock) -> None:
    async with open_linked() as (client, links):
        with pytest.raises(LinkLost, match="was aborted"):
            async with client.transaction() as transaction:
                links.cut()
                await trio.sleep(5)
                await transaction.send("/topic/a", b"")


# --- errors -----------------------------------------------------------------------------------


async def test_connect_without_a_listener() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    with pytest.raises(ConnectFailed, match=f"no connection to 127.0.0.1:{port}"):
        await just_open(f"stomp://127.0.0.1:{port}")


class TestWrongPasswords:
    """A wrong password causes one attempt, and an error in the program."""

    async def test_a_wrong_passcode_at_the_start_is_tried_once(self) -> None:
        async with playing(self.refuse) as peer:
            with pytest.raises(AuthenticationError) as caught:
                await just_open(peer, login="alice", passcode="wr0ng", reconnect=QUICK)
        assert caught.value.code == "authentication-failed"
        assert "wr0ng" not in repr(caught.value)

    @staticmethod
    async def refuse(peer: Scripted) -> bytes:
        stream = await peer.listener.accept()
        result = await read_until(stream, b"\n\n\0")
        await stream.send_all(b"ERROR\nmessage:no\ncode:authentication-failed\n\n\0")
        await stream.aclose()
        return result

    async def test_a_wrong_passcode_at_a_reconnection_is_tried_once(self, autojump_clock) -> None:
        async def serve(peer: Scripted) -> None:
            await (await peer.accept()).aclose()
            await self.refuse(peer)

        async with playing(serve) as peer:
            with pytest.raises(AuthenticationError):
                async with open_client(peer, reconnect=QUICK):
                    await trio.sleep_forever()
            assert peer.listener._accepted.statistics().current_buffer_used == 0

    async def test_a_policy_may_try_again(self, autojump_clock) -> None:
        async def serve(peer: Scripted) -> None:
            await self.refuse(peer)
            await confirm(await peer.accept())

        policy = QUICK.__class__(
            0.1, random=lambda: 1.0, retry_first=True, retry_authentication=True
        )
        async with open_played(serve, policy) as client:
            assert client.is_connected

    async def test_a_token_that_expires_is_renewed(self, autojump_clock) -> None:
        written = list[bytes]()
        tokens = iter("xab")  # the first when the arguments are checked

        async def serve(peer: Scripted) -> None:
            stream = await peer.listener.accept()
            written.append(await read_until(stream, b"\n\n\0"))
            await stream.send_all(b"CONNECTED\nversion:1.2\n\n\0")
            await stream.send_all(b"ERROR\ncode:credentials-expired\n\n\0")
            written.append(await self.refuse(peer))

        async with playing(serve) as peer:
            with pytest.raises(AuthenticationError):
                async with open_client(peer, token=lambda: next(tokens), reconnect=QUICK):
                    await trio.sleep_forever()
        assert [b"Authorization:Bearer " + each for each in (b"a", b"b")] == [
            line for each in written for line in each.split(b"\n") if line.startswith(b"Auth")
        ]


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        (b"code:authentication-required\n", AuthenticationError),
        (b"code:not-authorized\n", NotAuthorized),
        (b"code:header-missing\n", ProtocolViolation),
        (b"code:shutting-down\n", BrokerError),
        (b"message:Bad CONNECT\n", AuthenticationError),
        (b"message:User name [a] or password is invalid.\n", AuthenticationError),
        (b"message:oops\n", BrokerError),
        (b"", BrokerError),
    ],
)
async def test_an_error_for_connect_tells_whose_fault(headers: bytes, kind: type[Refused]) -> None:
    async def refuse(peer: Scripted) -> None:
        stream = await peer.listener.accept()
        await read_until(stream, b"\n\n\0")
        await stream.send_all(b"ERROR\n%b\nbecause\0" % headers)

    async with playing(refuse) as peer:
        with pytest.raises(Refused) as caught:
            await just_open(peer)
    assert type(caught.value) is kind
    assert caught.value.body == "because"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", ConnectFailed),
        (b"CONNECTED\nversion:9\n\n\0", BrokerError),
        (b"CONNECTED\nversion:1.2\n\n\0ERROR\ncode:shutting-down\n\n\0", BrokerError),
        (b"SSH-2.0-OpenSSH_9.2 and some more than a command\r\n", BrokerError),
    ],
)
async def test_server_that_is_no_broker(answer: bytes, kind: type[Exception]) -> None:
    async def serve(peer: Scripted) -> None:
        stream = await peer.listener.accept()
        await read_until(stream, b"\n\n\0")
        if answer:
            await stream.send_all(answer)
        await stream.aclose()

    async with playing(serve) as peer:
        with pytest.raises(kind):
            await just_open(peer, reconnect=None)


async def test_a_broker_that_never_answers(autojump_clock) -> None:
    start = trio.current_time()
    with pytest.raises(ConnectFailed, match="within 3 s"):
        await just_open(Scripted(), connect_timeout_s=3)
    assert trio.current_time() - start == pytest.approx(3)


async def test_error_without_a_known_frame_ends_the_client(autojump_clock) -> None:
    async with open_broker() as dial:
        with pytest.raises(ProtocolViolation) as caught:
            async with open_client(dial.stream, reconnect=QUICK) as client:
                async with client.subscribe("/topic/a") as messages:
                    await client.send("/topic/*", b"", receipt=False)
                    await messages.receive()
        assert caught.value.code == "wildcard-in-send"
        for call in (client.send("/topic/a"), client.send("/topic/a", receipt=False)):
            with pytest.raises(ProtocolViolation):
                await call
        with pytest.raises(ProtocolViolation):
            await messages.receive()


async def test_refused_frames_raise_in_their_sender(autojump_clock) -> None:
    async with open_broker() as dial, open_client(dial.stream, reconnect=QUICK) as client:
        async with client.subscribe("/topic/a") as messages:
            with pytest.raises(ProtocolViolation):
                await client.send("/topic/*", b"")
            with pytest.raises(ProtocolViolation):
                async with client.subscribe("/topic/a", headers={"credit": "x"}):
                    pass  # pragma: no cover
            with pytest.raises(OptionError):
                await client.send("/topic/a", headers={"x": "\0"})
            with pytest.raises(OptionError):
                async with client.subscribe("/topic/\0"):
                    pass  # pragma: no cover
            assert (await client.send("/topic/a", b"1")).matched == 1
            assert (await messages.receive()).body == b"1"
            assert list(client._core.subscriptions.values()) == [messages]
            assert client._core.awaited == {}


async def test_wrong_arguments() -> None:
    for options, text in (
        ({"versions": ()}, "versions="),
        ({"versions": ("1.2", "1.3")}, "versions="),
        ({"heart_beat": (-1.0, 0.0)}, "heart_beat="),
        ({"token": "t", "login": "l"}, "not both"),
        ({"passcode": "a\nb"}, "passcode"),
    ):
        with pytest.raises(OptionError, match=text):
            await just_open("stomp://localhost:1", **options)
    for where in (
        "localhost:61613",
        "http://a",
        "stomp://",
        "stomp://a/b",
        "stomp://a:x",
        "stomp://u:pw@a",
        "stomp://[::1",
        "ws://a/b c",
        "ws://a/?token=pw\u00e9",
    ):
        with pytest.raises(OptionError) as caught:
            await just_open(where)
        assert "pw" not in str(caught.value)
    with pytest.raises(OptionError):
        QUICK.__class__(first_delay_s=0)
    with pytest.raises(OptionError):
        QUICK.__class__(max_attempts=-1)


async def test_wrong_arguments_of_subscribe(client: Client, autojump_clock) -> None:
    for options in ({"ack": "yes"}, {"prefetch": 0}):
        with pytest.raises(OptionError):
            async with client.subscribe("/topic/a", **options):  # type: ignore[arg-type]
                pass  # pragma: no cover


# --- back-pressure ----------------------------------------------------------------------------


async def test_a_full_buffer_stops_the_reader_and_half_of_it_starts_it(autojump_clock) -> None:
    async def serve(peer: Scripted) -> None:
        stream = await peer.accept(b"heart-beat:1,0\n")
        await confirm(stream)
        for number in range(100):
            await wait_all_tasks_blocked()
            await stream.send_all(MESSAGE % (number, b"x"))

    async with playing(serve) as peer:
        links = Links(peer)
        clients = open_client(links, close_timeout_s=0.1, heart_beat=(0, 1))
        async with clients as client, client.subscribe("/topic/a", prefetch=10) as messages:
            await trio.sleep(60)  # silent all the time, but not dead: nobody listens
            assert client.is_connected
            read = links.opened[0].received
            assert len(messages._buffer) == 10
            for _ in range(4):
                messages.receive_nowait()
            await trio.sleep(1)
            assert links.opened[0].received == read
            got = [(await messages.receive()).message_id for _ in range(96)]
            assert got == [f"m-{number}" for number in range(4, 100)]
            assert not client._core._crowded


async def test_full_buffer_does_not_block_waiting_for_a_receipt(
    client: Client, autojump_clock
) -> None:
    """The deadlock of a handler that sends on while its buffer is full."""
    async with client.subscribe("/topic/a", prefetch=1) as messages:
        for number in range(50):
            await client.send("/topic/a", str(number), receipt=False)
        await trio.sleep(1)
        for number in range(50):
            message = await messages.receive()
            assert message.text == str(number)
            assert (await client.send("/topic/b", b"")).matched == 0


async def test_messages_before_a_receipt_are_bounded(autojump_clock, monkeypatch) -> None:
    monkeypatch.setattr("trio_stomp.client._subscription.MAX_EXCESS_BYTES", 1000)
    async with open_broker() as dial, open_client(dial.stream) as client:
        async with client.subscribe("/topic/a", prefetch=1) as messages:
            for _ in range(50):
                await client.send("/topic/a", b"x" * 100)
            with pytest.raises(SlowConsumer, match="beyond the buffer"):
                while True:
                    await messages.receive()
        assert (await client.send("/topic/a", b"")).matched == 0


async def test_the_outgoing_buffer_is_bounded(autojump_clock) -> None:
    sent = 0
    options = {"max_outgoing_bytes": 1000, "close_timeout_s": 1, "heart_beat": (0, 0)}
    async with playing(Scripted.accept) as peer:
        async with open_client(peer.connect_narrow, **options) as client:  # type: ignore[arg-type]
            with trio.move_on_after(100) as scope:
                while True:
                    await client.send("/topic/a", b"x" * 50, receipt=False)
                    sent += 1
            assert scope.cancelled_caught
    assert 10 < sent < 40


async def test_the_reader_waits_for_the_last_full_buffer(autojump_clock) -> None:
    more = b"MESSAGE\nsubscription:s%d\nmessage-id:m-%d\n\nx\0"
    read: list[int] = []

    async def serve(peer: Scripted) -> None:
        stream = await peer.accept()
        for _ in range(2):
            await confirm(stream)
        # Ids and receipts have the same numbers: s1 asks for 2, s3 for 4.
        await stream.send_all(b"".join(more % (each, 1) for each in (1, 1, 3, 3)))
        await trio.sleep(1)
        await stream.send_all(more % (1, 2))

    async with playing(serve) as peer:
        links = Links(peer)
        async with (
            open_client(links, heart_beat=(0, 0), close_timeout_s=1) as client,
            client.subscribe("/topic/a", prefetch=2) as first,
            client.subscribe("/topic/b", prefetch=2) as second,
        ):
            await trio.sleep(5)
            read.append(links.opened[0].received)
            assert len(await first.receive_batch()) == 2
            await trio.sleep(5)
            read.append(links.opened[0].received)
            assert len(await second.receive_batch()) == 2
            await trio.sleep(5)
            read.append(links.opened[0].received)
            assert (await first.receive()).message_id == "m-2"
    assert read[0] == read[1] < read[2]


# --- the end ----------------------------------------------------------------------------------


async def test_the_end_is_in_order(autojump_clock) -> None:
    async with open_broker() as dial:
        async with open_client(dial.stream) as other, other.subscribe("/topic/a") as messages:
            async with open_client(dial.stream) as client:
                for _ in range(500):
                    await client.send("/topic/a", b"x" * 100, receipt=False)
            for _ in range(500):
                await messages.receive()
            with pytest.raises(ClientClosed):
                await client.send("/topic/a", b"")
            with pytest.raises(ClientClosed):
                await client.send("/topic/a", b"", receipt=False)


async def test_a_broker_that_does_not_confirm_the_end(autojump_clock) -> None:
    async with playing(Scripted.accept) as peer:
        start = trio.current_time()
        async with open_client(peer, close_timeout_s=2, heart_beat=(0, 0)):
            pass
        assert trio.current_time() - start == pytest.approx(2)


async def test_cancelled_it_closes_at_once(autojump_clock) -> None:
    async with open_broker() as dial:
        await dial.start()
        start = trio.current_time()
        with trio.move_on_after(1):
            async with open_client(dial.stream) as client, client.subscribe("/topic/a") as messages:
                await messages.receive()
        assert trio.current_time() - start == pytest.approx(1)


async def test_an_exception_of_the_block_comes_out_as_it_is(autojump_clock) -> None:
    async with open_broker() as dial:
        with pytest.raises(ZeroDivisionError):
            async with open_client(dial.stream):
                raise ZeroDivisionError
        with pytest.raises(ExceptionGroup) as caught:
            async with open_client(dial.stream), trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                raise ZeroDivisionError
        assert [type(each) for each in caught.value.exceptions] == [ZeroDivisionError]


async def test_stale_messages(autojump_clock) -> None:
    async with open_linked() as (client, links):
        async with client.subscribe("/queue/a", ack="client-individual") as messages:
            await client.send("/queue/a", b"1")
            await client.send("/queue/a", b"2")
            message = await messages.receive()
            links.cut()
            await trio.sleep(1)
            with pytest.raises(StaleMessage, match="will redeliver it"):
                await message.ack()
            with pytest.raises(StaleMessage):
                async with message:
                    pass
            with pytest.raises(ZeroDivisionError):  # not hidden by the other one
                async with message:
                    raise ZeroDivisionError
            with pytest.raises(StaleMessage):
                async with client.transaction() as transaction:
                    await transaction.ack(message)
            for body in (b"1", b"2"):
                async with await messages.receive() as message:
                    assert (message.body, message.redelivered) == (body, True)
        quiet = client.subscribe("/queue/b", ack="client", on_stale="ignore")
        async with quiet as messages:
            await client.send("/queue/b", b"1")
            message = await messages.receive()
            links.cut()
            await message.ack()
            await trio.sleep(1)
            await message.ack()
            async with await messages.receive() as message:
                assert message.redelivered


async def test_a_nack_in_1_0_does_not_hide_the_exception(autojump_clock) -> None:
    async with open_broker() as dial, open_client(dial.stream, versions=("1.0",)) as client:
        async with client.subscribe("/queue/a", ack="client") as messages:
            await client.send("/queue/a", b"1")
            message = await messages.receive()
            with pytest.raises(ZeroDivisionError):
                async with message:
                    raise ZeroDivisionError
            with pytest.raises(OptionError, match="no NACK"):
                await message.nack()
            await message.ack()


async def test_unexpected_receipts_are_ignored(autojump_clock) -> None:
    reply = b"MESSAGE\nsubscription:/temp-queue/replies-%b\nmessage-id:1\ncorrelation-id:x\n\n\0"

    async def serve(peer: Scripted) -> None:
        stream = await peer.listener.accept()
        await read_until(stream, b"\n\n\0")
        # With CONNECTED, before anything was asked for.
        await stream.send_all(b"CONNECTED\nversion:1.2\n\n\0" + MESSAGE % (1, b"early"))
        receipt = receipt_of(await read_until(stream, b"\n\n\0"))
        await stream.send_all(
            b"RECEIPT\nreceipt-id:999\n\n\0"
            + reply % client._core.nonce.encode()
            + (MESSAGE % (2, b"")).replace(b"s1", b"s99")
            + b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt
            + MESSAGE % (3, b"meant")
        )

    async with open_played(serve, reconnect=None) as client:
        async with client.subscribe("/topic/a") as messages:
            assert (await messages.receive()).body == b"meant"
            with pytest.raises(trio.WouldBlock):
                messages.receive_nowait()


async def test_first_reason_is_reported() -> None:
    async def connect() -> trio.abc.Stream:
        return BreakingStream(b"CONNECTED\nversion:1.2\n\n\0", b"ERROR\nmessage:why\n\n\0")

    with pytest.raises(BrokerError, match="why"):
        async with open_client(connect, reconnect=None):
            await trio.sleep_forever()


async def test_nothing_can_be_written_and_the_broker_does_not_say_why(autojump_clock) -> None:
    class Deaf(CutStream):
        """A stream whose writes fail while reads continue."""

        def cut(self) -> None:
            pass

    async def connect() -> trio.abc.Stream:
        return Deaf(await peer(), sends=200)

    async with playing(Scripted.accept) as peer:
        with pytest.raises(LinkLost):
            async with open_client(connect, reconnect=None, heart_beat=(0, 0)) as client:
                start = trio.current_time()
                with trio.fail_after(60):
                    await client.send("/topic/a", b"x" * 300)
        assert trio.current_time() - start == pytest.approx(1)  # so long it might have said it


async def test_a_broker_that_breaks_a_rule_later(autojump_clock) -> None:
    async def serve(peer: Scripted) -> None:
        stream = await peer.accept()
        await trio.sleep(1)
        await stream.send_all(b"RECEIPT\nnocolon\n\n\0")

    async with playing(serve) as peer:
        with pytest.raises(BrokerError, match="broke a rule of STOMP"):
            async with open_client(peer, reconnect=QUICK):
                await trio.sleep_forever()


async def test_sender_waiting_for_room_continues_on_the_next_connection(autojump_clock) -> None:
    written = list[bytes]()

    async def serve(peer: Scripted) -> None:
        stream = await peer.accept()
        await trio.sleep(5)
        await trio.aclose_forcefully(stream)
        written.append(await read_until(await peer.accept(), b"last\0"))

    async with playing(serve) as peer:
        async with open_client(
            peer.connect_narrow, max_outgoing_bytes=100, reconnect=QUICK, close_timeout_s=1
        ) as client:
            for _ in range(3):
                await client.send("/topic/a", b"x" * 200, receipt=False)
            await client.send("/topic/a", b"last", receipt=False)
    assert written
