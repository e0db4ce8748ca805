"""Message selectors: the SQL-92 conditions of JMS over the headers of a message.

Handles: Jakarta Messaging 3.1 section 3.8.1, and what STOMP needs beside it, since a header is
always a text: one that looks like a number (or like TRUE, FALSE) is converted where the selector
asks for a number (a condition), as ActiveMQ does for its STOMP clients; one that does not makes
the comparison UNKNOWN. A ``"quoted name"`` or the prefix ``hyphenated_props:`` reaches names with
``-``; the JMS names stand for the headers of STOMP.
Does not handle: XPATH, XQUERY, functions, octal literals, two texts compared by order.
"""

import operator
import re
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from trio_stomp._errors import CloseReason, ProtocolError
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from lark import Lark, Token
    from lark.exceptions import UnexpectedInput

MAX_DEPTH = 32
"""Of brackets, NOT and signs; chains of AND, OR, + and * add nothing, however long."""

Lookup = Callable[[str], str | None]
"""A header's name → its text, or None."""

_Run = Callable[[Lookup], Any]

_GRAMMAR = r"""
?start: disjunction
?disjunction: conjunction (_OR conjunction)*
?conjunction: negation (_AND negation)*
?negation: predicate | NOT negation                           -> negation
?predicate: sum
          | sum COMPARISON sum                                -> comparison
          | sum NOT? _BETWEEN sum _AND sum                    -> between
          | sum NOT? _IN "(" STRING ("," STRING)* ")"         -> within
          | sum NOT? _LIKE STRING (_ESCAPE STRING)?           -> like
          | sum _IS NOT? NULL                                 -> null
?sum: product (SIGN product)*
?product: unary (FACTOR unary)*
?unary: atom | SIGN unary                                     -> signed
?atom: NAME -> name | QUOTED -> quoted | NUMBER -> number | STRING -> text | TRUTH -> truth
     | "(" disjunction ")"                                    -> group

%declare _AND _OR NOT _BETWEEN _IN _LIKE _ESCAPE _IS NULL TRUTH
NAME: /(?:[^\W\d]|\$)[\w$]*HYPHENS/
QUOTED: /"(?:[^"]|"")++"/
STRING: /'(?:[^']|'')*+'/
NUMBER: /(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?|[0-9]+[lL]?)(?![\w$])/
COMPARISON: /<>|<=|>=|[=<>]/
SIGN: /[+-]/
FACTOR: /[*\/]/
%ignore /[ \t\f\r\n]+/
"""  # noqa: E501  (a terminal cannot be broken over lines)

