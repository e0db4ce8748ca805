"""Patterns as sets of names: is one within another, have two a name in common?

Patterns here are those that ``compile_pattern`` makes, in either grammar, with or without words put
in place of others; a plain name is the pattern of itself. Words may hold any text, so both answers
are exact, and each takes one walk along the shorter pattern.
"""

from trio_stomp.broker.names._wildcards import ONE_WORD, Pattern, Token, split


def as_pattern(name: str) -> Pattern:
    """Return the pattern that matches ``name`` and nothing else, whatever characters it holds."""
    return Pattern(tuple(split(name)))


def covers(outer: Pattern | str, inner: Pattern | str) -> bool:
    """Return whether each name that ``inner`` matches is matched by ``outer``."""
    outer, inner = _unglued(outer), _unglued(inner)
    if len(outer.tokens) > len(inner.tokens):
        return False  # some name of inner ends before, or goes on as it likes
    # Not strict: what inner has more is left to outer's end.
    for wide, narrow in zip(outer.tokens, inner.tokens, strict=False):
        # ONE_WORD as the narrow one is many words, which a single one cannot be.
        if wide != narrow and (wide is not ONE_WORD or not narrow):
            return False
    place = len(outer.tokens)
    if place == len(inner.tokens):
        if outer.glued is not None:
            return inner.glued is not None and inner.glued.startswith(outer.glued)
        return inner.rest in ("", outer.rest)
    following = inner.tokens[place]
    if outer.glued is not None:
        return (following or "").startswith(outer.glued)
    return following == outer.rest  # a separator, and never ""


def overlaps(one: Pattern | str, other: Pattern | str) -> bool:
    """Return whether some name is matched by both."""
    short, long = _unglued(one), _unglued(other)
    if len(short.tokens) > len(long.tokens):
        short, long = long, short
    # Not strict: what long has more is left to short's end.
    for left, right in zip(short.tokens, long.tokens, strict=False):
        if not _have_a_word_in_common(left, right):
            return False
    place = len(short.tokens)
    if place == len(long.tokens):
        if short.glued is None or long.glued is None:
            return True  # both may end here
        return short.glued.startswith(long.glued) or long.glued.startswith(short.glued)
    following = long.tokens[place]
    if short.glued is not None:
        return following is ONE_WORD or following.startswith(short.glued)
    return following == short.rest


def _have_a_word_in_common(left: Token, right: Token) -> bool:
    if left is ONE_WORD or right is ONE_WORD:
        return left != "" and right != ""
    return left == right


def _unglued(pattern: Pattern | str) -> Pattern:
    """Return a pattern of the same names without a separator in what its end is glued to.

    The seed's patterns are one text with all words in it. Behind this, a glued end stands at an odd
    number of words and separators, and any other end at an even one: the two never meet.
    """
    if isinstance(pattern, str):
        return as_pattern(pattern)
    if not pattern.glued:
        return pattern
    *before, last = split(pattern.glued)
    return Pattern((*pattern.tokens, *before), glued=last) if before else pattern
