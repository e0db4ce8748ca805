"""The trie of wildcard subscriptions, against regular expressions."""

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.loops import bare_loops
from trio_stomp.base import ProtocolError
from trio_stomp.broker.names import Pattern, WildcardTrie, compile_pattern, matches

SEPARATORS = st.sampled_from([".", "/"])
PLAIN = st.sampled_from(["a", "b", ""])
WILD = st.sampled_from(
    ["a", "b", "", "*", "*", "**", ">", "#", "a*", "*a", "b**", "a*b", "#a", "#*", ">a"]
)
REST = {">", "**", "#"}


@st.composite
def joined(draw: st.DrawFn, words: st.SearchStrategy[str]) -> str:
    text = draw(words)
    for _ in range(draw(st.integers(0, 4))):
        text += draw(SEPARATORS) + draw(words)
    return text


NAMES = joined(PLAIN | st.sampled_from(["ab", "#", "#a"]))
PATTERNS = joined(WILD)


class WildcardError(Exception):
    """The grammar has no such pattern."""


def oracle(text: str) -> str | None:
    """A regular expression for ``text``, by the grammar as it is written; None = a plain name."""
    words = re.split(r"[./]", text)
    separators = re.findall(r"[./]", text)
    if "*" not in text and ">" not in words and words[-1] not in REST:
        return None
    out = ""
    for place, word in enumerate(words[:-1]):
        if place:
            out += re.escape(separators[place - 1])
        out += one_word(word, is_first=not place)
    last, before = words[-1], re.escape(separators[-1]) if separators else ""
    if last in REST:
        return f"{out}(?:{before}.*)?" if separators else ".*"
    if last == "*" and separators and separators[-1] == ".":
        return out + before + "[^./]+"
    if last.count("*") == 1 and last[-1] == "*":
        return out + before + re.escape(last[:-1]) + ".*"
    return out + before + one_word(last, is_first=not separators)


def one_word(word: str, *, is_first: bool) -> str:
    if word == "*":
        return "[^./]+"
    if "*" in word or word == ">" or (word == "#" and not is_first):
        raise WildcardError(word)
    return re.escape(word)


@settings(max_examples=1500)
@given(st.lists(PATTERNS, max_size=8), st.lists(NAMES, min_size=1, max_size=6))
def test_the_trie_matches_like_regular_expressions(texts: list[str], names: list[str]):
    trie: WildcardTrie[int] = WildcardTrie()
    compiled = {}
    expressions = {}
    for number, text in enumerate(texts):
        try:
            expression = oracle(text)
        except WildcardError:
            with pytest.raises(ProtocolError):
                compile_pattern(text, "native")
            continue
        pattern = compile_pattern(text, "native")
        assert (pattern is None) == (expression is None), text
        if pattern is not None and expression is not None:
            trie.add(pattern, number)
            compiled[number] = pattern
            expressions[number] = re.compile(expression, re.DOTALL)
    assert len(trie) == len(compiled)
    for name in names:
        wanted = [number for number, each in expressions.items() if each.fullmatch(name)]
        assert sorted(trie.match(name)) == wanted
        assert [number for number, each in compiled.items() if matches(each, name)] == wanted


@given(st.lists(PATTERNS, max_size=10), st.lists(NAMES, min_size=1, max_size=4), st.randoms())
def test_removed_pattern_leaves_no_node(texts, names, random):
    trie: WildcardTrie[int] = WildcardTrie()
    entered = []
    for number, text in enumerate(texts):
        try:
            pattern = compile_pattern(text, "native")
        except ProtocolError:
            continue
        if pattern is not None:
            trie.add(pattern, number)
            entered.append((pattern, number))
    random.shuffle(entered)
    while entered:
        pattern, number = entered.pop()
        trie.remove(pattern, number)
        for name in names:
            left = sorted(number for pattern, number in entered if matches(pattern, name))
            assert sorted(trie.match(name)) == left
    assert len(trie) == 0
    assert trie._root.is_empty()
    assert not trie._root.children
    crowd = trie._crowd
    for table in (crowd._items, crowd._numbers, crowd._free, crowd._sets, crowd._lengths):
        assert not table


@given(st.lists(st.text("a*./", max_size=5), max_size=6), NAMES)
def test_the_seeds_patterns_are_prefixes(texts: list[str], name: str):
    trie: WildcardTrie[int] = WildcardTrie()
    prefixes = {}
    for number, text in enumerate(texts):
        pattern = compile_pattern(text, "seed")
        assert (pattern is None) == ("*" not in text)
        if pattern is not None:
            trie.add(pattern, number)
            prefixes[number] = text.split("*")[0]
    wanted = [number for number, prefix in prefixes.items() if name.startswith(prefix)]
    assert sorted(trie.match(name)) == wanted


