"""The rights of one client: the rules that apply to it, and a cache of decisions."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from attrs import define, field, frozen

from trio_stomp.base import ANONYMOUS_NAME
from trio_stomp.broker.names import Pattern, WildcardTrie, covers, matches, overlaps

if TYPE_CHECKING:
    from trio_stomp.broker.rules._rules import Action, Rule

T = TypeVar("T")

MAX_CACHED = 4096
"""Limit of cached decisions."""
MAX_CACHED_CHARS = 256 * 1024
"""Limit of characters of the names in the cache."""
PATTERN_CHARS = 512
"""The most characters that a wildcard counts as, so that the decisions for one SUBSCRIBE fit."""
MANY_PATTERNS = 256
"""With more patterns of rules than this, the decision for a wildcard is found in pieces."""
STEP = 32
"""Patterns of rules checked in one piece of work."""

_VERBS = {
    "send": "send to",
    "receive": "receive from",
    "browse": "browse",
    "create": "create",
    "admin": "administer",
    "monitor": "monitor",
}


@frozen
class Decision:
    """A decision with its reason.

    Args:
      allowed: The decision.
      rule: The rule that decided; None = no rule matched, which denies.
      explanation: One line for the operator. Clients do not get it, because it names files.
    """

    allowed: bool
    rule: "Rule | None"
    explanation: str


@define(eq=False, repr=False)
class Rights:
    """The rights of one user, created by ``AccessRules.rights`` and shared by the connections.

    The cache of decisions is cleared when it is full.

    Args:
      user: The user name; "" = anonymous.
      rules: All rules.
      index: Indexes into ``rules``, by the patterns that are the same for all clients.
      applies: For each rule, whether it applies to this user.
      personal: The patterns with ``{user}`` replaced, by index of the rule.
    """

    user: str
    _rules: "Sequence[Rule]"
    _index: WildcardTrie[int]
    _applies: bytes
    _personal: Mapping[int, tuple[Pattern, ...]]
    allowed_names: set[str] = field(init=False, factory=set)
    """Destinations for which a SEND is allowed without further checks."""
    _cache: "dict[tuple[Action, str | Pattern], bool]" = field(init=False, factory=dict)
    _cached_chars: int = field(init=False, default=0)
    _are_many: bool = field(init=False)
    """There are more than MANY_PATTERNS patterns."""

    def __attrs_post_init__(self) -> None:
        count = len(self._index) + sum(map(len, self._personal.values()))
        self._are_many = count > MANY_PATTERNS

    def allows(self, action: "Action", name: str) -> bool:
        """Return whether the client may do ``action`` at the destination ``name``. Cached."""
        cached = self._cache.get((action, name))
        if cached is not None:
            return cached
        rule = self._rule_for(action, name)
        return self._remember(action, name, len(name), rule is not None and rule.allow)

    def allows_pattern(self, action: "Action", name: str, pattern: Pattern) -> bool:
        """Return whether the client may do ``action`` at all destinations of a wildcard. Cached.

        The wildcard is given as written and compiled.
        """
        cached = self._cache.get((action, pattern))
        return _at_once(self.asking(action, name, pattern)) if cached is None else cached

    def is_long(self, action: "Action", pattern: Pattern) -> bool:
        """Return whether ``allows_pattern`` takes long, so that ``asking`` must come first."""
        return self._are_many and (action, pattern) not in self._cache

    def asking(self, action: "Action", name: str, pattern: Pattern) -> Generator[None, None, bool]:
        """Find and cache the decision of ``allows_pattern`` in pieces."""
        rule, _ = yield from self._deciding_rule(action, pattern)
        size = min(len(name), PATTERN_CHARS)
        return self._remember(action, pattern, size, rule is not None and rule.allow)

    def decide(self, action: "Action", name: str, pattern: Pattern | None = None) -> Decision:
        """Return the decision of ``allows`` or ``allows_pattern`` with its reason.

        It is slow: not for each frame.
        """
        skipped: Rule | None = None
        if pattern is None:
            rule = self._rule_for(action, name)
        else:
            rule, skipped = _at_once(self._deciding_rule(action, pattern))
        user = repr(self.user[:80]) if self.user else ANONYMOUS_NAME
        verb = "may" if rule is not None and rule.allow else "may not"
        text = f"{user} {verb} {_VERBS[action]} {name[:80]!r}"
        if rule is not None and rule.allow:
            return Decision(True, rule, f"allowed by {rule.location}: {text}")
        if rule is not None:
            mine = (*rule.fixed, *rule.personal(self.user))
            whole = pattern is None or any(covers(each, pattern) for each in mine)
            part = "" if whole else ", which is for a part of it"
            return Decision(False, rule, f"denied by {rule.location}{part}: {text}")
        note = "" if skipped is None else f"; {skipped.location} allows only a part of it"
        return Decision(False, None, f"denied, since no rule allows it: {text}{note}")

    def _remember(self, action: "Action", key: str | Pattern, length: int, allowed: bool) -> bool:
        if len(self._cache) >= MAX_CACHED or self._cached_chars + length > MAX_CACHED_CHARS:
            self._cache.clear()
            self.allowed_names.clear()
            self._cached_chars = 0
        self._cache[action, key] = allowed
        self._cached_chars += length
        return allowed

    def _rule_for(self, action: "Action", name: str) -> "Rule | None":
        """Return the first rule that matches ``name``, or None."""
        rules, applies = self._rules, self._applies
        indexes = [
            index
            for index in self._index.match(name)
            if applies[index] and action in rules[index].actions
        ]
        for index, patterns in self._personal.items():
            if action in rules[index].actions and any(matches(each, name) for each in patterns):
                indexes.append(index)
        return rules[min(indexes)] if indexes else None

    def _deciding_rule(
        self, action: "Action", pattern: Pattern
    ) -> "Generator[None, None, tuple[Rule | None, Rule | None]]":
        """Find the rule that decides for all of ``pattern``, in pieces.

        A rule that denies a part denies the whole, because messages are not checked one by one. A
        rule that allows a part is skipped, because a later one may allow the whole.

        Returns:
          The rule, and the first skipped rule, if any.
        """
        skipped: Rule | None = None
        for count, (rule, each) in enumerate(self._patterns(action), 1):
            if count % STEP == 0:
                yield
            if not rule.allow:
                if overlaps(each, pattern):
                    return rule, skipped
            elif covers(each, pattern):
                return rule, skipped
            elif skipped is None and overlaps(each, pattern):
                skipped = rule
        return None, skipped

    def _patterns(self, action: "Action") -> "Iterator[tuple[Rule, Pattern]]":
        for index, rule in enumerate(self._rules):
            if self._applies[index] and action in rule.actions:
                for each in (*rule.fixed, *self._personal.get(index, ())):
                    yield rule, each


def _at_once(work: Generator[None, None, T]) -> T:
    """Do all pieces of a work, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found
