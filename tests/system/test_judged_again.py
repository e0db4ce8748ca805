"""Logins, handshakes and operations are judged again where they act, after a reload.

Each entrance begins something for alice, the operator's files change, and then it goes on. Whatever
she may not do by the new files must not happen: ``last`` does not come to ``/queue/target``.
"""

import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import jwt
import pytest
import trio
from attrs import define, field

from tests.support.fakes import Client, StreamPipe, WebSocketPipe, frame_bytes, until
from tests.support.files import save
from tests.support.logins import basic
from tests.support.served import Served, served
from tests.support.tls import Employee, authority, revocation_list
from trio_stomp.broker.managing import _task
from trio_stomp.protocol import Opened
from trio_stomp.security import PasscodeChecker
from trio_stomp.server.io import Batch, Inbox
from trio_stomp.web.management.requests import _stepwise

TARGET, SOURCE, BODY = "/queue/target", "/queue/source", b"last"
ALICE, ROOT = {"login": "alice", "passcode": "old"}, {"login": "root", "passcode": "root"}
BASIC = ": ".join(basic("alice", "old"))
MOVED = 10_000
CHANGES = ("removed", "passcode", "right", "revoked")


@define
class Scene:
    """A broker, its files, and what is to be changed in them."""

    directory: Path
    change: str
    broker: Served = field(init=False)
    alice: Employee = field(factory=lambda: Employee.of("alice", authority().ca))

    def write(self, change: str = "") -> dict[str, str]:
        """Write the files, and return the options that name them."""
        is_there, may = change != "removed", change != "right"
        passcode = "new" if change == "passcode" else "old"
        users = "root:root\n" + f"alice:{passcode}\n" * is_there
        where = "**" if may else "/queue/other"
        rules = '[[rule]]\nallow = "all"\nto = "**"\nuser = "root"\n'
        rules += f'[[rule]]\nallow = "all"\nto = "{where}"\nuser = "alice"\n'
        rules += '[certificates]\n"CN=bob" = "bob"\n' + '"CN=alice" = "alice"\n' * is_there
        key = "one" if change in ("", "right", "revoked") else "another"
        gone = [self.alice] * (change == "revoked")
        return {
            "passwd_file": save(self.directory / "users", users),
            "acl_file": save(self.directory / "acl.toml", rules),
            "token_key_file": save(self.directory / "key", secret(key)),
            "tls_client_crl": save(
                self.directory / "crl.pem", revocation_list(authority().ca, *gone).decode()
            ),
        }

    async def reload(self) -> None:
        """Change the files, and have the broker read them."""
        self.write(self.change)
        await self.broker.handle.reload()

    async def secure(self) -> trio.SSLStream[trio.SocketStream]:
        """Return a connection with alice's certificate."""
        stream = await self.stream()
        return trio.SSLStream(stream, self.alice.context(), server_hostname="127.0.0.1")

    async def stream(self) -> trio.SocketStream:
        """Return a connection, which is closed at the end."""
        stream = await self.broker.stream()
        self.broker.clients.append(Client(StreamPipe(stream)))
        return stream


def secret(name: str) -> str:
    return f"{name:.>32}"


def acts(headers: dict[str, str]) -> bytes:
    """Return a CONNECT and the SEND behind it."""
    connect = frame_bytes("CONNECT", {"accept-version": "1.2", "host": "x", **headers})
    return connect + frame_bytes("SEND", {"destination": TARGET, "receipt": "sent"}, BODY)


async def outcome(client: Client) -> None:
    """Wait until a SEND was taken or refused."""
    with suppress(trio.BrokenResourceError, AssertionError), trio.fail_after(30):
        while (await client.receive()).command not in ("RECEIPT", "ERROR"):
            pass


# --- entrances ------------------------------------------------------------------------------------


async def session(scene: Scene) -> None:
    """A session that is open."""
    client = Client(StreamPipe(await scene.secure()))
    await client.connect("1.2", ALICE)
    await scene.reload()
    with suppress(trio.BrokenResourceError):
        await client.send("SEND", {"destination": TARGET, "receipt": "sent"}, BODY)
    await outcome(client)


