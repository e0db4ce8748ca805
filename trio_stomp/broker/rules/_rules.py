"""Access rules: the first rule that matches, in the operator's order, decides.

Without a matching rule a request is denied. Patterns are those of SUBSCRIBE in the native grammar,
whatever grammar clients use. In a word, ``{user}`` stands for the name of the client. It is
replaced after compilation, as text and never as a wildcard, so that a user called ``*`` is only one
user. A name with a separator would become several words, which ``/topic/{user}/**`` does not
intend: for such a user, ``{user}`` allows nothing, but denies literally.
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
from trio_stomp.broker.rules._rights import Decision as Decision
from trio_stomp.broker.rules._rights import Rights

USER = "{user}"
"""The name of the client in a rule's pattern."""
_DIAG = "DIAG"
_KINDS = ("#", _DIAG)
"""Prefixes of work queues and of the broker's own topics."""
_DIAG_TOPICS = Pattern((), glued=_DIAG)
_DIAG_STREAMS = Pattern(tuple(split(STREAM)[:-1]), glued=_DIAG)
_STARS = re.compile(r"\*+")
MAX_MADE = 1_024
"""Limit of users whose rights are cached."""
MAX_GLOB = 256
"""Limit of characters in a glob."""
_SOME_USERS = ("\0", "\0.\0", "\0/\0", "")
"""Sample names of each sort, in characters that no pattern has."""


class Action(StrEnum):
    """The actions that a rule allows or denies."""

    SEND = "send"
    RECEIVE = "receive"
    BROWSE = "browse"
    CREATE = "create"
    ADMIN = "admin"
    MONITOR = "monitor"


Need = tuple[Action, str, Pattern | None]
"""A required right: an action, a destination, and the pattern if it is a wildcard."""


@frozen
class Rule:
    """One rule. It applies to its users and groups or, without both, to all logged-in users.

    Args:
      allow: Whether it allows or denies.
      patterns: The destinations, as text.
      users: Globs of names, with ``*`` and ``?``.
      groups: Names of groups.
      location: File and line, for the operator.

    Raises:
      OptionError: A pattern or glob is invalid.
    """

    allow: bool
    actions: frozenset[Action]
    patterns: tuple[str, ...]
    users: tuple[str, ...] = ()
    groups: frozenset[str] = frozenset()
    location: str = ""
    fixed: tuple[Pattern, ...] = field(init=False, repr=False, eq=False)
    """The patterns without ``{user}``."""
    _personal: tuple[Pattern, ...] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        if not self.actions or not self.patterns:
            raise OptionError(f"{self.location}: a rule must name an action and a destination")
        for glob in self.users:
            if len(glob) > MAX_GLOB:
                raise OptionError(
                    f"{self.location}: user {glob[:40]!r}… has more than {MAX_GLOB} characters"
                )
        compiled = {_compile(text, self.location): None for text in self.patterns}
        personal = tuple(each for each in compiled if _has_user(each))
        fixed = tuple(each for each in compiled if not _has_user(each))
        object.__setattr__(self, "fixed", fixed)
        object.__setattr__(self, "_personal", personal)

    @property
    def is_personal(self) -> bool:
        """Return whether a pattern has ``{user}``."""
        return bool(self._personal)

    def personal(self, user: str) -> tuple[Pattern, ...]:
        """Return the patterns with ``{user}`` that apply to ``user`` ("" = anonymous)."""
        found = (_insert(pattern, user, self.allow) for pattern in self._personal)
        return tuple(each for each in found if each is not None)

    def is_for(self, user: str, groups: frozenset[str]) -> bool:
        """Return whether the rule applies to a user ("" = anonymous) in ``groups``."""
        if not user:
            return ANONYMOUS_NAME in self.users
        if not self.users and not self.groups:
            return True
        if not self.groups.isdisjoint(groups):
            return True
        return any(glob_matches(each, user) for each in self.users)


def _has_user(pattern: Pattern) -> bool:
    return any(token and USER in token for token in pattern.tokens)


def _compile(text: str, location: str) -> Pattern:
    if not text:
        raise OptionError(f"{location}: a destination is empty; write ** for all of them")
    try:
        # Refuse names of other brokers: they are never checked, so the rule would have no effect.
        (native,) = resolve(text, dialect(ARTEMIS))
        pattern = compile_pattern(text, "native", max_words=None) or as_pattern(text)
    except ProtocolError as error:
        raise OptionError(f"{location}: {error}") from None
    if native != text:
        raise OptionError(
            f"{location}: {text[:80]!r} is another broker's name of {native[:80]!r}; write that"
        )
    if USER in (pattern.glued or ""):
        raise OptionError(
            f"{location}: {text[:80]!r} has * in a word with {USER}, which would give user ann what"
            " is user anna's; write /** or .** behind the word"
        )
    if text.startswith("/") and USER in split(text)[2]:
        raise OptionError(
            f"{location}: {text[:80]!r} begins with /{USER}, which would give user queue all"
            f" queues; write a word before it, as in /topic/{USER}"
        )
    return pattern


