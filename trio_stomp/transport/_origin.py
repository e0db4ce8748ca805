"""Whose web pages may open a WebSocket here: any page can try, with its visitor's network.

Spec: RFC 6455 sections 4.2.2 and 10.2; RFC 6454. A client that is no browser sends no Origin.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from trio_stomp.transport._http import HttpError, HttpRequest

ANY = "*"


def check_origin(request: HttpRequest, allowed: str, *, local_only: bool = False) -> bool:
    """Refuse the upgrade of a page that is not welcome.

    Args:
      allowed: Origins separated by commas, as ``https://example.com``; ``*`` = all; empty = pages
        of the host that the request is for, and of this machine if that is loopback.
      local_only: Of the same host are only pages of this machine or of an address: a name may be
        anybody's that was made to mean this machine (DNS rebinding).

    Returns: whether what the browser adds by itself, passwords and cookies, may be believed: it
      is no page's, or one of the same host or of a named origin.

    Raises:
      HttpError: 403, naming the origin and the remedy.
    """
    origins = request.values(b"origin")
    if not origins:
        return True
    origin = origins[0].decode("latin-1").strip()
    host = next(iter(request.values(b"host")), b"").decode("latin-1")
    if allowed.strip() in ("", ANY):
        is_ours = len(origins) == 1 and _is_same_host(origin, host, local_only=local_only)
        is_welcome = is_ours or allowed.strip() == ANY
    else:
        welcome = {each.strip().rstrip("/").lower() for each in allowed.split(",")}
        is_ours = is_welcome = len(origins) == 1 and origin.rstrip("/").lower() in welcome
    if not is_welcome:
        raise HttpError(
            403,
            f"pages of the origin {origin[:80]!r} may not connect here;"
            " the operator allows them with --allowed-origins",
        )
    return is_ours


def names_this_machine(request: HttpRequest) -> bool:
    """Whether a request was made to ``localhost`` or to an address, not to somebody's name."""
    hosts = request.values(b"host")
    try:
        host = urlsplit(f"//{hosts[0].decode('latin-1')}").hostname if len(hosts) == 1 else None
    except ValueError:
        return False
    return host is not None and (_is_loopback(host) or not _is_name(host))


def _is_same_host(origin: str, host: str, *, local_only: bool) -> bool:
    try:
        theirs, ours = urlsplit(origin).hostname, urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    if theirs is None or ours is None:
        return False
    if _is_loopback(theirs) and _is_loopback(ours):
        return True
    return theirs == ours and not (local_only and _is_name(ours))


def _is_name(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
