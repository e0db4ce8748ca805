"""The description of the interface for programs, as an OpenAPI 3.1 document."""

import json
from collections.abc import Sequence

from trio_stomp._version import __version__
from trio_stomp.base import Pieces
from trio_stomp.server import API
from trio_stomp.web._query import JSON, Answer, Query, Record
from trio_stomp.web.declared import OBJECT, TEXT, Parameter
from trio_stomp.web.management.requests._endpoint import Endpoint
from trio_stomp.web.management.requests._parameters import ERRORS, OF_ALL, OF_PUBLIC
from trio_stomp.web.management.requests._result import LINES

OTHERS = 400
"""The status of errors that are not in ``ERRORS``."""
DESCRIPTION = (
    "Names of destinations contain slashes, so they are parameters of the query, not parts of the"
    " address. A login is HTTP Basic or a bearer token, or none on the broker's machine while there"
    " are no users. Requests of web pages of other origins are refused. Long operations answer with"
    f" a line of progress each half second if the request accepts {LINES}."
)


def openapi(endpoints: Sequence[Endpoint]) -> Record:
    """Return the document that describes requests."""
    paths: dict[str, Record] = {}
    for each in endpoints:
        paths.setdefault(API + each.name, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "trio_stomp", "version": __version__, "description": DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{}, {"basic": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            }
        },
    }


def document(endpoints: Sequence[Endpoint]) -> Endpoint:
    """Return the request for the document that describes ``endpoints`` and itself."""
    made: list[bytes] = []

    def build(_query: Query) -> Pieces[Answer]:
        yield
        if not made:
            made.append(json.dumps(openapi(described), indent=1).encode() + b"\n")
        return 200, JSON, made[0]

    own = Endpoint(
        name="openapi.json",
        summary="Describe this interface.",
        answer={"openapi": TEXT, "info": OBJECT, "paths": OBJECT},
        build=build,
        rights=None,
    )
    described = [*endpoints, own]
    return own


def _operation(each: Endpoint) -> Record:
    answers: dict[str, Record] = {"200": {"description": "OK", "content": _content(each)}}
    of_all = OF_PUBLIC if each.rights is None else OF_ALL
    codes = dict.fromkeys((*of_all, *each.errors))
    for status in sorted({ERRORS[code][0] for code in codes}):
        found = [code for code in codes if ERRORS[code][0] == status]
        answers[str(status)] = _refusal(found, is_open=each.as_send and status == OTHERS)
    described: Record = {
        "operationId": f"{each.method.lower()}_{each.name}",
        "summary": each.summary,
        "description": f"{each.note}Required right: {each.needs}.",
        "parameters": [_parameter(one) for one in each.parameters],
        "responses": answers,
    }
    if each.body:
        described["requestBody"] = {
            "content": {
                kind: {"schema": TEXT if kind != "application/json" else OBJECT}
                for kind in each.body
            },
            "description": "; ".join(each.body.values()),
        }
    return described


def _content(each: Endpoint) -> Record:
    fields = {"type": "object", "properties": dict(each.answer), "required": list(each.answer)}
    content: Record = {"application/json": {"schema": fields}}
    if each.has_progress:
        content[LINES] = {"schema": TEXT}
    return content


def _refusal(codes: Sequence[str], *, is_open: bool) -> Record:
    fields = {"error": TEXT, "code": {**TEXT, "examples" if is_open else "enum": list(codes)}}
    causes = [f"`{code}`: {ERRORS[code][1]}" for code in codes]
    if is_open:
        causes.append("the codes of an ERROR that answers a SEND")
    return {
        "description": "; ".join(causes),
        "content": {
            "application/json": {
                "schema": {"type": "object", "properties": fields, "required": ["error", "code"]}
            }
        },
    }


def _parameter(each: Parameter) -> Record:
    schema = each.schema()
    if each.most_times > 1:
        schema = {"type": "array", "items": schema, "maxItems": each.most_times}
    return {
        "name": each.name,
        "in": "query",
        "description": each.meaning,
        "required": each.is_required,
        "schema": schema,
    }
