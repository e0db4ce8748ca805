"""The commands that write the definitions of a broker to a file, and read them from one."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trio_stomp.base import OptionError
from trio_stomp.cli._command import Argument
from trio_stomp.cli._http_get import API, open_site
from trio_stomp.cli._tool import WELL, CannotDo, put, report, show_json

STANDARD = "-"
EXPORT = (
    Argument("--format", "of the output (default: toml)", choices=("toml", "json"), default="toml"),
)
IMPORT = (
    Argument("FILE", "definitions in TOML or JSON; - = standard input"),
    Argument("--dry-run", "only show what would be created"),
)
EXPORT_EPILOG = """\
Definitions are the created queues, the policies, and the durable subscriptions. Messages are not
exported: see `store export`.
"""
IMPORT_EPILOG = """\
Queues that are missing are created; nothing is removed. Policies are those of the settings files,
and durable subscriptions are made by their subscribers: differences are listed, not changed. It
needs the right admin at DIAG.
"""


def export_definitions(given: argparse.Namespace) -> int:
    """Print the definitions.

    Raises:
      CannotDo: the broker cannot be reached, or refuses.
    """
    site = open_site(given)
    if given.json or given.format == "json":
        show_json(site.operate("GET", "definitions"))
        return WELL
    answer = site.get(f"{API}definitions?format=toml")
    if answer.status != 200:
        raise CannotDo(answer.text())
    put(answer.body)
    return WELL


def import_definitions(given: argparse.Namespace) -> int:
    """Have the broker create what the definitions name.

    Raises:
      OptionError: the file cannot be read.
      CannotDo: the broker cannot be reached, or refuses.
    """
    body = _read(given.file)
    kind = "application/json" if body.lstrip()[:1] == b"{" else "application/toml"
    query = {"dry_run": given.dry_run}
    found = open_site(given).operate("POST", "definitions", query, body=body, kind=kind)
    return report(given, found, *_lines(found))


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == STANDARD else Path(name).read_bytes()
    except OSError as error:
        raise OptionError(f"import: {name} cannot be read: {error.strerror}") from None


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield what was created, and what differs."""
    verb = "would be created" if found["dry_run"] else "created"
    yield f"{len(found['created']):,} queues {verb}, {len(found['existing']):,} existed"
    yield from (f"  {each}" for each in found["created"])
    for what in ("policies", "durables"):
        if found[what]:
            yield f"{len(found[what]):,} {what} differ, and are not changed"
            yield from (f"  {each or 'the defaults'}" for each in found[what])
