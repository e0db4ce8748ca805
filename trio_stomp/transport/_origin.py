"""Whose web pages may open a WebSocket here: any page can try, with its visitor's network.

Spec: RFC 6455 sections 4.2.2 and 10.2; RFC 6454. A client that is no browser sends no Origin.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from trio_stomp.transport._http import HttpError, HttpRequest

ANY = "*"


def check_origin(request: HttpRequest, allowed: str) -> None:
    """Refuse the upgrade of a page that is not welcome.

    Args:
      allowed: Origins separated by commas, as ``https://example.com``; ``*`` = all; empty = pages
        of the host that the request is for, and of this machine if that is loopback.

    Raises:
      HttpError: 403, naming the origin and the remedy.
    """
    origins = request.values(b"origin")
    if not origins or allowed.strip() == ANY:
        return
    origin = origins[0].decode("latin-1").strip()
    if not allowed.strip():
        host = next(iter(request.values(b"host")), b"").decode("latin-1")
        is_welcome = _is_same_host(origin, host)
    else:
        welcome = {each.strip().rstrip("/").lower() for each in allowed.split(",")}
        is_welcome = origin.rstrip("/").lower() in welcome
    if not is_welcome:
        raise HttpError(
            403,
            f"pages of the origin {origin[:80]!r} may not connect here;"
            " the operator allows them with --allowed-origins",
        )


def _is_same_host(origin: str, host: str) -> bool:
    try:
        theirs, ours = urlsplit(origin).hostname, urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    if theirs is None or ours is None:
        return False
    return theirs == ours or (_is_loopback(theirs) and _is_loopback(ours))


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
