"""Selectors: three-valued logic, every operator, conversions, errors, and hostile input."""

import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.limits import MAX_DEPTH
from tests.support.loops import bare_loops
from trio_stomp.base import ProtocolError
from trio_stomp.broker.selectors import SelectorCompiler
from trio_stomp.frames import Head

COMPILER = SelectorCompiler()
"""Shared: building a parser takes longer than most tests."""

T, F, U = "a = 1", "a = 2", "z = 1"
"""TRUE, FALSE and UNKNOWN where a is 1 and there is no z."""

TRUTHS = {T: True, F: False, U: None}
HEADERS = {
    "a": "1",
    "price": "12",
    "half": "0.5",
    "word": "EU",
    "on": "True",
    "off": "false",
    "empty": "",
    "spaced": " 7 ",
    "long": "line\none",
    "hyphen-ated": "yes",
    'odd"name': "odd",
    "correlation-id": "instance:1",
    "type": "car",
    "message-id": "m-1",
}


def matches(selector: str, headers: dict[str, str] = HEADERS) -> bool:
    return COMPILER.compile(selector).matches(headers.get)


def truth(selector: str, headers: dict[str, str] = HEADERS) -> bool | None:
    """The three-valued truth of a selector, by two questions that each give two values."""
    yes, no = matches(selector, headers), matches(f"NOT ({selector})", headers)
    assert not (yes and no)
    return True if yes else False if no else None


def refusal(selector: str, compiler: SelectorCompiler = COMPILER) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        compiler.compile(selector)
    return caught.value


# Truth tables


@pytest.mark.parametrize(("left", "right"), list(product(TRUTHS, TRUTHS)))
def test_and_or_of_three_values(left: str, right: str) -> None:
    values = {TRUTHS[left], TRUTHS[right]}
    both = False if False in values else None if None in values else True
    either = True if True in values else None if None in values else False
    assert truth(f"{left} AND {right}") is both
    assert truth(f"{left} OR {right}") is either


@pytest.mark.parametrize("part", TRUTHS)
def test_not_of_three_values(part: str) -> None:
    value = TRUTHS[part]
    assert truth(part) is value
    assert truth(f"NOT {part}") is (None if value is None else not value)


# Every operator, every kind of literal


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("price = 12", True),
        ("price <> 12", False),
        ("price < 12", False),
        ("price <= 12", True),
        ("price > 11.5", True),
        ("price >= 13", False),
        ("11 < price", True),
        ("13 <= price", False),
        ("price > half", True),
        ("half > word", None),
        ("price = price", True),
        ("word = type", False),
        ("word = 'EU'", True),
        ("word <> 'eu'", True),
        ("'EU' = word", True),
        ("'x' = 'x'", True),
        ("word > 5", None),
        ("word = 5", None),
        ("empty = 0", None),
        ("empty = ''", True),
        ("spaced = 7", True),
        ("price = '12'", True),
        ("price = '12.0'", False),
        ("price > '11'", True),
        ("price + 0 = '12.0'", True),
        ("on = TRUE", True),
        ("on", True),
        ("off", False),
        ("word", None),
        ("nothing", None),
        ("off = false", True),
        ("on <> off", True),
        ("word = TRUE", None),
        ("TRUE = 'true'", True),
        ("(a = 1) = (price > 5)", True),
        ("(z = 1) = TRUE", None),
        ("TRUE", True),
        ("FALSE", False),
        ("price BETWEEN 12 AND 12", True),
        ("price BETWEEN 13 AND 20", False),
        ("price NOT BETWEEN 13 AND 20", True),
        ("price BETWEEN 13 AND z", False),
        ("price BETWEEN 12 AND z", None),
        ("z NOT BETWEEN 1 AND 2", None),
        ("word IN ('US', 'EU')", True),
        ("word IN ('US')", False),
        ("word NOT IN ('US')", True),
        ("z IN ('US')", None),
        ("z NOT IN ('US')", None),
        ("word LIKE 'E_'", True),
        ("word LIKE '_'", False),
        ("word LIKE '%'", True),
        ("empty LIKE '%'", True),
        ("word LIKE 'eu'", False),
        ("word NOT LIKE 'U%'", True),
        ("word NOT LIKE 'E%'", False),
        ("z LIKE '%'", None),
        ("z NOT LIKE '%'", None),
        ("long LIKE 'line%one'", True),
        ("long LIKE '%'", True),
        ("z IS NULL", True),
        ("a IS NULL", False),
        ("z IS NOT NULL", False),
        ("empty IS NOT NULL", True),
        ("price + 1 = 13", True),
        ("price - 1 - 1 = 10", True),
        ("price * 2 / 3 = 8", True),
        ("7 / 2 = 3", True),
        ("-7 / 2 = -3", True),
        ("7 / -2 = -3", True),
        ("-7 / -2 = 3", True),
        ("7.0 / 2 = 3.5", True),
        ("1 / 0 = 1", None),
        ("1 / 0 + 1 = 1", None),
        ("1 / 0.0 = 1", None),
        ("z + 1 = 1", None),
        ("1 + z = 1", None),
        ("word * 1 = 1", None),
        ("-price = -12", True),
        ("+price = 12", True),
        ("- -price = 12", True),
        ("half + half = 1", True),
        ("price > 1e1", True),
        ("price = 1.2E+1", True),
        ("half = .5", True),
        ("price = 12.", True),
        ("price = 0xC", True),
        ("price = 12L", True),
        ("a <> 0", True),
        ("9223372036854775807 * 9223372036854775807 > 1e37", True),
        ("99999999999999999999 > 1", True),
        ("1e999 > 1", True),
        (" \t\f\r\n price\n=\n12 ", True),
        ("price=12 and not(word='US')", True),
    ],
)
def test_expressions(selector: str, expected: bool | None) -> None:
    assert truth(selector) is expected


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ("x = 'literal''s'", "literal's"),
        ("x = ''''", "'"),
        ("x IN ('''')", "'"),
        ("x LIKE '%''%'", "a'b"),
        ("x = 'a \"b\" c'", 'a "b" c'),
        ("x = 'ü€'", "ü€"),
        ("x = 'AND'", "AND"),
    ],
)
def test_text_literals(selector: str, text: str) -> None:
    assert matches(selector, {"x": text})


