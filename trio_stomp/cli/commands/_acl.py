"""``trio-stomp acl``: test, check and show access rules without a broker."""

import argparse

from attrs import frozen

from trio_stomp.base import ANONYMOUS, ANONYMOUS_NAME, Identity, OptionError, ProtocolError
from trio_stomp.broker import (
    AccessRules,
    Action,
    Decision,
    Need,
    Rule,
    built_in_rules,
    hides,
    needs,
    targets,
)
from trio_stomp.cli._command import JSON, Argument, Command
from trio_stomp.cli._tool import report
from trio_stomp.config import hint, read_acl_file

ALLOWED, DENIED = 0, 1
MAX_COMPARED = 1_000_000
"""Most pairs of rules that ``check`` compares."""

EPILOG = """\
USER is a client's name, or `anonymous` for one that has not logged in. ACTION is send, receive,
browse, create, admin or monitor. DESTINATION may be a composite, or a wildcard except for send;
quote it. Using a queue that does not exist yet also needs create. Without --acl-file the built-in
rules apply. The exit code is 0 if everything is allowed, 1 if something is denied, 2 for a bad
option or file.
"""


def _rules(path: str) -> AccessRules:
    return read_acl_file(path) if path else built_in_rules()


# test


@frozen
class _Answer:
    """The rules' answer for one required permission."""

    destination: str
    action: Action
    decision: Decision


def _test(given: argparse.Namespace) -> int:
    action = _action(given.action)
    if not given.user:
        raise OptionError(
            f"acl test: USER is empty; write {ANONYMOUS_NAME} for a client that has not logged in"
        )
    identity = ANONYMOUS
    if given.user != ANONYMOUS_NAME:
        identity = Identity(given.user, frozenset(given.group))
    rights = _rules(given.acl_file).rights(identity)
    answers = [
        _Answer(name, needed, rights.decide(needed, name, pattern))
        for needed, name, pattern in _needs(given.destination, action)
    ]
    allowed = all(answer.decision.allowed for answer in answers)
    lines = [line for each in answers for line in each.decision.explanation.splitlines()]
    if any(answer.action is Action.MONITOR for answer in answers) and action != Action.MONITOR:
        lines.append(f"note: the broker's own topics require {Action.MONITOR}, not {action}")
    found = {
        "user": given.user,
        "action": given.action,
        "destination": given.destination,
        "allowed": allowed,
        "needed": [_record(answer) for answer in answers],
    }
    return report(given, found, *lines, code=ALLOWED if allowed else DENIED)


def _action(word: str) -> Action:
    actions = [action.value for action in Action]
    if word not in actions:
        raise OptionError(
            f"acl test: unknown action {word!r}{hint(word, actions)}; there are"
            f" {', '.join(actions)}"
        )
    return Action(word)


def _needs(destination: str, action: Action) -> list[Need]:
    """Return the permissions that an action needs for ``destination``."""
    if not destination:
        raise OptionError("acl test: DESTINATION is empty; write ** for all of them")
    found: list[Need] = []
    try:
        for name, pattern in targets(destination):
            if pattern is not None and action is Action.SEND:
                raise OptionError(
                    f"acl test: {name[:80]!r} is a wildcard, which cannot be sent to; name a "
                    "destination that it matches"
                )
            found += needs(action, name, pattern)
    except ProtocolError as error:
        raise OptionError(f"acl test: {error}") from None
    return found


def _record(answer: _Answer) -> dict[str, object]:
    rule = answer.decision.rule
    return {
        "action": answer.action.value,
        "destination": answer.destination,
        "allowed": answer.decision.allowed,
        "rule": rule.location if rule is not None else None,
        "explanation": answer.decision.explanation,
    }


# check


def _check(given: argparse.Namespace) -> int:
    rules = read_acl_file(given.file)
    hidden, compared = _hidden(rules)
    lines = [
        f"warning: {later.location} never decides: {earlier.location} precedes it and covers"
        " all of it; move it up, or delete it"
        for later, earlier in hidden
    ]
    if not compared:
        lines.append(f"note: not all pairs of {len(rules.rules)} rules were compared")
    counts = (
        (len(rules.rules), "rule"),
        (len(rules.groups), "group"),
        (len(rules.certificates), "certificate"),
        (len(hidden), "warning"),
    )
    counted = ", ".join(f"{n or 'no'} {what}{'' if n == 1 else 's'}" for n, what in counts)
    found = {
        "rules": len(rules.rules),
        "groups": len(rules.groups),
        "certificates": len(rules.certificates),
        "hidden": [{"rule": later.location, "by": earlier.location} for later, earlier in hidden],
        "compared_all": compared,
    }
    return report(given, found, *lines, f"{given.file}: {counted}")


def _hidden(rules: AccessRules) -> tuple[list[tuple[Rule, Rule]], bool]:
    """Return rules that never decide with those that hide them, and whether all were compared."""
    found: list[tuple[Rule, Rule]] = []
    compared = 0
    for number, later in enumerate(rules.rules):
        compared += number
        if compared > MAX_COMPARED:
            return found, False
        for earlier in rules.rules[:number]:
            if hides(earlier, later, rules.groups):
                found.append((later, earlier))
                break
    return found, True


# show


def _show(given: argparse.Namespace) -> int:
    rules = _rules(given.acl_file).rules
    width = len(str(len(rules)))
    lines = [
        f"{number:>{width}}  {_described(rule)}  [{rule.location}]"
        for number, rule in enumerate(rules, 1)
    ]
    last = f"{'-':>{width}}  deny everything else"
    return report(given, [_fields(rule) for rule in rules], *lines, last)


def _described(rule: Rule) -> str:
    """Describe a rule in words. Names are quoted, so they cannot control the terminal."""
    every = len(rule.actions) == len(Action)
    actions = "everything" if every else ", ".join(a.value for a in Action if a in rule.actions)
    where = ", ".join(map(repr, rule.patterns))
    who = [f"user {user!r}" for user in rule.users]
    who += [f"group {group!r}" for group in sorted(rule.groups)]
    named = " or ".join(who) or "every logged-in user"
    return f"{'allow' if rule.allow else 'deny'} {actions} to {where} for {named}"


def _fields(rule: Rule) -> dict[str, object]:
    return {
        "allow": rule.allow,
        "actions": [action.value for action in Action if action in rule.actions],
        "to": list(rule.patterns),
        "users": list(rule.users),
        "groups": sorted(rule.groups),
        "rule": rule.location,
    }


ACL_FILE = Argument("--acl-file FILE", "rules, as TOML", default="")
GROUP = Argument("--group G...", "a role from the client's token; may be repeated", default=[])
COMMAND = Command(
    text="Tools for access rules.",
    epilog=EPILOG,
    commands={
        "test": Command(
            _test,
            (ACL_FILE, JSON, GROUP, *map(Argument, ("USER", "ACTION", "DESTINATION"))),
            "report whether a client may do something, and which rule decides",
        ),
        "check": Command(
            _check,
            (Argument("FILE"), JSON),
            "check a file of rules, and warn of rules that never decide",
        ),
        "show": Command(_show, (ACL_FILE, JSON), "list the rules in the order of evaluation"),
    },
)
