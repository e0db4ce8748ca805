"""Files of access rules, compared with a slow model."""

import random
import re
from pathlib import Path

from _fuzz.target import Target, check, check_equal
from _fuzz.targets.files import own_file
from _fuzz.targets.wildcards import expression
from trio_stomp.base._errors import OptionError, ProtocolError
from trio_stomp.base._identity import Identity
from trio_stomp.broker.names._wildcards import compile_pattern
from trio_stomp.broker.rules._rights import Rights
from trio_stomp.broker.rules._rules import AccessRules, Action, needs
from trio_stomp.config._acl_file import read_acl_file

KEYS = (b"allow", b"deny", b"to", b"user", b"group", b"users")
TO = (
    *(b'"**"', b'"/topic/{user}/**"', b'["/queue/a", "/queue/b.>"]', b'"DIAG*"', b'"/topic/*"'),
    *(b'"/queue/monitor"', b'"a**b"', b'""', b'"{user}"', b'"/topic/{user}*"', b'"#.x"', b'"*"'),
    *(b'"/stream/topic/a"', b'"/topic/a.*.c"', b'"jms.queue.a"', b"[]", b"7", b'"/topic/x{user}y"'),
)
ACTIONS = (b'"all"', b'["send", "receive"]', b'"receive"', b'["browse","create"]', b'"fly"', b"[]")
USERS = (
    b'"ann"',
    b'"app-*"',
    b'"?nn"',
    b'"anonymous"',
    b'["a*n", "**"]',
    b'""',
    b"1",
    b'"*' * 3 + b'"',
)
SECTIONS = (
    b'[groups]\nops = ["ann", "bob"]\nnone = []\n',
    b'[certificates]\n"CN=x" = "ann"\n',
    b"[rules]\n",
    b'[groups]\nops = "ann"\n',
)
CLIENTS = (
    Identity(),
    Identity("ann"),
    Identity("*"),
    Identity("app-1", frozenset({"none"})),
    Identity("a/b"),
    Identity("anonymous"),
    Identity("DIAG"),
)
NAMES = (
    *("/topic/a", "/topic/ann/x", "/topic/*/x", "/queue/a", "/queue/b.c", "/queue/monitor", "#.x"),
    *("DIAG/process", "/stream/topic/a", "ann", "/topic/a.b.c", "/topic/xanny", "/topic/a/b/x", ""),
)
WILDCARDS = ("**", "/topic/*", "/topic/>", "/topic/a.*.c", "/topic/ann/**", "DIAG*", "/topic/*/x")


def make(name: str) -> Target:
    """The target."""
    path = own_file("acl.toml")

    def run(data: bytes) -> None:
        path.write_bytes(data)
        judge(path)

    words = (*TO, *ACTIONS, *USERS, *SECTIONS, *(b"\n%b = " % key for key in KEYS))
    words += (b"[[rule]]\n", b"{user}", b"\xff", b"=" + b"9" * 5000, b"x=" + b"[" * 3000, b"\0")
    files = ("config/_acl_file.py", "broker/rules/_rules.py", "broker/rules/_rights.py")
    return Target(name, run, files, generate, words, 8192)


def generate(chance: random.Random) -> bytes:
    """Return groups, then rules."""
    lines = [SECTIONS[0]] if chance.random() < 0.7 else chance.choices(SECTIONS, k=1)
    for _ in range(chance.randint(1, 5)):
        lines.append(b"[[rule]]\n")
        kind = chance.choice((b"allow", b"allow", b"deny"))
        lines.append(kind + b" = " + chance.choice(ACTIONS[: chance.choice((4, 6))]) + b"\n")
        lines.append(b"to = " + chance.choice(TO) + b"\n")
        if chance.random() < 0.5:
            lines.append(b"user = " + chance.choice(USERS[: chance.choice((5, 8))]) + b"\n")
        if chance.random() < 0.3:
            lines.append(b'group = "ops"\n')
    return b"".join(lines)


def judge(path: Path) -> None:
    """Read a file, and evaluate its rules in all ways."""
    try:
        rules = read_acl_file(str(path))
    except OptionError as error:
        check(str(path) in str(error), f"the file is not named: {error}")
        return
    for client in CLIENTS:
        rights = rules.rights(client)
        for action in (Action.SEND, Action.RECEIVE):
            allowed = {name for name in NAMES if rights.allows(action, name)}
            slowly = {name for name in NAMES if decide(rules, client, action, name)}
            check_equal(allowed, slowly, f"{client.name!r} may {action}")
            judge_wildcards(rights, action, allowed)


def judge_wildcards(rights: Rights, action: Action, allowed: set[str]) -> None:
    """Check that an allowed wildcard covers no denied destination."""
    for text in WILDCARDS:
        pattern = compile_pattern(text, "native")
        assert pattern is not None
        if rights.allows_pattern(action, text, pattern):
            reached = {name for name in NAMES if expression(pattern).fullmatch(name)}
            check(reached <= allowed, f"{text} reaches: {reached - allowed}")
        for need, name, wildcard in needs(action, text, pattern):
            check((wildcard is None) == (compile_pattern(name, "native") is None), f"need: {name}")
            rights.decide(need, name, wildcard)
        for name in (text, "/topic/a"):
            decision = rights.decide(action, name)
            check_equal(decision.allowed, rights.allows(action, name), f"verdict on {name}")


def decide(rules: AccessRules, client: Identity, action: Action, name: str) -> bool:
    """Return the decision of the first rule that matches."""
    user = "" if client.name == "anonymous" else client.name
    groups = client.roles | {
        group for group, users in rules.groups.items() if user and user in users
    }
    for rule in rules.rules:
        by_name = bool(user) and any(glob_matches(each, user) for each in rule.users)
        by_group = bool(rule.groups & groups)
        everybody = bool(user) and not rule.users and not rule.groups
        nobody = not user and "anonymous" in rule.users
        if not (nobody or (user and (by_name or by_group or everybody))):
            continue
        if action in rule.actions and any(
            matches(each, user, name, rule.allow) for each in rule.patterns
        ):
            return rule.allow
    return False


def glob_matches(glob: str, text: str) -> bool:
    """Return whether a glob matches a text, by trying all positions."""
    places = {0}
    for char in glob:
        if char == "*":
            places = set(range(min(places), len(text) + 1)) if places else places
        else:
            places = {at + 1 for at in places if text[at : at + 1] and char in ("?", text[at])}
    return len(text) in places


def matches(text: str, user: str, name: str, is_allow: bool) -> bool:
    """Return whether a rule's pattern matches a name, with ``{user}`` inserted as text."""
    try:
        pattern = compile_pattern(text, "native")
    except ProtocolError:
        return False
    has_user = "{user}" in text
    if has_user and is_allow:
        if not user or re.search("[./]", user):
            return False
        if text.startswith("{user}") and user.startswith(("#", "DIAG")):
            return False
    plain = re.escape(text) if pattern is None else expression(pattern).pattern
    return bool(re.fullmatch(plain.replace(re.escape("{user}"), re.escape(user)), name, re.DOTALL))
