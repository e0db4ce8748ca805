"""Security for clients (login, TLS, proxies, pages) and for operators (reloading)."""

import logging
import time
from pathlib import Path

import jwt
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.fakes import (
    MEMORY,
    TCP,
    TLS,
    WS_MEMORY,
    WSS,
    Client,
    Dial,
    StreamPipe,
    frame_bytes,
    open_dial,
    until,
)
from tests.support.files import save
from tests.support.logins import basic, introduced, proxy_line, refused, upgraded
from tests.support.served import QUIET, Served, served
from tests.support.site import ask_over_wire
from tests.support.tls import authority, issue
from trio_stomp import CloseReason, OptionError, Settings, serve
from trio_stomp.security import PasscodeChecker

ALICE = {"login": "alice", "passcode": "wonder-land"}
SECRET = "a secret of thirty-two bytes, not less"
FAR = proxy_line("203.0.113.7")


@pytest.fixture
def users(tmp_path: Path) -> str:
    """A file of users: alice, and bob."""
    return save(tmp_path / "users", "alice:wonder-land\nbob:b:c\n")


@pytest.fixture
def key(tmp_path: Path) -> str:
    """The secret that tokens are signed with."""
    return save(tmp_path / "key", SECRET)


def token(name: str, *, lives_s: float = 3600, roles: tuple[str, ...] = ()) -> str:
    claims = {"sub": name, "exp": time.time() + lives_s, "roles": list(roles)}
    return jwt.encode(claims, SECRET, "HS256")


# --- login ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", [MEMORY, TCP, WS_MEMORY, TLS, WSS])
async def test_a_user_logs_in(users: str, transport: str) -> None:
    async with open_dial(transport, passwd_file=users, **QUIET) as dial:
        client = await dial.connect("1.2", ALICE)
        assert await client.fence() == []
        (known,) = dial.server.broker.clients
        assert (known.user, known.identity.method) == ("alice", "passcode")


