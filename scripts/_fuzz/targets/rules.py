"""Patterns as sets of names, and globs, against brute force over the distinguishing names."""

import random
import re
from collections.abc import Iterator
from itertools import islice, product

from _fuzz.target import Target, check_equal
from _fuzz.targets import acl_file, wildcards
from trio_stomp.base._errors import ProtocolError
from trio_stomp.broker.names._pattern_sets import as_pattern, covers, overlaps
from trio_stomp.broker.names._wildcards import ONE_WORD, Pattern, compile_pattern, split
from trio_stomp.broker.rules._rules import glob_matches

NEW = "ÿ"
"""A word that no pattern holds."""
ENDS = ("", NEW, f"{NEW}.{NEW}", f"/{NEW}", f".{NEW}", "/", ".")
MOST_NAMES = 4000
GLOBS = (b"*", b"?", b"**", b"a*b", b"app-*", b"a", b"b", b"\xc3\xa9", b"*?*", b"")


def make(name: str) -> Target:
    """The target."""
    words = (*wildcards.WORDS, *GLOBS, b"\n", b".", b"/", b"/topic/", b"prices.>", b"a" * 50)
    files = ("broker/names/_pattern_sets.py",)
    return Target(name, run, files, generate, words, 200)


def generate(chance: random.Random) -> bytes:
    """Return two patterns, a glob and a text."""
    one = wildcards.text(chance)
    other = wildcards.text(chance) if chance.random() < 0.6 else one + wildcards.text(chance)
    glob = b"".join(chance.choices(GLOBS, k=chance.randrange(5)))
    return chance.randbytes(1) + b"\n".join((one, other, glob, b"app-abba"[: chance.randrange(9)]))


def run(data: bytes) -> None:
    """Compare two patterns and a glob. The first byte selects the grammars."""
    choice = data[0] if data else 0
    lines = [*data[1:].decode(errors="replace").split("\n"), "", "", "", ""]
    check_equal(
        glob_matches(lines[2], lines[3]),
        acl_file.glob_matches(lines[2], lines[3]),
        f"glob {lines[2]!r} on {lines[3]!r}",
    )
    one = compiled(lines[0], choice & 1)
    other = compiled(lines[1], choice & 2)
    if one is None or other is None or len(one.tokens) + len(other.tokens) > 14:
        return
    for left, right in ((one, other), (other, one)):
        # All names of right that could distinguish it from left.
        within = list(islice(names(right, left), MOST_NAMES))
        if len(within) == MOST_NAMES:
            return
        pattern = wildcards.expression(left)
        inside = [bool(pattern.fullmatch(name)) for name in within]
        if not within:
            continue
        check_equal(covers(left, right), all(inside), f"{left} covers {right}")
        check_equal(overlaps(left, right), any(inside), f"{left} overlaps {right}")


def compiled(text: str, is_seed: int) -> Pattern | None:
    """Return a pattern, or a plain name as one, or None if it is neither."""
    if not re.fullmatch(r"[^\n]*", text) or NEW in text:
        return None
    try:
        return compile_pattern(text, "seed" if is_seed else "native") or as_pattern(text)
    except ProtocolError:
        return None


def names(pattern: Pattern, other: Pattern) -> Iterator[str]:
    """Yield names that a pattern matches, with new words and with words of the other pattern."""
    asked = [token for token in other.tokens if token and token not in "./"]
    if other.glued:
        asked += [part for part in split(other.glued) if part and part not in "./"]
        asked += [part + NEW for part in asked]
    # Its own first words, where the other pattern takes any.
    asked += [part for part in split(pattern.glued or "") if part and part not in "./"]
    words = list(dict.fromkeys([NEW, *asked]))
    heads = product(*(words if token is ONE_WORD else [token] for token in pattern.tokens))
    for head in heads:
        start = "".join(head)
        if pattern.glued is None and not pattern.rest:
            yield start
            continue
        if pattern.rest:
            yield start
        # The rest of the other pattern, if it still fits.
        base = start + (pattern.rest if pattern.rest else pattern.glued or "")
        for way in wanted(other, words):
            for size in range(len(way) + 1):
                for end in ENDS:
                    tail = "".join(way[size:])
                    yield base + tail + end
            text = "".join(way)
            if text.startswith(base):
                for end in ENDS:
                    yield text + end


def wanted(pattern: Pattern, words: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the beginnings of names that a pattern matches."""
    tail = (pattern.glued or "",) if pattern.glued is not None else (pattern.rest,)
    for head in product(*(words if token is ONE_WORD else [token] for token in pattern.tokens)):
        yield (*head, *tail)
