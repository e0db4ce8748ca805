"""Parsing the query of a request, and building answers."""

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import parse_qsl

from attrs import frozen

from trio_stomp.base import RECORDS, Pieces
from trio_stomp.server import API
from trio_stomp.transport import HttpError, HttpRequest, encode_response
from trio_stomp.web._site import Page

T = TypeVar("T")

MAX_PARAMETERS = 16
NOT_KEPT = (("Cache-Control", "no-store"),)
JSON = (("Content-Type", "application/json"), *NOT_KEPT)

TOKEN = "access_token"
"""The token of a client that cannot send a header; handled before any page."""


@frozen
class Query:
    """The parameters of a request, by name. Each may be given once.

    Args:
      path: The path of the page.
      parameters: The decoded parameters by name.
    """

    path: str
    parameters: Mapping[str, str]

    @classmethod
    def of(cls, request: HttpRequest, accepted: Iterable[str]) -> "Query":
        """Parse the query of a request, given the parameters that the page knows.

        Raises:
          HttpError: a parameter is unknown or given twice.
        """
        text = request.target.partition("#")[0].partition("?")[2]
        names = list(accepted)
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
        except ValueError:
            raise HttpError(
                400, f"the query has more than {MAX_PARAMETERS} parameters; leave some out"
            ) from None
        parameters: dict[str, str] = {}
        for name, value in pairs:
            # Values are not quoted here: the parameter may be a misspelt token.
            if name not in names and name != TOKEN:
                raise HttpError(400, f"unknown parameter {name[:40]!r}{_hint(name, names)}")
            if name in parameters:
                raise HttpError(400, f"the parameter {name} is given twice; leave one out")
            parameters[name] = value
        return cls(request.path, parameters)

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return a whole number.

        Raises:
          HttpError: it is not a whole number, or out of range.
        """
        text = self.parameters.get(name)
        if text is None:
            return default
        # int() accepts signs, spaces, underscores, other scripts and thousands of digits.
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
            raise self._bad(name, f"must be a whole number from {least} to {most}")
        number = int(text)
        if not least <= number <= most:
            raise self._bad(name, f"must be a whole number from {least} to {most}")
        return number

    def word(self, name: str, choices: Iterable[str]) -> str:
        """Return one of the known words, or the first of them by default.

        Raises:
          HttpError: the word is unknown.
        """
        words = list(choices)
        text = self.parameters.get(name, words[0])
        if text not in words:
            raise self._bad(name, f"must be one of {', '.join(words)}{_hint(text, words)}")
        return text

    def text(self, name: str) -> str:
        """Return a text, or "" by default."""
        return self.parameters.get(name, "")

    def _bad(self, name: str, rule: str) -> HttpError:
        return HttpError(400, f"{name} is {self.parameters[name][:40]!r}, but {rule}")


Answer = tuple[int, tuple[tuple[str, str], ...], bytes]
"""Status, headers and body."""


def page(build: Callable[[HttpRequest], Pieces[Answer]]) -> Page:
    """Return a private page that may raise ``HttpError``, and that omits the body of a HEAD."""

    def answer(request: HttpRequest) -> Pieces[bytes]:
        try:
            status, headers, body = yield from build(request)
        except HttpError as error:
            if request.path.startswith(API):
                raise
            # repr() has escaped the peer's text, but it may still hold surrogates.
            status, headers = error.status, (*NOT_KEPT, *error.headers)
            body = f"{error.text}\n".encode(errors="replace")
        return encode_response(status, headers, body, head_only=request.method == "HEAD")

    return Page(answer)


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
    """Return a record with a list of records as the answer.

    Args:
      record: The fields beside the list.
      name: The name of the list.
      things: The items.
      describe: Returns the record of an item.
    """
    items: list[str] = []
    for start in range(0, len(things), RECORDS):
        records = [describe(each) for each in things[start : start + RECORDS]]
        items.append(json.dumps(records, allow_nan=False)[1:-1])
        yield
    text = json.dumps({**record, name: []}, allow_nan=False)
    return 200, JSON, f"{text[:-2]}{', '.join(items)}]}}\n".encode()


def _hint(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name[:40], names, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known are {', '.join(names)}" if names else "; this page has none"
