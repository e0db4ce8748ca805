"""Who may do what where: rules in the operator's order, of which the first that matches decides.

What no rule matches is denied. A rule's patterns are those of SUBSCRIBE in the native grammar,
whatever grammar clients use; ``{user}`` in a word of them stands for the client's name. It is put
in behind the grammar's back, as text and never as a wildcard, so that a user called ``*`` has the
rights of one user. A name with a separator would be several words, which an operator who wrote
``/topic/{user}/**`` did not mean: to such a client nothing is allowed by ``{user}``, while what is
denied by it is denied to the letter.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from attrs import field, frozen

from trio_stomp.base import ANONYMOUS_NAME, Identity, OptionError, ProtocolError
from trio_stomp.broker.headers import ARTEMIS, NATIVE, dialect, resolve
from trio_stomp.broker.names import (
    DIAG_STREAM,
    MONITOR,
    STREAM,
    Kind,
    Pattern,
    Token,
    WildcardTrie,
    as_pattern,
    classify,
    compile_pattern,
    covers,
    overlaps,
    split,
)
from trio_stomp.broker.rules._rights import Rights
from trio_stomp.broker.rules._rights import Verdict as Verdict

USER = "{user}"
"""Stands for the client's name in a rule's pattern."""
_DIAG = "DIAG"
_KINDS = ("#", _DIAG)
"""How names begin that are no ordinary topics'."""
_DIAG_TOPICS = Pattern((), glued=_DIAG)
_DIAG_STREAMS = Pattern(tuple(split(STREAM)[:-1]), glued=_DIAG)
_STARS = re.compile(r"\*+")
MAX_MADE = 1_024
"""Users whose rights are kept while they may come back."""
MAX_GLOB = 256
"""Characters of a glob."""
_SOME_USERS = ("\0", "\0.\0", "\0/\0", "")
"""One of each sort of name, in characters that no pattern is written in."""


class Action(StrEnum):
    """The actions that a rule allows or denies."""

    SEND = "send"
    RECEIVE = "receive"
    BROWSE = "browse"
    CREATE = "create"
    ADMIN = "admin"
    MONITOR = "monitor"


Need = tuple[Action, str, Pattern | None]
"""An action, a destination, and the pattern if that is a wildcard."""


@frozen
class Rule:
    """One rule.

    Args:
      allow: Whether it allows or denies.
      patterns: Destinations, as text.
      users: Globs of names, ``*`` and ``?``; empty = no matter who.
      groups: Names of groups; empty = no matter which. With users as well, either is enough; with
        neither, the rule is for everybody who has logged in.
      place: Where it is written, for people.

    Raises:
      OptionError: it names place, pattern and remedy.
    """

    allow: bool
    actions: frozenset[Action]
    patterns: tuple[str, ...]
    users: tuple[str, ...] = ()
    groups: frozenset[str] = frozenset()
    place: str = ""
    fixed: tuple[Pattern, ...] = field(init=False, repr=False, eq=False)
    """Those of ``patterns`` that are the same for all clients."""
    _personal: tuple[Pattern, ...] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        if not self.actions or not self.patterns:
            raise OptionError(f"{self.place}: a rule must name an action and a destination")
        for glob in self.users:
            if len(glob) > MAX_GLOB:
                raise OptionError(
                    f"{self.place}: user {glob[:40]!r}… has more than {MAX_GLOB} characters"
                )
        compiled = {_compile(text, self.place): None for text in self.patterns}
        personal = tuple(each for each in compiled if _has_user(each))
        fixed = tuple(each for each in compiled if not _has_user(each))
        object.__setattr__(self, "fixed", fixed)
        object.__setattr__(self, "_personal", personal)

    @property
    def is_personal(self) -> bool:
        """Return whether ``{user}`` is in it."""
        return bool(self._personal)

    def personal(self, user: str) -> tuple[Pattern, ...]:
        """Return the patterns with ``{user}`` that apply to ``user`` ("" = anonymous)."""
        found = (_insert(pattern, user, self.allow) for pattern in self._personal)
        return tuple(each for each in found if each is not None)

    def is_for(self, user: str, groups: frozenset[str]) -> bool:
        """Return whether the rule applies to ``user`` ("" = anonymous) who is in ``groups``."""
        if not user:
            return ANONYMOUS_NAME in self.users
        if not self.users and not self.groups:
            return True
        if not self.groups.isdisjoint(groups):
            return True
        return any(glob_matches(each, user) for each in self.users)


def _has_user(pattern: Pattern) -> bool:
    return any(token and USER in token for token in pattern.tokens)


