"""The wildcard grammar of SUBSCRIBE.

Words are separated by ``.`` or ``/``, and separators match literally.

| pattern            | where                              | matches                            |
|--------------------|------------------------------------|------------------------------------|
| ``*``              | a whole word, but see below        | exactly one word                   |
| ``>`` ``**`` ``#`` | the last word                      | the rest, none included            |
| ``*``              | last, after ``/`` or glued to text | the rest of the string, also empty |

So ``/topic/*/eu`` and ``prices.*`` take one word, ``prices.>`` also takes ``prices``, and
``/topic/*``, ``DIAG*`` and ``*`` have the same meaning as in stompica. A name that begins with
``#`` is a work queue, so a first word ``#`` before others is no wildcard: ``#.*`` matches
``#.jobs``.
"""

import re

from attrs import frozen

from trio_stomp.base import CloseReason, ProtocolError

MAX_WORDS = 32
"""Limit of words in a client's pattern. Each takes memory, and time in each match."""

_SEPARATORS = re.compile(r"([./])")
_REST_WORDS = frozenset({">", "**", "#"})

ONE_WORD = None
"""The token for ``*``. It is no text, so it cannot be confused with a word."""

Token = str | None


@frozen
class Pattern:
    """A compiled wildcard.

    Args:
      tokens: The first words and separators; ONE_WORD = any word.
      rest: A separator after which anything may follow. The name may also end before it; "" = no
        such end.
      glued: The prefix of the remaining text; None = no such end.
    """

    tokens: tuple[Token, ...]
    rest: str = ""
    glued: str | None = None


def split(name: str) -> list[str]:
    """Return the words (even indexes) and separators (odd indexes) of a name."""
    return _SEPARATORS.split(name)


def compile_pattern(
    name: str, grammar: str, *, max_words: int | None = MAX_WORDS
) -> Pattern | None:
    """Compile a wildcard.

    Args:
      name: The destination of a SUBSCRIBE, or a configured pattern.
      grammar: ``native`` as above, or ``seed``: the first ``*`` means the rest of the string.
      max_words: The limit of words; None = no limit, for configured patterns.

    Returns:
      None if ``name`` has no wildcard.

    Raises:
      ProtocolError: A wildcard is misplaced, or there are too many words.
    """
    if grammar == "seed":
        head, star, _ = name.partition("*")
        return Pattern((), glued=head) if star else None
    if "*" not in name and ">" not in name and "#" not in name:
        return None
    tokens = split(name)
    last = tokens[-1]
    if "*" not in name and last not in _REST_WORDS and ">" not in tokens:
        return None
    if max_words is not None and len(tokens) > 2 * max_words - 1:
        raise ProtocolError(
            "invalid-wildcard",
            f"destination:{name[:80]} has {len(tokens) // 2 + 1} words, and a wildcard has at most"
            f" {max_words}; shorten it with > (the rest)",
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


def beginning(pattern: Pattern) -> str:
    """Return the longest prefix common to all names that ``pattern`` matches."""
    text = ""
    for token in pattern.tokens:
        if token is ONE_WORD:
            return text
        text += token
    return text + (pattern.glued or "")


def _words(name: str, tokens: list[str]) -> tuple[Token, ...]:
    out: list[Token] = []
    for token in tokens:
        if token == "*":
            out.append(ONE_WORD)
        elif "*" in token or token == ">" or (token == "#" and out):
            raise ProtocolError(
                "invalid-wildcard",
                f"destination:{name[:80]} has {token!r} where no wildcard is allowed: * is a whole"
                " word or the last character; >, ** and # are the last word",
            )
        else:
            out.append(token)
    return tuple(out)
