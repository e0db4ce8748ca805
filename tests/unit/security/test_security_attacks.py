"""Attacks that once worked, over real sockets: each test is what the attacker did."""

import logging
import re
import ssl
import threading
import time
from functools import partial
from pathlib import Path

import jwt
import pytest
import trio

from tests.support.fakes import (
    TCP,
    Client,
    Dial,
    StreamPipe,
    open_dial,
    until,
)
from tests.support.files import save
from tests.support.logins import basic, introduced, proxy_line, refused, upgraded
from tests.support.served import QUIET, served
from tests.support.site import Reply, add_all, ask_over_wire, parse
from tests.support.tls import authority
from trio_stomp import OptionError, Settings, serve
from trio_stomp.security import Accounts, PasscodeChecker, UserBook

OLD, NEW = "the old secret, which has leaked to others", "the new secret, which nobody else knows"


def bearer(secret: str, **claims: object) -> dict[str, str]:
    claims_sent = {"sub": "alice", "exp": time.time() + 3600, **claims}
    return {"Authorization": f"Bearer {jwt.encode(claims_sent, secret, 'HS256')}"}


async def test_a_reply_to_another_connection_cannot_be_forged_from_ones_own_session_id() -> None:
    """F16: ids are counted, so the neighbour's is one's own less one."""
    async with open_dial(TCP, **QUIET) as dial:
        victim, service = await dial.connect(), await dial.connect()
        mallory = await dial.open()
        own = int((await mallory.connect())["session"])
        await service.subscribe("/queue/ask")
        await victim.publish("/queue/ask", b"?", headers={"reply-to": "/temp-queue/replies"})
        public = (await service.receive())["reply-to"]
        for session in (own - 1, own - 2):
            await mallory.publish(f"/reply-queue/{session}.replies", b"forged", receipt=True)
        await service.publish(public, b"true")
        assert (await victim.receive()).body == b"true"
        # 96 bits in hexadecimal, anew for each name and each connection.
        assert re.fullmatch(r"/reply-queue/\d+-[0-9a-f]{24}\.replies", public)
        await victim.publish("/queue/ask", b"?", headers={"reply-to": "/temp-queue/others"})
        other = (await service.receive())["reply-to"]
        assert other.rpartition("-")[2].partition(".")[0] not in public


async def test_a_broker_that_hides_its_version_hides_it_on_its_page_too() -> None:
    """F23: the start page told version and listening address to everybody."""
    async with open_dial(TCP, **QUIET, hide_server=True) as dial:
        page = (await ask_over_wire(await dial.stream(), "/")).text
        assert dial.handle.addresses[0] not in page
        assert not re.search(r"trio_stomp (<small[^>]*>)?\d", page)
    async with open_dial(TCP, **QUIET) as dial:
        page = (await ask_over_wire(await dial.stream(), "/")).text
        assert dial.handle.addresses[0] in page
        assert re.search(r"<h2>trio_stomp \d", page)


async def test_tokens_of_a_leaked_key_end_with_the_key(tmp_path: Path) -> None:
    """F19: a session lasted as long as its token said, whatever key there was, 1e300 s for one."""
    key = save(tmp_path / "key", OLD)
    async with served(token_key_file=key) as broker:
        forger = await broker.open()
        await forger.connect("1.2", bearer(OLD, exp=1e300))
        await broker.handle.reload()  # the same key: nobody is sent away
        assert await forger.fence() == []
        save(key, NEW)
        await broker.handle.reload()
        await forger.expect_error("authentication-failed")
        owner = await broker.open()
        await owner.connect("1.2", bearer(NEW))


async def test_no_token_holds_a_session_for_ever(tmp_path: Path) -> None:
    """F19: without an option a session by token lasts a day, and then the token is asked again."""
    key = save(tmp_path / "key", OLD)
    async with open_dial(TCP, token_key_file=key, **QUIET) as dial:
        await dial.connect("1.2", bearer(OLD, exp=1e300))
        (connection,) = dial.server.connections
        assert connection.deadlines.expires_at - time.time() <= 86_400
    async with open_dial(TCP, token_key_file=key, max_token_session_s=0.2, **QUIET) as dial:
        client = await dial.connect("1.2", bearer(OLD, exp=1e300))
        await client.expect_error("credentials-expired")


