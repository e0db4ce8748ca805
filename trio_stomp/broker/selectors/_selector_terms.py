"""The terms of a compiled selector: small closures, built from the leaves up."""

import operator
import re
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, frozen

from trio_stomp.broker.selectors._like import Like, like

if TYPE_CHECKING:
    from lark import Token

MAX_DEPTH = 32
"""Limit of nested brackets, NOT and signs. Chains of AND, OR, + and * do not nest."""

Lookup = Callable[[str], str | None]
"""Returns the text of a header, or None."""

Run = Callable[[Lookup], Any]

_KEYWORDS = {
    **{word: f"_{word}" for word in ("AND", "OR", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS")},
    "NOT": "NOT",
    "NULL": "NULL",
    "TRUE": "TRUTH",
    "FALSE": "TRUTH",
}
_JMS_HEADERS: dict[str, tuple[str, str | None]] = {
    "JMSCorrelationID": ("correlation-id", None),
    "JMSDestination": ("destination", None),
    "JMSExpiration": ("expires", "0"),
    "JMSMessageID": ("message-id", None),
    "JMSPriority": ("priority", "4"),
    "JMSReplyTo": ("reply-to", None),
    "JMSType": ("type", None),
}
"""JMS name → the header, and its default in JMS."""
_NO_HEADERS = {
    "JMSTimestamp": "senders may set timestamp, which is the name to compare",
    **dict.fromkeys(
        (
            "JMSRedelivered",
            "JMSDeliveryTime",
            "JMSXDeliveryCount",
            "JMSXRcvTimestamp",
            "JMSXProducerTXID",
            "JMSXConsumerTXID",
            "JMSXState",
        ),
        "it belongs to a delivery, and a selector sees what the sender wrote",
    ),
}
"""Names of JMS that would never match, and why."""

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
MAX_NUMBER_CHARS = 500
"""Longer texts, blanks included, are neither numbers nor TRUE or FALSE."""


_REMEDY = "put a header name with - in double quotes, a text in single ones"


class Kind(Enum):
    NAME = "a header"
    TEXT = "a text"
    NUMBER = "a number"
    TRUTH = "a condition such as price > 10"


@define
class Fault(Exception):
    """A selector is syntactically right but invalid. The compiler turns this into a ProtocolError.

    Args:
      start: The index in the text; None = unknown.
      rule: The rule that is violated, for the error.
    """

    start: int | None
    rule: str


@frozen
class Term:
    """A compiled part of a selector.

    Args:
      kind: The type of the value: a text (NAME, TEXT), a number or a truth value.
      run: Returns its value in a message; None = NULL, or UNKNOWN as a truth value.
      start: The index in the selector.
      depth: The nesting of its calls.
    """

    kind: Kind
    run: Run
    start: int | None
    depth: int = 0


class TermBuilder:
    """Builds terms for the parser, rule by rule, from the leaves up, without recursion.

    ``likes`` has the LIKE patterns of the current selector. The compiler clears it before each.
    """

    def __init__(self) -> None:
        self.likes: list[Like] = []

    @staticmethod
    def keyword(token: "Token") -> "Token":
        token.type = _KEYWORDS.get(token.upper(), "NAME")
        return token

    def name(self, children: "list[Token]") -> Term:
        name, start = str(children[0]), children[0].start_pos
        if name in _NO_HEADERS:
            raise Fault(start, f"{name} is no header here: {_NO_HEADERS[name]}")
        return Term(Kind.NAME, _reader(name), start)

    def quoted(self, children: "list[Token]") -> Term:
        header = _unquote(children[0])
        return Term(Kind.NAME, lambda lookup: lookup(header), children[0].start_pos)

    def number(self, children: "list[Token]") -> Term:
        start, digits = children[0].start_pos, children[0].lower().rstrip("l")
        if digits.startswith("0") and digits.isdecimal() and len(digits) > 1:
            raise Fault(start, "0 in front makes a number octal in JMS, but not in SQL: omit it")
        if not digits.startswith("0x"):
            return _literal(Kind.NUMBER, _number(digits), start)
        if int(digits, 16) >= _LONG:
            raise Fault(start, "a hexadecimal number has at most 63 bits")
        return _literal(Kind.NUMBER, int(digits, 16), start)

    def text(self, children: "list[Token]") -> Term:
        return _literal(Kind.TEXT, _unquote(children[0]), children[0].start_pos)

    def truth(self, children: "list[Token]") -> Term:
        return _literal(Kind.TRUTH, _TRUTHS[children[0].lower()], children[0].start_pos)

    def group(self, children: list[Term]) -> Term:
        return evolve(children[0], depth=_depth(children))

    def signed(self, children: "tuple[Token, Term]") -> Term:
        return _calculate([_literal(Kind.NUMBER, 0, children[0].start_pos), *children])

    def sum(self, children: list[Any]) -> Term:
        return _calculate(children)

    product = sum

    def comparison(self, children: "tuple[Term, Token, Term]") -> Term:
        left, token, right = children
        kinds, equality = {left.kind, right.kind}, token in ("=", "<>")
        if equality and kinds <= {Kind.NAME, Kind.TEXT}:
            return _compare(left, token, right)
        kind = Kind.TRUTH if equality and Kind.TRUTH in kinds else Kind.NUMBER
        return _compare(convert(left, kind), token, convert(right, kind))

    def between(self, children: list[Any]) -> Term:
        value, negated, bounds = _split(children)
        value, low, high = (convert(term, Kind.NUMBER) for term in (value, *bounds))
        both = _chain([_compare(value, ">=", low), _compare(value, "<=", high)], False)
        return _negate(both) if negated else both

    def within(self, children: list[Any]) -> Term:
        value, negated, tokens = _split(children)
        texts = frozenset(_unquote(token) for token in tokens)
        return _ask(value, "IN", lambda it: None if it is None else (it in texts) is not negated)

    def like(self, children: list[Any]) -> Term:
        value, negated, (pattern, *escapes) = _split(children)
        escape = _unquote(escapes[0]) if escapes else ""
        if escapes and len(escape) != 1:
            raise Fault(escapes[0].start_pos, "ESCAPE takes a text of one character")
        compiled = like(_unquote(pattern), escape)
        self.likes.append(compiled)
        match = compiled.matches

        def question(it: str | None) -> bool | None:
            found = None if it is None else match(it)
            return None if found is None else found is not negated

        return _ask(value, "LIKE", question)

    def null(self, children: list[Any]) -> Term:
        value, negated, _ = _split(children)
        return _ask(value, "IS NULL", lambda it: (it is None) is not negated)

    def negation(self, children: "tuple[Token, Term]") -> Term:
        return _negate(convert(children[1], Kind.TRUTH))

    def conjunction(self, children: list[Term]) -> Term:
        return _chain(children, False)

    def disjunction(self, children: list[Term]) -> Term:
        return _chain(children, True)


def _unquote(token: str) -> str:
    return token[1:-1].replace(token[0] * 2, token[0])


def _split(children: list[Any]) -> tuple[Term, bool, list[Any]]:
    """Return the left side of an operator, whether NOT follows it, and the rest."""
    negated = getattr(children[1], "type", "") == "NOT"
    return children[0], negated, children[1 + negated :]


def _depth(terms: list[Term]) -> int:
    depth = 1 + max(term.depth for term in terms)
    if depth > MAX_DEPTH:
        rule = f"brackets, NOT and signs nest more than {MAX_DEPTH} deep; leave some out"
        raise Fault(terms[0].start, rule)
    return depth


def _literal(kind: Kind, value: str | float | None, start: int | None) -> Term:
    return Term(kind, lambda _: value, start)


def _condition(run: Run, terms: list[Term]) -> Term:
    return Term(Kind.TRUTH, run, terms[0].start, _depth(terms))


def _reader(name: str) -> Run:
    """Return a function that reads the header for ``name``."""
    if name == "JMSDeliveryMode":
        return lambda look: "PERSISTENT" if look("persistent") == "true" else "NON_PERSISTENT"
    header, default = _JMS_HEADERS.get(name, (name, None))
    if default is None:
        return lambda lookup: lookup(header)
    return lambda lookup: default if (text := lookup(header)) is None else text


def _number(text: str) -> float | None:
    """Return the number in ``text``, a float if it is too long for 64 bits, or None."""
    if len(text) < 19 and text.isascii() and text.isdecimal():
        return int(text)
    match = _NUMERIC.fullmatch(text)
    if match is None:
        return None
    return int(text) if match.lastindex is None and len(text) < 20 else float(text)


def _truth(text: str) -> bool | None:
    """Return the truth value in ``text``, or None."""
    return _TRUTHS.get(text.strip().lower())


def convert(term: Term, kind: Kind) -> Term:
    """Convert ``term`` to a number or a condition.

    Raises:
      Fault: It can never be one.
    """
    if term.kind is kind:
        return term
    read, convert = term.run, _number if kind is Kind.NUMBER else _truth

    def run(lookup: Lookup) -> float | None:
        text = read(lookup)
        return None if text is None or len(text) > MAX_NUMBER_CHARS else convert(text)

    if term.kind is Kind.NAME:
        return evolve(term, kind=kind, run=run)
    if term.kind is Kind.TEXT and (value := run(lambda _: None)) is not None:
        return _literal(kind, value, term.start)
    raise Fault(term.start, f"{kind.value} is expected here, not {term.kind.value}; {_REMEDY}")


def _divide(left: float, right: float) -> float | None:
    """Divide as in Java: round whole numbers towards zero. Division by 0 is NULL."""
    if not right:
        return None
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    return left // right if (left < 0) is (right < 0) else -(-left // right)


_OPERATIONS = dict(zip("+-*/", (operator.add, operator.sub, operator.mul, _divide), strict=True))


def _calculate(children: list[Any]) -> Term:
    """Return the term for a chain of terms and signs, evaluated from the left. NULL if any is."""
    terms = [convert(term, Kind.NUMBER) for term in children[::2]]
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
                total = float(total)  # a chain of * must not make integers of any length
        return total

    return Term(Kind.NUMBER, run, terms[0].start, _depth(terms))


def _compare(left: Term, sign: str, right: Term) -> Term:
    """Return the term that compares two terms of one kind. UNKNOWN if one of them is NULL."""
    relation, read, read_other = _RELATIONS[sign], left.run, right.run

    def test(lookup: Lookup) -> bool | None:
        value, other = read(lookup), read_other(lookup)
        return None if value is None or other is None else relation(value, other)

    return _condition(test, [left, right])


def _ask(term: Term, word: str, question: Callable[[str | None], bool | None]) -> Term:
    """Return the term for a test of a header's text.

    Args:
      term: The header.
      word: The operator, for the error.
      question: Tests the text.

    Raises:
      Fault: ``term`` is not a header.
    """
    if term.kind is not Kind.NAME:
        rule = f"{word} asks about a header, not {term.kind.value}; {_REMEDY}"
        raise Fault(term.start, rule)
    read = term.run
    return _condition(lambda lookup: question(read(lookup)), [term])


def _negate(term: Term) -> Term:
    read = term.run
    return _condition(lambda look: None if (it := read(look)) is None else not it, [term])


def _chain(terms: list[Term], decisive: bool) -> Term:
    """Return the term for AND (FALSE is decisive) or OR (TRUE is). Long chains do not nest."""
    parts = [convert(term, Kind.TRUTH).run for term in terms]

    def test(lookup: Lookup) -> bool | None:
        unknown = False
        for part in parts:
            truth: bool | None = part(lookup)
            if truth is decisive:
                return decisive
            unknown = unknown or truth is None
        return None if unknown else not decisive

    return _condition(test, terms)
