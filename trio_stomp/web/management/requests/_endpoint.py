"""Declarations of requests, by which they are parsed, answered and described."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from attrs import frozen

from trio_stomp.base import Pieces, schema
from trio_stomp.server import API, WebOperation
from trio_stomp.web._query import Answer, Parameter, Query, page
from trio_stomp.web._site import ADMIN, WATCH, Page, Rights, Site

Schema = Mapping[str, object]
"""A JSON Schema."""
Fields = Mapping[str, Schema]
"""The fields of a JSON object."""

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
TEXTS: Schema = {"type": "array", "items": TEXT}
NUMBERS: Schema = {"type": "array", "items": NUMBER}
COUNTS: Schema = {"type": "object", "additionalProperties": COUNT}
"""Counts by name."""
HEAD: Fields = {"broker_id": TEXT, "boot": TEXT, "ts": {**TEXT, "format": "date-time"}}
"""The first fields of answers with figures."""

_TYPES = {
    schema.BIGINT: "integer",
    schema.DOUBLE: "number",
    schema.STRING: "string",
    schema.TIMESTAMP: "string",
    schema.BOOLEAN: "boolean",
}
_RIGHTS = ((WATCH, "monitor at DIAG"), (ADMIN, "admin at DIAG"), (None, "none"))


@frozen(eq=False, kw_only=True)
class Endpoint:
    """A request: an address with a method.

    Args:
      name: The end of the address.
      summary: A sentence that says what the request does.
      answer: The fields of the answer.
      parameters: The parameters that it accepts.
      errors: The codes of the errors, in addition to those of all requests.
      right: The required right, for people; by default the text for ``rights``.
      build: Answers a GET in pieces; None if the request is an operation.
      rights: The rights that ``build`` requires; None if the answer is public.
      method: The HTTP method of an operation.
      operate: Makes the operation.
      as_send: Whether the request can have the errors of a SEND, too.
      has_progress: The operation can answer with lines about its progress.
      body: The descriptions of the body of the request, by content type.
    """

    name: str
    summary: str
    answer: Fields
    parameters: Sequence[Parameter] = ()
    errors: Sequence[str] = ()
    right: str = ""
    build: Callable[[Query], Pieces[Answer]] | None = None
    rights: Rights | Callable[[], Rights] | None = WATCH
    method: str = "GET"
    operate: Callable[[Query], WebOperation] | None = None
    as_send: bool = False
    has_progress: bool = False
    body: Mapping[str, str] = MappingProxyType({})

    @property
    def needs(self) -> str:
        """Return the required right, for people."""
        return self.right or next(text for rights, text in _RIGHTS if rights is self.rights)

    def page(self, *, in_json: bool = True) -> Page:
        """Return the page that answers the request.

        Args:
          in_json: Whether errors are JSON, as at the request's own address, or plain text.
        """
        build = self.build
        assert build is not None
        return page(
            lambda request, identity: build(Query.of(request, self.parameters, identity)),
            in_json=in_json,
            rights=self.rights,
        )

    def add_to(self, site: Site) -> None:
        """Add the request to a site."""
        operate = self.operate
        if operate is None:
            site.pages[API + self.name] = self.page()
        else:
            site.operations[self.method, API + self.name] = lambda request: operate(
                Query.of(request, self.parameters)
            )


def listed(title: str, item: Schema) -> Fields:
    """Return the fields of a list in pages."""
    window = dict.fromkeys(("total", "offset", "limit", "count"), COUNT)
    return {**HEAD, **window, "sort": TEXT, "more": FLAG, title: {"type": "array", "items": item}}


def record_of(table: schema.Table, more: Fields | None = None) -> Schema:
    """Return the schema of a record of a DIAG table, with further fields."""
    fields = {
        each.name: {
            "type": [_TYPES[each.type], "null"] if each.nullable else _TYPES[each.type],
            "description": each.meaning,
        }
        for each in table.fields
    }
    return record({**fields, **(more or {})})


def record(fields: Fields) -> Schema:
    """Return the schema of an object that has all of these fields."""
    return {"type": "object", "properties": dict(fields), "required": list(fields)}


def with_fields(item: Schema, fields: Fields) -> Schema:
    """Return the schema of an object with further fields."""
    return {"allOf": [item, record(fields)]}


def maybe(schema: Schema) -> Schema:
    """Return the schema of a value that may be null."""
    return {**schema, "type": [schema["type"], "null"]}


LATENCY: Schema = {
    "type": "object",
    "additionalProperties": record(
        {
            "count_total": COUNT,
            "sum_ms_total": NUMBER,
            "max_ms": NUMBER,
            "bucket_counts": {"type": "array", "items": COUNT},
        }
    ),
}
"""Latencies by stage. The bounds of the buckets are in the answer's field ``le_ms``."""