async def test_the_start_warns_of_files_that_give_rights_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """F18, F20, F24: nothing was said of any of them."""
    caplog.set_level(logging.WARNING)
    key = save(tmp_path / "key", OLD, 0o644)
    users = save(tmp_path / "users", "alice:wonder\nbob:\n")
    async with served(token_key_file=key, passwd_file=users) as broker:
        bob = await broker.open()
        await refused(bob, "authentication-failed", login="bob", passcode="")
    for words in ("has mode 0644, and holds a secret", "--token-audience", "no passcode, as 'bob'"):
        assert words in caplog.text


class GatedChecker(PasscodeChecker):
    """A slow checker that records the logins it checks."""

    def __init__(self, book: UserBook) -> None:
        super().__init__(book)
        self.seen: list[str] = []
        self.gate = threading.Semaphore(0)

    def recalls(self, name: str, passcode: str) -> bool:
        return False

    def check(self, name: str, passcode: str) -> bool:
        self.gate.acquire()
        self.seen.append(name)
        return super().check(name, passcode)


async def from_address(dial: Dial, address: str, login: str, passcode: str) -> Client:
    """A client that a proxy speaks for, and that has sent CONNECT."""
    client = await introduced(dial, proxy_line(address))
    headers = {"accept-version": "1.2", "host": "x", "login": login, "passcode": passcode}
    await client.send("CONNECT", headers)
    return client


@pytest.mark.parametrize("network", ["2001:db8:1:{0:x}::1", "2001:db8:{0:x}::1"])
async def test_a_flood_of_wrong_logins_from_one_network_does_not_block_others(network: str) -> None:
    """F5: 256 of the attacker's waited in front of everybody, and all others were turned away."""
    options = {"proxy_addresses": "127.0.0.1", "max_waiting_logins": 40, "tls": "off", **QUIET}
    async with open_dial(TCP, **options) as dial:
        await dial.start()
        book = UserBook({"alice": "wonder"})
        checker = GatedChecker(book)
        dial.server.authenticator.accounts = Accounts(book, checker)
        for number in range(60):
            await from_address(dial, network.format(number), "alice", f"guess-{number}")
        await until(lambda: dial.server.authenticator.waiting == 40, 0.01)
        others = [
            await from_address(dial, address, "alice", "wonder")
            for address in ("203.0.113.9", "2001:db9::1")
        ]
        await until(lambda: dial.server.accepted == 62, 0.01)
        await trio.sleep(0.1)
        for _ in range(8):
            checker.gate.release()
        for other in others:
            assert (await other.receive()).command == "CONNECTED"
        for _ in range(100):
            checker.gate.release()


# --- loopback, and pages of browsers --------------------------------------------------------------

WATCHED = ("/connz", "/subsz", "/queuez", "/varz", "/healthz", "/metrics", "/explain?q=1")


async def answered(dial: Dial, target: str, *lines: str, introduced: str = "") -> Reply:
    """Return the answer to a plain request from this machine."""
    stream = await dial.stream()
    text = "".join(f"{line}\r\n" for line in (f"GET {target} HTTP/1.1", *lines, ""))
    await stream.send_all(f"{introduced}{text}".encode())
    answer = b""
    with trio.fail_after(5):
        while data := bytes(await stream.receive_some(65536)):
            answer += data
    return parse(answer)


@pytest.fixture
def users(tmp_path: Path) -> str:
    return save(tmp_path / "users", "alice:wonder\nwatch:man\n")


HERE = "Host: 127.0.0.1:61613"


