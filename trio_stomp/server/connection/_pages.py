"""Plain HTTP requests on the port, and access to pages with figures."""

import secrets
from collections.abc import Generator, Sequence

import trio

from trio_stomp.base import ANONYMOUS, Identity, RemoteError
from trio_stomp.broker import Action
from trio_stomp.security import from_http
from trio_stomp.server.connection._link import Link
from trio_stomp.server.connection._web_pages import ANSWER_BYTES
from trio_stomp.server.connection._web_share import WebShare
from trio_stomp.transport import (
    HttpError,
    HttpRequest,
    asks_sockjs_info,
    check_origin,
    names_this_machine,
    sockjs_info,
)

WATCHING = "DIAG"
"""Pages with figures require the right to monitor this destination."""
SHARE_S = 0.001
"""Time share for building a page, and minimum pause between two shares."""
MAKING = ""
"""The name under which pages that are made are charged."""
_LOG_IN = (("WWW-Authenticate", 'Basic realm="trio_stomp", charset="UTF-8"'),)


async def answer_page(link: Link, request: HttpRequest) -> bytes:
    """Return the whole answer to a plain request.

    Raises:
      HttpError: the client lacks the right.

    Checkpoint: only if a passcode must be hashed, or the page takes long. Limits: the connect
    timeout applies.
    """
    if asks_sockjs_info(request):
        return sockjs_info(
            request,
            link.shared.limits.allowed_origins,
            local_only=needs_no_login(link),
            entropy=secrets.randbits(32),
        )
    pages = link.shared.pages
    rights = pages.rights(request)
    identity = ANONYMOUS if rights is None else await admit(link, request, rights)
    link.ask_as(identity)
    return await _made(pages.respond(request, identity), link.shared.web)


async def _made(page: Generator[None, None, bytes], share: WebShare) -> bytes:
    """Build a page in time shares, between which other tasks run.

    Pages of several pieces are built one after the other, with pauses as long as the work:
    together they use at most half of the event loop's time, and the memory of one answer.
    """
    try:
        next(page)
        made_bytes = min(ANSWER_BYTES, share.limit_bytes // 4)
        async with share.one_page:
            with share.holding(MAKING, made_bytes):
                until = trio.current_time() + SHARE_S
                while True:
                    next(page)
                    if trio.current_time() >= until:
                        await trio.sleep(SHARE_S)
                        until = trio.current_time() + SHARE_S
    except StopIteration as made:
        answer: bytes = made.value
        return answer
    finally:
        page.close()


def needs_no_login(link: Link) -> bool:
    """Return whether anonymous clients are accepted from this origin.

    A web page must not use that right through its visitor's browser.
    """
    authenticator = link.shared.authenticator
    return authenticator.lets_anonymous(is_loopback=link.is_loopback)


def read_login(link: Link, request: HttpRequest, *, local_only: bool = False) -> None:
    """Note the credentials in a request.

    What the browser of a page of another origin adds by itself is no consent of its user.

    Raises:
      HttpError: pages of its origin are refused.
      RemoteError: the credentials are invalid.
    """
    shared, authenticator = link.shared, link.shared.authenticator
    is_ours = check_origin(
        request, shared.limits.allowed_origins, is_secret=link.is_secret, local_only=local_only
    )
    link.is_foreign = not is_ours
    link.offered = from_http(
        request.headers,
        request.target,
        ambient=is_ours,
        cookie_name=authenticator.options.token_cookie,
        tokens=authenticator.accounts.tokens is not None,
    )


async def admit(link: Link, request: HttpRequest, rights: Sequence[tuple[Action, str]]) -> Identity:
    """Identify a user who has ``rights``, or a client on this machine if no login is needed.

    With access rules, local clients need a login, too: behind a local proxy all clients are local.
    A request for a foreign host name that resolves to this machine is not local (DNS rebinding).

    Raises:
      HttpError: the client must log in, or lacks a right.

    Checkpoint: if a passcode must be hashed.
    """
    shared = link.shared
    rules = shared.rules()
    if link.vouched is not None and rules is None:
        return link.vouched
    is_here = link.is_loopback and names_this_machine(request)
    if rules is None and is_here and needs_no_login(link):
        return ANONYMOUS
    exposure = shared.authenticator.exposure(link)
    if exposure is not None:  # a login would expose the passcode, so do not ask for one
        raise HttpError(403, exposure.message)
    try:
        read_login(link, request)
        identity = link.vouched or await shared.authenticator.identify((), link)
    except RemoteError as error:
        raise HttpError(401, error.message, (*_LOG_IN, *error.headers)) from None
    rules = shared.rules()  # they may have changed while the passcode was hashed
    for action, name in rights:
        if rules is None or not rules.rights(identity).allows(action, name):
            is_watching = action is Action.MONITOR and name == WATCHING
            what = "monitor the broker" if is_watching else f"{action.value} at {name[:80]}"
            raise HttpError(
                403, f"this page requires the right to {what} (docs/operate/authorization.md)"
            )
    return identity