def _insert(pattern: Pattern, user: str, allows: bool) -> Pattern | None:
    """Return ``pattern`` with ``{user}`` replaced, or None if it must not match for this user."""
    if allows:
        if not user or len(split(user)) > 1:
            return None
        first = pattern.tokens[0] or ""
        # A user name must not give access to work queues or DIAG.
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
    """Return whether a glob with ``*`` (any text) and ``?`` (any character) matches ``text``.

    The bits of an integer are the positions in the glob reached so far, so the time is linear.
    """
    glob = _STARS.sub("*", glob)
    positions_of: dict[str, int] = {}
    for index, char in enumerate(glob):
        positions_of[char] = positions_of.get(char, 0) | 1 << index
    star, any_char = positions_of.pop("*", 0), positions_of.pop("?", 0)
    positions = 1 | (1 & star) << 1
    for char in text:
        positions = (positions & (positions_of.get(char, 0) | any_char)) << 1 | positions & star
        positions |= (positions & star) << 1
    return bool(positions >> len(glob))


@frozen
class AccessRules:
    """All access rules.

    Args:
      rules: The rules in order.
      groups: Users by group. The roles of tokens are groups, too.
      certificates: Users by name in client certificates. Not used here.
    """

    rules: tuple[Rule, ...] = ()
    groups: Mapping[str, frozenset[str]] = field(factory=dict)
    certificates: Mapping[str, str] = field(factory=dict)
    _index: WildcardTrie[int] = field(init=False, factory=WildcardTrie, repr=False, eq=False)
    _made: dict[tuple[str, frozenset[str]], Rights] = field(
        init=False, factory=dict, repr=False, eq=False
    )
    """Cached rights by name and roles, shared by the connections of a user."""

    def __attrs_post_init__(self) -> None:
        for index, rule in enumerate(self.rules):
            for pattern in rule.fixed:
                self._index.add(pattern, index)

    def rights(self, identity: Identity) -> Rights:
        """Return the rights of a client. This checks each rule: not for each frame."""
        # No user is called anonymous. If a token says so, treat it as no name.
        name = "" if identity.name == ANONYMOUS_NAME else identity.name
        rights = self._made.get((name, identity.roles))
        if rights is None:
            if len(self._made) >= MAX_MADE:
                self._made.clear()
            rights = self._made[name, identity.roles] = self._make(name, identity)
        return rights

    def _make(self, name: str, identity: Identity) -> Rights:
        groups = identity.roles | {group for group, users in self.groups.items() if name in users}
        applies = bytes(rule.is_for(name, groups) for rule in self.rules)
        personal = {
            index: patterns
            for index, rule in enumerate(self.rules)
            if rule.is_personal and applies[index] and (patterns := rule.personal(name))
        }
        return Rights(name, self.rules, self._index, applies, personal)


def built_in_rules() -> AccessRules:
    """Return the rules for a broker with users but without rules: users may use all destinations.

    Users and tokens may have the roles ``monitor`` and ``admin``.
    """
    everywhere, everybody = ("**",), frozenset[str]()
    use = frozenset({Action.SEND, Action.RECEIVE, Action.BROWSE, Action.CREATE})
    watch = frozenset({Action.MONITOR, Action.RECEIVE})
    rows = (
        (True, frozenset(Action), everywhere, frozenset({"admin"})),
        # RECEIVE as well: a wildcard that also matches ordinary destinations needs both.
        (True, watch, everywhere, frozenset({"monitor"})),
        (False, use, ("DIAG*", f"{DIAG_STREAM}*"), everybody),
        # Not RECEIVE or BROWSE: /queue/* matches no topic, and the name itself needs MONITOR.
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
                location=f"built-in rule {number}",
            )
            for number, (allow, actions, patterns, groups) in enumerate(rows, 1)
        )
    )


def is_watching(name: str) -> bool:
    """Return whether using ``name`` shows the state of the broker, which needs MONITOR."""
    return name.startswith((_DIAG, DIAG_STREAM)) or name == MONITOR


def needs(action: Action, name: str, pattern: Pattern | None = None) -> tuple[Need, ...]:
    """Return the rights required for ``action`` at a destination, given by its native name.

    ``pattern`` is the name compiled if it is a wildcard.
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
        return ((action, name, pattern),)  # a wildcard for queues matches no such name
    if covers(_DIAG_TOPICS, pattern):
        return ((Action.MONITOR, name, pattern),)
    found: list[Need] = [(action, name, pattern)]
    if overlaps(pattern, _DIAG_TOPICS):
        found.append((Action.MONITOR, f"{_DIAG}*", _DIAG_TOPICS))
    if overlaps(pattern, MONITOR):
        found.append((Action.MONITOR, MONITOR, None))
    return tuple(found)


def targets(destination: str) -> tuple[tuple[str, Pattern | None], ...]:
    """Return the names of a destination in the native dialect, each with its pattern or None.

    Raises:
      ProtocolError: The destination is invalid.
    """
    names = resolve(destination, dialect(NATIVE))
    return tuple((name, compile_pattern(name, "native")) for name in names)


def _topics_of(stream: str) -> tuple[str, ...]:
    """Return the topics to which a stream may belong. Their rights apply to it."""
    path = stream.removeprefix(STREAM.rstrip("/"))
    return (path,) if path == "/" or path.startswith("/topic/") else (path, path[1:])


def hides(earlier: Rule, later: Rule, groups: Mapping[str, frozenset[str]]) -> bool:
    """Return whether ``later`` has no effect, because ``earlier`` always decides before.

    Args:
      earlier: A rule.
      later: A rule after it.
      groups: Users by group.

    Returns:
      False also if this is hard to decide.
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
    """Return whether ``glob`` matches all that ``other`` matches. False if this is hard to decide.

    A star in ``other`` is an ordinary character here, which only a star in ``glob`` can match.
    """
    is_clear = "?" not in glob or "*" not in other
    return other != ANONYMOUS_NAME and is_clear and glob_matches(glob, other)
