"""Patterns as sets of names: subset and intersection.

The patterns are those of ``compile_pattern`` in either grammar; a plain name matches itself. Words
may have any text, so both results are exact. Each takes one walk along the shorter pattern.
"""

from trio_stomp.broker.names._wildcards import ONE_WORD, Pattern, Token, split


def as_pattern(name: str) -> Pattern:
    """Return the pattern that matches only ``name``, whatever characters it has."""
    return Pattern(tuple(split(name)))


def covers(outer: Pattern | str, inner: Pattern | str) -> bool:
    """Return whether ``outer`` matches each name that ``inner`` matches."""
    outer, inner = _unglued(outer), _unglued(inner)
    if len(outer.tokens) > len(inner.tokens):
        return False  # inner also matches a shorter or a different name
    # Not strict: outer's end decides about further tokens of inner.
    for wide, narrow in zip(outer.tokens, inner.tokens, strict=False):
        # If ``narrow`` is ONE_WORD, it is any word, so a fixed word cannot cover it.
        if wide != narrow and (wide is not ONE_WORD or not narrow):
            return False
    size = len(outer.tokens)
    if size == len(inner.tokens):
        if outer.glued is not None:
            return inner.glued is not None and inner.glued.startswith(outer.glued)
        return inner.rest in ("", outer.rest)
    following = inner.tokens[size]
    if outer.glued is not None:
        return (following or "").startswith(outer.glued)
    return following == outer.rest  # a separator, never ""


def overlaps(one: Pattern | str, other: Pattern | str) -> bool:
    """Return whether both patterns match a common name."""
    short, long = _unglued(one), _unglued(other)
    if len(short.tokens) > len(long.tokens):
        short, long = long, short
    # Not strict: short's end decides about further tokens of long.
    for left, right in zip(short.tokens, long.tokens, strict=False):
        if not _have_a_word_in_common(left, right):
            return False
    size = len(short.tokens)
    if size == len(long.tokens):
        if short.glued is None or long.glued is None:
            return True  # both may end here
        return short.glued.startswith(long.glued) or long.glued.startswith(short.glued)
    following = long.tokens[size]
    if short.glued is not None:
        return following is ONE_WORD or following.startswith(short.glued)
    return following == short.rest


def _have_a_word_in_common(left: Token, right: Token) -> bool:
    if left is ONE_WORD or right is ONE_WORD:
        return left != "" and right != ""
    return left == right


def _unglued(pattern: Pattern | str) -> Pattern:
    """Return an equivalent pattern whose glued text has no separator.

    A pattern of the grammar ``seed`` is a single glued text. After this, a glued end follows an
    even number of tokens and any other end an odd one, so the two never meet.
    """
    if isinstance(pattern, str):
        return as_pattern(pattern)
    if not pattern.glued:
        return pattern
    *before, last = split(pattern.glued)
    return Pattern((*pattern.tokens, *before), glued=last) if before else pattern