@pytest.mark.parametrize("anonymous", ["auto", "never", "loopback", "always"])
async def test_loopback_clients_have_no_rights_if_there_are_users(
    users: str, tmp_path: Path, anonymous: str
) -> None:
    """F7: a proxy of this machine asks for everybody, and Host is the client's to choose."""
    rule = '[[rule]]\nuser = "watch"\nallow = "monitor"\nto = "**"\n'
    rules = save(tmp_path / "acl.toml", rule)
    options = {"passwd_file": users, "acl_file": rules, "anonymous": anonymous, **QUIET}
    async with open_dial(TCP, **options) as dial:
        await dial.start()
        add_all(dial)
        for page in WATCHED:
            assert (await answered(dial, page, HERE)).status in (401, 403), page
            log_in = ": ".join(basic("watch", "man"))
            assert (await answered(dial, page, HERE, log_in)).status in (200, 400), page
            wrong = ": ".join(basic("alice", "wonder"))
            assert (await answered(dial, page, HERE, wrong)).status == 403, page
        # The endpoints for probes stay open, since they reveal nothing.
        for page in ("/livez", "/readyz"):
            assert (await answered(dial, page, HERE)).status == 200


async def test_the_open_house_stays_open_to_this_machine_alone() -> None:
    async with open_dial(TCP, proxy_addresses="127.0.0.1", **QUIET) as dial:
        await dial.start()
        add_all(dial)
        itself = "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"
        for page in WATCHED:
            reply = await answered(dial, page, HERE, introduced=itself)
            assert reply.status in (200, 400), page
            reply = await answered(dial, page, HERE, introduced="PROXY UNKNOWN\r\n")
            assert reply.status == 401, page


@pytest.mark.parametrize(
    "header",
    ["Forwarded: for=203.0.113.9", "X-Forwarded-For: 203.0.113.9", "X-Real-IP: x", "Via: 1.1 x"],
)
async def test_client_behind_a_local_proxy_is_remote(header: str) -> None:
    """F7: neither the pages with figures nor an open house, nor the command DIAG, are for him."""
    async with open_dial(TCP, **QUIET) as dial:
        await dial.start()
        add_all(dial)
        for page in WATCHED:
            assert (await answered(dial, page, HERE)).status in (200, 400), page
            assert (await answered(dial, page, HERE, header)).status == 401, page
        name, _, content = header.partition(": ")
        stranger = await upgraded(dial, (name, content), host="127.0.0.1:61613")
        await refused(stranger, "authentication-required")
    async with open_dial(TCP, **QUIET, anonymous="always") as dial:
        guest = await upgraded(dial, (name, content), host="127.0.0.1:61613")
        await guest.connect()
        await guest.send("DIAG", {"receipt": "r"})
        assert (await guest.receive()).command == "ERROR"


async def test_a_name_made_to_mean_the_broker_opens_no_house_of_another_machine_either() -> None:
    """F15: on a LAN without logins the visitor's browser let the page of any site in."""
    options = {"proxy_addresses": "127.0.0.1", "insecure": True, "anonymous": "always", **QUIET}
    evil = ("Origin", "http://rebind.evil.com:61613")
    async with open_dial(TCP, **options) as dial:
        for address in ("192.168.1.9", "127.0.0.1"):
            header = proxy_line(address)
            with pytest.raises(AssertionError, match="403"):
                await upgraded(dial, evil, host="rebind.evil.com:61613", proxied=header)
    named = "http://broker.lan:61613"
    async with open_dial(TCP, **options, allowed_origins=named) as dial:
        header = proxy_line("192.168.1.9")
        origin = ("Origin", named)
        await (await upgraded(dial, origin, host="broker.lan:61613", proxied=header)).connect()


# --- passcodes in the clear -----------------------------------------------------------------------

ALICE = {"login": "alice", "passcode": "wonder"}
FAR = proxy_line("203.0.113.9")
NEAR = proxy_line("127.0.0.1")


def with_tls(users: str, **more: object) -> dict[str, object]:
    return {
        "proxy_addresses": "127.0.0.1",
        "passwd_file": users,
        "tls_cert": authority().certificate,
        **QUIET,
        **more,
    }


