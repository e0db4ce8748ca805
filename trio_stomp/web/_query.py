"""Parsing the query of a request, and building answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import parse_qsl

from attrs import frozen

from trio_stomp.base import ANONYMOUS, RECORDS, Identity, Pieces
from trio_stomp.server import ANSWER_BYTES
from trio_stomp.transport import HttpError, HttpRequest, encode_response
from trio_stomp.web._site import WATCH, Page, Rights
from trio_stomp.web.declared import Number, Parameter, Word, hint

T = TypeVar("T")

MAX_PARAMETERS = 16
NOT_KEPT = (("Cache-Control", "no-store"),)
JSON = (("Content-Type", "application/json"), *NOT_KEPT)

LIST_BYTES = ANSWER_BYTES - 64 * 1024
"""The most bytes of a list. The fields beside it are short."""
MORE = "more"
"""The field that says that the next record of a list would not fit."""
BAD_REQUEST = "bad-request"
"""The code of a wrong parameter."""
TOKEN = "access_token"
"""The token of a client that cannot send a header; handled before any page."""


@frozen
class Query:
    """The parameters of a request.

    Args:
      request: The request.
      values: The decoded values by name.
      identity: The user who asks for a page. Operations get the user later.
    """

    request: HttpRequest
    values: Mapping[str, Sequence[str]]
    identity: Identity = ANONYMOUS

    @classmethod
    def of(
        cls, request: HttpRequest, accepted: Sequence[Parameter], identity: Identity = ANONYMOUS
    ) -> "Query":
        """Parse the query of a request, given the parameters that the page knows.

        Raises:
          HttpError: a parameter is unknown, missing, wrong, or given too often.
        """
        text = request.target.partition("#")[0].partition("?")[2]
        known = {each.name: each for each in accepted}
        most = max([MAX_PARAMETERS, *[each.most_times for each in accepted]])
        try:
            pairs = parse_qsl(text, True, max_num_fields=most, errors="strict")
        except UnicodeDecodeError:
            raise HttpError(400, "the query is not UTF-8") from None
        except ValueError:
            raise HttpError(
                400, f"the query has more than {most} parameters; leave some out"
            ) from None
        values: dict[str, list[str]] = {}
        for name, value in pairs:
            # Values are not quoted here: the parameter may be a misspelt token.
            if name not in known and name != TOKEN:
                raise HttpError(400, f"unknown parameter {name[:40]!r}{hint(name, list(known))}")
            if "\0" in value:
                raise HttpError(400, f"{name} has a NUL, which no frame can have")
            given = values.setdefault(name, [])
            given.append(value)
            declared = known.get(name, _TOKEN)
            if len(given) > declared.most_times:
                times = "twice" if len(given) == 2 else f"more than {declared.most_times} times"
                raise HttpError(400, f"the parameter {name} is given {times}; leave one out")
            if (rule := declared.refuse(value)) != "":
                raise HttpError(400, f"{name} is {value[:40]!r}, but {rule}")
        for each in accepted:
            if each.is_required and not any(values.get(each.name, ())):
                raise HttpError(400, f"{each.name} is missing; give {each.help}")
        return cls(request, values, identity)

    def number(self, parameter: Number) -> int:
        """Return a whole number, or its default."""
        return int(self.text(parameter)) if self.has(parameter) else parameter.default

    def word(self, parameter: Word) -> str:
        """Return one of the known words, or the first of them by default."""
        return self.text(parameter) if self.has(parameter) else parameter.choices[0]

    def text(self, parameter: Parameter) -> str:
        """Return a text, or "" by default."""
        return next(iter(self.texts(parameter)), "")

    def texts(self, parameter: Parameter) -> Sequence[str]:
        """Return all values of a parameter that may be given several times."""
        return self.values.get(parameter.name, ())

    def has(self, parameter: Parameter) -> bool:
        """Return whether a parameter is given."""
        return parameter.name in self.values


_TOKEN = Parameter(TOKEN, "a token")

Record = dict[str, object]
Answer = tuple[int, tuple[tuple[str, str], ...], bytes]
"""Status, headers and body."""


def page(
    build: Callable[[HttpRequest, Identity], Pieces[Answer]],
    *,
    in_json: bool = False,
    rights: Rights | Callable[[], Rights] | None = WATCH,
) -> Page:
    """Return a page that may raise ``HttpError``, and that omits the body of a HEAD.

    Args:
      build: Makes the answer.
      in_json: Errors are JSON with a code, too.
      rights: The rights that the page requires; None = it is public.
    """

    def answer(request: HttpRequest, identity: Identity) -> Pieces[bytes]:
        try:
            status, headers, body = yield from build(request, identity)
        except HttpError as error:
            if in_json:
                error.code = error.code or BAD_REQUEST
                raise
            # repr() has escaped the peer's text, but it may still hold surrogates.
            status, headers = error.status, (*NOT_KEPT, *error.headers)
            body = f"{error.text}\n".encode(errors="replace")
        return encode_response(status, headers, body, head_only=request.method == "HEAD")

    return Page(answer, rights)


def as_json(record: Mapping[str, object], status: int = 200) -> Answer:
    """Return a record as the answer."""
    # As on the DIAG topics: pure ASCII, neither NaN nor infinity.
    return status, JSON, json.dumps(record, allow_nan=False).encode() + b"\n"


def as_list(
    record: Mapping[str, object],
    name: str,
    things: Sequence[T],
    describe: Callable[[T], Mapping[str, object]],
) -> Pieces[Answer]:
    """Return a record with a list of records as the answer, up to ``LIST_BYTES``.

    Args:
      record: The fields beside the list.
      name: The name of the list.
      things: The items.
      describe: Returns the record of an item.
    """
    items: list[str] = []
    left = LIST_BYTES
    for number, each in enumerate(things):
        item = json.dumps(describe(each), allow_nan=False)
        left -= len(item) + 2
        if left < 0 and items:
            break
        items.append(item)
        if number % RECORDS == RECORDS - 1:
            yield
    yield
    record = {**record, MORE: len(items) < len(things)}
    if "count" in record:
        record["count"] = len(items)
    return 200, JSON, f"{with_list(record, name, items)}\n".encode()


def with_list(record: Mapping[str, object], name: str, items: Sequence[str]) -> str:
    """Return a record and a list behind its fields as JSON.

    Args:
      record: The fields.
      name: The name of the list.
      items: JSON of items, of one each or of all with commas between them.
    """
    text = json.dumps({**record, name: []}, allow_nan=False)
    return f"{text[:-2]}{', '.join(items)}]}}"
