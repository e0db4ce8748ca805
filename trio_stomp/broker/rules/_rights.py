"""What one client may do: the rules that are for it, and what they have answered so far."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from attrs import define, field, frozen

from trio_stomp.base import ANONYMOUS_NAME
from trio_stomp.broker.names import Pattern, WildcardTrie, covers, matches, overlaps

if TYPE_CHECKING:
    from trio_stomp.broker.rules._rules import Action, Rule

T = TypeVar("T")

MAX_CACHED = 4096
"""Answers that one client's rights remember."""
MAX_CACHED_CHARS = 256 * 1024
"""Characters of the names among them."""
PATTERN_CHARS = 512
"""A wildcard counts as no more than so many: what one SUBSCRIBE asks is remembered until it is
done."""
MANY_PATTERNS = 256
"""To look whether a wildcard is allowed by more patterns than this takes long."""
STEP = 32
"""Patterns of rules that are looked at in one piece of work."""

_VERBS = {
    "send": "send to",
    "receive": "receive from",
    "browse": "browse",
    "create": "create",
    "admin": "administer",
    "monitor": "monitor",
}


@frozen
class Verdict:
    """The answer whether something is allowed, and why.

    Args:
      rule: The rule that decided; None = none did, which denies.
      explanation: One line for the operator. Clients are not told it: it says where rules are.
    """

    allowed: bool
    rule: "Rule | None"
    explanation: str


@define(eq=False, repr=False)
class Rights:
    """The rights of one client, by rules that do not change, made by ``AccessRules.rights``.

    Args:
      user: The client's name; "" = anonymous.
      rules: All rules.
      index: The place in ``rules`` of each, under each pattern that is the same for all clients.
      applies: By place, whether the rule is for this client.
      personal: By place, the patterns that are this client's own; of few rules.

    Limits: remembers MAX_CACHED answers, once for all connections of the user, then begins anew.
    """

    user: str
    _rules: "Sequence[Rule]"
    _index: WildcardTrie[int]
    _applies: bytes
    _personal: Mapping[int, tuple[Pattern, ...]]
    cleared: set[str] = field(init=False, factory=set)
    """Names among the answers that a SEND needs nothing else for: one look tells it."""
    _known: "dict[tuple[Action, str | Pattern], bool]" = field(init=False, factory=dict)
    _known_chars: int = field(init=False, default=0)
    _are_many: bool = field(init=False)
    """There may be more than MANY_PATTERNS."""

    def __attrs_post_init__(self) -> None:
        count = len(self._index) + sum(map(len, self._personal.values()))
        self._are_many = count > MANY_PATTERNS

    def allows(self, action: "Action", name: str) -> bool:
        """Return whether the client may do ``action`` at the one destination ``name``.

        One look in a table if it has been asked before.
        """
        known = self._known.get((action, name))
        if known is not None:
            return known
        rule = self._rule_for(action, name)
        return self._remember(action, name, len(name), rule is not None and rule.allow)

    def allows_pattern(self, action: "Action", name: str, pattern: Pattern) -> bool:
        """Return whether the client may do ``action`` at all that a wildcard matches.

        Args:
          action: The action.
          name: The wildcard as it was written.
          pattern: What it is, in the grammar of whoever wrote it.
        """
        known = self._known.get((action, pattern))
        if known is not None:
            return known
        rule, _ = _at_once(self._deciding_rule(action, pattern))
        return self._remember(action, pattern, _chars(name), rule is not None and rule.allow)

    def is_long(self, action: "Action", pattern: Pattern) -> bool:
        """Return whether ``allows_pattern`` takes long, so that ``asking`` must be done first."""
        return self._are_many and (action, pattern) not in self._known

    def asking(self, action: "Action", name: str, pattern: Pattern) -> Iterator[None]:
        """Find out in pieces what ``allows_pattern`` tells then."""
        rule, _ = yield from self._deciding_rule(action, pattern)
        self._remember(action, pattern, _chars(name), rule is not None and rule.allow)

    def verdict(self, action: "Action", name: str, pattern: Pattern | None = None) -> Verdict:
        """Return the answer of ``allows`` or ``allows_pattern`` with its reason.

        Not for the hot path.
        """
        passed_over: Rule | None = None
        if pattern is None:
            rule = self._rule_for(action, name)
        else:
            rule, passed_over = _at_once(self._deciding_rule(action, pattern))
        who = repr(self.user[:80]) if self.user else ANONYMOUS_NAME
        can = "may" if rule is not None and rule.allow else "may not"
        said = f"{who} {can} {_VERBS[action]} {name[:80]!r}"
        if rule is not None and rule.allow:
            return Verdict(True, rule, f"allowed by {rule.place}: {said}")
        if rule is not None:
            mine = (*rule.fixed, *rule.personal(self.user))
            whole = pattern is None or any(covers(each, pattern) for each in mine)
            part = "" if whole else ", which is for a part of it"
            return Verdict(False, rule, f"denied by {rule.place}{part}: {said}")
        some = "" if passed_over is None else f"; {passed_over.place} allows only a part of it"
        return Verdict(False, None, f"denied, since no rule allows it: {said}{some}")

    def _remember(self, action: "Action", key: str | Pattern, length: int, allowed: bool) -> bool:
        if len(self._known) >= MAX_CACHED or self._known_chars + length > MAX_CACHED_CHARS:
            self._known.clear()
            self.cleared.clear()
            self._known_chars = 0
        self._known[action, key] = allowed
        self._known_chars += length
        return allowed

    def _rule_for(self, action: "Action", name: str) -> "Rule | None":
        """Return the first rule that is for ``name``."""
        rules, applies = self._rules, self._applies
        places = [
            place
            for place in self._index.match(name)
            if applies[place] and action in rules[place].actions
        ]
        for place, patterns in self._personal.items():
            if action in rules[place].actions and any(matches(each, name) for each in patterns):
                places.append(place)
        return rules[min(places)] if places else None

    def _deciding_rule(
        self, action: "Action", pattern: Pattern
    ) -> "Generator[None, None, tuple[Rule | None, Rule | None]]":
        """Find the deciding rule for all of ``pattern`` and the first skipped one, in pieces.

        What a rule denies a part of, it denies: messages are not judged one by one. What it allows
        a part of is left to later rules, which may allow the whole.
        """
        passed_over: Rule | None = None
        for count, (rule, each) in enumerate(self._patterns(action), 1):
            if count % STEP == 0:
                yield
            if not rule.allow:
                if overlaps(each, pattern):
                    return rule, passed_over
            elif covers(each, pattern):
                return rule, passed_over
            elif passed_over is None and overlaps(each, pattern):
                passed_over = rule
        return None, passed_over

    def _patterns(self, action: "Action") -> "Iterator[tuple[Rule, Pattern]]":
        for place, rule in enumerate(self._rules):
            if self._applies[place] and action in rule.actions:
                for each in (*rule.fixed, *self._personal.get(place, ())):
                    yield rule, each


def _at_once(work: Generator[None, None, T]) -> T:
    """Do all pieces of a work, and return what it comes to."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found


def _chars(name: str) -> int:
    return min(len(name), PATTERN_CHARS)