async def hashed(scene: Scene) -> None:
    """A login whose passcode is being hashed."""
    is_running, gate = threading.Event(), threading.Event()

    def check(_checker: object, name: str, _passcode: str) -> bool:
        is_running.set()
        gate.wait(30)
        return name == "alice"

    recalls = PasscodeChecker.recalls
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PasscodeChecker, "check", check)
        patch.setattr(
            PasscodeChecker, "recalls", lambda *args: args[1] != "alice" and recalls(*args)
        )
        client = Client(StreamPipe(await scene.secure()))
        await client.send_bytes(acts(ALICE))
        await until(is_running.is_set, 0.01)
        await scene.reload()
        gate.set()
        await outcome(client)


async def _queued(scene: Scene, headers: dict[str, str]) -> None:
    is_there, gate = trio.Event(), trio.Event()
    put, offer = Inbox.put_batch, Inbox.offer

    def opens(batch: Batch) -> bool:
        return any(isinstance(event, Opened) for event in batch.events)

    def offers_others(inbox: Inbox, batch: Batch) -> bool:
        return not opens(batch) and offer(inbox, batch)

    async def put_later(inbox: Inbox, batch: Batch) -> None:
        if opens(batch):
            is_there.set()
            await gate.wait()
        await put(inbox, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Inbox, "offer", offers_others)
        patch.setattr(Inbox, "put_batch", put_later)
        client = Client(StreamPipe(await scene.secure()))
        await client.send_bytes(acts(headers))
        await is_there.wait()
        await scene.reload()
        gate.set()
        await outcome(client)


async def passcode(scene: Scene) -> None:
    """A login by passcode on its way to the core."""
    await _queued(scene, ALICE)


async def token(scene: Scene) -> None:
    """A login by token on its way to the core."""
    claims = {"sub": "alice", "exp": time.time() + 600}
    text = jwt.encode(claims, secret("one"), "HS256")
    await _queued(scene, {"Authorization": f"Bearer {text}"})


async def certificate(scene: Scene) -> None:
    """A login by certificate on its way to the core."""
    await _queued(scene, {})


async def handshake(scene: Scene) -> None:
    """A TLS handshake that lacks the client's certificate."""
    stream = await scene.stream()
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = scene.alice.context().wrap_bio(received, sent, server_hostname="127.0.0.1")
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            if data := sent.read():
                await stream.send_all(data)
            received.write(await stream.receive_some(65536))
    await scene.reload()
    tls.write(acts(ALICE))
    with suppress(trio.BrokenResourceError):
        await stream.send_all(sent.read())
        answer = b""
        while b"RECEIPT" not in answer and (data := await stream.receive_some(65536)):
            received.write(data)
            with suppress(ssl.SSLError):
                answer += tls.read()


async def upgrade(scene: Scene) -> None:
    """A WebSocket whose upgrade had the credentials."""
    pipe = WebSocketPipe(await scene.secure())
    await pipe.shake_hands(path="/ws", headers=[basic("alice", "old")], host="127.0.0.1")
    client = Client(pipe)
    await scene.reload()
    with suppress(trio.BrokenResourceError):
        await client.send_bytes(acts({}))
    await outcome(client)


async def _read(stream: trio.abc.Stream) -> bytes:
    answer = b""
    with suppress(trio.BrokenResourceError):
        while data := bytes(await stream.receive_some(65536)):
            answer += data
    return answer


async def body(scene: Scene) -> None:
    """An operation whose body is still coming."""
    stream = await scene.secure()
    head = f"POST /api/v1/send?destination={TARGET} HTTP/1.1\r\nHost: 127.0.0.1\r\n{BASIC}\r\n"
    await stream.send_all(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY[:2])
    await trio.sleep(0.2)
    await scene.reload()
    with suppress(trio.BrokenResourceError):
        await stream.send_all(BODY[2:])
    assert b" 200 " not in await _read(stream)