def _compile(text: str, place: str) -> Pattern:
    if not text:
        raise OptionError(f"{place}: a destination is empty; write ** for all of them")
    try:
        # A rule for a name that nobody is ever judged by would silently allow or deny nothing.
        (known,) = resolve(text, dialect(ARTEMIS))
        pattern = compile_pattern(text, "native", max_words=None) or as_pattern(text)
    except ProtocolError as error:
        raise OptionError(f"{place}: {error}") from None
    if known != text:
        raise OptionError(
            f"{place}: {text[:80]!r} is another broker's name of {known[:80]!r}; write that"
        )
    if USER in (pattern.glued or ""):
        raise OptionError(
            f"{place}: {text[:80]!r} has * in a word with {USER}, which would give user ann what is"
            " user anna's; write /** or .** behind the word"
        )
    if text.startswith("/") and USER in split(text)[2]:
        raise OptionError(
            f"{place}: {text[:80]!r} begins with /{USER}, which would give user queue all queues;"
            f" write a word before it, as in /topic/{USER}"
        )
    return pattern


def _insert(pattern: Pattern, user: str, allows: bool) -> Pattern | None:
    """Return ``pattern`` with ``{user}`` replaced, or None if it matches nothing for that user."""
    if allows:
        if not user or len(split(user)) > 1:
            return None
        first = pattern.tokens[0] or ""
        # Nobody shall own work queues or DIAG by what he is called.
        if first.replace(USER, user).startswith(_KINDS) and not first.startswith(_KINDS):
            return None
    tokens: list[Token] = []
    for token in pattern.tokens:
        if token and USER in token:
            tokens += split(token.replace(USER, user))
        else:
            tokens.append(token)
    return Pattern(tuple(tokens), pattern.rest, pattern.glued)


def glob_matches(glob: str, text: str) -> bool:
    """Return whether ``*`` (any text) and ``?`` (any character) can make ``glob`` be ``text``.

    All places of the glob where one may be are the bits of one number, so that the time is linear
    in the text, whatever the glob.
    """
    glob = _STARS.sub("*", glob)
    places_of: dict[str, int] = {}
    for place, char in enumerate(glob):
        places_of[char] = places_of.get(char, 0) | 1 << place
    star, anything = places_of.pop("*", 0), places_of.pop("?", 0)
    places = 1 | (1 & star) << 1
    for char in text:
        places = (places & (places_of.get(char, 0) | anything)) << 1 | places & star
        places |= (places & star) << 1
    return bool(places >> len(glob))


@frozen
class AccessRules:
    """All rules, and what they speak of.

    Args:
      groups: Users by group. A token's roles are groups, too.
      certificates: User by what a client's certificate says; only carried here.
    """

    rules: tuple[Rule, ...] = ()
    groups: Mapping[str, frozenset[str]] = field(factory=dict)
    certificates: Mapping[str, str] = field(factory=dict)
    _index: WildcardTrie[int] = field(init=False, factory=WildcardTrie, repr=False, eq=False)
    _made: dict[tuple[str, frozenset[str]], Rights] = field(
        init=False, factory=dict, repr=False, eq=False
    )
    """Rights by name and roles: connections of one user share them, and what they remember."""

    def __attrs_post_init__(self) -> None:
        for place, rule in enumerate(self.rules):
            for pattern in rule.fixed:
                self._index.add(pattern, place)

    def rights(self, identity: Identity) -> Rights:
        """Return the rights of a client.

        Limits: looks at each rule once; so this is for CONNECT, not for every frame.
        """
        # No user is called anonymous; should a token say so, it is worth no more than none.
        name = "" if identity.name == ANONYMOUS_NAME else identity.name
        made = self._made.get((name, identity.roles))
        if made is None:
            if len(self._made) >= MAX_MADE:
                self._made.clear()
            made = self._made[name, identity.roles] = self._make(name, identity)
        return made

    def _make(self, name: str, identity: Identity) -> Rights:
        groups = identity.roles | {group for group, users in self.groups.items() if name in users}
        applies = bytes(rule.is_for(name, groups) for rule in self.rules)
        personal = {
            place: patterns
            for place, rule in enumerate(self.rules)
            if rule.is_personal and applies[place] and (patterns := rule.personal(name))
        }
        return Rights(name, self.rules, self._index, applies, personal)


def built_in_rules() -> AccessRules:
    """Return the rules where users are known, but no rules: any user may use destinations.

    The roles ``monitor`` and ``admin`` come with users and tokens.
    """
    everywhere, everybody = ("**",), frozenset[str]()
    use = frozenset({Action.SEND, Action.RECEIVE, Action.BROWSE, Action.CREATE})
    watch = frozenset({Action.MONITOR, Action.RECEIVE})
    rows = (
        (True, frozenset(Action), everywhere, frozenset({"admin"})),
        # Receive, too: a wildcard needs both if it reaches others' destinations beside DIAG.
        (True, watch, everywhere, frozenset({"monitor"})),
        (False, use, ("DIAG*", f"{DIAG_STREAM}*"), everybody),
        # Not receive or browse: /queue/* reaches no topic, and by this name one needs monitor.
        (False, frozenset({Action.SEND, Action.CREATE}), (MONITOR,), everybody),
        (True, use, everywhere, everybody),
    )
    return AccessRules(
        tuple(
            Rule(
                allow,
                actions=actions,
                patterns=patterns,
                users=(),
                groups=groups,
                place=f"built-in rule {number}",
            )
            for number, (allow, actions, patterns, groups) in enumerate(rows, 1)
        )
    )


