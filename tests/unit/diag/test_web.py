"""The pages on the broker's port, read as a browser or a script would read them."""

import hashlib
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

from tests.support.site import parse, whole
from trio_stomp.broker import Action
from trio_stomp.transport.http import HttpRequest
from trio_stomp.web import Page, Site, in_one
from trio_stomp.web._static import TYPES, read_files

WATCH = ((Action.MONITOR, "DIAG"),)

NASTY = "\"'><script>alert(1)</script>\\"
STATIC = Path(str(files("trio_stomp.web").joinpath("static")))
NAMES = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())
PATHS = ["/", *(f"/static/{name}" for name in NAMES if name != "index.html")]

# The files bundles/stomp.umd.min.js and LICENSE of @stomp/stompjs 7.5.0, as on npm.
STOMPJS = {
    "stomp.umd.min.js": "1cac8e0d31d3a70bf89fa7f2200243a00e02b2e8636e00fa5e760adb7d04f6fd",
    "stompjs.LICENSE.txt": "c46641c7a00292f58f73544f661200f940d31622be1137aef70c19da4182ffcc",
}


def ask(
    target: str,
    method: str = "GET",
    *headers: tuple[bytes, bytes],
    address: str = "127.0.0.1:61613",
    version: str = "1.2.3",
    unready: str = "",
) -> tuple[int, dict[str, str], str]:
    """Ask a site of its own for a page: status, headers, body."""
    return asked(Site(version, address, lambda: unready), target, method, *headers)


def asked(
    site: Site, target: str, method: str = "GET", *headers: tuple[bytes, bytes]
) -> tuple[int, dict[str, str], str]:
    request = HttpRequest(method, target, ((b"host", b"x"), *headers))
    reply = parse(whole(site.respond(request)), method)
    return reply.status, reply.headers, reply.body.decode()


