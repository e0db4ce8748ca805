"""Pages of other origins do not act by the client certificate that a browser adds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.support.fakes import Client, WebSocketPipe
from tests.support.files import save
from tests.support.logins import basic
from tests.support.management import ask
from tests.support.served import Served, served
from tests.support.site import Reply
from tests.support.tls import authority

RULES = """
[[rule]]
user = "ops"
allow = ["admin", "monitor", "send", "receive", "browse", "create"]
to = "**"
"""
Q = "/queue/q"
ANYWHERE = ["https://localhost:9999", "http://localhost", "http://localhost:{port}", "null"]
CASES = [
    ("", ANYWHERE),
    ("*", [*ANYWHERE, "https://evil.example"]),
    ("https://app.example", ["https://localhost:{port}", "https://evil.example"]),
]
FOREIGN = [(allowed, origin) for allowed, origins in CASES for origin in origins]
OURS = [
    ("", "https://localhost:{port}"),
    ("*", "https://localhost:{port}"),
    ("https://app.example", "https://app.example"),
    ("*", ""),
]


@asynccontextmanager
async def guarded(directory: Path, allowed: str) -> AsyncIterator[Served]:
    """Run a broker whose operator logs in by certificate, and whose queue has a message."""
    made = authority()
    options = {
        "tls_cert": made.certificate,
        "tls_client_ca": made.file,
        "tls_client_certificates": "optional",
        "tls_login": "common-name",
        "passwd_file": save(directory / "users", "ops:operating\n"),
        "acl_file": save(directory / "acl.toml", RULES),
        "allowed_origins": allowed,
    }
    async with served(**options) as broker:
        client = await broker.open(made.client_context())
        await client.connect("1.2", {"login": "ops", "passcode": "operating"})
        await client.publish(Q, b"a", receipt=True)
        yield broker


async def certified(broker: Served) -> tuple[trio.SSLStream[trio.SocketStream], int]:
    """Return a connection with the operator's certificate, and the broker's port."""
    stream = await broker.stream()
    context = authority().client_context("ops")
    port = int(broker.handle.addresses[0].rpartition(":")[2])
    return trio.SSLStream(stream, context, server_hostname="localhost"), port


def of_page(origin: str, port: int) -> dict[str, str]:
    """Return the headers that the browser of a page adds."""
    headers = {"Host": f"localhost:{port}"}
    return headers | ({"Origin": origin.format(port=port)} if origin else {})


async def purged(broker: Served, origin: str) -> tuple[Reply, dict[str, str]]:
    """Purge the queue as a page does. Return the answer, and the headers of the page."""
    stream, port = await certified(broker)
    headers = of_page(origin, port)
    return await ask(stream, "POST", f"purge?queue={Q}", *headers.items()), headers


@pytest.mark.parametrize(("allowed", "origin"), FOREIGN)
async def test_a_certificate_does_not_act_for_a_page_of_another_origin(
    tmp_path: Path, allowed: str, origin: str
) -> None:
    async with guarded(tmp_path, allowed) as broker:
        reply, headers = await purged(broker, origin)
        assert reply.status in (401, 403)
        stream, _ = await certified(broker)
        reply = await ask(stream, "GET", "queues", *headers.items())
        assert reply.status in (401, 403)
        login = dict([basic("ops", "operating")])
        reply = await ask(
            (await certified(broker))[0], "POST", f"purge?queue={Q}", *(headers | login).items()
        )
        assert reply.status in (401, 403)  # the browser may have kept it
        async with (await certified(broker))[0] as stream:
            pipe = WebSocketPipe(stream)
            try:
                await pipe.shake_hands(headers=tuple(headers.items())[1:], host=headers["Host"])
            except AssertionError:
                return  # it may not even connect
            page = Client(pipe)
            await page.send("CONNECT", {"accept-version": "1.2", "host": "x"})
            await page.expect_error("authentication-required")


@pytest.mark.parametrize(("allowed", "origin"), OURS)
async def test_a_certificate_acts_for_the_broker_s_own_pages_and_for_programs(
    tmp_path: Path, allowed: str, origin: str
) -> None:
    async with guarded(tmp_path, allowed) as broker:
        reply, headers = await purged(broker, origin)
        assert (reply.status, reply.json["purged"]) == (200, 1)
        async with (await certified(broker))[0] as stream:
            pipe = WebSocketPipe(stream)
            await pipe.shake_hands(headers=tuple(headers.items())[1:], host=headers["Host"])
            page = Client(pipe)
            await page.connect("1.2", {})
