"""The wildcard grammar: the patterns, and the names that they match."""

import pytest

from tests.support.limits import MAX_WORDS
from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker.names import ONE_WORD, Pattern, compile_pattern, matches, split

# Pattern, matching names, other names.
NATIVE = [
    # * behind a dot, or between separators: exactly one word.
    ("prices.*", ["prices.ibm", "prices.#"], ["prices", "prices.", "prices.a.b", "prices.a/b"]),
    ("/topic/prices.*", ["/topic/prices.ibm"], ["/topic/prices", "/topic/prices/ibm"]),
    ("/topic/*/eu", ["/topic/a/eu"], ["/topic//eu", "/topic/a/b/eu", "/topic/a/eu/x"]),
    ("*.eu", ["a.eu"], [".eu", "a.b.eu", "a/eu"]),
    ("*.*", ["a.b"], ["a", "a.", "a.b.c", "a/b"]),
    ("a.*.c.*", ["a.b.c.d"], ["a.b.c", "a.b.c.", "a.b.d.c"]),
    # Separators are literal.
    ("a.*", ["a.b"], ["a/b"]),
    ("a/*.b", ["a/x.b"], ["a.x.b", "a/x/b"]),
    # A last word > ** #: the rest, none included.
    ("prices.>", ["prices", "prices.a", "prices.a.b", "prices.a/b", "prices."], ["pricesx", "x"]),
    ("/topic/prices.>", ["/topic/prices", "/topic/prices.x"], ["/topic/prices/x", "/topic"]),
    ("/topic/>", ["/topic", "/topic/", "/topic/a/b.c"], ["/topics", "topic"]),
    ("a.**", ["a", "a.b.c"], ["a/b", "ab"]),
    ("a.#", ["a", "a.b.c"], ["a/b", "ab"]),
    ("*.>", ["a", "a.b.c"], ["", ".a", "a/b"]),
    (">", ["a", "/topic/a", "#work", "DIAG/x"], []),
    ("**", ["a", "/topic/a"], []),
    ("#", ["a", "/topic/a", "#work"], []),
    # * last, behind a slash or glued to text: the rest of the string (the seed's rule).
    ("/topic/*", ["/topic/", "/topic/a", "/topic/a/b.c"], ["/topic", "/topi"]),
    ("/*", ["/", "/topic/a"], ["topic/a"]),
    ("DIAG*", ["DIAG", "DIAG/x", "DIAGNOSE.a"], ["diag", "DIA"]),
    ("#work/*", ["#work/", "#work/a/b"], ["#work", "#workers/a"]),
    ("#*", ["#", "#work/a"], ["work"]),
    ("a.b*", ["a.b", "a.bc/d.e"], ["a.c", "a/b"]),
    ("a/*.b*", ["a/x.b", "a/x.bc.d"], ["a/x.c", "a/.b"]),
    ("*", ["a", "/topic/a", "#work", "DIAG/x", ""], []),
    # A first word # with more behind it belongs to a work queue's name.
    ("#.*", ["#.jobs"], ["x.jobs", "#.", "#.a.b"]),
    ("#/*", ["#/jobs", "#/"], ["a/jobs"]),
    ("#.x.>", ["#.x", "#.x.y"], ["a.x"]),
]

NAMES = ["a", "/topic/prices.ibm", "a>", "a.x>y", "##", "#work", "#.x", "a.#.b", "", "a#"]

INVALID = [
    ("a*b", "a*b"),
    ("a.x*y.c", "x*y"),
    ("*x", "*x"),
    ("a*.b", "a*"),
    ("a**", "a**"),
    ("a.***", "***"),
    ("**.a", "**"),
    ("a.**.b", "**"),
    (">.a", ">"),
    ("a.>.b", ">"),
    ("a.#.*", "#"),
    ("a.#.>", "#"),
    ("*.a*b", "a*b"),
]


@pytest.mark.parametrize(("text", "reached", "missed"), NATIVE, ids=[row[0] for row in NATIVE])
def test_names_that_a_pattern_matches(text: str, reached: list[str], missed: list[str]):
    pattern = compile_pattern(text, "native")
    assert pattern is not None
    assert [name for name in reached if not matches(pattern, name)] == []
    assert [name for name in missed if matches(pattern, name)] == []


@pytest.mark.parametrize("text", NAMES)
def test_a_name_without_wildcard_is_no_pattern(text: str):
    assert compile_pattern(text, "native") is None


@pytest.mark.parametrize(("text", "at_fault"), INVALID)
def test_a_misplaced_wildcard_is_an_error_that_names_the_word(text: str, at_fault: str):
    with pytest.raises(ProtocolError, match="no wildcard is allowed") as caught:
        compile_pattern(text, "native")
    assert caught.value.code == "invalid-wildcard"
    assert f"destination:{text} has {at_fault!r}" in caught.value.message
    assert "last word" in caught.value.message


@pytest.mark.parametrize(
    ("text", "reached", "missed"),
    [
        ("/queue/*", ["/queue/", "/queue/a"], ["/queue"]),
        ("/x*/y", ["/x", "/xa", "/x/z"], ["/y"]),  # anything after the first * is ignored
        ("a.*", ["a.", "a.b.c"], ["a/b"]),
        ("a*b*c", ["a", "axx"], ["b"]),
        ("*", ["", "#a", "DIAG/x"], []),
        ("**", ["a"], []),
    ],
)
def test_in_the_seeds_grammar_every_star_is_the_rest(
    text: str, reached: list[str], missed: list[str]
):
    pattern = compile_pattern(text, "seed")
    assert pattern is not None
    assert all(matches(pattern, name) for name in reached)
    assert not any(matches(pattern, name) for name in missed)


@pytest.mark.parametrize("text", ["a.>", "#", "a.#", ">"])
def test_the_seed_knows_no_wildcard_but_the_star(text: str):
    assert compile_pattern(text, "seed") is None


def test_one_word_is_no_text_that_a_name_could_hold():
    pattern = compile_pattern("a.*", "native")
    assert pattern == Pattern(("a", ".", ONE_WORD))
    assert not isinstance(ONE_WORD, str)
    assert matches(Pattern(("a", ".", "*")), "a.*")
    assert not matches(Pattern(("a", ".", "*")), "a.b")


def test_split_keeps_every_character():
    name = "/a..b/.c/"
    assert "".join(split(name)) == name
    assert split(name)[1::2] == ["/", ".", ".", "/", ".", "/"]


@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("last", ["*", ">", "**", "a*", "*.a"])
def test_the_words_of_a_pattern_are_bounded_and_the_operators_are_not(separator: str, last: str):
    words = MAX_WORDS - 1 - last.count(".")
    longest = separator.join(["a"] * words + [last])
    assert compile_pattern(longest, "native") is not None
    text = f"a{separator}{longest}"
    with pytest.raises(ProtocolError, match=f"has {MAX_WORDS + 1} words") as caught:
        compile_pattern(text, "native")
    assert caught.value.code == "invalid-wildcard"
    assert caught.value.reason is CloseReason.LIMIT_EXCEEDED
    assert "shorten it with >" in caught.value.message
    assert compile_pattern(text, "native", max_words=None) is not None


def test_a_name_without_wildcard_has_as_many_words_as_it_likes():
    assert compile_pattern(".".join("a" * 500), "native") is None
    assert compile_pattern(".".join("a" * 500) + "*", "seed") is not None