@pytest.mark.parametrize("text", ["1_0", "0x10", "1e", "nan", "inf", "\u0661", "1 0", "--1", "."])
def test_comparison_with_a_non_number_is_unknown(text: str) -> None:
    assert truth("x < 100", {"x": text}) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("+5", "5"),
        ("-5", "-5"),
        ("007", "7"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1E2", "100"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("1" + "0" * 400, "1e999"),
        ("9" * 500, "1e999"),
    ],
)
def test_numeric_text_compares_as_a_number(text: str, number: str) -> None:
    assert truth(f"x = {number}", {"x": text}) is True


def test_precedence() -> None:
    assert truth("NOT a = 1 OR TRUE") is True
    assert truth("TRUE OR TRUE AND FALSE") is True
    assert truth("(TRUE OR TRUE) AND FALSE") is False
    assert truth("2 + 3 * 4 = 14") is True
    assert truth("10 - 2 - 3 = 5") is True
    assert truth("price BETWEEN 1 AND 20 AND word = 'EU'") is True


# LIKE


@pytest.mark.parametrize(
    ("pattern", "hits", "misses"),
    [
        ("'12%3'", ["123", "12993", "12\n3"], ["1234", "12"]),
        ("'l_se'", ["lose"], ["loose", "lse"]),
        (r"'\_%' ESCAPE '\'", ["_foo", "_"], ["bar", r"\_"]),
        (r"'\%' ESCAPE '\'", ["%"], ["a", r"\%"]),
        (r"'\\_' ESCAPE '\'", [r"\a"], ["_", r"\_b"]),
        (r"'a\b' ESCAPE '\'", [r"a\b"], ["ab"]),
        (r"'a\' ESCAPE '\'", ["a\\"], ["a"]),
        ("'%%' ESCAPE '%'", ["%"], ["", "a"]),
        ("'a ' ESCAPE ' '", ["a "], ["a"]),
    ],
)
def test_like(pattern: str, hits: list[str], misses: list[str]) -> None:
    for text in hits:
        assert truth(f"x LIKE {pattern}", {"x": text}) is True
    for text in misses:
        assert truth(f"x LIKE {pattern}", {"x": text}) is False


