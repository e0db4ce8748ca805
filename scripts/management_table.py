"""Write the requests of the management interface into docs/reference/management.md.

python scripts/management_table.py           print the page
python scripts/management_table.py --write   write it
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import MagicMock

from trio_stomp.web.management._interface import PAGES, endpoints
from trio_stomp.web.management.requests import (
    ERRORS,
    OF_ALL,
    Endpoint,
)

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "reference" / "management.md"
HEAD = """\
# Management interface

The requests at `/api/v1`, as [Manage queues and connections](../operate/management.md) uses them. \
`GET /api/v1/openapi.json` describes them for programs (OpenAPI 3.1). This page and that document \
are made from the declarations by which the broker parses requests \
(`scripts/management_table.py --write`).
"""


def page() -> str:
    """Return the page in Markdown."""
    declared = MagicMock()  # requests are only declared, not made
    lines = [HEAD, "## Requests", ""]
    for each in endpoints(declared, declared, declared):
        lines += [*section(each), ""]
    lines += ["## Codes", "", "| code | status | cause |", "|---|--:|---|"]
    lines += [f"| `{code}` | {status} | {cause} |" for code, (status, cause) in ERRORS.items()]
    general = ", ".join(f"`{code}`" for code in OF_ALL)
    lines += ["", f"Any request may get {general}."]
    return "\n".join(lines) + "\n"


def section(each: Endpoint) -> list[str]:
    """Return the lines about a request."""
    also = f" Also at `{PAGES[each.name]}`." if each.name in PAGES else ""
    lines = [
        f"### {each.method} {each.name}",
        "",
        f"{each.summary}{also} {each.note.replace(chr(10), ' ')}Required right: {each.needs}.",
    ]
    if each.parameters:
        lines += ["", "| parameter | meaning |", "|---|---|"]
    for one in each.parameters:
        schema = one.schema()
        notes = [one.meaning]
        if one.is_required:
            notes.append("required")
        if one.most_times > 1:
            notes.append(f"up to {one.most_times:,} times")
        if "enum" in schema:
            notes.append(" ".join(f"`{word}`" for word in one.schema()["enum"]))  # type: ignore[attr-defined]
        if "minimum" in schema:
            notes.append(
                f"{schema['minimum']:,} to {schema['maximum']:,}, by default {schema['default']:,}"
            )
        lines.append(f"| `{one.name}` | {'; '.join(notes)} |")
    if each.body:
        lines += [
            "",
            "Body: " + "; ".join(f"{text} (`{kind}`)" for kind, text in each.body.items()),
        ]
    lines += ["", f"Answer: {', '.join(f'`{name}`' for name in each.answer)}"]
    if each.errors:
        lines += ["", f"Errors: {', '.join(f'`{code}`' for code in each.errors)}"]
    return lines


def main(argv: Sequence[str]) -> int:
    """Print or write the page."""
    if list(argv) == ["--write"]:
        DOCUMENT.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
