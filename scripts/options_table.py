"""Print the options as a table for docs/reference/configuration.md, from their source.

python scripts/options_table.py            print it
python scripts/options_table.py --sample   print conf/trio_stomp.toml instead
python scripts/options_table.py --write    write both: the table between its two marks
"""

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from trio_stomp.config import OptionSpec, options, toml

SAMPLE = Path(__file__).resolve().parent.parent / "conf" / "trio_stomp.toml"
REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
DOCUMENT = REFERENCE / "configuration.md"
LIMITS = REFERENCE / "limits.md"
BEGIN = "<!-- options: made by scripts/options_table.py -->"
END = "<!-- options: end -->"

LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
STEPS = ((1 << 20, "MiB"), (1 << 10, "KiB"))


def table() -> str:
    """Return all options as a table in Markdown."""
    rows = ["| option | in code | default | meaning |"]
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
    """Return the option's help, and its permitted values."""
    choices = " \\| ".join(f"`{choice}`" for choice in spec.choices)
    return f"{spec.help}; {choices}" if choices else spec.help


def updated(document: str) -> str:
    """Return the document with the present table between the marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


WIDTH = 100

HEAD = """\
# Settings of trio_stomp: every option with its default, to be read with
#   python -m trio_stomp --config trio_stomp.toml
#
# Take the # before a name away to set it. Files in conf.d beside this one are read after it, in the
# order of their names, and win; then variables, such as TRIO_STOMP__LISTEN__PORT=3000; then the
# command line. Look at what comes of it with
#   python -m trio_stomp config check trio_stomp.toml
#   python -m trio_stomp config show --changed trio_stomp.toml
# "Live": SIGHUP reads it anew while the broker runs. All else takes a restart.
#
# Made by scripts/options_table.py --write: do not edit it in the source tree.
"""

TAIL = """\

# Policies by destination (docs/reference/dialects.md): the first pattern that matches decides
# alone. Live
#
#   [destinations."/topic/prices.>"]
#   stream = true
#   stream_max_age_ms = 3600000

# Rules: who may do what (docs/operate/authorization.md). The first that matches decides; without
# any, acl_file says it. Live
#
#   [groups]
#   ops = ["alice", "bob"]
#
#   [certificates]
#   "CN=billing,O=Acme" = "billing"
#
#   [[rule]]
#   allow = ["send", "receive"]
#   to = "/topic/**"
#   group = "ops"
"""

UNITS = (("_bytes", "bytes"), ("_ms", "milliseconds"), ("_s", "seconds"))


def sample() -> str:
    """Return a settings file in which every option has its default, and none is set."""
    why = reasons(LIMITS.read_text(encoding="utf-8"))
    lines = [HEAD.rstrip("\n")]
    for group, members in groupby(options(), key=lambda spec: spec.group):
        lines += ["", f"[{group}]"]
        for spec in members:
            lines += ["", *_comment(spec, why.get(spec.name, ""))]
            lines.append(f"#{spec.name} = {toml(spec.default)}")
    return "\n".join(lines) + "\n" + TAIL


def reasons(document: str) -> dict[str, str]:
    """Return the reason for each default, by option, from the column "why" of LIMITS."""
    found: dict[str, str] = {}
    _, _, rest = document.partition("| option | default | why |")
    for row in rest.partition("\n\n")[0].splitlines()[2:]:
        cells = [cell.strip() for cell in row.split("|")]
        if cells[3] != "\N{EN DASH}":
            plain = LINK.sub(r"\1", cells[3])
            found |= dict.fromkeys(re.findall(r"`(\w+)`", cells[1]), plain)
    return found


def _comment(spec: OptionSpec, why: str) -> Iterator[str]:
    """Yield help, unit, words, reason, and whether it is live."""
    parts = [spec.help.rstrip(".")]
    if spec.choices:
        parts.append(f"one of {', '.join(spec.choices)}")
    unit = next((name for ending, name in UNITS if spec.name.endswith(ending)), "")
    if unit:
        result = shown(spec)
        parts.append(f"in {unit}: {result}" if "iB" in result else f"in {unit}")
    if why:
        parts.append(f"why: {why}")
    if spec.live:
        parts.append("live")
    text = ". ".join(part[0].upper() + part[1:] for part in parts)
    yield from textwrap.wrap(
        text,
        WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def main(argv: Sequence[str]) -> None:
    """Print the table or the sample, or write both to their files."""
    if "--write" in argv:
        document = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(updated(document), encoding="utf-8")
        SAMPLE.write_text(sample(), encoding="utf-8")
    else:
        sys.stdout.write(sample() if "--sample" in argv else f"{table()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
