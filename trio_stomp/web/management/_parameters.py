"""Parameters that several requests have, and the HTTP form of the core's errors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trio_stomp.base import ProtocolError
from trio_stomp.broker import Action, Choice
from trio_stomp.transport import HttpError
from trio_stomp.web._query import Query

if TYPE_CHECKING:
    from trio_stomp.broker import Manager

STATUSES = {"no-such-queue": 404, "no-such-session": 404, "queue-full": 409, "no-subscriber": 409}
"""HTTP status codes of errors by their stable code. Others are 400."""

Rights = Sequence[tuple[Action, str]]
ADMIN: Rights = ((Action.ADMIN, "DIAG"),)


def choice_of(manager: "Manager", query: Query, limit: int) -> Choice:
    """Return the messages that ``queue`` and ``selector`` choose.

    Raises:
      HttpError: ``queue`` is missing or wrong.
    """
    return Choice(destination_of(manager, query, "queue"), query.text("selector"), limit)


def destination_of(manager: "Manager", query: Query, name: str) -> str:
    """Return the destination that a parameter names.

    Raises:
      HttpError: it is missing, or no single destination.
    """
    text = query.text(name)
    if not text:
        raise bad_request(f"{name} is missing; give a destination, as {name}=/queue/orders")
    try:
        return manager.resolve(text)
    except ProtocolError as error:
        raise as_http(error) from None


def bad_request(text: str) -> HttpError:
    """Return the error of a wrong parameter."""
    return HttpError(400, text, code="bad-request")


def as_http(error: ProtocolError) -> HttpError:
    """Return the HTTP form of an error of the core."""
    return HttpError(STATUSES.get(error.code, 400), error.message, code=error.code)


def no_session(session: str) -> HttpError:
    """Return the error of a session that does not exist."""
    text = f"there is no session {session[:80]!r}; GET /connz lists them"
    return HttpError(404, text, code="no-such-session")