def is_watching(name: str) -> bool:
    """Return whether receiving from, or sending to, ``name`` is watching the broker or others."""
    return name.startswith((_DIAG, DIAG_STREAM)) or name == MONITOR


def may_reach_watching(name: str, pattern: Pattern | None) -> bool:
    """Return whether a SUBSCRIBE to ``name`` (``pattern`` if a wildcard) may reach such a name.

    Where this is true of a wildcard that reaches others, too, ``receive`` is needed beside
    ``monitor``: who may look at DIAG may not thereby read what is sent to ``/topic/…``.
    """
    if pattern is None:
        return is_watching(name)
    watching = (_DIAG_TOPICS, MONITOR, _DIAG_STREAMS)
    return any(overlaps(pattern, each) for each in watching)


def needs(action: Action, name: str, pattern: Pattern | None = None) -> tuple[Need, ...]:
    """All that must be allowed for ``action`` at a destination.

    Args:
      action: The action.
      name: Our own name of it, composites and foreign names resolved.
      pattern: What ``name`` is if it is a wildcard.
    """
    if action not in (Action.SEND, Action.RECEIVE, Action.BROWSE):
        return ((action, name, pattern),)
    kind = classify(name)
    if pattern is None and is_watching(name):
        return ((Action.MONITOR, name, None),)
    if pattern is None and kind is Kind.STREAM:
        return tuple(
            (Action.MONITOR if is_watching(topic) else Action.RECEIVE, topic, None)
            for topic in _topics_of(name)
        )
    if action is Action.BROWSE and kind is not Kind.QUEUE:
        action = Action.RECEIVE
    if pattern is None or kind is Kind.QUEUE:
        return ((action, name, pattern),)  # a wildcard for queues reaches nothing that watches
    if covers(_DIAG_TOPICS, pattern):
        return ((Action.MONITOR, name, pattern),)
    found: list[Need] = [(action, name, pattern)]
    if overlaps(pattern, _DIAG_TOPICS):
        found.append((Action.MONITOR, f"{_DIAG}*", _DIAG_TOPICS))
    if overlaps(pattern, MONITOR):
        found.append((Action.MONITOR, MONITOR, None))
    return tuple(found)


def places(destination: str) -> tuple[tuple[str, Pattern | None], ...]:
    """Return the names that a client means by a destination, each with its pattern if a wildcard.

    Raises:
      ProtocolError: as SEND and SUBSCRIBE would, in the native dialect.
    """
    names = resolve(destination, dialect(NATIVE))
    return tuple((name, compile_pattern(name, "native")) for name in names)


def _topics_of(stream: str) -> tuple[str, ...]:
    """Return the topics that a stream may be the log of, to whose readers it is open."""
    path = stream.removeprefix(STREAM.rstrip("/"))
    return (path,) if path == "/" or path.startswith("/topic/") else (path, path[1:])


def hides(earlier: Rule, later: Rule, groups: Mapping[str, frozenset[str]]) -> bool:
    """Return whether ``later`` decides nothing, since ``earlier`` is for all that it is for.

    Says False where that is hard to see.
    """
    if not (later.actions <= earlier.actions and _is_for_all_of(earlier, later, groups)):
        return False
    return all(
        any(covers(wide, narrow) for wide in (*earlier.fixed, *earlier.personal(user)))
        for user in (_SOME_USERS if later.is_personal else _SOME_USERS[:1])
        for narrow in (*later.fixed, *later.personal(user))
    )


def _is_for_all_of(earlier: Rule, later: Rule, groups: Mapping[str, frozenset[str]]) -> bool:
    everybody = "*" in earlier.users or not (earlier.users or earlier.groups)
    if not (later.users or later.groups):
        return everybody
    members = frozenset[str]().union(*(groups.get(each, ()) for each in earlier.groups))
    return (everybody or later.groups <= earlier.groups) and all(
        user in earlier.users
        or (user != ANONYMOUS_NAME and everybody)
        or user in members
        or any(_is_wider(each, user) for each in earlier.users)
        for user in later.users
    )


def _is_wider(glob: str, other: str) -> bool:
    """Return whether ``glob`` matches what ``other`` does, or False if that is hard to see.

    A star of ``other`` can be nothing to ``glob`` but a part of what a star of its own matches.
    """
    is_clear = "?" not in glob or "*" not in other
    return other != ANONYMOUS_NAME and is_clear and glob_matches(glob, other)
