"""The origins of web pages that may connect."""

from contextlib import nullcontext

import pytest

from trio_stomp.transport.http import HttpError, HttpRequest, check_origin, is_forwarded

LISTED = "https://shop.example, http://dev.example:8080/"


def request(origin: str | None, host: str = "broker.example:61613") -> HttpRequest:
    headers = [(b"host", host.encode())]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    return HttpRequest("GET", "/ws", tuple(headers))


@pytest.mark.covers("W07")
@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("https://evil.example", "broker.example", ""),
        ("https://broker.example.evil.example", "broker.example", ""),
        ("https://evil.example", "127.0.0.1:61613", ""),
        ("http://192.0.2.1", "127.0.0.1:61613", ""),
        ("null", "broker.example", ""),
        ("", "broker.example", ""),
        ("http://[", "broker.example", ""),
        ("https://broker.example", "", ""),
        ("http://localhost", "broker.example", ""),
        ("https://broker.example", "broker.example", LISTED),
        ("http://shop.example", "broker.example", LISTED),
        ("http://dev.example", "broker.example", LISTED),
    ],
)
def test_other_pages_are_refused_with_the_remedy(origin: str, host: str, allowed: str) -> None:
    with pytest.raises(HttpError, match="allowed-origins") as caught:
        check_origin(request(origin, host), allowed)
    assert caught.value.response().startswith(b"HTTP/1.1 403 ")


@pytest.mark.covers("W07")
@pytest.mark.parametrize(
    ("origin", "host", "is_secret", "allowed", "is_ours"),
    [
        (None, "broker.example", False, "", True),
        (None, "broker.example", False, LISTED, True),
        ("https://broker.example", "broker.example:61613", False, "", False),
        ("https://BROKER.example:8443", "broker.example", False, "", False),
        ("http://localhost:3000", "127.0.0.1:61613", False, "", False),
        ("http://[::1]:3000", "localhost:61613", False, "", False),
        ("http://app.localhost", "[::1]:61613", False, "", False),
        ("http://DEV.example:8080", "broker.example", False, LISTED, True),
        ("null", "broker.example", False, "null", True),
        ("https://evil.example", "broker.example", False, "*", False),
        ("http://broker.example:61613", "broker.example:61613", False, "", True),
        ("https://broker.example:61613", "BROKER.example:61613", True, "", True),
        ("http://broker.example", "broker.example:80", False, "", True),
        ("https://broker.example:443", "broker.example", True, "", True),
        ("http://[::1]:61613", "[::1]:61613", False, "", True),
        # Another port, another scheme or another spelling of this machine is another origin.
        ("http://broker.example:8080", "broker.example:61613", False, "", False),
        ("http://broker.example", "broker.example:61613", False, "", False),
        ("http://broker.example:61613", "broker.example:61613", True, "", False),
        ("https://broker.example:61613", "broker.example:61613", False, "", False),
        ("http://localhost:61613", "127.0.0.1:61613", False, "", False),
        ("http://localhost:3000", "localhost:61613", False, "", False),
        ("https://evil.example", "broker.example", True, "*", False),
        ("https://broker.example", "broker.example", True, "*", True),
        ("http://broker.example:x", "broker.example:x", False, "*", False),
        ("https://shop.example", "broker.example", False, LISTED, True),
    ],
)
def test_allowed_origins_connect_and_only_the_same_origin_is_trusted(
    origin: str | None, host: str, is_secret: bool, allowed: str, is_ours: bool
) -> None:
    assert check_origin(request(origin, host), allowed, is_secret=is_secret) is is_ours


@pytest.mark.parametrize(
    ("origin", "host", "is_welcome"),
    [
        ("http://localhost:8000", "localhost:61613", True),
        ("http://127.0.0.1:8000", "localhost:61613", True),
        ("http://192.168.1.5", "192.168.1.5:61613", True),
        ("http://rebound.example", "rebound.example:61613", False),
    ],
)
def test_host_name_is_no_proof_of_a_local_page_without_logins(
    origin: str, host: str, is_welcome: bool
) -> None:
    """DNS rebinding: a page's name may resolve to this machine."""
    with nullcontext() if is_welcome else pytest.raises(HttpError, match="allowed-origins"):
        check_origin(request(origin, host), "", local_only=True)


@pytest.mark.parametrize(
    ("name", "is_told"),
    [
        ("forwarded", True),
        ("via", True),
        ("x-real-ip", True),
        ("x-forwarded-for", True),
        ("x-forwarded-anything", True),
        ("x-requested-with", False),
    ],
)
def test_relayed_client_is_marked(name: str, is_told: bool) -> None:
    assert is_forwarded(HttpRequest("GET", "/", ((name.encode(), b"1"),))) is is_told
