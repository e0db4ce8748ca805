"""Write docs/reference/features-that-meet.md: what two features of the broker do together.

python scripts/features_table.py            print the page
python scripts/features_table.py --write    write it

It is made from tests/pairs. Each pair of features has a sentence, and a script that shows it to a
broker (tests/system/test_pairs.py), or is named in independent.toml.
"""

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from _check.page import print_or_write
from attrs import frozen

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "pairs"
PAGE = ROOT / "docs" / "reference" / "features-that-meet.md"
FEATURES, INDEPENDENT = DATA / "features.toml", DATA / "independent.toml"

HEAD = """\
# Features that meet

What two features do together, one sentence for each pair, at the feature that comes first. \
Each sentence is shown to a running broker, over the wire, by a script in `tests/pairs`; \
`scripts/features_table.py --write` makes this page from the same files. *Independent* features \
do together what each does alone. \
*Refused* means that the broker does not take the frame or the request.

In the overview \u25cf is a pair with a sentence, \u2715 one that is refused, \u2013 an \
independent one; the numbers of the columns are those of the rows.
"""
MEET, REFUSED, ALONE = "\u25cf", "\u2715", "\u2013"


@frozen
class Pair:
    """Two features, what they do together, and scripts that show it."""

    names: tuple[str, str]
    says: str
    scripts: tuple[str, ...]


def features() -> dict[str, str]:
    """Return the features by name, each with the page of the manual and its heading."""
    with FEATURES.open("rb") as file:
        return tomllib.load(file)


def pairs() -> list[Pair]:
    """Return the pairs that have a sentence, in the order of the features."""
    order = list(features())
    found = []
    for path in sorted(DATA.glob("*.toml")):
        if path in (FEATURES, INDEPENDENT):
            continue
        for title, each in tomllib.loads(path.read_text(encoding="utf-8")).items():
            names = _sorted(order, title.split(" + "))
            scripts = tuple(each["script"].strip().split("\n\n"))
            found.append(Pair(names, each["says"], scripts))
    return sorted(found, key=lambda pair: tuple(map(order.index, pair.names)))


def independent() -> list[tuple[str, str]]:
    """Return the pairs of features of which each does what it does alone."""
    order = list(features())
    table: Mapping[str, Sequence[str]] = tomllib.loads(INDEPENDENT.read_text(encoding="utf-8"))
    return [_sorted(order, (one, other)) for one, others in table.items() for other in others]


def _sorted(order: Sequence[str], names: Sequence[str]) -> tuple[str, str]:
    """Return two names in the order of the features.

    Raises:
      ValueError: one is not the name of a feature.
    """
    one, other = sorted(names, key=order.index)
    return one, other


def page() -> str:
    """Return the page."""
    listed, said, alone = features(), pairs(), independent()
    lines = [HEAD, *_overview(list(listed), said)]
    for name, link in listed.items():
        lines += ["", f"## {name}", "", f"[In the manual]({link})"]
        if rows := list(_rows(name, said)):
            lines += ["", "| with | together |", "|---|---|", *rows]
        if above := [pair.names[0] for pair in said if pair.names[1] == name]:
            links = ", ".join(f"[{other}](#{_anchor(other)})" for other in above)
            lines += ["", f"Told there: {links}."]
        others = [_other(name, names) for names in alone if name in names]
        if others:
            order = sorted(others, key=list(listed).index)
            lines += ["", f"Independent of {', '.join(order)}."]
    return "\n".join(lines) + "\n"


def _overview(listed: Sequence[str], said: Sequence[Pair]) -> Iterator[str]:
    """Yield a table with a sign for each pair."""
    signs = {pair.names: REFUSED if pair.says.startswith("Refused") else MEET for pair in said}
    yield f"|  | feature | {' | '.join(f'{n}' for n in range(1, len(listed) + 1))} |"
    yield "|--:|---" + "|:-:" * len(listed) + "|"
    for number, name in enumerate(listed, 1):
        row = [
            "" if other == name else signs.get(_sorted(listed, (name, other)), ALONE)
            for other in listed
        ]
        yield f"| {number} | [{name}](#{_anchor(name)}) | {' | '.join(row)} |"


def _rows(name: str, said: Sequence[Pair]) -> Iterator[str]:
    """Yield the rows of the pairs of which a feature is the first."""
    for pair in said:
        if name == pair.names[0]:
            other = pair.names[1]
            yield f"| [{other}](#{_anchor(other)}) | {pair.says} |"


def _other(name: str, names: tuple[str, str]) -> str:
    return names[1] if names[0] == name else names[0]


def _anchor(name: str) -> str:
    return name.lower().replace(",", "").replace(" ", "-")


def main(argv: Sequence[str]) -> None:
    """Print the page, or write it."""
    print_or_write(PAGE, page(), argv)


if __name__ == "__main__":
    main(sys.argv[1:])
