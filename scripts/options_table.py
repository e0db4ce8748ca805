"""Print the options as a table for docs/limits.md, from the very source of the command line.

python scripts/options_table.py            print it
python scripts/options_table.py --write    put it into docs/limits.md, between the two marks
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from trio_stomp.config import OptionSpec, options

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "limits.md"
BEGIN = "<!-- options: made by scripts/options_table.py -->"
END = "<!-- options: end -->"

STEPS = ((1 << 20, "MiB"), (1 << 10, "KiB"))


def table() -> str:
    """Return all options as a table in Markdown."""
    rows = ["| option | in code | default | what it bounds or chooses |"]
    rows.append("|---|---|---|---|")
    rows += [
        f"| `{spec.flag}` | `{spec.name}` | {shown(spec)} | {described(spec)} |"
        for spec in options()
    ]
    return "\n".join(rows)


def shown(spec: OptionSpec) -> str:
    """Return a default as people write it."""
    default = spec.default
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, int | float):
        if spec.name.endswith("_bytes"):
            for size, unit in STEPS:
                if default >= size and default % size == 0:
                    return f"{default / size:g} {unit}"
        return f"{default:g}" if isinstance(default, float) else str(default)
    return f"`{default}`" if default else "empty"


def described(spec: OptionSpec) -> str:
    """Return what the option's help says, and the values that it may have."""
    choices = " \\| ".join(f"`{choice}`" for choice in spec.choices)
    return f"{spec.help}; {choices}" if choices else spec.help


def updated(document: str) -> str:
    """Return the document with the table of now between the marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(argv: Sequence[str]) -> None:
    """Print the table, or put it into the document."""
    if "--write" in argv:
        document = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(updated(document), encoding="utf-8")
    else:
        print(table())


if __name__ == "__main__":
    main(sys.argv[1:])