def test_an_item_may_stand_under_many_patterns_and_each_counts():
    trie: WildcardTrie[str] = WildcardTrie()
    texts = ["a.*", "a.>", "a*", "*.b", ">", "a.b*", "*.*"]
    patterns = [compile_pattern(text, "native") for text in texts]
    for pattern in patterns:
        assert pattern is not None
        trie.add(pattern, "same")
    assert trie.match("a.b") == ["same"] * len(texts)
    assert len(trie) == len(texts)


def test_every_way_through_a_name_is_found_once():
    trie: WildcardTrie[str] = WildcardTrie()
    texts = [".".join(words) for words in product("a*", repeat=8)]
    for text in texts:
        pattern = compile_pattern(text, "native")
        if pattern is not None:
            trie.add(pattern, text)
    name = ".".join("a" * 8)
    assert sorted(trie.match(name)) == sorted(set(texts) - {name})
    assert trie.match(name + ".a") == []
    assert trie.match("b" + name[1:]) == [text for text in trie.match(name) if text[0] == "*"]


def crowded(count: int, end: str = "") -> WildcardTrie[str]:
    """Return all patterns of ``a`` and ``*`` with this number of words."""
    trie: WildcardTrie[str] = WildcardTrie()
    for words in product("*a", repeat=count):
        text = ".".join(words) + end
        pattern = compile_pattern(text, "native")
        if pattern is not None:
            trie.add(pattern, text)
    return trie


def test_patterns_that_branch_everywhere_take_a_few_steps_for_a_name():
    """F10: 16,384 of them took 12 bare loops for a name that none of them matches."""
    trie = crowded(12, ".b")
    name = "a." * 13
    assert trie.match(name) == []
    # One of them is no pattern.
    assert len(trie.match("a." * 12 + "b")) == 2**12 - 1
    assert bare_loops(lambda: trie.match(name)) < 1


@pytest.mark.parametrize("many", [1, 9, 300])
def test_patterns_with_many_words_and_ends_are_distinguished(many: int):
    trie: WildcardTrie[int] = WildcardTrie()
    patterns: list[Pattern] = []
    for number in range(many):
        for text in (
            f"*.*.{number}.x",
            f"*.*.{number}.>",
            f"*.*.{number % 7}/**",
            f"*.*.g{number}*",
        ):
            pattern = compile_pattern(text, "native")
            assert pattern is not None
            trie.add(pattern, len(patterns))
            patterns.append(pattern)
    names = [
        "a.b.5.x",
        "a.5.c",
        "a.5.c.d",
        "a.5.c/d",
        "a.b.g12",
        "a.b.g1/x",
        "a..5.x",
        "a.b.8",
        "*.*",
    ]
    for name in names:
        wanted = [number for number, each in enumerate(patterns) if matches(each, name)]
        assert sorted(trie.match(name)) == wanted
    for number, pattern in enumerate(patterns):
        if number % 3:
            trie.remove(pattern, number)
    for name in names:
        wanted = [n for n, each in enumerate(patterns) if not n % 3 and matches(each, name)]
        assert sorted(trie.match(name)) == wanted


def test_removal_keeps_patterns_shared_with_others():
    trie: WildcardTrie[str] = WildcardTrie()
    entered = []
    for text in ("*.*.ab*", "*.*.cd*", "*.*.ef*", "*.*.abc*", "*.*.x.>", "*.*.x.y"):
        pattern = compile_pattern(text, "native")
        assert pattern is not None
        for item in (f"{text} 1", f"{text} 2"):
            trie.add(pattern, item)
            entered.append((pattern, item))
    while entered:
        for name in ("p.q.abcd", "p.q.cde", "p.q.ef", "p.q", "p.q.x.y"):
            wanted = sorted(item for pattern, item in entered if matches(pattern, name))
            assert sorted(trie.match(name)) == wanted
        pattern, item = entered.pop(len(entered) // 2)
        trie.remove(pattern, item)
        if len(entered) == 5:  # its number is given again
            trie.add(pattern, item)
            trie.remove(pattern, item)
    assert not trie._crowd._sets


def test_an_empty_trie_looks_at_nothing():
    assert WildcardTrie[str]().match("a.b") == []
