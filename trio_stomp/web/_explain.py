"""``/explain?q=…``: what happened to a message, as JSON; the same as at ``DIAG/explain``."""

import json
from collections.abc import Callable
from urllib.parse import parse_qs

from trio_stomp.base import Pieces, RemoteError
from trio_stomp.transport import HttpRequest, encode_response

USAGE = (
    "ask ?q=MESSAGE-ID, or ?destination=D&session=S (or &user=U): explains why the client "
    "received nothing"
)
_JSON = (("Content-Type", "application/json"), ("Cache-Control", "no-store"))


def explain_page(
    explain: Callable[[str], Pieces[dict[str, object]]], request: HttpRequest
) -> Pieces[bytes]:
    """Answer a question about a message, destination or client.

    Args:
      explain: Of the core.
      request: The request.
    """
    asked = parse_qs(request.target.partition("?")[2])
    parameters = {key: values[0] for key, values in asked.items()}
    question = parameters.pop("q", "")
    if bool(question) == bool(parameters):
        return _answer(request, 400, {"error": USAGE})
    try:
        answer = yield from explain(question or json.dumps(parameters))
    except RemoteError as error:
        return _answer(request, 400, {"error": error.message})
    return _answer(request, 200, answer)


def _answer(request: HttpRequest, status: int, answer: dict[str, object]) -> bytes:
    body = json.dumps(answer, indent=1).encode()
    return encode_response(status, _JSON, body, head_only=request.method == "HEAD")
