"""The kinds of things that a broker has, and the commands that list and show them."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from attrs import field, frozen

from trio_stomp.cli._command import Argument, count
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import WELL, CannotDo, say, show_json, show_table

Record = dict[str, Any]
Columns = Mapping[str, str]
HEAD = ("broker_id", "boot", "ts", "total", "offset", "limit", "count", "sort")
"""Fields of an answer that say nothing about the thing itself."""

OF_PROGRAMS = ("le_ms", "bucket_counts")
"""Fields for programs: histograms."""
HIDDEN = (*HEAD, *OF_PROGRAMS)


def _columns(text: str) -> Columns:
    """Return columns from words such as ``bytes`` or, if title and field differ, ``bytes=size``."""
    pairs = (word.partition("=") for word in text.split())
    return {title: field or title for title, _, field in pairs}


OF_SUBSCRIPTION = "destination session=session_id id=subscription_id name ack waiting unacked"


@frozen
class Kind:
    """A kind of things.

    Args:
      columns: The titles of the table, with the field of each; the first one names the thing.
      path: The request that lists them; "" = nothing does.
      is_named: Whether the list can be filtered by name.
      has_view: Whether the request of the kind's word shows one, named by the first title of the
        table; otherwise it is found in the list by its name.
      parts: The field with the parts of one, and the columns of their table.
    """

    columns: Columns = field(converter=_columns)
    path: str = ""
    is_named: bool = True
    has_view: bool = False
    parts: str = ""
    part_columns: Columns = field(default="", converter=_columns)


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "overview": Kind("", has_view=True),
        "queue": Kind(
            (
                "queue=destination messages=input_depth unacked=ack_depth consumers "
                "bytes=input_bytes redelivered=redelivered_total oldest-s=oldest_input_age_s "
                "paused"
            ),
            path="queues",
            has_view=True,
            parts="consumers",
            part_columns=(
                "consumer=session_id user id=subscription_id ack prefetch unacked "
                "oldest-s=oldest_unacked_age_s"
            ),
        ),
        "connection": Kind(
            (
                "session=session_id user remote transport subscriptions bytes-in=bytes_in_total "
                "bytes-out=bytes_out_total"
            ),
            path="connections",
            has_view=True,
            parts="subscriptions",
            part_columns=OF_SUBSCRIPTION,
        ),
        "subscription": Kind(OF_SUBSCRIPTION, path="subscriptions", is_named=False),
        "destination": Kind(
            (
                "destination type subscribers in=enqueued_total out=delivered_total "
                "dropped=dropped_total waiting=depth unacked"
            ),
            path="destinations",
            has_view=True,
            parts="subscriptions",
            part_columns=OF_SUBSCRIPTION,
        ),
        "durable": Kind(
            "name client-id=client_id destination owner state waiting unacked", path="durables"
        ),
        "stream": Kind(
            "stream first next messages bytes oldest=oldest_ms newest=newest_ms stored",
            path="streams",
            has_view=True,
            parts="readers",
            part_columns="reader=session_id user id=subscription_id offset",
        ),
        "schedule": Kind(
            "id user destination messages bytes due=due_ms repeats sent stored",
            path="schedules",
            is_named=False,
        ),
        "last-value": Kind("topic=destination user bytes set=set_ms stored", path="last-values"),
        "user": Kind("user=name groups connections", path="users"),
        "rule": Kind(
            "allowed=allow actions to users groups from=location", path="rules", is_named=False
        ),
        "policy": Kind("pattern from=source", path="policies"),
        "setting": Kind("name value from=source", path="settings"),
    }
)
"""The kinds by their singular word. The plural word is the path."""
PLURALS: Mapping[str, Kind] = MappingProxyType(
    {each.path: each for each in KINDS.values() if each.path}
)

NAMES = Argument("--names", "print names only, a line for each, for scripts")
USER = Argument("--user USER", "only those of this user")
LIST = (
    Argument("WHAT", ", ".join(PLURALS), choices=list(PLURALS)),
    Argument("--name NAME", "only those whose name contains this, or matches a*b"),
    Argument("--sort FIELD", "sort order, greatest first; an error names the choices"),
    Argument("--count N", "at most N", count),
    NAMES,
)
SHOW = (
    Argument("WHAT", ", ".join(KINDS), choices=list(KINDS)),
    Argument("[NAME]", "as in the first column of ls", default=""),
)


def list_things(given: argparse.Namespace) -> int:
    """Print all things of a kind.

    Raises:
      CannotDo: the broker cannot be reached, or refuses.
    """
    kind = PLURALS[given.what]
    query = {"name": given.name, "sort": given.sort}
    return print_records(given, kind, open_site(given).records(kind.path, query, given.count))


def lister(name: str) -> Callable[[argparse.Namespace], int]:
    """Return a function that prints the things of a kind, chosen by ``--user`` if there is one."""

    def list_kind(given: argparse.Namespace) -> int:
        query = {"user": given.user} if "user" in given else {}
        found = open_site(given).records(KINDS[name].path, query)
        return print_records(given, KINDS[name], found)

    return list_kind


def print_records(given: argparse.Namespace, kind: Kind, found: list[Record]) -> int:
    """Print records of a kind, and return the exit code."""
    if given.json:
        show_json(found)
    elif given.names:
        say(*(cell(each, next(iter(kind.columns.values()))) for each in found))
    else:
        _print_table(found, kind.columns)
    return WELL


def show_thing(given: argparse.Namespace) -> int:
    """Print one thing.

    Raises:
      CannotDo: the broker cannot be reached, or refuses, or there is no such thing.
    """
    kind, site = KINDS[given.what], open_site(given)
    if kind.has_view:
        query = dict.fromkeys([*kind.columns][:1], given.name)
        found = [site.operate("GET", given.what, query)]
    else:
        key = next(iter(kind.columns.values()))
        query = {"name": given.name} if kind.is_named else {}
        listed = site.records(kind.path, query)
        found = [each for each in listed if str(each.get(key)) == given.name]
        if not found:
            name = f"{given.what} {given.name[:80]!r}"
            raise CannotDo(f"there is no {name}; trio-stomp ls {kind.path} lists them")
    if given.json:
        show_json(found[0] if len(found) == 1 else found)
        return WELL
    for record in found:
        parts = record.pop(kind.parts, [])
        say(*(f"{name:<24} {value}" for name, value in _lines(record)))
        if parts:
            say("")
            _print_table(parts, kind.part_columns)
    return WELL


def _lines(record: Record, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the fields that have a value, with those of an object on lines of their own."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{prefix}{name}.")
        elif value not in (None, "", []) and name not in (OF_PROGRAMS if prefix else HIDDEN):
            yield prefix + name, cell(record, name)


def _print_table(records: Sequence[Record], columns: Columns) -> None:
    rows = [[cell(each, name) for name in columns.values()] for each in records]
    show_table(rows, *columns)


def cell(record: Record, name: str) -> object:
    """Return a field as people read it."""
    value = record.get(name)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if name.endswith("_ms") and isinstance(value, int) and value > 10**12:
        return f"{datetime.fromtimestamp(value / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return value
