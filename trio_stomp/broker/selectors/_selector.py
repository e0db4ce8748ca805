"""Message selectors: the SQL-92 conditions of JMS on the headers of a message.

Handles: Jakarta Messaging 3.1 section 3.8.1, adapted to STOMP, where each header is a text: a text
that looks like a number (or TRUE, FALSE) is converted where the selector needs a number (a
condition), as ActiveMQ does for STOMP clients; any other text makes the comparison UNKNOWN. A
``"quoted name"`` or the prefix ``hyphenated_props:`` allows names with ``-``. JMS names stand for
STOMP headers.
Does not handle: XPATH, XQUERY, functions, octal literals, comparing texts by order.
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError, noop
from trio_stomp.broker.selectors._like import LONG_TEXT, MAX_STEPS, STEP_S, share
from trio_stomp.broker.selectors._selector_terms import (
    Fault,
    Kind,
    Lookup,
    Run,
    TermBuilder,
    convert,
)
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from lark import Lark, Token
    from lark.exceptions import UnexpectedInput

    from trio_stomp.base import Quota

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
_HINTS = {
    "!": "not equal is written <>",
    "'": "a text ends with ', and holds a ' as ''",
    '"': 'a quoted name ends with "; texts are in single quotes',
    "NULL": "NULL is only allowed in IS NULL and IS NOT NULL",
}

TOKEN_BYTES = 832
CHAR_BYTES = 24
CHAR_BYTES_WITH_HOLES = 640
SEGMENT_BYTES = 160
SEGMENT_BYTES_WITH_HOLES = 800
"""Memory of a compiled selector for each word, character, and part of a LIKE between two ``%``,
measured and rounded up. Holes are ``_``."""
WORD_S = 0.6e-6
"""The cost of a word for a message: the dearest selectors that we could write, of 1,024 words, take
0.6 ms."""
_TOKEN = re.compile(r"'[^']*+'|[\w$.]+|\S")

_WORDS = {"$END": "the end", "COMMA": ",", "LPAR": "(", "RPAR": ")", "STRING": "a 'text'"}


@define(eq=False)
class Selector:
    """A compiled condition on headers, shared by any number of subscriptions."""

    text: str
    _run: Run
    _at_end: Callable[[Callable[[], None]], None]
    """Makes a call at the end of the turn."""
    cost_s: float = 0.0
    """The most that it costs for a message, in seconds."""
    users: int = field(default=0, init=False)
    """The number of users. They count themselves, so that it is charged once."""
    payer: "Quota | None" = field(default=None, init=False)
    """The quota charged: that of its first user."""
    _head: Head | None = field(default=None, init=False)
    """The header block evaluated last in this turn."""
    _truth: bool = field(default=False, init=False)

    def matches(self, headers: Head | Lookup) -> bool:
        """Return whether the condition is TRUE (not FALSE or UNKNOWN) for ``headers``.

        The result for the last header block is remembered until the turn ends.
        """
        if not isinstance(headers, Head):
            return self._run(headers) is True
        if self._head is not headers:
            self.remember(headers, truth=self._run(headers.get) is True)
        return self._truth

    def remember(self, head: Head, *, truth: bool) -> None:
        """Set the result for a header block, until the turn ends or another block is evaluated."""
        if self._head is None:
            self._at_end(self.forget)
        self._head, self._truth = head, truth

    def forget(self) -> None:
        """Forget the header block."""
        self._head = None

    @property
    def cost(self) -> int:
        """Return the most memory that it takes compiled, estimated from its text."""
        tokens = sum(1 for _ in _TOKEN.finditer(self.text))
        has_holes = "_" in self.text
        each = SEGMENT_BYTES_WITH_HOLES if has_holes else SEGMENT_BYTES
        char = CHAR_BYTES_WITH_HOLES if has_holes and not self.text.isascii() else CHAR_BYTES
        return tokens * TOKEN_BYTES + self.text.count("%") * each + char * len(self.text)


@define(eq=False)
class SelectorCompiler:
    """Compiles the text of selectors. The broker owns one.

    Args:
      max_bytes: Limit of the text.
      max_words: Limit of words: names, numbers, texts, signs. Each takes about 7 us to compile.
      max_cached_bytes: Limit of the texts in the cache. Compiled, they take up to 400 times that.
      at_end: Makes a call at the end of the turn, until which selectors remember a result.
    """

    max_bytes: int = 4096
    max_words: int = 1024
    max_cached_bytes: int = 64 * 1024
    at_end: Callable[[Callable[[], None]], None] = noop
    _parsers: "dict[str, Lark]" = field(factory=dict, init=False)
    _builder: TermBuilder = field(factory=TermBuilder, init=False)
    _cache: OrderedDict[str, Selector] = field(factory=OrderedDict, init=False)
    _cached_bytes: int = field(default=0, init=False)

    def compile(self, text: str) -> Selector:
        """Return the selector of ``text``. A blank one matches every message.

        Limits: ``max_bytes``, ``max_words``, ``MAX_DEPTH`` levels, ``MAX_STEPS`` for LIKE. Time and
        memory are linear in the text. Spec: Jakarta Messaging 3.1, 3.8.1 "Message selector".

        Raises:
          ProtocolError: ``invalid-selector``, with the position and the rule; ``unsupported`` if
            the parser library is not installed.
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
        words = sum(1 for _ in _TOKEN.finditer(text))
        if words > self.max_words:
            raise ProtocolError(
                "invalid-selector",
                f"selector:{text[:40]}… has more than {self.max_words} words; make it shorter",
                reason=CloseReason.LIMIT_EXCEEDED,
            )
        selector = self._cache[text] = self._selector(text, words)
        self._cached_bytes += size
        while self._cached_bytes > self.max_cached_bytes:
            self._cached_bytes -= len(self._cache.popitem(last=False)[0].encode())
        return selector

    def _selector(self, text: str, words: int) -> Selector:
        run = self._parse(text)
        steps = min(sum(each.steps for each in self._builder.likes) * LONG_TEXT, MAX_STEPS)
        cost_s = words * WORD_S + steps * STEP_S
        self._builder.likes.clear()
        return Selector(text, run, self.at_end, cost_s)

    def _parse(self, text: str) -> Run:
        body = _PREFIX.sub("", text)
        if not body.strip():
            return lambda _: True
        prefix = text[: len(text) - len(body)]
        parser = self._parser(_HYPHENS if "hyphenated_props:" in prefix else "")
        from lark.exceptions import UnexpectedInput

        try:
            # Blanks replace the prefix, so that positions are those of the client's text.
            self._builder.likes.clear()
            term: Any = parser.parse(" " * len(prefix) + body)
            run = convert(term, Kind.TRUTH).run
            share(self._builder.likes)
            return run
        except UnexpectedInput as error:
            fault = _syntax_fault(error, text)
        except Fault as error:
            fault = error
        start = fault.start or 0
        near = repr(text[start : start + 24]) if start < len(text) else "its end"
        raise ProtocolError(
            "invalid-selector",
            f"selector is wrong at character {start + 1}, near {near}: {fault.rule}",
        )

    def _parser(self, hyphens: str) -> "Lark":
        """Return the parser of names that may end in ``hyphens``, built when first needed."""
        if hyphens not in self._parsers:
            try:
                from lark import Lark
            except ImportError:
                raise ProtocolError(
                    "unsupported",
                    "selector: this broker was installed without selectors; its operator adds"
                    " them with pip install lark",
                    reason=CloseReason.UNSUPPORTED,
                ) from None
            self._parsers[hyphens] = Lark(
                _GRAMMAR.replace("HYPHENS", hyphens),
                parser="lalr",
                lexer="basic",  # each word is first a NAME, so that ``keyword`` sees it
                lexer_callbacks={"NAME": TermBuilder.keyword},
                transformer=self._builder,
            )
        return self._parsers[hyphens]


def _syntax_fault(error: "UnexpectedInput", text: str) -> Fault:
    """Return the fault for an unexpected token or character."""
    token: Token | None = getattr(error, "token", None)
    if token is None:
        char = text[error.pos_in_stream or 0]
        return Fault(error.pos_in_stream, _HINTS.get(char, "this is not allowed here"))
    expected: set[str] = getattr(error, "expected", set())
    if token.type == "NULL":
        rule = _HINTS["NULL"]
    elif "NAME" in expected:
        rule = "a header name, a number, a 'text' or ( is expected here"
    else:
        words = sorted(_WORDS.get(word, word.strip("_")) for word in expected)
        rule = f"{' or '.join(words)} is expected here"
    return Fault(len(text) if token.type == "$END" else token.start_pos, rule)
