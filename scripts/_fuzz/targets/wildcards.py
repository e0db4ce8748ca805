"""Patterns of destinations: the trie, a single pattern and a regular expression must agree."""

import random
import re

from _fuzz.target import Target, check, check_equal
from trio_stomp.base._errors import ProtocolError
from trio_stomp.broker.names._trie import WildcardTrie, matches
from trio_stomp.broker.names._wildcards import ONE_WORD, Pattern, compile_pattern

WORDS = (
    b"a",
    b"b",
    b"ab",
    b"",
    b"*",
    b"**",
    b">",
    b"#",
    b"a*",
    b"#a",
    b"DIAG",
    b"topic",
    b"\xc3\xa9",
)
MOST_TEXTS = 12


def make(name: str) -> Target:
    """The target."""
    words = (*WORDS, b".", b"/", b"\n", b"/topic/", b"prices.>", b"/**", b".*", b"*\n", b"/a/b/c")
    files = ("broker/names/_wildcards.py", "broker/names/_trie.py")
    return Target(name, run, files, generate, words, 300)


def generate(chance: random.Random) -> bytes:
    """Return patterns and names, one per line."""
    return chance.randbytes(1) + b"\n".join(text(chance) for _ in range(chance.randint(2, 8)))


def text(chance: random.Random) -> bytes:
    """Return a pattern or a name."""
    out = chance.choice(WORDS)
    for _ in range(chance.randrange(4)):
        out += chance.choice((b".", b"/")) + chance.choice(WORDS)
    return out


def expression(pattern: Pattern) -> re.Pattern[str]:
    """Return a compiled pattern as a regular expression, by the rules of its docstring."""
    out = "".join("[^./]+" if token is ONE_WORD else re.escape(token) for token in pattern.tokens)
    if pattern.glued is not None:
        out += re.escape(pattern.glued) + ".*"
    elif pattern.rest:
        out += f"(?:{re.escape(pattern.rest)}.*)?"
    return re.compile(out, re.DOTALL)


def run(data: bytes) -> None:
    """Use each line as a pattern and a name. The first byte selects the grammar."""
    grammar = ("native", "seed")[(data[0] if data else 0) & 1]
    texts = list(dict.fromkeys(data[1:].decode(errors="replace").split("\n")))[:MOST_TEXTS]
    patterns: dict[str, Pattern] = {}
    for each in texts:
        try:
            pattern = compile_pattern(each, grammar)
        except ProtocolError as error:
            check_equal(error.code, "invalid-wildcard", "code")
            continue
        if pattern is not None:
            patterns[each] = pattern
    trie: WildcardTrie[str] = WildcardTrie()
    for each, pattern in patterns.items():
        trie.add(pattern, each)
    check_equal(len(trie), len(patterns), "count")
    judge(texts, patterns, trie)
    # Half of them are removed, which must leave no trace.
    for each in list(patterns)[::2]:
        trie.remove(patterns.pop(each), each)
    judge(texts, patterns, trie)
    for each, pattern in patterns.items():
        trie.remove(pattern, each)
    check(trie._root.is_empty() and not len(trie), "left behind: something")


def judge(names: list[str], patterns: dict[str, Pattern], trie: WildcardTrie[str]) -> None:
    """Match each name in all ways, and compare."""
    for name in names:
        expected = sorted(
            t for t, pattern in patterns.items() if expression(pattern).fullmatch(name)
        )
        check_equal(sorted(trie.match(name)), expected, f"trie.match({name!r:.60})")
        alone = sorted(t for t, pattern in patterns.items() if matches(pattern, name))
        check_equal(alone, expected, f"matches({name!r:.60})")
