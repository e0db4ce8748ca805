"""Declarations of requests, by which they are parsed, answered and described."""

from collections.abc import Callable
from typing import Self

from attrs import fields, frozen

from trio_stomp.base import Pieces, schema
from trio_stomp.server import API, WebOperation
from trio_stomp.web._query import Answer, Query, page
from trio_stomp.web._site import ADMIN, WATCH, Page, Rights, Site
from trio_stomp.web.declared import COUNT, FLAG, NUMBER, TEXT, Declaration, Fields, Schema

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
class Endpoint(Declaration):
    """A request: an address with a method.

    Args:
      build: Answers a GET in pieces; None if the request is an operation.
      rights: The rights that ``build`` requires; None if the answer is public.
      operate: Makes the operation.
    """

    build: Callable[[Query], Pieces[Answer]] | None = None
    rights: Rights | Callable[[], Rights] | None = WATCH
    operate: Callable[[Query], WebOperation] | None = None

    @classmethod
    def of(cls, declared: Declaration, operate: Callable[[Query], WebOperation]) -> Self:
        """Return the request of a declaration, whose operation a function makes."""
        names = (each.name for each in fields(Declaration))
        return cls(**{name: getattr(declared, name) for name in names}, operate=operate)

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
