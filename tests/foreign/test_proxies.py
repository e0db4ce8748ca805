"""The configurations of docs/operate/deploy.md: nginx, HAProxy and Caddy in front of a broker."""

import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from _crash.ports import free_port

from tests.support.served import QUIET
from tests.support.tls import authority
from tests.support.tool_fakes import running
from trio_stomp.client import ClientError, Connector, open_client
from trio_stomp.testing import ThreadedBroker, threaded_broker

if TYPE_CHECKING:
    import subprocess

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "deploy.md"
PATIENCE_S = 30
PASSCODE = "secret"
ELSEWHERE = "127.0.0.2"
"""Another address of this machine: the proxies connect from 127.0.0.1."""
STREAM_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
"""The path on Debian. Elsewhere the module may be built in."""

pytestmark = [pytest.mark.full, pytest.mark.foreign]


def block(title: str) -> str:
    """Return a configuration of the page."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', text, re.M | re.S)
    assert found is not None, title
    return found[1]


def program(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"{name} IS NOT THERE (apt install {name}): its configuration is NOT tested")
    return path


@pytest.fixture
def users(tmp_path: Path) -> str:
    file = tmp_path / "users"
    file.write_text(f"alice:{PASSCODE}\n")
    file.chmod(0o600)
    return str(file)


@pytest.fixture
def ends(users: str) -> Iterator[ThreadedBroker]:
    """A broker behind a proxy that ends TLS and sends PROXY headers."""
    with threaded_broker(**QUIET, passwd_file=users, proxy_addresses="127.0.0.1", tls="off") as it:
        yield it


@pytest.fixture
def passes(users: str) -> Iterator[ThreadedBroker]:
    """A broker behind a proxy that passes TLS through and sends PROXY headers."""
    with threaded_broker(
        **QUIET, passwd_file=users, proxy_addresses="127.0.0.1", tls_cert=authority().certificate
    ) as it:
        yield it


@contextmanager
def in_front(command: list[str], directory: Path, *ports: int) -> Iterator[None]:
    """Run a proxy in the foreground, and wait until it listens."""
    environment = {**os.environ, "HOME": str(directory), "XDG_DATA_HOME": str(directory)}
    log = directory / "proxy.log"
    with (
        log.open("wb") as output,
        running(command, env=environment, cwd=directory, stdout=output, stderr=output) as proxy,
    ):
        assert trio.run(listening, proxy, ports), log.read_text()
        try:
            yield
        finally:
            proxy.terminate()
            proxy.wait(PATIENCE_S)


async def listening(proxy: "subprocess.Popen[bytes]", ports: tuple[int, ...]) -> bool:
    """Wait until something listens on each of the ports. Return False if the proxy has ended."""
    waiting = list(ports)
    with trio.move_on_after(PATIENCE_S):
        while waiting and proxy.poll() is None:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", waiting[0])
            except OSError:
                await trio.sleep(0.05)
            else:
                await stream.aclose()
                del waiting[0]
    return not waiting


def over_tls(port: int) -> Connector:
    """Return a function that connects from another address, over TLS."""

    async def connect() -> trio.abc.Stream:
        raw = trio.socket.socket()
        await raw.bind((ELSEWHERE, 0))
        await raw.connect(("127.0.0.1", port))
        stream = trio.SocketStream(raw)
        context = authority().client_context()
        return trio.SSLStream(stream, context, server_hostname="localhost")

    return connect


def talk(where: str | Connector, login: str | None = None) -> str:
    """Send a message through the proxy. Return the received one."""

    async def main() -> str:
        with trio.fail_after(PATIENCE_S):
            context = authority().client_context() if isinstance(where, str) else None
            passcode = PASSCODE if login else None
            async with (
                open_client(
                    where,
                    ssl_context=context,
                    reconnect=None,
                    login=login,
                    passcode=passcode,
                ) as client,
                client.subscribe("/topic/a") as messages,
            ):
                await client.send("/topic/a", "through", receipt=True)
                return (await messages.receive()).text

    return trio.run(main)


def mapped(text: str, places: Mapping[str, object]) -> str:
    """Return a configuration with ports and files of this test; each has to be there."""
    for name, place in places.items():
        assert name in text, name
        text = text.replace(name, str(place))
    return text


def nginx(directory: Path, text: str) -> list[str]:
    """Return the command that runs nginx with a part of its configuration."""
    load = f"load_module {STREAM_MODULE};\n" if STREAM_MODULE.exists() else ""
    file = directory / "nginx.conf"
    about = f"pid {directory}/pid;\ndaemon off;\nerror_log stderr;\nevents {{}}\n"
    file.write_text(f"{load}{about}{text}")
    return [program("nginx"), "-p", str(directory), "-c", str(file)]


def tcp_proxy(directory: Path, name: str, *ports: int) -> list[str]:
    """Return the command that runs nginx or HAProxy with the page's proxy of TCP.

    Args:
      directory: Where its files are.
      name: The proxy.
      ports: Those at which it ends TLS and passes it, and those of the brokers behind them.
    """
    at_end, passing, ends, passes = ports
    own = authority().certificate
    brokers = {"127.0.0.1:61613": f"127.0.0.1:{ends}", "127.0.0.1:61623": f"127.0.0.1:{passes}"}
    if name == "nginx":
        places = {
            "listen 443": f"listen 127.0.0.1:{at_end}",
            "listen 61614": f"listen 127.0.0.1:{passing}",
            "/etc/ssl/broker.pem": own,
            "/etc/ssl/broker.key": own,
        }
        return nginx(directory, mapped(block("nginx-stream.conf"), places | brokers))
    places = {
        "bind :443": f"bind 127.0.0.1:{at_end}",
        "bind :61614": f"bind 127.0.0.1:{passing}",
        "/etc/haproxy/broker.pem": own,
    }
    file = directory / "haproxy.cfg"
    file.write_text(mapped(block("haproxy.cfg"), places | brokers))
    return [program("haproxy"), "-db", "-f", str(file)]


@pytest.mark.parametrize("name", ["nginx", "haproxy"])
def test_a_tcp_proxy_ends_tls_or_passes_it_and_reports_the_address(
    name: str,
    tmp_path: Path,
    ends: ThreadedBroker,
    passes: ThreadedBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "trio_stomp")
    ports = free_port(), free_port()
    command = tcp_proxy(tmp_path, name, *ports, ends.port, passes.port)
    with in_front(command, tmp_path, *ports):
        for port in ports:
            caplog.clear()
            assert talk(over_tls(port), login="alice") == "through"
            assert any(f" {ELSEWHERE}:" in record.getMessage() for record in caplog.records)
            assert talk(f"wss://localhost:{port}/", login="alice") == "through"


def site(directory: Path, name: str, port: int, broker: int) -> list[str]:
    """Return the command that runs nginx or Caddy with the page's web site."""
    to_broker = {"127.0.0.1:61613": f"127.0.0.1:{broker}"}
    if name == "nginx":
        places = {
            "listen 443": f"listen 127.0.0.1:{port}",
            "/etc/ssl/broker.pem": authority().certificate,
            "/etc/ssl/broker.key": authority().certificate,
            "http {\n": "http {\n    access_log off;\n",
        }
        return nginx(directory, mapped(block("nginx-site.conf"), places | to_broker))
    own = authority().certificate
    begin = "{\n    admin off\n    auto_https disable_redirects\n}\n"
    address = f"https://localhost:{port} {{\n    bind 127.0.0.1\n    tls {own} {own}\n"
    file = directory / "Caddyfile"
    places = {"broker.example {\n": address}
    file.write_text(begin + mapped(block("Caddyfile"), places | to_broker))
    return [program("caddy"), "run", "--config", str(file), "--adapter", "caddyfile"]


@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_a_web_site_carries_websockets_and_none_of_them_is_local(
    name: str, tmp_path: Path, users: str
) -> None:
    port = free_port()
    with (
        threaded_broker(**QUIET, passwd_file=users) as broker,
        in_front(site(tmp_path, name, port, broker.port), tmp_path, port),
    ):
        assert talk(f"wss://localhost:{port}/stomp", login="alice") == "through"
    with (
        threaded_broker(**QUIET) as broker,
        in_front(site(tmp_path, name, port, broker.port), tmp_path, port),
        pytest.raises(ClientError, match="login"),
    ):
        talk(f"wss://localhost:{port}/stomp")
