"""Patterns as sets of names, against the names themselves."""

from functools import cache
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trio_stomp.base import ProtocolError
from trio_stomp.broker.names import (
    ONE_WORD,
    Pattern,
    as_pattern,
    compile_pattern,
    covers,
    matches,
    overlaps,
)

GRAMMARS = ("native", "seed")


def texts(alphabet: str, longest: int) -> list[str]:
    return ["".join(each) for size in range(longest + 1) for each in product(alphabet, repeat=size)]


# These names include a counterexample for each pair of patterns of the same length that differ. Two
# letters are needed, since with one, * would match only one word.
NAMES = texts("ab./", 6)


@cache
def names_of(pattern: Pattern) -> int:
    """Which of NAMES a pattern matches, as the bits of a number."""
    found = 0
    for place, name in enumerate(NAMES):
        found |= matches(pattern, name) << place
    return found


def compiled(text: str, grammar: str) -> Pattern | None:
    try:
        return compile_pattern(text, grammar) or as_pattern(text)
    except ProtocolError:
        return None


def judge(outer: Pattern, inner: Pattern) -> str:
    """Return the error in the answers for two patterns; "" = none that NAMES could show."""
    wide, narrow = names_of(outer), names_of(inner)
    if covers(outer, inner) and narrow & ~wide:
        return f"{outer} covers {inner}, and does not"
    if not overlaps(outer, inner) and narrow & wide:
        return f"{outer} and {inner} overlap, and do not"
    return ""


def judge_exactly(outer: Pattern, inner: Pattern) -> str:
    wide, narrow = names_of(outer), names_of(inner)
    if covers(outer, inner) != (not narrow & ~wide):
        return f"covers({outer}, {inner}) is {covers(outer, inner)}"
    if overlaps(outer, inner) != bool(narrow & wide):
        return f"overlaps({outer}, {inner}) is {overlaps(outer, inner)}"
    return ""


def test_both_answers_are_exact_for_all_short_patterns_of_both_grammars():
    patterns = {
        pattern: None
        for text in texts("ab*./>", 3)
        for grammar in GRAMMARS
        if (pattern := compiled(text, grammar)) is not None
        if names_of(pattern)  # not those whose > is text
    }
    assert len(patterns) > 140
    wrong = [reported for pair in product(patterns, repeat=2) if (reported := judge_exactly(*pair))]
    assert wrong[:10] == []


WORDS = st.sampled_from(["a", "b", "", "ab", "*", "*", "a*", "**", ">", "#", "b*"])


@st.composite
def any_pattern(draw: st.DrawFn) -> Pattern:
    text = draw(WORDS)
    for _ in range(draw(st.integers(0, 3))):
        text += draw(st.sampled_from("./")) + draw(WORDS)
    pattern = compiled(text, draw(st.sampled_from(GRAMMARS)))
    assume(pattern is not None)
    assert pattern is not None
    return pattern


@settings(max_examples=300, deadline=None)
@given(any_pattern(), any_pattern())
def test_neither_answer_errs_in_the_dangerous_direction(one: Pattern, other: Pattern):
    assert judge(one, other) == ""
    assert judge(other, one) == ""
    assert overlaps(one, other) == overlaps(other, one)
    assert covers(one, one)
    assert not covers(one, other) or overlaps(one, other)


@settings(max_examples=300, deadline=None)
@given(any_pattern(), any_pattern(), any_pattern())
def test_covering_is_transitive(one: Pattern, two: Pattern, three: Pattern):
    if covers(one, two) and covers(two, three):
        assert covers(one, three)
    if covers(one, two) and overlaps(two, three):
        assert overlaps(one, three)


@settings(max_examples=300, deadline=None)
@given(any_pattern(), st.text("ab./*", max_size=7))
def test_a_name_is_a_set_of_one(pattern: Pattern, name: str):
    assert covers(pattern, name) == overlaps(name, pattern) == matches(pattern, name)
    assert covers(name, name)
    assert overlaps(name, as_pattern(name))
    # No wildcard with several names is within one name; "*" matches one of no words, too.
    assert not covers(name, pattern) or pattern == as_pattern(name)


# Rows that a reader can check, both grammars together.
COVERED = [
    (">", "/topic/a"),
    (">", "seed:*"),
    ("seed:*", ">"),
    ("*", "a.*"),
    ("/topic/*", "/topic/a/**"),
    ("/topic/**", "/topic/*"),
    ("/topic/**", "/topic/*/b.>"),
    ("/topic/a*", "/topic/ab/**"),
    ("/topic/a*", "seed:/topic/ab*"),
    ("seed:/to*", "/topic/*/eu"),
    ("seed:/topic/*", "/topic/*"),
    ("a.*", "a.b"),
    ("*.>", "a.>"),
    ("a.>", "a"),
]
APART = [
    ("/topic/a", "/topic/b"),
    ("/topic/*/eu", "/topic/*/us"),
    ("a.*", "a"),
    ("a.>", "a/b"),
    ("/topic/**", "/queue/**"),
    ("seed:/topic/a*", "seed:/topic/b*"),
    ("DIAG*", "/topic/**"),
    ("/topic/*/x", "/topic//x"),
]
MERELY_OVERLAPPING = [
    ("/topic/*/a", "/topic/b/*"),
    ("a.*", "*.b"),
    ("seed:/topic/a.*", "/topic/a.>"),
    ("/topic/a*", "/topic/*/x"),
    ("*.*", "a.>"),
    ("*/**", "*.**"),  # a name of one word is in both
    ("seed:/topic/a.b*", "/topic/*.*"),
]


def pattern_of(text: str) -> Pattern:
    grammar, colon, rest = text.rpartition(":")
    found = compiled(rest, grammar if colon else "native")
    assert found is not None
    return found


@pytest.mark.parametrize(("outer", "inner"), COVERED)
def test_a_pattern_covers_and_overlaps_those_within_it(outer: str, inner: str):
    assert covers(pattern_of(outer), pattern_of(inner))
    assert overlaps(pattern_of(inner), pattern_of(outer))


@pytest.mark.parametrize(("one", "other"), APART)
def test_patterns_without_common_names_do_not_overlap(one: str, other: str):
    assert not overlaps(pattern_of(one), pattern_of(other))
    assert not covers(pattern_of(one), pattern_of(other))


@pytest.mark.parametrize(("one", "other"), MERELY_OVERLAPPING)
def test_overlapping_patterns_need_not_cover_each_other(one: str, other: str):
    assert overlaps(pattern_of(one), pattern_of(other))
    assert not covers(pattern_of(one), pattern_of(other))
    if one != "seed:/topic/a.*":
        assert not covers(pattern_of(other), pattern_of(one))


def test_a_star_that_is_text_is_within_one_word_and_not_the_other_way_round():
    text, wildcard = Pattern(("a", ".", "*")), Pattern(("a", ".", ONE_WORD))
    assert covers(wildcard, text)
    assert not covers(text, wildcard)
    assert not covers(text, Pattern(("a", "."), glued=""))
    assert overlaps(text, wildcard)
    assert not overlaps(text, "a.b")


def test_the_longest_patterns_take_one_walk():
    many = ".".join("*" * 20_000)
    # Clients may not write patterns of this length, but operators may.
    wide = compile_pattern(many, "native", max_words=None)
    narrow = compile_pattern(many + ".>", "native", max_words=None)
    assert wide is not None
    assert narrow is not None
    assert covers(narrow, wide)
    assert not covers(wide, narrow)
    assert overlaps(wide, narrow)
