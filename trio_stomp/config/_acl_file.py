"""Access rules from a TOML file.

    [groups]
    ops = ["alice", "bob"]

    [certificates]
    "CN=billing,O=Acme" = "billing"

    [[rule]]
    allow = ["send", "receive"]
    to = "/topic/{user}/**"
    user = "app-*"

The first matching rule decides, in the order of the file. Without a match, access is denied.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from attrs import frozen

from trio_stomp.base import ANONYMOUS_NAME, OptionError
from trio_stomp.broker import AccessRules, Action, Rule
from trio_stomp.config._load import hint
from trio_stomp.config._toml_file import read_toml

MAX_RULES = 10_000
MAX_PERSONAL_RULES = 256
"""Maximum number of rules with ``{user}``, for which each client needs its own patterns."""

NO_LINES: Mapping[tuple[str | int, ...], int] = MappingProxyType({})

ALL = "all"
_SECTIONS = ("groups", "certificates", "rule")
_KEYS = ("allow", "deny", "to", "user", "group")
_HEADER = re.compile(r"""^[ \t]*\[\[[ \t]*(?:rule|"rule"|'rule')[ \t]*\]\]""", re.MULTILINE)


def read_acl_file(path: str) -> AccessRules:
    """Return the rules of a file, in order.

    Raises:
      OptionError: the file is wrong; the text names the file, the line and number of the rule,
        the key and the remedy.

    Limits: those of ``read_toml``, MAX_RULES, MAX_PERSONAL_RULES.
    """
    file = read_toml(path, "put users into [groups] and name these")
    for section in file.tables:
        if section not in _SECTIONS:
            raise OptionError(
                f"{path}: unknown key {section!r}{hint(section, _SECTIONS)};"
                " there are [groups], [certificates] and [[rule]]"
            )
    return rules_of([RulePart(path, file.text, file.tables)])


@frozen(repr=False)
class RulePart:
    """The access rules of one file.

    Args:
      text: The whole text of the file, for line numbers.
      tables: The tables ``groups``, ``certificates`` and ``rule``; others are ignored.
      lines: Known line numbers of keys such as ``("groups", "ops")`` and ``("rule", 0)``.
    """

    path: str
    text: str
    tables: Mapping[str, object]
    lines: Mapping[tuple[str | int, ...], int] = NO_LINES

    def location(self, *keys: str | int) -> str:
        """Return the file, and the line of a key if known."""
        return f"{self.path}:{self.lines[keys]}" if keys in self.lines else self.path


def rules_of(parts: Sequence[RulePart]) -> AccessRules:
    """Return the rules of several files in order, as if they were one file.

    Of several groups or certificates with the same name, the last one counts.

    Raises:
      OptionError: as ``read_acl_file``.
    """
    groups: dict[str, frozenset[str]] = {}
    certificates: dict[str, str] = {}
    for part in parts:
        for name, users in _table(part, "groups").items():
            groups[name] = _members(part.location("groups", name), name, users)
        for subject, user in _table(part, "certificates").items():
            location = part.location("certificates", subject)
            certificates[subject] = _certificate_user(location, subject, user)
    return AccessRules(_rules(parts, groups), groups, certificates)


def _table(part: RulePart, section: str) -> dict[str, object]:
    found = part.tables.get(section, {})
    if not isinstance(found, dict):
        raise OptionError(
            f"{part.location(section)}: {section} must be a table, which begins with [{section}]"
        )
    return found


def _members(location: str, group: str, users: object) -> frozenset[str]:
    where = f"{location}: group {group!r}"
    if not isinstance(users, list) or not all(isinstance(each, str) for each in users):
        raise OptionError(f'{where} is {_shown(users)}, but must be a list, as in ["ann", "bob"]')
    for user in users:
        _check_user(where, user)
        if "*" in user or "?" in user:
            raise OptionError(
                f"{where} holds {user!r}, but groups hold names, not globs; write user = {user!r}"
                " in the rule"
            )
    return frozenset(users)


def _certificate_user(location: str, subject: str, user: object) -> str:
    where = f"{location}: certificate {subject!r}"
    if not isinstance(user, str):
        raise OptionError(f'{where} is {_shown(user)}, but must be a user, as in "billing"')
    _check_user(where, user)
    return user


def _check_user(where: str, user: str) -> None:
    if user in ("", ANONYMOUS_NAME):
        raise OptionError(
            f"{where} holds {user!r}, which cannot be a user's name; a rule can say"
            f' user = "{ANONYMOUS_NAME}" for those who do not'
        )


def _rules(parts: Sequence[RulePart], groups: Mapping[str, frozenset[str]]) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    personal = 0
    for part in parts:
        tables = _rule_tables(part, len(rules))
        for location, table in zip(_locations(part, len(tables)), tables, strict=True):
            rule = _Table(location, table).rule(groups)
            personal += rule.is_personal
            if personal > MAX_PERSONAL_RULES:
                raise OptionError(
                    f"{location}: is one rule with {{user}} too many, the limit is"
                    f" {MAX_PERSONAL_RULES}; one such rule is enough for all users"
                )
            rules.append(rule)
    return tuple(rules)


def _rule_tables(part: RulePart, before: int) -> list[dict[str, object]]:
    tables = part.tables.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise OptionError(f"{part.location('rule')}: rules begin with [[rule]], in double brackets")
    if before + len(tables) > MAX_RULES:
        raise OptionError(
            f"{part.path}: has {len(tables)} rules{f' after {before} others' if before else ''},"
            f" the limit is {MAX_RULES}; a rule can name many destinations, users and groups"
        )
    return tables


def _locations(part: RulePart, count: int) -> Iterator[str]:
    """Yield the position of each rule, found by its header since ``tomllib`` gives no lines."""
    if part.lines:
        for number in range(1, count + 1):
            yield f"{part.location('rule', number - 1)} (rule {number})"
        return
    path, text = part.path, part.text.replace("\r\n", "\n")
    starts = [found.start() for found in _HEADER.finditer(text)]
    line, seen = 1, 0
    for number in range(1, count + 1):
        if len(starts) != count:  # a header inside a string, or rules without one: no line numbers
            yield f"{path} (rule {number})"
            continue
        line += text.count("\n", seen, starts[number - 1])
        seen = starts[number - 1]
        yield f"{path}:{line} (rule {number})"


@frozen
class _Table:
    """A rule as written in the file."""

    location: str
    values: Mapping[str, object]

    def rule(self, groups: Mapping[str, frozenset[str]]) -> Rule:
        for key in self.values:
            if key not in _KEYS:
                raise OptionError(
                    f"{self.location}: unknown key {key!r}{hint(key, _KEYS)};"
                    f" there are {', '.join(_KEYS)}"
                )
        if ("allow" in self.values) == ("deny" in self.values):
            has = "both allow and deny" if "allow" in self.values else "neither allow nor deny"
            raise OptionError(f"{self.location}: has {has}; a rule has one of them")
        if "to" not in self.values:
            raise OptionError(f'{self.location}: to is missing; write to = "**" for everywhere')
        named = self._texts("group")
        for group in named:
            if group not in groups:
                raise OptionError(
                    f"{self.location}: unknown group {group!r}{hint(group, groups)}; declare it in"
                    f" [groups], with an empty list if it is a role that tokens bring"
                )
        allow = "allow" in self.values
        return Rule(
            allow,
            actions=self._actions("allow" if allow else "deny"),
            patterns=self._texts("to"),
            users=self._texts("user"),
            groups=frozenset(named),
            location=self.location,
        )

    def _actions(self, key: str) -> frozenset[Action]:
        actions = [action.value for action in Action]
        words = self._texts(key)
        for word in words:
            if word != ALL and word not in actions:
                raise OptionError(
                    f"{self.location}: unknown action {word!r} in {key}"
                    f"{hint(word, [*actions, ALL])}; there are {', '.join(actions)}, and {ALL}"
                )
        return frozenset(Action) if ALL in words else frozenset(map(Action, words))

    def _texts(self, key: str) -> tuple[str, ...]:
        """Return the strings of a key that holds one string or a list, or () if it is missing."""
        if key not in self.values:
            return ()
        value = self.values[key]
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(each, str) and each for each in texts):
            raise OptionError(
                f"{self.location}: {key} is {_shown(value)}, but must be a text or a list of texts,"
                f" none of them empty{self._remedy(key)}"
            )
        return tuple(texts)

    def _remedy(self, key: str) -> str:
        # An empty list must not turn a rule for a few into one for everybody.
        return "; leave the key out to match all users" if key in ("user", "group") else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