class Markup(HTMLParser):
    """Checks that each element is closed, and collects what the page is made of."""

    VOID = frozenset({"meta", "link", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.code = ""
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] in ("script", "style"):
            self.code += data


@pytest.mark.covers("X13")
@pytest.mark.parametrize("target", ["/", "/?utm=1"])
def test_the_page_describes_the_broker_without_scripts(target: str) -> None:
    status, headers, text = ask(target)
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    page = Markup(text)
    for words in ("trio_stomp 1.2.3", "STOMP", "127.0.0.1:61613", "DIAG/session", "DIAG*"):
        assert words in page.text
    assert len(page.ids) == len(set(page.ids))


def test_the_page_loads_only_its_own_files() -> None:
    _, headers, text = ask("/")
    policy = headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    for kind in ("script", "style", "connect"):
        assert f"{kind}-src 'self'" in policy
    for rule in ("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in headers["content-security-policy"]
    page = Markup(text)
    assert page.code == ""
    assert not [name for name in page.attributes if name == "style" or name.startswith("on")]
    here = {"static/" + name for name in NAMES}
    assert {each for each in page.loaded if not each.startswith("#")} <= here


@pytest.mark.parametrize("name", [name for name in NAMES if name not in STOMPJS])
def test_no_file_names_another_host_or_makes_markup_of_text(name: str) -> None:
    text = STATIC.joinpath(name).read_text()
    for word in ("https://", "http://", "url(", "@import", "innerHTML", "outerHTML", "eval("):
        assert word not in text.replace('xmlns="http://www.w3.org/2000/svg"', ""), word
    assert "insertAdjacentHTML" not in text
    assert "document.write" not in text


@pytest.mark.parametrize("name", STOMPJS)
def test_stompjs_has_the_checksum_of_its_release(name: str) -> None:
    assert hashlib.sha256(STATIC.joinpath(name).read_bytes()).hexdigest() == STOMPJS[name]


@pytest.mark.parametrize("path", PATHS)
def test_files_are_whole_typed_and_asked_for_again(path: str) -> None:
    status, headers, text = ask(path)
    assert status == 200
    assert headers["content-type"] in TYPES.values()
    assert headers["cache-control"] == "no-cache"
    assert headers["x-content-type-options"] == "nosniff"
    if path != "/":
        assert text.encode() == STATIC.joinpath(path.removeprefix("/static/")).read_bytes()
        assert headers["content-security-policy"].startswith("default-src 'none'; frame")


@pytest.mark.parametrize("path", ["/", "/static/dashboard.css"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_cached_page_is_not_sent_again(path: str, method: str) -> None:
    _, headers, text = ask(path)
    tag = headers["etag"].encode()
    for offered in (tag, b"W/" + tag, b'"x", ' + tag, b"*"):
        status, again, body = ask(path, method, (b"if-none-match", offered))
        assert (status, body) == (304, "")
        assert again["etag"] == headers["etag"]
        assert again["content-length"] == str(len(text.encode()))
    for offered in (b'"x"', b"", tag + b"x", b"*, " + tag[1:]):
        assert ask(path, method, (b"if-none-match", offered))[0] == 200


def test_another_version_has_another_tag() -> None:
    assert ask("/")[1]["etag"] != ask("/", version="1.2.4")[1]["etag"]


def test_values_are_escaped() -> None:
    text = ask("/", address=NASTY, version=NASTY)[2]
    page = Markup(text)
    assert page.code == ""
    assert NASTY in page.text
    assert ask("/", address="\ud800")[0] == 200
    assert "$HOME" in ask("/", address="$HOME")[2]


@pytest.mark.parametrize(
    "target",
    [
        "/static", "/static/", "/static/index.html", "/static/nothing.js", "/static/../_static.py",
        "/static/%2e%2e/_static.py", "/static/..%2f_static.py", "/static//dashboard.js",
        "/static/./dashboard.js", "/static/dashboard.js/", "/static/views", "/static/views/",
        "/static/views/../dashboard.js", "/static/DASHBOARD.JS",
        "/static/dashboard.js%00", "/static\\dashboard.js", "//static/dashboard.js",
        "/dashboard.js", "/favicon.ico", "/wsx", "/ws/", "/stomp/x", "//", "/index.html",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_other_path_is_found(target: str, method: str) -> None:
    status, headers, text = ask(target, method)
    assert status == 404
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert target not in text.split()


def test_every_file_has_a_type() -> None:
    assert {Path(name).suffix for name in NAMES} <= TYPES.keys()
    assert sorted(read_files("", "")) == sorted(PATHS)


def test_the_dashboard_is_for_everybody_and_other_pages_as_they_say() -> None:
    page = Page(in_one(lambda request: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"))
    site = Site("", "", str, {"/metrics": page})
    assert site.rights(HttpRequest("GET", "/", ())) is None
    assert site.rights(HttpRequest("GET", "/static/dashboard.js", ())) is None
    assert site.rights(HttpRequest("GET", "/nothing", ())) is None
    assert site.rights(HttpRequest("GET", "/metrics?x", ())) == WATCH
    assert asked(site, "/metrics")[2] == "hi"
    assert asked(site, "/metrics", "POST")[0] == 405


def test_a_page_of_the_operator_comes_before_ours() -> None:
    site = Site("", "", str, {"/": Page(in_one(lambda request: b"mine"), None)})
    assert whole(site.respond(HttpRequest("GET", "/", ()))) == b"mine"


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
    "target", ["/", "/static/theme.js", "/ws", "/a/websocket", "/livez", "/readyz"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_other_method_is_not_allowed(target: str, method: str) -> None:
    status, headers, text = ask(target, method)
    assert status == 405
    assert headers["allow"] == "GET, HEAD"
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert text


@pytest.mark.parametrize("target", [*PATHS, "/ws", "/nothing", "/livez"])
def test_head_is_get_without_the_body(target: str) -> None:
    get_status, get_headers, body = ask(target)
    assert ask(target, "HEAD") == (get_status, get_headers, "")
    assert get_headers["content-length"] == str(len(body.encode()))
    assert get_headers["connection"].endswith("close")


@pytest.mark.parametrize("unready", ["", "no room on the disk"])
def test_alive_whatever_the_disk_says_and_ready_while_nothing_stands_in_the_way(
    unready: str,
) -> None:
    assert ask("/livez", unready=unready)[::2] == (200, "ok\n")
    status, headers, text = ask("/readyz", unready=unready)
    assert (status, text) == ((503, f"{unready}\n") if unready else (200, "ok\n"))
    assert headers["cache-control"] == "no-store"