def like(text: str, pattern: str) -> bool:
    """LIKE by its definition."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return like(text, pattern[1:]) or (bool(text) and like(text[1:], pattern))
    return bool(text) and pattern[0] in ("_", text[0]) and like(text[1:], pattern[1:])


def test_a_header_too_long_for_all_likes_of_a_selector_is_unknown() -> None:
    """F3: one header of 16,000 characters, and 1,000 of this, took 14.8 s."""
    terms = [f"h LIKE '%{'_' * 63}b{number}%'" for number in range(8)]
    for text in (" OR ".join(terms), " AND ".join(terms), "NOT h LIKE '%a%' OR " + terms[0]):
        found = truth(text, {"h": "ab" * 3000})
        assert found is not None
    assert truth(" OR ".join(terms), {"h": "ab" * 8000}) is None
    assert truth("h NOT LIKE '%x%' AND " + " AND ".join(terms), {"h": "ab" * 8000}) is None
    assert truth(" OR ".join([*terms, "h LIKE 'ab%'"]), {"h": "ab" * 8000}) is True
    # Each selector has its own bound, the one that was compiled before does not count.
    assert truth("h LIKE '%ba%'", {"h": "ab" * 8000}) is True


@pytest.mark.parametrize(
    "selector",
    [
        " OR ".join(f"h LIKE '%{'_' * 63}b{number}%'" for number in range(8)),
        " OR ".join(["h LIKE '%0_0%'"] * 200),
        " OR ".join(["h > 1"] * 250),
        " OR ".join(["h = TRUE"] * 250),
        "h LIKE '" + "%a" * 1900 + "%b%'",
    ],
)
@pytest.mark.parametrize("size", [100, 1_000, 4_000, 16_000])
def test_a_long_header_takes_no_long_time(selector: str, size: int) -> None:
    """These took up to 10 bare loops each, and take 0.4 (1 under coverage)."""
    matches, header = COMPILER.compile(selector).matches, {"h": "ab" * (size // 2)}.get
    assert bare_loops(lambda: matches(header)) < 4


def test_only_short_text_compares_as_a_number() -> None:
    """Else a header of 16,000 digits takes 18 us for each time that it is named."""
    assert truth("h > 1", {"h": "9".rjust(500)}) is True
    assert truth("h > 1", {"h": "9".rjust(501)}) is None
    assert truth("h = TRUE", {"h": "true".ljust(501)}) is None
    assert truth(f"h < 1{'0' * 600}", {"h": "9"}) is True  # in the selector it may be as long


def test_the_number_of_words_of_a_selector_is_bounded() -> None:
    """A word takes some 7 us to compile."""
    compiler = SelectorCompiler()
    compiler.compile(" OR ".join(["a=1"] * 256) + " " * 100)
    with pytest.raises(ProtocolError, match="more than 1024 words") as raised:
        compiler.compile(" OR ".join(["a=1"] * 257))
    assert raised.value.code == "invalid-selector"


# Names


@pytest.mark.parametrize(
    "selector",
    [
        "\"hyphen-ated\" = 'yes'",
        "hyphenated_props:hyphen-ated = 'yes'",
        "convert_string_expressions:hyphenated_props:hyphen-ated = 'yes' AND price - 2 = 10",
        "convert_string_expressions:price = 12",
        '"odd""name" = \'odd\'',
        "JMSCorrelationID = 'instance:1'",
        "JMSType = 'car' AND JMSMessageID LIKE 'm-%'",
        "JMSPriority = 4 AND priority IS NULL",
        "JMSExpiration = 0 AND JMSReplyTo IS NULL",
        "JMSDestination IS NULL AND JMSXGroupID IS NULL",
        "JMSDeliveryMode = 'NON_PERSISTENT'",
        '"JMSType" IS NULL',
        "Price IS NULL",
        "_a$1 IS NULL AND größe IS NULL AND android IS NULL AND $ IS NULL",
    ],
)
def test_names(selector: str) -> None:
    assert matches(selector)


def test_jms_names_with_their_headers() -> None:
    headers = {"priority": "9", "persistent": "true", "JMSXGroupID": "g", "reply-to": "/queue/a"}
    selector = "JMSPriority = 9 AND JMSDeliveryMode = 'PERSISTENT' AND JMSXGroupID = 'g'"
    assert matches(f"{selector} AND JMSReplyTo = '/queue/a'", headers)


def test_a_head_is_a_lookup() -> None:
    head = Head("SEND", (("price", "12"), ("region", "EU")))
    assert COMPILER.compile("price > 10 AND region = 'EU'").matches(head)
    assert not COMPILER.compile("price > 12").matches(head)


@pytest.mark.parametrize("selector", ["", " \n", "hyphenated_props: "])
def test_a_blank_selector_matches_everything(selector: str) -> None:
    assert matches(selector, {})


# Errors


@pytest.mark.parametrize(
    ("selector", "position", "near", "rule"),
    [
        ("price >> 10", 8, "'> 10'", "is expected here"),
        ("price >", 8, "its end", "a header name"),
        ("price > 1 price", 11, "'price'", "the end"),
        ("a IN (1)", 7, "'1)'", "a 'text' is expected"),
        ("a IN ()", 7, "')'", "a 'text' is expected"),
        ("a IN 5", 6, "'5'", "( is expected"),
        ("a IS 5", 6, "'5'", "NOT or NULL is expected"),
        ("a BETWEEN 1", 12, "its end", "AND"),
        ("(a = 1", 7, "its end", ") "),
        ("a = NULL", 5, "'NULL'", "IS NULL"),
        ("a != 1", 3, "'!= 1'", "<>"),
        ("a = 'x", 5, '"\'x"', "ends with '"),
        ('"x = 1', 1, "'\"x = 1'", 'ends with "'),
        ('"" = 1', 1, "'\"\" = 1'", 'ends with "'),
        ("a = #", 5, "'#'", "not allowed here"),
        ("a = 5x", 5, "'5x'", "not allowed here"),
        ("a\n= \n;", 6, "';'", "not allowed"),
        ("hyphenated_props:a-b = ;", 24, "';'", "not allowed"),
        ("a = 010", 5, "'010'", "octal"),
        ("a = 0x8000000000000000", 5, "'0x8000000000000000'", "63 bits"),
        ("a LIKE 'x' ESCAPE 'xx'", 19, "\"'xx'\"", "one character"),
        ("a LIKE 'x' ESCAPE ''", 19, "\"''\"", "one character"),
        ("'x' LIKE 'x'", 1, "\"'x' LIKE 'x'\"", "LIKE asks about a header, not a text"),
        ("5 IN ('5')", 1, "\"5 IN ('5')\"", "IN asks about a header, not a number"),
        ("TRUE IS NULL", 1, "'TRUE IS NULL'", "IS NULL asks about a header, not a condition"),
        ("correlation-id = 'x'", 18, "\"'x'\"", "double quotes"),
        ("a > 'x'", 5, "\"'x'\"", "a number is expected here, not a text"),
        ("a > TRUE", 5, "'TRUE'", "a number is expected here, not a condition"),
        ("1 = TRUE", 1, "'1 = TRUE'", "a condition such as price > 10 is expected here"),
        ("price + 1", 1, "'price + 1'", "not a number"),
        ("a = 1 AND 'x'", 11, "\"'x'\"", "not a text"),
        ("NOT 1", 5, "'1'", "not a number"),
        ("NOT", 4, "its end", "a header name"),
    ],
)
def test_errors_name_place_and_remedy(selector: str, position: int, near: str, rule: str) -> None:
    error = refusal(selector)
    assert error.code == "invalid-selector"
    assert f"at character {position}, near {near}: " in error.message
    assert rule in error.message
    assert "\n" not in error.message


def test_without_the_library_the_error_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "lark", None)
    error = refusal("a = 1", SelectorCompiler())
    assert error.code == "unsupported"
    assert "pip install lark" in error.message


# Bounds


def test_length_is_bounded_in_bytes() -> None:
    for quotes, text in ((2, "x"), (2, "ü")):
        size = (4096 - len("a = ") - quotes) // len(text.encode())
        assert not matches(f"a = '{text * size}'")
        error = refusal(f"a =  '{text * size}'")
        assert error.code == "invalid-selector"
        assert "more than 4096 bytes" in error.message


@pytest.mark.parametrize(
    "nest",
    [
        lambda n: "(" * n + "a" + ")" * n,
        lambda n: "NOT " * n + "a",
        lambda n: "- " * (n - 1) + "a = 1",
        lambda n: "(a = 1 AND " * (n // 2 - 1) + "a = 1" + ")" * (n // 2 - 1),
    ],
    ids=["brackets", "not", "signs", "and"],
)
def test_nesting_is_bounded_without_recursion(nest: Callable[[int], str]) -> None:
    COMPILER.compile(nest(MAX_DEPTH)).matches(HEADERS.get)
    for depth in (MAX_DEPTH + 2, 250):
        error = refusal(nest(depth))
        assert error.code == "invalid-selector"
        assert f"more than {MAX_DEPTH} deep" in error.message


@pytest.mark.parametrize(
    "selector", ["z OR " * 500 + "a = 1", "a = 1 AND " * 250 + "a", "1 = a" + " * a" * 500]
)
def test_long_chains_do_not_nest(selector: str) -> None:
    assert COMPILER.compile(selector).matches({"a": "1"}.get) is ("AND" not in selector)


def test_selectors_are_shared_and_the_cache_is_bounded() -> None:
    compiler = SelectorCompiler(max_cached_bytes=20)
    first = compiler.compile("a = 1")
    second = compiler.compile("a = 2")
    assert compiler.compile("a = 1") is first
    compiler.compile("a = 'long one'")  # more than what is left: the longest unused goes
    assert compiler.compile("a = 1") is first
    assert compiler.compile("a = 2") is not second
    assert sum(map(len, compiler._cache)) <= 20
    assert not compiler.compile("a = 'never to be kept here'").matches(HEADERS.get)


@given(st.text(max_size=40))
@example("0" * 4096)
@example("(" * 4096)
@example("'" * 4095)
@example("a" * 4096)
def test_any_text_is_a_selector_or_an_error(text: str) -> None:
    check_total(text)


WORDS = (
    "( ) , ' '' 'x' \"a\" a z 1 0x1 1.5 = <> >= + * - / AND OR NOT IN IS NULL LIKE ESCAPE BETWEEN"
)


@given(st.lists(st.sampled_from(WORDS.split()), max_size=12).map(" ".join))
def test_any_words_are_a_selector_or_an_error(text: str) -> None:
    check_total(text)


def check_total(text: str) -> None:
    try:
        selector = COMPILER.compile(text)
    except ProtocolError as error:
        code = error.code
    else:
        code = "invalid-selector"
        assert selector.matches(HEADERS.get) in (True, False)
    assert code == "invalid-selector"


@given(st.text(max_size=30))
def test_any_header_text_can_be_compared(text: str) -> None:
    for selector in ("x > 1", "x", "x * x / x < -x", "x LIKE '%a_'", "x BETWEEN y AND x"):
        assert truth(selector, {"x": text, "y": text}) in (True, False, None)


# Random expressions against an independent evaluator

Node = tuple[Any, ...]

TEXTS = ["1", "2", "-3", "1.5", " 4", "0", "x", "EU", "true", "FALSE", "", "1e1"]
NUMBERS = {"1": 1, "2": 2, "-3": -3, "1.5": Fraction(3, 2), " 4": 4, "0": 0, "1e1": 10}
NAMES = st.sampled_from("abc").map(lambda name: ("name", name))

NUMERIC: st.SearchStrategy[Node] = st.recursive(
    NAMES | st.integers(0, 9).map(lambda number: ("number", number)),
    lambda inner: (
        st.tuples(st.sampled_from("+-*"), inner, inner) | st.tuples(st.just("sign"), inner)
    ),
    max_leaves=4,
)
CHOICE = st.booleans()
COMPARED = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
EQUALITY = st.sampled_from(["=", "<>"])
LITERAL = st.sampled_from(TEXTS)
LEAVES: st.SearchStrategy[Node] = st.one_of(
    st.tuples(st.just("compare"), COMPARED, NUMERIC, NUMERIC),
    st.tuples(st.just("text"), EQUALITY, NAMES, LITERAL),
    st.tuples(st.just("truth"), EQUALITY, NAMES, CHOICE),
    st.tuples(st.just("between"), CHOICE, NUMERIC, NUMERIC, NUMERIC),
    st.tuples(st.just("in"), CHOICE, NAMES, st.lists(LITERAL, min_size=1, max_size=3)),
    st.tuples(st.just("like"), CHOICE, NAMES, st.text("1EU%_", max_size=4)),
    st.tuples(st.just("null"), CHOICE, NAMES),
    NAMES,
)
CONDITIONS: st.SearchStrategy[Node] = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner)
    ),
    max_leaves=8,
)
LEVELS = {"or": 0, "and": 1, "not": 2, "+": 4, "-": 4, "*": 5, "sign": 6, "number": 7, "name": 7}
"""The precedence of each kind of node; 3 for all others."""


def show(node: Node, least: int = 0) -> str:
    """The selector of a tree, with no bracket that precedence makes superfluous."""
    level = LEVELS.get(node[0], 3)
    text = "".join(_pieces(node, level))
    return f"({text})" if level < least else text


def _pieces(node: Node, level: int) -> Iterator[str]:
    kind, *parts = node
    no = "NOT " if parts[0] is True else ""
    if kind in ("name", "number"):
        yield str(parts[0])
    elif kind == "not":
        yield f"NOT {show(parts[0], level)}"
    elif kind == "sign":
        yield f"- {show(parts[0], level)}"
    elif len(kind) == 1 or kind in ("and", "or"):
        yield f"{show(parts[0], level)} {kind.upper()} {show(parts[1], level + 1)}"
    elif kind == "compare":
        yield f"{show(parts[1], 4)} {parts[0]} {show(parts[2], 4)}"
    elif kind in ("text", "truth"):
        literal = f"'{parts[2]}'" if kind == "text" else str(parts[2]).upper()
        yield f"{show(parts[1])} {parts[0]} {literal}"
    elif kind == "between":
        yield f"{show(parts[1], 4)} {no}BETWEEN {show(parts[2], 4)} AND {show(parts[3], 4)}"
    elif kind == "in":
        texts = ", ".join(f"'{text}'" for text in parts[2])
        yield f"{show(parts[1])} {no}IN ({texts})"
    elif kind == "like":
        yield f"{show(parts[1])} {no}LIKE '{parts[2]}'"
    else:
        yield f"{show(parts[1])} IS {no}NULL"


UNKNOWN = 0.5
"""Truth as a number: AND is the lesser, OR the greater, NOT what is missing to 1."""


def number_of(node: Node, headers: dict[str, str]) -> Any:
    kind, *parts = node
    if kind == "name":
        return NUMBERS.get(headers.get(parts[0], "x"))
    if kind == "number":
        return parts[0]
    values = [number_of(part, headers) for part in parts]
    if None in values:
        return None
    left, right = values if len(values) == 2 else (0, values[0])
    return left * right if kind == "*" else left + right if kind == "+" else left - right


def compared(sign: str, left: Any, right: Any) -> float:
    if left is None or right is None:
        return UNKNOWN
    wanted = {"=": (0,), "<>": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}
    return float((left > right) - (left < right) in wanted[sign])


def truth_of(node: Node, headers: dict[str, str]) -> float:
    kind, *parts = node
    if kind in ("and", "or"):
        values = [truth_of(part, headers) for part in parts]
        return min(values) if kind == "and" else max(values)
    if kind == "not":
        return 1 - truth_of(parts[0], headers)
    if kind == "compare":
        sign, *sides = parts
        if sign in ("=", "<>") and {side[0] for side in sides} == {"name"}:
            return compared(sign, *(headers.get(side[1]) for side in sides))
        return compared(sign, *(number_of(side, headers) for side in sides))
    if kind == "between":
        value, low, high = (number_of(part, headers) for part in parts[1:])
        inside = min(compared(">=", value, low), compared("<=", value, high))
        return 1 - inside if parts[0] else inside
    text = headers.get(parts[0] if kind == "name" else parts[1][1])
    if kind == "null":
        return float((text is None) is not parts[0])
    word = {"true": True, "FALSE": False}.get(text or "")
    if kind in ("name", "truth"):
        return (
            UNKNOWN
            if word is None
            else float(kind == "name" and word)
            or (compared(parts[0], word, parts[2]) if kind == "truth" else 0.0)
        )
    if text is None:
        return UNKNOWN
    if kind == "text":
        return compared(parts[0], text, parts[2])
    found = text in parts[2] if kind == "in" else like(text, parts[2])
    return float(found is not parts[0])


@given(CONDITIONS, st.dictionaries(st.sampled_from("abc"), st.sampled_from(TEXTS)))
def test_random_expressions_against_a_naive_evaluator(tree: Node, headers: dict[str, str]) -> None:
    expected = {1.0: True, 0.0: False, UNKNOWN: None}[truth_of(tree, headers)]
    assert truth(show(tree), headers) is expected