async def move(scene: Scene) -> None:
    """An operation that is half done."""
    root = await scene.broker.connect(ROOT)
    for number in range(MOVED):
        content = BODY if number == MOVED - 1 else b"x"
        await root.send("SEND", {"destination": SOURCE}, content)
    await root.fence()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_task, "STEP_S", 0.0)
        patch.setattr(_stepwise, "PROGRESS_S", 0.0)
        stream = await scene.secure()
        head = f"POST /api/v1/move?queue={SOURCE}&to={TARGET} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        lines = f"{BASIC}\r\nAccept: application/x-ndjson\r\n\r\n"
        await stream.send_all(f"{head}{lines}".encode())
        assert b" 200 " in await stream.receive_some(200)
        await scene.reload()
        answer = await _read(stream)
    told = {"revoked": b"", "right": b'"code": "not-authorized"'}
    assert told.get(scene.change, b'"code": "authentication-failed"') in answer


async def schedule(scene: Scene) -> None:
    """A message that is due later."""
    client = Client(StreamPipe(await scene.secure()))
    await client.connect("1.2", ALICE)
    delay = {"AMQ_SCHEDULED_DELAY": "700", "receipt": "sent"}
    await client.send("SEND", {"destination": TARGET, **delay}, BODY)
    await outcome(client)
    await scene.reload()
    await trio.sleep(1.2)


Entrance = Callable[[Scene], Awaitable[None]]
ENTRANCES: tuple[Entrance, ...] = (
    session,
    hashed,
    passcode,
    token,
    certificate,
    handshake,
    upgrade,
    body,
    move,
    schedule,
)
ALLOWED = {
    ("certificate", "passcode"),  # it is the login of another passcode
    # What a user has left depends on the user and its rights, not on how it had logged in.
    ("schedule", "passcode"),
    ("schedule", "revoked"),
}


@asynccontextmanager
async def scene_of(directory: Path, change: str) -> AsyncIterator[Scene]:
    made = Scene(directory, change)
    options = {
        **made.write(),
        "tls_cert": authority().certificate,
        "tls_client_ca": authority().file,
        "tls_client_certificates": "optional",
        "tls_login": "mapped",
        "tls": "optional",
    }
    async with served(**options) as made.broker:
        yield made


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda each: each.__name__)
async def test_what_a_reload_takes_away_does_not_act_any_more(
    entrance: Entrance, change: str, tmp_path: Path
) -> None:
    async with scene_of(tmp_path, change) as scene:
        root = await scene.broker.connect(ROOT)
        await root.subscribe(TARGET)
        await entrance(scene)
        bodies = [frame.body for frame in await root.fence()]
    is_allowed = (entrance.__name__, change) in ALLOWED
    assert (BODY in bodies) == is_allowed


@pytest.mark.parametrize("entrance", ENTRANCES[:-3], ids=lambda each: each.__name__)
async def test_a_reload_that_takes_nothing_away_stops_nothing(
    entrance: Entrance, tmp_path: Path
) -> None:
    async with scene_of(tmp_path, "") as scene:
        root = await scene.broker.connect(ROOT)
        await root.subscribe(TARGET)
        await entrance(scene)
        bodies = [frame.body for frame in await root.fence()]
    assert BODY in bodies


async def test_an_operation_ends_with_the_token_that_it_came_with(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "")
    options = {**scene.write(), "tls_client_crl": "", "max_token_session_s": 0.1}
    async with served(**options) as broker:
        root = await broker.connect(ROOT)
        for _ in range(MOVED):
            await root.send("SEND", {"destination": SOURCE}, b"x")
        await root.fence()
        claims = {"sub": "alice", "exp": time.time() + 600}
        text = jwt.encode(claims, secret("one"), "HS256")
        stream = await broker.stream()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_task, "STEP_S", 0.0)
            head = f"POST /api/v1/move?queue={SOURCE}&to={TARGET} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            await stream.send_all(f"{head}Authorization: Bearer {text}\r\n\r\n".encode())
            time.sleep(0.4)  # noqa: ASYNC251  # the broker, too, is late
            answer = await _read(stream)
        await trio.aclose_forcefully(stream)
    assert b" 401 " in answer
    assert b'"code": "authentication-failed"' in answer