@pytest.mark.parametrize("transport", [TCP, WS_MEMORY, TLS])
async def test_every_line_of_the_log_about_a_session_names_its_user(
    users: str, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trio_stomp")
    async with open_dial(transport, passwd_file=users, **QUIET) as dial:
        client = await dial.connect("1.2", ALICE)
        assert await client.fence() == []
    lines = [(record.getMessage(), vars(record).get("user")) for record in caplog.records]
    found = [user for text, user in lines if " opened: " in text or " closed: " in text]
    assert found == ["alice"] * 2, lines


async def test_a_page_is_a_line_for_debugging_only(caplog: pytest.LogCaptureFixture) -> None:
    """A page of the dashboard asks 11 times, each probe of a kubelet once."""
    caplog.set_level(logging.DEBUG, "trio_stomp")
    async with open_dial(TCP, **QUIET) as dial:
        await ask_over_wire(await dial.stream(), "/livez")
        await until(lambda: dial.server.ended[CloseReason.HTTP_ANSWERED] == 1)
    (level,) = [each.levelno for each in caplog.records if "http-answered" in each.getMessage()]
    assert level == logging.DEBUG


@pytest.mark.covers("C08", "R13")
@pytest.mark.parametrize("transport", [TCP, WS_MEMORY])
async def test_failed_logins_get_the_same_error_without_secrets(
    users: str, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_dial(transport, passwd_file=users, **QUIET) as dial:
        reported = []
        for login in ("alice", "nobod"):
            client = await dial.open()
            headers = {"login": login, "passcode": "Geheimnis", "Authorization-x": "y"}
            error = await refused(client, "authentication-failed", **headers)
            reported.append(error.raw.decode().replace(login, "LOGIN"))
            await client.expect_closed()
            if transport == WS_MEMORY:
                assert client.websocket.close_code == 1008
        assert reported[0] == reported[1]
        assert "Geheimnis" not in reported[0]
        assert "Geheimnis" not in caplog.text
        assert "wonder-land" not in caplog.text
        assert "login of 'nobod' failed" in caplog.text


async def test_frames_pipelined_after_a_refused_connect_have_no_effect(
    users: str,
) -> None:
    async with open_dial(passwd_file=users, **QUIET) as dial:
        client = await dial.open()
        wrong = {"accept-version": "1.2", "host": "x", "login": "alice", "passcode": "x"}
        await client.send_bytes(
            frame_bytes("CONNECT", wrong)
            + frame_bytes("SEND", {"destination": "/queue/q", "receipt": "r"}, b"x")
            + frame_bytes("SUBSCRIBE", {"destination": "/topic/t", "id": "1"})
        )
        frames = await client.read_to_end()
        assert [frame.command for frame in frames] == ["ERROR"]
        assert dial.server.broker.publisher.received == 0


async def test_frames_pipelined_after_connect_are_processed_after_connected(users: str) -> None:
    async with open_dial(passwd_file=users, **QUIET) as dial:
        client = await dial.open()
        headers = {"accept-version": "1.2", "host": "x", **ALICE}
        await client.send_bytes(
            frame_bytes("CONNECT", headers)
            + frame_bytes("SEND", {"destination": "/topic/t", "receipt": "r"}, b"x")
        )
        commands = [(await client.receive()).command for _ in range(2)]
        assert commands == ["CONNECTED", "RECEIPT"]


async def test_client_with_many_failed_logins_gets_a_retry_time(users: str) -> None:
    async with open_dial(passwd_file=users, **QUIET) as dial:
        codes = set()
        for _ in range(5):
            client = await dial.open()
            await client.send("CONNECT", {"login": "alice", "passcode": "x"})
            error = await client.receive()
            codes.add(error["code"])
            await client.read_to_end()
        assert codes == {"authentication-failed", "too-many-attempts"}
        assert int(error["retry-after-ms"]) > 0


async def test_a_second_connect_on_one_connection_is_asked_too(users: str) -> None:
    """stompica's clients may log out and in again without closing."""
    async with open_dial(passwd_file=users, dialect="stompica", **QUIET) as dial:
        client = await dial.connect("1.2", ALICE)
        await client.send("DISCONNECT", {"receipt": "bye"})
        await client.receive_until_receipt("bye")
        await client.send("CONNECT", {"accept-version": "1.2", "host": "x", "login": "bob"})
        await client.expect_error("authentication-failed")


async def test_the_connect_timeout_holds_while_a_login_is_checked(
    users: str, autojump_clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PasscodeChecker, "recalls", lambda *_: False)
    async with open_dial(passwd_file=users, **QUIET) as dial:
        await dial.start()
        dial.server.authenticator._turns.busy = 2  # others' logins take for ever
        client = await dial.open()
        await client.send("CONNECT", {"accept-version": "1.2", "host": "x", **ALICE})
        began = trio.current_time()
        with trio.fail_after(60):
            frames = []
            while data := await client.pipe.receive_bytes():
                frames.append(data)
        assert b"connect-timeout" in b"".join(frames)
        assert trio.current_time() - began == pytest.approx(10, abs=3)


# --- credentials on the upgrade -------------------------------------------------------------------


@pytest.mark.covers("X15")
async def test_basic_on_the_upgrade_is_a_login_and_connects_own_headers_win(users: str) -> None:
    async with open_dial(WS_MEMORY, passwd_file=users, **QUIET) as dial:
        client = await upgraded(dial, basic("alice", "wonder-land"))
        assert (await client.connect())["user-name"] == "alice"
        other = await upgraded(dial, basic("alice", "wonder-land"))
        headers = {"login": "bob", "passcode": "b:c"}
        assert (await other.connect("1.2", headers))["user-name"] == "bob"
        wrong = await upgraded(dial, basic("alice", "wonder-land"))
        await refused(wrong, "authentication-failed", login="bob", passcode="x")
        bad = await upgraded(dial, basic("alice", "x"))
        await refused(bad, "authentication-failed")


@pytest.mark.covers("X15")
async def test_a_token_on_the_upgrade_as_header_in_the_query_and_in_a_cookie(key: str) -> None:
    options = {"token_key_file": key, "token_cookie": "session", **QUIET}
    async with open_dial(WS_MEMORY, **options) as dial:
        for headers, path in (
            ([("Authorization", f"Bearer {token('carol')}")], "/ws"),
            ([], f"/ws?access_token={token('carol')}"),
            ([("Cookie", f"a=b; session={token('carol')}")], "/ws"),
        ):
            client = await upgraded(dial, *headers, path=path)
            assert (await client.connect())["user-name"] == "carol"


@pytest.mark.parametrize(("transport", "scheme"), [(WS_MEMORY, "http"), (WSS, "https")])
async def test_automatic_credentials_from_foreign_pages_are_ignored(
    users: str, key: str, transport: str, scheme: str
) -> None:
    """Cross-site WebSocket hijacking: the visitor's password and cookies are not the page's."""
    options = {
        "passwd_file": users,
        "token_key_file": key,
        "token_cookie": "session",
        **QUIET,
    }
    foreign = ("Origin", "https://evil.example")
    ours = ("Origin", f"{scheme}://broker")
    async with open_dial(transport, **options, allowed_origins="*") as dial:
        for ambient in (basic("alice", "wonder-land"), ("Cookie", f"session={token('carol')}")):
            client = await upgraded(dial, ambient, ours)
            await client.connect()
            client = await upgraded(dial, ambient, foreign)
            await refused(client, "authentication-required")
        # A token set by the page itself counts.
        client = await upgraded(dial, foreign, path=f"/ws?access_token={token('carol')}")
        await client.connect()
    named = "https://app.example"
    async with open_dial(transport, **options, allowed_origins=named) as dial:
        client = await upgraded(dial, basic("alice", "wonder-land"), ("Origin", named))
        await client.connect()


# --- tokens ---------------------------------------------------------------------------------------


async def test_a_token_in_connect_and_its_end(key: str, autojump_clock) -> None:
    async with open_dial(token_key_file=key, **QUIET) as dial:
        client = await dial.open()
        headers = {"Authorization": f"Bearer {token('carol', lives_s=600, roles=('ops',))}"}
        await client.connect("1.2", headers)
        (known,) = dial.server.broker.clients
        assert known.identity.roles == {"ops"}
        began = trio.current_time()
        with trio.fail_after(1000):
            while not client.is_ended:
                await client._read()
        frame = client.reader.next()
        assert frame is not None
        assert frame["code"] == "credentials-expired"
        # The clock of the broker began when it did, and the token a little later.
        assert trio.current_time() - began == pytest.approx(600, abs=60)


# --- rules ----------------------------------------------------------------------------------------


async def test_rules_hold_for_a_client_of_the_broker(users: str, tmp_path: Path) -> None:
    rule = '[[rule]]\nuser = "alice"\nallow = ["send", "receive"]\nto = "/topic/{user}/**"\n'
    options = {"passwd_file": users, "acl_file": save(tmp_path / "acl.toml", rule), **QUIET}
    async with open_dial(WS_MEMORY, **options) as dial:
        client = await dial.connect("1.2", ALICE)
        await client.subscribe("/topic/alice/x")
        await client.publish("/topic/alice/x", b"hello")
        assert (await client.receive()).body == b"hello"
        await client.send("SEND", {"destination": "/topic/bob/x", "receipt": "no"})
        error = await client.expect_error("not-authorized")
        assert error["receipt-id"] == "no"
        await client.expect_closed()
        assert client.websocket.close_code == 1008
        assert "acl.toml" not in error.raw.decode()


async def test_with_users_diag_needs_the_right_monitor(users: str, tmp_path: Path) -> None:
    options = {**QUIET, "diag_interval_s": 5}
    async with open_dial(TCP, passwd_file=users, **options) as dial:
        for command, headers in (
            ("SUBSCRIBE", {"destination": "DIAG/session", "id": "1"}),
            ("SUBSCRIBE", {"destination": "/queue/monitor", "id": "1"}),
            ("SUBSCRIBE", {"destination": "/stream/DIAG", "id": "1"}),
            ("SEND", {"destination": "DIAG/mine"}),
            ("DIAG", {}),
        ):
            client = await dial.connect("1.2", ALICE)
            await client.send(command, headers, b"" if command == "SUBSCRIBE" else b"session")
            await client.expect_error("not-authorized")
        client = await dial.open()
        await client.send("DIAG", {}, b"session")
        await client.expect_error("not-connected")


# --- other files ----------------------------------------------------------------------------------


async def test_files_are_read_again_without_a_restart(users: str) -> None:
    async with served(passwd_file=users) as broker:
        alice = await broker.connect(ALICE)
        bob = await broker.connect({"login": "bob", "passcode": "b:c"})
        save(users, "alice:wonder-land\ncarol:new\n")
        await broker.handle.reload()
        await bob.expect_error("authentication-failed")
        assert await alice.fence() == []
        carol = await broker.connect({"login": "carol", "passcode": "new"})
        save(users, "alice\n")
        with pytest.raises(OptionError, match="users"):
            await broker.handle.reload()
        assert await carol.fence() == []
        await broker.connect({"login": "carol", "passcode": "new"})


async def test_other_rules_hold_at_once(users: str, tmp_path: Path) -> None:
    rules = save(tmp_path / "acl.toml", '[[rule]]\nallow = "all"\nto = "**"\n')
    async with served(passwd_file=users, acl_file=rules) as broker:
        stays, goes = await broker.connect(ALICE), await broker.connect(ALICE)
        await stays.subscribe("/topic/a")
        await goes.subscribe("/topic/b")
        save(rules, '[[rule]]\nallow = ["send", "receive"]\nto = "/topic/a"\n')
        await broker.handle.reload()
        await goes.expect_error("not-authorized")
        await stays.publish("/topic/a", b"x")
        assert (await stays.receive()).body == b"x"


async def certified(broker: Served) -> tuple[Client, bytes]:
    """A client over TLS, and the broker's certificate."""
    client = await broker.open(authority().client_context())
    await client.connect()
    assert isinstance(client.pipe, StreamPipe)
    assert isinstance(client.pipe.stream, trio.SSLStream)
    return client, client.pipe.stream.getpeercert(binary_form=True)


async def test_a_new_certificate_is_used_without_dropping_connections(tmp_path: Path) -> None:
    path = tmp_path / "broker.pem"
    issue(authority(), path)
    async with served(tls_cert=str(path)) as broker:
        first, old = await certified(broker)
        issue(authority(), path)
        await broker.handle.reload()
        _, new = await certified(broker)
        assert old != new
        assert await first.fence() == []
        save(path, "nonsense")
        with pytest.raises(OptionError, match=r"broker\.pem"):
            await broker.handle.reload()
        _, same = await certified(broker)
        assert same == new


# --- where strangers are --------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "*", "0", "0x0", "::0", "::ffff:0.0.0.0"])
async def test_public_listener_without_users_is_refused(host: str) -> None:
    with pytest.raises(OptionError) as caught:
        await serve(Settings.of(host=host, port=0))
    text = str(caught.value)
    for remedy in ("--passwd-file", "passwd add", "127.0.0.1", "--insecure"):
        assert remedy in text


@pytest.mark.parametrize("why", ["insecure", "users", "loopback"])
async def test_settings_that_allow_a_public_listener(users: str, why: str) -> None:
    cases: dict[str, dict[str, object]] = {
        "insecure": {"host": "0.0.0.0", "insecure": True},
        "users": {"host": "0.0.0.0", "passwd_file": users, "tls": "off"},
        "loopback": {"host": "localhost"},
    }
    options = cases[why]
    async with trio.open_nursery() as nursery:
        handle = await nursery.start(serve, Settings.of(port=0, **options, **QUIET))
        handle.stop()


async def test_an_empty_user_file_refuses_every_login(tmp_path: Path) -> None:
    empty = save(tmp_path / "users", "# nobody yet\n")
    async with open_dial(passwd_file=empty, **QUIET) as dial:
        await refused(await dial.open(), "authentication-required")
        await refused(await dial.open(), "authentication-failed", **ALICE)


# --- TLS ------------------------------------------------------------------------------------------


async def plain_stream(dial: Dial) -> trio.SocketStream:
    """A connection in the clear to a broker with a certificate."""
    address = (dial.handle.addresses or dial.handle.tls_addresses)[0]
    host, _, port = address.rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    dial._streams.append(stream)
    return stream


async def plain(dial: Dial) -> Client:
    """A client that speaks in the clear."""
    return Client(StreamPipe(await plain_stream(dial)))


async def test_one_port_takes_tls_and_plain(caplog: pytest.LogCaptureFixture) -> None:
    async with open_dial(TLS, **QUIET) as dial:
        secret = await dial.connect()
        open_one = await plain(dial)
        await open_one.connect()
        await secret.subscribe("/topic/t")
        await open_one.publish("/topic/t", b"x" * 100_000)
        assert (await secret.receive()).body == b"x" * 100_000
        ways = sorted(client.transport for client in dial.server.broker.clients)
        assert ways == ["tcp", "tls"]
        await open_one.aclose()
    async with open_dial(WSS, **QUIET) as dial:
        await dial.connect()
        assert [client.transport for client in dial.server.broker.clients] == ["wss"]


async def test_a_port_that_requires_tls() -> None:
    async with open_dial(TLS, tls="required", **QUIET) as dial:
        await dial.connect()
        client = await plain(dial)
        error = await refused(client, "tls-required")
        assert "stomps://" in error["message"]
        for request in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /ws HTTP/1.1\r\n\r\n"):
            stream = await plain_stream(dial)
            await stream.send_all(request)
            answer = bytes(await stream.receive_some(65536))
            assert answer.startswith(b"HTTP/1.1 40")
            await stream.aclose()


async def test_a_port_of_its_own_for_tls() -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    free = listener.socket.getsockname()[1]
    await listener.aclose()
    async with served(tls="off", tls_port=free, tls_cert=authority().certificate) as broker:
        assert broker.handle.tls_addresses == (f"127.0.0.1:{free}",)
        stream = await trio.open_tcp_stream("127.0.0.1", free)
        context = authority().client_context()
        tls = trio.SSLStream(stream, context, server_hostname="127.0.0.1")
        client = Client(StreamPipe(tls))
        await client.connect()
        open_one = Client(StreamPipe(await trio.open_tcp_stream("127.0.0.1", free)))
        await refused(open_one, "tls-required")
        broker.clients += [client, open_one]
        other = trio.SSLStream(await broker.stream(), context, server_hostname="127.0.0.1")
        with pytest.raises(trio.BrokenResourceError):
            await other.do_handshake()
        await trio.aclose_forcefully(other)


async def test_tls_within_tls_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with open_dial(TLS, **QUIET) as dial:
        stream = await dial.stream()
        inner = trio.SSLStream(stream, authority().client_context(), server_hostname="127.0.0.1")
        with pytest.raises(trio.BrokenResourceError):
            await inner.do_handshake()
        await until(lambda: dial.server.ended[CloseReason.TLS_ON_PLAIN_PORT] == 1)


async def test_a_handshake_that_fails_costs_its_connection_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_dial(TLS, **QUIET) as dial:
        stream = await dial.stream()
        assert isinstance(stream, trio.SSLStream)
        await stream.transport_stream.send_all(b"\x16\x03\x01\x00\x05hello")
        await until(lambda: dial.server.ended[CloseReason.TLS_FAILED] == 1)
        assert "the TLS handshake" in caplog.text
        await (await dial.connect()).fence()


async def test_a_silent_handshake_ends_with_the_connect_timeout(autojump_clock) -> None:
    options = {"tls_cert": authority().certificate, "connect_timeout_s": 5, **QUIET}
    async with open_dial(MEMORY, **options) as dial:
        stream = await dial.stream()
        await stream.send_all(b"\x16\x03\x01")
        began = trio.current_time()
        await until(lambda: dial.server.ended[CloseReason.CONNECT_TIMEOUT] == 1, 0.5)
        assert trio.current_time() - began == pytest.approx(5, abs=3)


@pytest.mark.parametrize("way", ["common-name", "mapped"])
async def test_a_client_certificate_is_a_login(way: str, tmp_path: Path) -> None:
    mine = authority()
    rules = '[certificates]\n"CN=billing" = "accounts"\n[[rule]]\nallow = "all"\nto = "**"\n'
    options = {
        "tls_client_ca": mine.file,
        "tls_client_certificates": "optional",
        "tls_login": way,
        "acl_file": save(tmp_path / "acl.toml", rules),
        **QUIET,
    }
    async with open_dial(TLS, **options) as dial:
        await refused(await dial.open(), "authentication-required")

        async def certified(name: str) -> Client:
            stream = await plain_stream(dial)
            context = mine.client_context(name)
            return Client(StreamPipe(trio.SSLStream(stream, context, server_hostname="127.0.0.1")))

        client = await certified("billing")
        connected = await client.connect()
        assert connected["user-name"] == ("billing" if way == "common-name" else "accounts")
        await client.aclose()
        if way == "mapped":
            stranger = await certified("somebody")
            await refused(stranger, "authentication-required")
            await stranger.aclose()


# --- proxies --------------------------------------------------------------------------------------


async def test_the_proxy_header_sets_the_clients_address(users: str) -> None:
    options = {"proxy_addresses": "127.0.0.1", "passwd_file": users, "tls": "off", **QUIET}
    async with open_dial(TCP, **options, max_connections_per_address=1) as dial:
        client = await introduced(dial, FAR)
        await client.connect("1.2", ALICE)
        (known,) = dial.server.broker.clients
        assert known.remote == "203.0.113.7:5555"
        # It counts as what it is: one address, and not loopback.
        second = await introduced(dial, FAR)
        await refused(second, "too-many-from-address", **ALICE)
        other = await introduced(dial, proxy_line("203.0.113.8"))
        await other.connect("1.2", ALICE)


async def test_clients_behind_a_proxy_do_not_count_as_local() -> None:
    async with open_dial(TCP, proxy_addresses="127.0.0.0/8", **QUIET) as dial:
        client = await introduced(dial, FAR)
        await refused(client, "authentication-required")


@pytest.mark.parametrize(
    "start", [b"CONNECT\n\n\0", b"PROXY TCP4 nonsense\r\n", b"PROXY " + b"x" * 200]
)
async def test_a_proxy_without_a_proxy_header_is_disconnected(
    start: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_dial(TCP, proxy_addresses="127.0.0.1", **QUIET) as dial:
        client = await introduced(dial, start)
        with pytest.raises((trio.BrokenResourceError, AssertionError)):
            await client.receive()
        await until(lambda: dial.server.ended[CloseReason.BAD_PROXY_HEADER] == 1)
        assert "PROXY" in caplog.text


async def test_a_proxy_that_says_nothing_is_closed_in_time(autojump_clock) -> None:
    options = {"proxy_addresses": "127.0.0.1", "connect_timeout_s": 5, **QUIET}
    async with open_dial(TCP, **options) as dial:
        await dial.stream()
        await until(lambda: dial.server.ended[CloseReason.BAD_PROXY_HEADER] == 1, 0.5)


async def test_strangers_are_not_believed_to_be_proxies() -> None:
    async with open_dial(TCP, proxy_addresses="10.0.0.0/8", **QUIET) as dial:
        client = await introduced(dial, FAR)
        error = await client.receive()
        assert error.command == "ERROR"


# --- statistics -----------------------------------------------------------------------------------


async def test_failed_logins_are_events(users: str) -> None:
    async with open_dial(passwd_file=users, **QUIET) as dial:
        await dial.start()
        dial.server.broker.events.are_stored = True
        reported = []
        dial.server.dispatcher.end_turn = lambda now: reported.extend(
            dial.server.broker.events.take()
        )
        await refused(await dial.open(), "authentication-failed", login="alice")
        await wait_all_tasks_blocked()
        assert ("auth", "authentication-failed") in [(each.name, each.reason) for each in reported]