async def test_a_login_of_another_machine_is_refused_in_the_clear(
    users: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F13: with a certificate, too, it was CONNECTED without a word to anybody."""
    async with open_dial(TCP, **with_tls(users)) as dial:
        far = await introduced(dial, FAR)
        error = await refused(far, "tls-required", **ALICE)
        assert "stomps://" in error["message"]
        assert "--tls optional" in error["message"]
        assert "in the clear" in caplog.text
        assert "wonder" not in caplog.text
        # Nor is it told to send a login first, over STOMP or HTTP, nor to try it with the upgrade.
        far = await introduced(dial, FAR)
        await refused(far, "tls-required")
        add_all(dial)
        reply = await answered(dial, "/metrics", "Host: b", introduced=FAR.decode())
        assert (reply.status, "www-authenticate" in reply.headers) == (403, False)
        assert (await answered(dial, "/livez", "Host: b", introduced=FAR.decode())).status == 200
        far = await upgraded(dial, basic("alice", "wonder"), proxied=FAR)
        await refused(far, "tls-required")
        # On this machine, and over TLS, it is as it was.
        await (await introduced(dial, NEAR)).connect("1.2", ALICE)
        stream = await dial.stream()
        await stream.send_all(FAR)
        context = authority().client_context()
        secret = trio.SSLStream(stream, context, server_hostname="127.0.0.1")
        await Client(StreamPipe(secret)).connect("1.2", ALICE)


@pytest.mark.parametrize("way", ["optional", "off"])
async def test_an_operator_may_choose_logins_in_the_clear(users: str, way: str) -> None:
    async with open_dial(TCP, **with_tls(users, tls=way)) as dial:
        await (await introduced(dial, FAR)).connect("1.2", ALICE)


async def test_client_without_a_required_login_needs_no_tls(users: str) -> None:
    async with open_dial(TCP, **with_tls(users, anonymous="always")) as dial:
        await (await introduced(dial, FAR)).connect()


@pytest.mark.parametrize("where", [{"host": "0.0.0.0"}, {"proxy_addresses": "127.0.0.1"}])
async def test_a_broker_for_others_does_not_start_without_tls_unless_that_is_chosen(
    where: dict[str, object], users: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F13: --host 0.0.0.0 --passwd-file started, and had no word on TLS."""
    given: dict[str, object] = {**where, "passwd_file": users}
    with pytest.raises(OptionError, match="in the clear") as caught, trio.fail_after(5):
        await serve(Settings.of(port=0, **given))
    for remedy in ("--tls-cert", "--tls off", "127.0.0.1"):
        assert remedy in str(caught.value)
    for remedied, warns in (
        ({"tls": "off"}, True),
        ({"tls": "optional"}, True),
        ({"tls": "optional", "tls_cert": authority().certificate}, True),
        ({"tls_cert": authority().certificate}, False),
        ({"tls": "required", "tls_cert": authority().certificate}, False),
    ):
        caplog.clear()
        async with served(**given, **remedied):
            assert ("in the clear" in caplog.text) is warns, remedied


async def test_a_broker_for_this_machine_needs_no_tls(
    users: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(passwd_file=users) as broker:
        await (await broker.open()).connect("1.2", ALICE)
    async with served(insecure=True, host="0.0.0.0"):
        pass
    assert "in the clear" not in caplog.text


async def test_a_tls_listener_of_a_program_needs_no_certificate_of_ours(users: str) -> None:
    settings = Settings.of(passwd_file=users, **QUIET)
    (listener,) = await trio.open_tcp_listeners(0, host="0.0.0.0")
    with pytest.raises(OptionError, match="in the clear"), trio.fail_after(5):
        await serve(settings, listeners=[listener])
    (listener,) = await trio.open_tcp_listeners(0, host="0.0.0.0")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority().certificate)
    async with trio.open_nursery() as nursery:
        secret = trio.SSLListener(listener, context)
        handle = await nursery.start(partial(serve, settings, listeners=[secret]))
        handle.stop()
