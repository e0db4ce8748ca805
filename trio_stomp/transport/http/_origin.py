"""Origin checks: which web pages may open a WebSocket from their visitors' browsers.

Spec: RFC 6455 sections 4.2.2 and 10.2; RFC 6454. Clients other than browsers send no Origin.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from trio_stomp.base import is_loopback
from trio_stomp.transport.http._http import HttpError, HttpRequest

ANY = "*"


_DEFAULT_PORTS = {"http": 80, "https": 443}
_FORWARDING = frozenset({b"forwarded", b"via", b"x-real-ip"})
_FORWARDED = b"x-forwarded-"


def check_origin(
    request: HttpRequest, allowed: str, *, is_secret: bool = False, local_only: bool = False
) -> bool:
    """Refuse the upgrade for a page whose origin is not allowed.

    Args:
      request: The request.
      allowed: Origins separated by commas, as ``https://example.com``; ``*`` = all; empty = pages
        of the requested host, and pages of this machine if that is loopback.
      is_secret: The request came over TLS.
      local_only: The same host counts only if it is loopback or an address: an attacker's DNS name
        may resolve to this machine (DNS rebinding).

    Returns:
      Whether credentials that the browser adds (passwords, cookies) may be trusted. They may if
      there is no Origin; if it has the scheme, host and port of the request; or if it is listed in
      ``allowed``. Another port belongs to another program, and plain HTTP can be forged.

    Raises:
      HttpError: 403, naming the origin and the remedy.
    """
    origins = request.values(b"origin")
    if not origins:
        return True
    origin = origins[0].decode("latin-1").strip()
    host = next(iter(request.values(b"host")), b"").decode("latin-1")
    is_one = len(origins) == 1
    if allowed.strip() in ("", ANY):
        is_ours = is_one and _is_same_origin(origin, host, is_secret=is_secret)
        is_near = is_one and _is_same_host(origin, host, local_only=local_only)
        is_welcome = is_near or allowed.strip() == ANY
    else:
        welcome = {each.strip().rstrip("/").lower() for each in allowed.split(",")}
        is_ours = is_welcome = is_one and origin.rstrip("/").lower() in welcome
    if not is_welcome:
        raise HttpError(
            403,
            f"pages of the origin {origin[:80]!r} may not connect here;"
            " the operator allows them with --allowed-origins",
        )
    return is_ours


def names_this_machine(request: HttpRequest) -> bool:
    """Return whether a request's host is loopback or an address, not another name."""
    hosts = request.values(b"host")
    try:
        host = urlsplit(f"//{hosts[0].decode('latin-1')}").hostname if len(hosts) == 1 else None
    except ValueError:
        return False
    return host is not None and (is_loopback(host) or not _is_name(host))


def is_forwarded(request: HttpRequest) -> bool:
    """Return whether a request has a header of a proxy, so that the peer is not the client.

    The absence of such headers proves nothing.
    """
    return any(name in _FORWARDING or name.startswith(_FORWARDED) for name, _ in request.headers)


def _is_same_origin(origin: str, host: str, *, is_secret: bool) -> bool:
    """Return whether an origin has the request's scheme, host and port (RFC 6454 section 5)."""
    try:
        theirs, ours = urlsplit(origin), urlsplit(f"//{host}")
        ports = theirs.port or _DEFAULT_PORTS.get(theirs.scheme), ours.port
    except ValueError:
        return False
    scheme = "https" if is_secret else "http"
    own = scheme, ours.hostname, ports[1] or _DEFAULT_PORTS[scheme]
    return ours.hostname is not None and (theirs.scheme, theirs.hostname, ports[0]) == own


def _is_same_host(origin: str, host: str, *, local_only: bool) -> bool:
    try:
        theirs, ours = urlsplit(origin).hostname, urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    if theirs is None or ours is None:
        return False
    if is_loopback(theirs) and is_loopback(ours):
        return True
    return theirs == ours and not (local_only and _is_name(ours))


def _is_name(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return True
    return False
