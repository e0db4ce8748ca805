"""The pages on the broker's port, read as a browser or a script would read them."""

import html
import json
import re
from html.parser import HTMLParser

import h11
import pytest

from trio_stomp.transport._http import HttpRequest
from trio_stomp.web import respond

NASTY = "\"'><script>alert(1)</script>\\"


def ask(
    target: str,
    method: str = "GET",
    *,
    address: str = "127.0.0.1:61613",
    version: str = "1.2.3",
    unready: str = "",
) -> tuple[int, dict[str, str], str]:
    request = HttpRequest(method, target, ((b"host", b"x"),))
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target=target, headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(respond(request, version=version, address=address, unready=unready))
    response = client.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert client.trailing_data[0] == b""
    headers = {name.decode(): content.decode() for name, content in response.headers}
    return response.status_code, headers, body.decode()


class Page(HTMLParser):
    """Checks that each element is closed, and collects what the page is made of."""

    VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def snippets(text: str) -> tuple[str, str]:
    python, javascript = re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL)
    return html.unescape(python), html.unescape(javascript)


@pytest.mark.covers("X13")
@pytest.mark.parametrize("target", ["/", "/?utm=1"])
def test_start_page_says_what_this_is(target: str) -> None:
    status, headers, text = ask(target)
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    page = Page(text)
    for words in ("trio_stomp 1.2.3", "STOMP", "127.0.0.1:61613", "DIAG/session", "DIAG*"):
        assert words in page.text


def test_start_page_loads_nothing_and_follows_the_colour_scheme() -> None:
    text = ask("/")[2]
    page = Page(text)
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    assert not {"src", "href", "style", "onload"} & set(page.attributes)
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:61613", "127.0.0.1", "61613"),
        ("broker.example:80", "broker.example", "80"),
        ("[::1]:61614", "::1", "61614"),
        ("[::1]", "::1", "61613"),
        ("broker.example", "broker.example", "61613"),
        ("broker.example:²", "broker.example:²", "61613"),
        (NASTY, NASTY, "61613"),
        (NASTY + ":99", NASTY, "99"),
    ],
)
def test_snippets_can_be_pasted_whatever_the_address(address: str, host: str, port: str) -> None:
    python, javascript = snippets(ask("/", address=address)[2])
    compile(python, "snippet", "exec")
    found = re.search(r"Connection12\(\[\((.*), (\d+)\)\]\)", python)
    assert found is not None
    assert json.loads(found[1]) == host
    assert found[2] == port
    url = re.search(r"new StompJs\.Client\(\{brokerURL: (.*)\}\);", javascript)
    assert url is not None
    assert json.loads(url[1]) == f"ws://{address}/ws"


def test_plain_address_stands_in_the_snippet_as_a_person_would_write_it() -> None:
    _, javascript = snippets(ask("/", address="localhost:61613")[2])
    assert 'new StompJs.Client({brokerURL: "ws://localhost:61613/ws"})' in javascript


def test_values_are_escaped() -> None:
    text = ask("/", address=NASTY, version=NASTY)[2]
    page = Page(text)
    assert "script" not in page.tags
    assert NASTY in page.text
    assert ask("/", address="\ud800")[0] == 200


@pytest.mark.covers("W08", "X13")
@pytest.mark.parametrize("target", ["/ws", "/stomp", "/ws?x", "/a/b/websocket", "/websocket"])
def test_websocket_path_without_upgrade(target: str) -> None:
    status, headers, text = ask(target)
    assert status == 426
    assert headers["upgrade"] == "websocket"
    assert "Upgrade" in headers["connection"].split(", ")
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert "WebSocket" in text


@pytest.mark.parametrize(
    "target", ["/favicon.ico", "/wsx", "/ws/", "/stomp/x", "//", "/index.html"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_path_is_not_found(target: str, method: str) -> None:
    status, headers, text = ask(target, method)
    assert status == 404
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert target not in text.split()


@pytest.mark.parametrize("target", ["/", "/ws", "/a/websocket"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_other_method_is_not_allowed(target: str, method: str) -> None:
    status, headers, text = ask(target, method)
    assert status == 405
    assert headers["allow"] == "GET, HEAD"
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert text


@pytest.mark.parametrize("target", ["/", "/ws", "/nothing"])
def test_head_is_get_without_the_body(target: str) -> None:
    get_status, get_headers, body = ask(target)
    assert ask(target, "HEAD") == (get_status, get_headers, "")
    assert get_headers["content-length"] == str(len(body.encode()))
    assert get_headers["connection"].endswith("close")


@pytest.mark.parametrize("unready", ["", "no room on the disk"])
def test_alive_whatever_the_disk_says(unready: str) -> None:
    assert ask("/livez", unready=unready)[::2] == (200, "ok\n")


def test_ready_while_nothing_stands_in_the_way() -> None:
    status, headers, text = ask("/readyz")
    assert (status, text) == (200, "ok\n")
    assert headers["cache-control"] == "no-store"


def test_not_ready_tells_why() -> None:
    assert ask("/readyz", unready="no room on the disk")[::2] == (503, "no room on the disk\n")


@pytest.mark.parametrize("target", ["/livez", "/readyz"])
def test_health_is_only_asked_for(target: str) -> None:
    assert ask(target, "POST")[0] == 405