_PREFIX = re.compile(r"\A(?:convert_string_expressions:|hyphenated_props:)++")
_HYPHENS = r"(?:-[\w$]+)*"
_KEYWORDS = {
    **{word: f"_{word}" for word in ("AND", "OR", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS")},
    **{"NOT": "NOT", "NULL": "NULL", "TRUE": "TRUTH", "FALSE": "TRUTH"},
}
_HINTS = {
    "!": "not equal is written <>",
    "'": "a text ends with ', and holds a ' as ''",
    '"': 'a quoted name ends with "; texts stand in single quotes',
    "NULL": "NULL stands in IS NULL and IS NOT NULL only",
}

_WORDS = {"$END": "the end", "COMMA": ",", "LPAR": "(", "RPAR": ")", "STRING": "a 'text'"}

_JMS_HEADERS: dict[str, tuple[str, str | None]] = {
    "JMSCorrelationID": ("correlation-id", None),
    "JMSDestination": ("destination", None),
    "JMSExpiration": ("expires", "0"),
    "JMSMessageID": ("message-id", None),
    "JMSPriority": ("priority", "4"),
    "JMSReplyTo": ("reply-to", None),
    "JMSTimestamp": ("timestamp", None),
    "JMSType": ("type", None),
}
"""The header that a JMS name stands for, and what JMS says of a message without it."""

_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMERIC = re.compile(r" *+[+-]?(?:[0-9]++(\.[0-9]*+)?|(\.[0-9]++))([eE][+-]?[0-9]++)? *+")
_TRUTHS = {"true": True, "false": False}
_LONG = 2**63


_REMEDY = "a header name with - stands in double quotes, a text in single ones"


class _Kind(Enum):
    NAME = "a header"
    TEXT = "a text"
    NUMBER = "a number"
    TRUTH = "a condition such as price > 10"


@define
class _Fault(Exception):
    """A well-formed selector makes no sense; a ProtocolError as soon as the text is known."""

    start: int | None
    rule: str


@frozen
class _Term:
    """A compiled part of a selector.

    Args:
      kind: What ``run`` returns, None apart: a text (NAME, TEXT), a number or a truth value.
      run: Its value in one message; None is NULL, and UNKNOWN of a truth value.
      start: Where it begins in the selector.
      depth: How deep its calls nest.
    """

    kind: _Kind
    run: _Run
    start: int | None
    depth: int = 0


@frozen(eq=False)
class Selector:
    """A compiled condition on headers: one for any number of subscriptions and messages."""

    text: str
    _run: _Run

    def matches(self, headers: Head | Lookup) -> bool:
        """Whether the condition is TRUE (not FALSE or UNKNOWN) for a MESSAGE with ``headers``."""
        return self._run(headers.get if isinstance(headers, Head) else headers) is True


@define(eq=False)
class SelectorCompiler:
    """Selector text → Selector; the broker owns one.

    Args:
      max_bytes: Longest selector.
      max_cached_bytes: Text of the selectors remembered; compiled, it takes up to 400 times that.
    """

    max_bytes: int = 4096
    max_cached_bytes: int = 64 * 1024
    _parsers: "dict[str, Lark]" = field(factory=dict, init=False)
    _cache: OrderedDict[str, Selector] = field(factory=OrderedDict, init=False)
    _cached_bytes: int = field(default=0, init=False)

    def compile(self, text: str) -> Selector:
        """The selector that ``text`` says; a blank one matches every message.

        Raises:
          ProtocolError: ``invalid-selector``, naming the place, the rule and the remedy;
            ``unsupported`` where the parser library is not installed. Nothing has changed.

        Limits: ``max_bytes`` of text, ``MAX_DEPTH`` levels; time and memory grow with the text.
        Spec: Jakarta Messaging 3.1, 3.8.1 "Message selector".
        """
        if text in self._cache:
            self._cache.move_to_end(text)
            return self._cache[text]
        if (size := len(text.encode())) > self.max_bytes:
            raise ProtocolError(
                "invalid-selector",
                f"selector:{text[:40]}… has more than {self.max_bytes} bytes; make it shorter",
                reason=CloseReason.LIMIT_EXCEEDED,
            )
        selector = self._cache[text] = Selector(text, self._parse(text))
        self._cached_bytes += size
        while self._cached_bytes > self.max_cached_bytes:
            self._cached_bytes -= len(self._cache.popitem(last=False)[0].encode())
        return selector

    def _parse(self, text: str) -> _Run:
        body = _PREFIX.sub("", text)
        if not body.strip():
            return lambda _: True
        prefix = text[: len(text) - len(body)]
        parser = self._parser(_HYPHENS if "hyphenated_props:" in prefix else "")
        from lark.exceptions import UnexpectedInput

        try:
            # Blanks in place of the prefix keep the positions those of the client's text.
            term: Any = parser.parse(" " * len(prefix) + body)
            return _convert(term, _Kind.TRUTH).run
        except UnexpectedInput as error:
            fault = _syntax_fault(error, text)
        except _Fault as error:
            fault = error
        start = fault.start or 0
        near = repr(text[start : start + 24]) if start < len(text) else "its end"
        raise ProtocolError(
            "invalid-selector",
            f"selector is wrong at character {start + 1}, near {near}: {fault.rule}",
        )

    def _parser(self, hyphens: str) -> "Lark":
        """The parser of names that may end in what ``hyphens`` matches; built when first needed."""
        if hyphens not in self._parsers:
            try:
                from lark import Lark
            except ImportError:
                raise ProtocolError(
                    "unsupported",
                    "selector: this broker was installed without selectors; its operator adds"
                    " them with pip install 'trio-stomp[jms]'",
                    reason=CloseReason.UNSUPPORTED,
                ) from None
            self._parsers[hyphens] = Lark(
                _GRAMMAR.replace("HYPHENS", hyphens),
                parser="lalr",
                lexer="basic",  # takes every word for a NAME first, so that ``keyword`` sees it
                lexer_callbacks={"NAME": _Builder.keyword},
                transformer=_Builder(),
            )
        return self._parsers[hyphens]


def _syntax_fault(error: "UnexpectedInput", text: str) -> _Fault:
    """What a person can do about a token, or a character, that may not stand where it does."""
    token: Token | None = getattr(error, "token", None)
    if token is None:
        char = text[error.pos_in_stream or 0]
        return _Fault(error.pos_in_stream, _HINTS.get(char, "no selector holds this here"))
    expected: set[str] = getattr(error, "expected", set())
    if token.type == "NULL":
        rule = _HINTS["NULL"]
    elif "NAME" in expected:
        rule = "a header name, a number, a 'text' or ( must stand here"
    else:
        words = sorted(_WORDS.get(word, word.strip("_")) for word in expected)
        rule = f"{' or '.join(words)} must stand here"
    return _Fault(len(text) if token.type == "$END" else token.start_pos, rule)


class _Builder:
    """What the parser calls for each rule, from the leaves up: nothing of ours recurses."""

    @staticmethod
    def keyword(token: "Token") -> "Token":
        token.type = _KEYWORDS.get(token.upper(), "NAME")
        return token

    def name(self, children: "list[Token]") -> _Term:
        return _Term(_Kind.NAME, _reader(str(children[0])), children[0].start_pos)

    def quoted(self, children: "list[Token]") -> _Term:
        header = _unquote(children[0])
        return _Term(_Kind.NAME, lambda lookup: lookup(header), children[0].start_pos)

    def number(self, children: "list[Token]") -> _Term:
        start, digits = children[0].start_pos, children[0].lower().rstrip("l")
        if digits.startswith("0") and digits.isdecimal() and len(digits) > 1:
            raise _Fault(start, "0 in front makes a number octal in JMS, but not in SQL: omit it")
        if not digits.startswith("0x"):
            return _literal(_Kind.NUMBER, _number(digits), start)
        if int(digits, 16) >= _LONG:
            raise _Fault(start, "a hexadecimal number has at most 63 bits")
        return _literal(_Kind.NUMBER, int(digits, 16), start)

    def text(self, children: "list[Token]") -> _Term:
        return _literal(_Kind.TEXT, _unquote(children[0]), children[0].start_pos)

    def truth(self, children: "list[Token]") -> _Term:
        return _literal(_Kind.TRUTH, _TRUTHS[children[0].lower()], children[0].start_pos)

    def group(self, children: list[_Term]) -> _Term:
        return evolve(children[0], depth=_depth(children))

    def signed(self, children: "tuple[Token, _Term]") -> _Term:
        return _calculate([_literal(_Kind.NUMBER, 0, children[0].start_pos), *children])

    def sum(self, children: list[Any]) -> _Term:
        return _calculate(children)

    product = sum

    def comparison(self, children: "tuple[_Term, Token, _Term]") -> _Term:
        left, token, right = children
        kinds, equality = {left.kind, right.kind}, token in ("=", "<>")
        if equality and kinds <= {_Kind.NAME, _Kind.TEXT}:
            return _compare(left, token, right)
        kind = _Kind.TRUTH if equality and _Kind.TRUTH in kinds else _Kind.NUMBER
        return _compare(_convert(left, kind), token, _convert(right, kind))

    def between(self, children: list[Any]) -> _Term:
        value, negated, bounds = _split(children)
        value, low, high = (_convert(term, _Kind.NUMBER) for term in (value, *bounds))
        both = _chain([_compare(value, ">=", low), _compare(value, "<=", high)], False)
        return _negate(both) if negated else both

    def within(self, children: list[Any]) -> _Term:
        value, negated, tokens = _split(children)
        texts = frozenset(_unquote(token) for token in tokens)
        return _ask(value, "IN", lambda it: None if it is None else (it in texts) is not negated)

    def like(self, children: list[Any]) -> _Term:
        value, negated, (pattern, *escapes) = _split(children)
        escape = _unquote(escapes[0]) if escapes else ""
        if escapes and len(escape) != 1:
            raise _Fault(escapes[0].start_pos, "ESCAPE takes a text of one character")
        match = _like(_unquote(pattern), escape).fullmatch
        return _ask(value, "LIKE", lambda it: None if it is None else bool(match(it)) ^ negated)

    def null(self, children: list[Any]) -> _Term:
        value, negated, _ = _split(children)
        return _ask(value, "IS NULL", lambda it: (it is None) is not negated)

    def negation(self, children: "tuple[Token, _Term]") -> _Term:
        return _negate(_convert(children[1], _Kind.TRUTH))

    def conjunction(self, children: list[_Term]) -> _Term:
        return _chain(children, False)

    def disjunction(self, children: list[_Term]) -> _Term:
        return _chain(children, True)


def _unquote(token: str) -> str:
    return token[1:-1].replace(token[0] * 2, token[0])


def _split(children: list[Any]) -> tuple[_Term, bool, list[Any]]:
    """The left side of an operator, whether NOT follows it, and the rest."""
    negated = getattr(children[1], "type", "") == "NOT"
    return children[0], negated, children[1 + negated :]


def _depth(terms: list[_Term]) -> int:
    depth = 1 + max(term.depth for term in terms)
    if depth > MAX_DEPTH:
        rule = f"brackets, NOT and signs nest more than {MAX_DEPTH} deep; leave some out"
        raise _Fault(terms[0].start, rule)
    return depth


def _literal(kind: _Kind, value: str | float | None, start: int | None) -> _Term:
    return _Term(kind, lambda _: value, start)


def _condition(run: _Run, terms: list[_Term]) -> _Term:
    return _Term(_Kind.TRUTH, run, terms[0].start, _depth(terms))


def _reader(name: str) -> _Run:
    """What returns the text of the header that ``name`` stands for."""
    if name == "JMSDeliveryMode":
        return lambda look: "PERSISTENT" if look("persistent") == "true" else "NON_PERSISTENT"
    header, default = _JMS_HEADERS.get(name, (name, None))
    if default is None:
        return lambda lookup: lookup(header)
    return lambda lookup: default if (text := lookup(header)) is None else text


def _number(text: str) -> float | None:
    """The number that ``text`` looks like; one too long for 64 bits is a float."""
    if len(text) < 19 and text.isascii() and text.isdecimal():
        return int(text)
    match = _NUMERIC.fullmatch(text)
    if match is None:
        return None
    return int(text) if match.lastindex is None and len(text) < 20 else float(text)


def _convert(term: _Term, kind: _Kind) -> _Term:
    """``term`` as a number or a condition.

    Raises:
      _Fault: it can never be one.
    """
    if term.kind is kind:
        return term
    read, convert = (
        term.run,
        _number if kind is _Kind.NUMBER else (lambda it: _TRUTHS.get(it.strip().lower())),
    )

    def run(lookup: Lookup) -> float | None:
        text = read(lookup)
        return None if text is None else convert(text)

    if term.kind is _Kind.NAME:
        return evolve(term, kind=kind, run=run)
    if term.kind is _Kind.TEXT and (value := run(lambda _: None)) is not None:
        return _literal(kind, value, term.start)
    raise _Fault(term.start, f"{kind.value} must stand here, not {term.kind.value}; {_REMEDY}")


def _divide(left: float, right: float) -> float | None:
    """As Java does: whole numbers towards zero; NULL instead of an error."""
    if not right:
        return None
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    return left // right if (left < 0) is (right < 0) else -(-left // right)


_OPERATIONS = dict(zip("+-*/", (operator.add, operator.sub, operator.mul, _divide), strict=True))


def _calculate(children: list[Any]) -> _Term:
    """A chain of terms and signs from left to right; NULL where one of them is."""
    terms = [_convert(term, _Kind.NUMBER) for term in children[::2]]
    first, *others = (term.run for term in terms)
    steps = list(zip((_OPERATIONS[sign] for sign in children[1::2]), others, strict=True))

    def run(lookup: Lookup) -> float | None:
        total: float | None = first(lookup)
        for operation, read in steps:
            value = read(lookup)
            if total is None or value is None:
                return None
            total = operation(total, value)
            if total is not None and not -_LONG <= total < _LONG:
                total = float(total)  # so that no chain of * makes numbers of thousands of digits
        return total

    return _Term(_Kind.NUMBER, run, terms[0].start, _depth(terms))


def _compare(left: _Term, sign: str, right: _Term) -> _Term:
    """A relation of two terms of one kind; UNKNOWN where one of them is NULL."""
    relation, read, read_other = _RELATIONS[sign], left.run, right.run

    def test(lookup: Lookup) -> bool | None:
        value, other = read(lookup), read_other(lookup)
        return None if value is None or other is None else relation(value, other)

    return _condition(test, [left, right])


def _ask(term: _Term, word: str, question: Callable[[str | None], bool | None]) -> _Term:
    """A question about a header's text."""
    if term.kind is not _Kind.NAME:
        rule = f"{word} asks about a header, not {term.kind.value}; {_REMEDY}"
        raise _Fault(term.start, rule)
    read = term.run
    return _condition(lambda lookup: question(read(lookup)), [term])


def _negate(term: _Term) -> _Term:
    read = term.run
    return _condition(lambda look: None if (it := read(look)) is None else not it, [term])


def _chain(terms: list[_Term], decisive: bool) -> _Term:
    """AND (FALSE is decisive) or OR (TRUE is): a loop, so that long chains do not nest."""
    parts = [_convert(term, _Kind.TRUTH).run for term in terms]

    def test(lookup: Lookup) -> bool | None:
        unknown = False
        for part in parts:
            truth: bool | None = part(lookup)
            if truth is decisive:
                return decisive
            unknown = unknown or truth is None
        return None if unknown else not decisive

    return _condition(test, terms)


def _like(pattern: str, escape: str) -> "re.Pattern[str]":
    """The pattern of LIKE as a regular expression whose work is bounded by pattern * text.

    What stands between two ``%`` is taken where it first fits, for good (an atomic group), and
    what follows the last one is looked for at the end alone: no way back, no explosion.
    """
    segments: list[list[str]] = [[]]
    chars = zip_longest(pattern, pattern[1:], fillvalue="")
    for char, following in chars:
        if char == escape and following in ("%", "_", escape):
            segments[-1].append(re.escape(following))
            next(chars)
        elif char == "%":
            segments.append([])
        else:
            segments[-1].append("." if char == "_" else re.escape(char))
    first, *middle = ["".join(segment) for segment in segments]
    if not middle:
        return re.compile(first, re.DOTALL)
    found = "".join(f"(?>.*?{segment})" for segment in middle[:-1] if segment)
    end = f"(?=.{{{len(segments[-1])}}}).*+(?<={middle[-1]})"
    return re.compile(first + found + end, re.DOTALL)
