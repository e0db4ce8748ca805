"""Selectors: each text compiles or is refused in bounded time, and means the same in brackets."""

import random

from _fuzz.target import Finding, Target, check, check_equal
from trio_stomp.base._errors import ProtocolError
from trio_stomp.broker.selectors._selector import SelectorCompiler

MAX_BYTES = 4096
CODES = ("invalid-selector",)
WORDS = (
    *(
        b"a",
        b"price",
        b"JMSPriority",
        b"JMSType",
        b'"odd""name"',
        b'"x-y"',
        b"x-y",
        b"\xc3\xa9",
        b"$a",
    ),
    *(
        b"1",
        b"0",
        b"12.5",
        b".5e-3",
        b"0x7fffffffffffffff",
        b"0xffffffffffffffff",
        b"1e400",
        b"007",
    ),
    *(b"9" * 50, b"1e99999", b"5L", b"'EU'", b"''", b"'it''s'", b"'%'", b"'_%\\%'", b"'\xc3\xa9%'"),
    *(b"TRUE", b"false", b"NULL", b"NOT", b"AND", b"OR", b"BETWEEN", b"IN", b"LIKE", b"ESCAPE"),
    *(
        b"IS",
        b"=",
        b"<>",
        b"<=",
        b">=",
        b"<",
        b">",
        b"+",
        b"-",
        b"*",
        b"/",
        b"(",
        b")",
        b",",
        b"!=",
    ),
    *(b"hyphenated_props:", b"convert_string_expressions:", b"\t", b"\n", b"'", b'"', b"\0", b"--"),
)
PHRASES = (
    *(b"a = 1", b"price > 10", b"a IS NULL", b"a IS NOT NULL", b"word LIKE 'E%'", b"TRUE"),
    *(b"word NOT LIKE '%a%b%c%' ESCAPE '\\'", b"a IN ('1', 'EU')", b"a NOT IN ('x')", b"on = TRUE"),
    *(b"a BETWEEN 1 AND price", b"a + 1 = price / 0", b"- a < 1e3 * 2", b"JMSPriority >= 4"),
    *(b"1e308 * 1e308 > a", b"word = 'EU'", b"huge = huge", b"huge > 1", b"a / huge < huge"),
)
HEADERS = {
    "a": "1",
    "price": "12.5",
    "word": "EU",
    "on": "true",
    "empty": "",
    "spaced": " 7 ",
    "huge": "9" * 300,
    "nan": "nan",
    "exp": "1e999999999",
    "odd": "a" * 200 + "b" * 200,
    "x-y": "yes",
    'odd"name': "1",
    "priority": "9",
    "type": "t",
    "destination": "/queue/a",
}


def make(name: str) -> Target:
    """Return the target. Each process has one compiler, which takes long to create."""
    from lark import Lark  # noqa: F401  (not installed: the target is skipped)

    compiler = SelectorCompiler()

    def run(data: bytes) -> None:
        judge(compiler, data.decode(errors="replace"))

    files = ("broker/selectors/_selector.py", "broker/selectors/_selector_terms.py")
    return Target(name, run, files, generate, (*WORDS, *PHRASES, *(b" %b " % w for w in WORDS)))


def generate(chance: random.Random) -> bytes:
    """Return a selector, valid or nearly so."""
    parts = [chance.choice(PHRASES)]
    for _ in range(chance.choice((0, 1, 2, 5))):
        phrase = chance.choice(PHRASES)
        way = chance.randrange(5)
        if way == 0:
            phrase = b"NOT (" + phrase + b")"
        elif way == 1:
            phrase = b"(" * (deep := chance.choice((1, 3, 31, 33))) + phrase + b")" * deep
        elif way == 2:
            phrase = b" ".join(chance.choices(WORDS, k=3))
        parts += [chance.choice((b"AND", b"OR", b"and")), phrase]
    return chance.choice((b"", b"", b"hyphenated_props:")) + b" ".join(parts)


def judge(compiler: SelectorCompiler, text: str) -> None:
    """Compile and evaluate a selector, and equivalent ones."""
    try:
        selector = compiler.compile(text)
    except ProtocolError as error:
        check(error.code in CODES, f"code: {error.code}")
        check(len(error.message.encode()) < 1000, f"message: {len(error.message)} long")
        check(len(compiler._cache) <= 100_000, "cache: grows")
        return
    result = selector.matches(HEADERS.get)
    check(result in (True, False), f"says: {result!r}")
    check_equal(compiler.compile(text).matches(HEADERS.get), result, "asked again")
    selector.matches(lambda _name: None)
    selector.matches(lambda _name: "1")
    if result:
        same = wrapped(compiler, text, "NOT ({})")
        check(same is not True, "NOT: true as well")
    again = wrapped(compiler, text, "({})")
    if again is not None:
        check_equal(again, result, "in brackets")
    check(compiler._cached_bytes <= compiler.max_cached_bytes, "cache: too large")


def wrapped(compiler: SelectorCompiler, text: str, form: str) -> bool | None:
    """Return the value of a selector within another one, or None if it is invalid there."""
    _, colon, body = text.rpartition("_props:")
    if colon or text.startswith("convert_") or not text.strip():
        return None
    longer = form.format(body)
    if len(longer.encode()) > MAX_BYTES:
        return None
    try:
        return compiler.compile(longer).matches(HEADERS.get)
    except ProtocolError as error:
        # One more level may be too deep. No other error is allowed.
        if "level" in error.message or "deep" in error.message or "nest" in error.message:
            return None
        raise Finding(f"refused in {form}: {error.message}") from error
