"""The wildcard grammar of SUBSCRIBE: text → pattern.

Words are separated by ``.`` or ``/``, and separators match literally.

| pattern            | where                              | matches                            |
|--------------------|------------------------------------|------------------------------------|
| ``*``              | a whole word, but see below        | exactly one word                   |
| ``>`` ``**`` ``#`` | the last word                      | the rest, none included            |
| ``*``              | last, after ``/`` or glued to text | the rest of the string, also empty |

So ``/topic/*/eu`` and ``prices.*`` take one word, ``prices.>`` also takes ``prices``, and
``/topic/*``, ``DIAG*`` and ``*`` keep stompica's meaning. A name that begins with ``#`` is a work
queue's, so a first word ``#`` is no wildcard when more follows: ``#.*`` reaches ``#.jobs``.
"""

import re

from attrs import frozen

from trio_stomp.base import CloseReason, ProtocolError

MAX_WORDS = 32
"""Words of a pattern that a client may subscribe to: each takes memory as long as it does, and time
whenever a name is matched."""

_SEPARATORS = re.compile(r"([./])")
_REST_WORDS = frozenset({">", "**", "#"})

ONE_WORD = None
"""Stands for ``*`` among the tokens of a pattern: no text can be mistaken for it."""

Token = str | None


@frozen
class Pattern:
    """A compiled wildcard.

    Args:
      tokens: Words and separators that come first; ONE_WORD for any one word.
      rest: The separator behind which anything may follow, or nothing at all; "" = no such end.
      glued: What the remaining string must begin with; None = no such end.
    """

    tokens: tuple[Token, ...]
    rest: str = ""
    glued: str | None = None


def split(name: str) -> list[str]:
    """Words (even places) and separators (odd places) of a name."""
    return _SEPARATORS.split(name)


def compile_pattern(
    name: str, grammar: str, *, max_words: int | None = MAX_WORDS
) -> Pattern | None:
    """Return the pattern that ``name`` is, or None if it holds no wildcard.

    Args:
      name: Destination of a SUBSCRIBE.
      grammar: ``native`` as above, or ``seed``: the first ``*`` means the rest of the string.
      max_words: None = no bound, for patterns that the operator wrote.

    Raises:
      ProtocolError: a wildcard where the grammar has none, or too many words.
    """
    if grammar == "seed":
        head, star, _ = name.partition("*")
        return Pattern((), glued=head) if star else None
    tokens = split(name)
    last = tokens[-1]
    if "*" not in name and last not in _REST_WORDS and ">" not in tokens:
        return None
    if max_words is not None and len(tokens) > 2 * max_words - 1:
        raise ProtocolError(
            "invalid-wildcard",
            f"destination:{name[:80]} has {len(tokens) // 2 + 1} words, and a wildcard has at most"
            f" {max_words}; end it sooner with > (the rest)",
            reason=CloseReason.LIMIT_EXCEEDED,
        )
    before = _words(name, tokens[:-1])
    if last in _REST_WORDS:
        if not before:
            return Pattern((), glued="")
        return Pattern(before[:-1], rest=tokens[-2])
    if last == "*" and before and tokens[-2] == ".":
        return Pattern((*before, ONE_WORD))
    if last.endswith("*") and "*" not in last[:-1]:
        return Pattern(before, glued=last[:-1])
    return Pattern((*before, *_words(name, [last])))


def _words(name: str, tokens: list[str]) -> tuple[Token, ...]:
    out: list[Token] = []
    for token in tokens:
        if token == "*":
            out.append(ONE_WORD)
        elif "*" in token or token == ">" or (token == "#" and out):
            raise ProtocolError(
                "invalid-wildcard",
                f"destination:{name[:80]} has {token!r} where no wildcard may stand: * is a whole"
                " word or the last character; >, ** and # are the last word",
            )
        else:
            out.append(token)
    return tuple(out)
