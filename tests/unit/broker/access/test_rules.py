"""Rules: their users, the values of {user}, and the built-in rules."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_stomp.base import ANONYMOUS, Identity, OptionError, ProtocolError
from trio_stomp.broker.names import Pattern, compile_pattern, overlaps
from trio_stomp.broker.rules import (
    AccessRules,
    Action,
    Rights,
    Rule,
    built_in_rules,
    glob_matches,
    hides,
    needs,
    targets,
)

MAX_GLOB, MAX_MADE = 256, 1_024

ALL = frozenset(Action)
LETTER = "/topic/x"


def allow(*patterns: str, users: str = "", groups: str = "", actions: str = "") -> Rule:
    return make(True, patterns, users, groups, actions)


def deny(*patterns: str, users: str = "", groups: str = "", actions: str = "") -> Rule:
    return make(False, patterns, users, groups, actions)


def make(allows: bool, patterns: tuple[str, ...], users: str, groups: str, actions: str) -> Rule:
    chosen = frozenset(map(Action, actions.split())) or ALL
    return Rule(
        allows, chosen, patterns, tuple(users.split()), frozenset(groups.split()), "acl.toml:1"
    )


def rights(user: str, *rules: Rule, roles: str = "", **groups: str) -> Rights:
    members = {name: frozenset(users.split()) for name, users in groups.items()}
    identity = Identity(user, frozenset(roles.split()), method="passcode" if user else "")
    return AccessRules(rules, members).rights(identity)


# Users that a rule applies to.


@pytest.mark.parametrize(
    ("rule", "user", "is_meant"),
    [
        (allow("**"), "alice", True),
        (allow("**"), "", False),
        (allow("**"), "anonymous", False),  # a token with this user is worth no more than none
        (allow("**", users="*"), "alice", True),
        (allow("**", users="*"), "", False),
        (allow("**", users="*"), "anonymous", False),
        (allow("**", users="anon*"), "", False),
        (allow("**", users="anonymous"), "", True),
        (allow("**", users="anonymous"), "alice", False),
        (allow("**", users="bob anonymous"), "", True),
        (allow("**", users="app-*"), "app-1", True),
        (allow("**", users="app-*"), "App-1", False),
        (allow("**", users="app-*"), "my-app-1", False),
        (allow("**", groups="ops"), "bob", True),
        (allow("**", groups="ops"), "alice", False),
        (allow("**", groups="ops"), "", False),
        (allow("**", groups="nobody"), "bob", False),
        (allow("**", users="alice", groups="ops"), "alice", True),
        (allow("**", users="alice", groups="ops"), "bob", True),
        (allow("**", users="alice", groups="ops"), "carol", False),
    ],
)
def test_users_that_a_rule_applies_to(rule: Rule, user: str, is_meant: bool):
    assert rights(user, rule, ops="bob bert").allows(Action.SEND, LETTER) is is_meant


def test_a_role_is_a_group_whatever_the_file_says_of_its_members():
    rule = allow("**", groups="ops")
    assert rights("alice", rule, roles="ops x", ops="bob").allows(Action.SEND, LETTER)
    assert not rights("alice", rule, roles="x", ops="bob").allows(Action.SEND, LETTER)


def test_anonymous_client_is_in_no_group():
    rules = AccessRules((allow("**", groups="ops"),), {"ops": frozenset({"anonymous", ""})})
    for identity in (ANONYMOUS, Identity("", frozenset({"ops"})), Identity("anonymous")):
        assert not rules.rights(identity).allows(Action.SEND, LETTER)


# Globs.


@pytest.mark.parametrize(
    ("glob", "reached", "missed"),
    [
        ("", [""], ["a"]),
        ("a", ["a"], ["", "aa", "b", "A"]),
        ("*", ["", "a", "abc", "a/b", "*"], []),
        ("?", ["a", "?"], ["", "ab"]),
        ("a*", ["a", "abc"], ["ba", ""]),
        ("*a", ["a", "ba", "aa"], ["ab", ""]),
        ("a*b?c", ["abxc", "aXXbxbyc"], ["abc", "abxcd"]),
        ("**a**", ["a", "xax"], ["x", ""]),
        ("[a]", ["[a]"], ["a"]),
        ("a.c", ["a.c"], ["abc"]),
        ("\\*", ["\\", "\\x"], ["*"]),
        ("ü?", ["üß"], ["ü"]),
    ],
)
def test_globs(glob: str, reached: list[str], missed: list[str]):
    assert [text for text in reached if not glob_matches(glob, text)] == []
    assert [text for text in missed if glob_matches(glob, text)] == []


@settings(max_examples=500)
@given(st.text("ab*?", max_size=8), st.text("ab*?", max_size=8))
def test_globs_match_like_regular_expressions(glob: str, text: str):
    expression = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in glob)
    assert glob_matches(glob, text) == bool(re.fullmatch(expression, text, re.DOTALL))


def test_no_glob_takes_longer_than_its_text():
    glob = "a*" * (MAX_GLOB // 2 - 1) + "b"
    assert not glob_matches(glob, "a" * 20_000)  # a backtracking one would not end


# {user}.


def test_user_stands_for_the_name():
    mine = rights("app-1", allow("/topic/{user}/**", "/queue/reply-{user}"))
    assert mine.allows(Action.SEND, "/topic/app-1/x")
    assert mine.allows(Action.SEND, "/topic/app-1")
    assert mine.allows(Action.SEND, "/queue/reply-app-1")
    assert not mine.allows(Action.SEND, "/topic/app-2/x")
    assert not mine.allows(Action.SEND, "/topic/{user}/x")
    assert not mine.allows(Action.SEND, "/queue/reply-{user}")


EVIL = [
    "*",
    "**",
    ">",
    "#",
    "a/b",
    "a.b",
    "x/**",
    "../a",
    "/",
    ".",
    "{user}",
    "a*",
    "*a",
    "",
    "a,b",
]
VICTIMS = ["/topic/a", "/topic/a/b", "/topic/x/secret", "/topic/b/c.d", "/topic//x", "/topic/a.b"]


@pytest.mark.parametrize("user", EVIL)
def test_a_name_gains_nothing_by_how_it_is_spelled(user: str):
    rules = AccessRules((allow("/topic/{user}/**", "/topic/{user}", users="* anonymous"),))
    mine = rules.rights(Identity(user))
    assert [name for name in VICTIMS if mine.allows(Action.SEND, name)] == []
    for text in ("/topic/*", "/topic/**", "/topic/*/**", "/topic/a/**", "**", "/topic/*/x"):
        pattern = compile_pattern(text, "native")
        assert pattern is not None
        assert not mine.allows_pattern(Action.RECEIVE, text, pattern)
        seed = compile_pattern(text, "seed")
        assert seed is not None
        assert not mine.allows_pattern(Action.RECEIVE, text, seed)


@pytest.mark.parametrize("user", ["*", ">", "#", "{user}", "**"])
def test_a_name_that_looks_like_a_wildcard_still_has_its_own(user: str):
    mine = rights(user, allow("/topic/{user}/**"))
    assert mine.allows(Action.SEND, f"/topic/{user}/x")


@pytest.mark.parametrize("user", ["a/b", "a.b", "/", "."])
def test_denial_by_name_applies_to_exactly_that_name(user: str):
    mine = rights(user, deny("/topic/{user}/secret"), allow("/topic/**"))
    assert not mine.allows(Action.SEND, f"/topic/{user}/secret")
    assert mine.allows(Action.SEND, "/topic/other/secret")
    pattern = compile_pattern("/topic/**", "native")
    assert pattern is not None
    assert not mine.allows_pattern(Action.RECEIVE, "/topic/**", pattern)


def test_denial_with_the_empty_name_of_an_anonymous_user():
    rules = AccessRules(
        (deny("/topic/{user}/x", users="anonymous"), allow("/topic/**", users="anonymous"))
    )
    nobody = rules.rights(ANONYMOUS)
    assert not nobody.allows(Action.SEND, "/topic//x")
    assert nobody.allows(Action.SEND, "/topic/a/x")


@pytest.mark.parametrize("user", ["#jobs", "DIAG", "DIAGNOSIS"])
def test_user_name_does_not_own_work_queues_or_diag(user: str):
    mine = rights(user, allow("{user}/**", "{user}"))
    assert not mine.allows(Action.SEND, user)
    assert not mine.allows(Action.MONITOR, f"{user}/event")
    assert rights("ann", allow("{user}/**")).allows(Action.SEND, "ann/x")
    # A kind of destination written by the operator is intended.
    assert rights("ann", allow("#{user}/**")).allows(Action.SEND, "#ann/x")
    assert rights("ann", allow("DIAG/{user}")).allows(Action.SEND, "DIAG/ann")
    assert rights("ann", allow("*.{user}")).allows(Action.SEND, "x.ann")


@given(st.text("ab*>#{}./", max_size=4), st.text("ab*>#{}./", max_size=4))
def test_no_two_users_share_private_names(one: str, other: str):
    rule = allow("/topic/{user}/**", "/queue/q-{user}-{user}", "{user}.>")
    mine, theirs = rule.personal(one), rule.personal(other)
    if one != other:
        assert not any(overlaps(left, right) for left in mine for right in theirs)


# Invalid rules.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a destination is empty; write ** for all of them"),
        ("/topic/a*b", "no wildcard is allowed"),
        ("/topic/>.x", "no wildcard is allowed"),
        ("/topic/{user}*", "user ann what is user anna's; write /** or .**"),
        ("{user}*", "write /** or .**"),
        ("/{user}/**", "begins with /{user}, which would give user queue all queues"),
        ("/q{user}", "write a word before it, as in /topic/{user}"),
        ("/amq/queue/a", "another broker's name of '/queue/a'; write that"),
        ("/exchange/amq.topic/**", "another broker's name of '/topic/**'"),
        ("/remote-temp-queue/**", "another broker's name of '/reply-queue/**'"),
        ("/exchange/", "names no exchange"),
    ],
)
def test_a_bad_pattern_is_named_with_place_and_remedy(text: str, expected: str):
    with pytest.raises(OptionError) as caught:
        allow("/topic/fine", text)
    assert str(caught.value).startswith("acl.toml:1: ")
    assert expected in str(caught.value)
    if text:
        assert text[:80] in str(caught.value)


@pytest.mark.parametrize("text", ["/", "//", "a,b", "/topic/a,b", "/exchange/logs", "#", "/topic"])
def test_odd_names_are_names(text: str):
    assert allow(text).patterns == (text,)


def test_a_rule_without_action_or_destination_is_none():
    with pytest.raises(OptionError, match="must name an action and a destination"):
        Rule(True, frozenset(), ("a",))
    with pytest.raises(OptionError, match="must name an action and a destination"):
        Rule(True, ALL, ())


def test_globs_are_bounded():
    assert allow("a", users="x" * MAX_GLOB)
    with pytest.raises(OptionError, match=f"more than {MAX_GLOB} characters"):
        allow("a", users="x" * (MAX_GLOB + 1))


# The built-in rules.


def built_in(user: str, roles: str = "") -> Rights:
    return built_in_rules().rights(Identity(user, frozenset(roles.split())))


KEPT = ["DIAG", "DIAG/session", "DIAG/mine", "/stream/DIAG", "/stream/DIAG/session"]
USES = [Action.SEND, Action.RECEIVE, Action.BROWSE, Action.CREATE]


def test_any_logged_in_user_may_use_destinations():
    ann = built_in("ann")
    for name in ("/topic/a", "/queue/a", "#jobs", "plain", "/stream/a", "/reply-queue/x.y"):
        assert all(ann.allows(action, name) for action in USES)
        assert not ann.allows(Action.ADMIN, name)
        assert not ann.allows(Action.MONITOR, name)
    assert ann.decide(Action.SEND, "a").explanation.startswith("allowed by built-in rule 5: 'ann'")


@pytest.mark.parametrize("name", KEPT)
def test_names_reserved_for_the_broker_are_excluded(name: str):
    ann = built_in("ann")
    assert not any(ann.allows(action, name) for action in Action)
    assert ann.decide(Action.SEND, name).explanation.startswith("denied by built-in rule 3:")
    assert not any(
        built_in("ann").allows(action, "/queue/monitor")
        for action in set(Action) - {Action.RECEIVE, Action.BROWSE}
    )


def test_the_roles_of_observers_and_operators():
    watcher, admin, both = (built_in("x", roles) for roles in ("monitor", "admin", "x monitor"))
    for name in [*KEPT, "/queue/monitor"]:
        assert watcher.allows(Action.MONITOR, name)
        assert both.allows(Action.MONITOR, name)
        assert not watcher.allows(Action.ADMIN, name)
        assert not watcher.allows(Action.SEND, name)
        assert all(admin.allows(action, name) for action in Action)
    assert watcher.allows(Action.SEND, "/topic/a")
    assert not watcher.allows(Action.ADMIN, "/topic/a")


def test_anonymous_client_may_do_nothing():
    for nobody in (built_in(""), built_in("", "admin monitor"), built_in("anonymous", "admin")):
        assert not any(nobody.allows(action, "/topic/a") for action in Action)


@pytest.mark.parametrize(
    ("text", "is_allowed", "is_allowed_watchers"),
    [
        ("/topic/>", True, True),
        ("/queue/*", True, True),  # reaches no topic, and so not /queue/monitor
        ("/queue/>", True, True),
        ("#*", True, True),
        ("prices.*", True, True),
        ("DIAG*", False, True),
        ("DIAG/*", False, True),
        ("DIAG/event/>", False, True),
        (">", False, True),
        ("*", False, True),
        ("/*", False, True),
    ],
)
def test_wildcards_by_the_built_in_rules(text: str, is_allowed: bool, is_allowed_watchers: bool):
    pattern = compile_pattern(text, "native")
    for user, wanted in (
        (built_in("ann"), is_allowed),
        (built_in("ann", "monitor"), is_allowed_watchers),
        (built_in("ann", "admin"), True),
        (built_in(""), False),
    ):
        for action in (Action.RECEIVE, Action.BROWSE):
            asked = needs(action, text, pattern)
            assert all(user.decide(*each).allowed for each in asked) is wanted, asked


# Actions that need the right monitor.


@pytest.mark.parametrize("name", [*KEPT, "DIAGNOSE", "/queue/monitor"])
def test_names_that_watch(name: str):
    for action in (Action.SEND, Action.RECEIVE, Action.BROWSE):
        assert needs(action, name) == ((Action.MONITOR, name, None),)
    for action in (Action.CREATE, Action.ADMIN, Action.MONITOR):
        assert needs(action, name) == ((action, name, None),)


@pytest.mark.parametrize(
    "name", ["diag", "/topic/DIAG", "/queue/monitors", "/queue/monitor/x", "/stream/x", "/DIAG", ""]
)
def test_names_that_do_not(name: str):
    assert needs(Action.RECEIVE, name)[0][0] is not Action.MONITOR


DIAG = Pattern((), glued="DIAG")


@pytest.mark.parametrize(
    ("action", "text", "wanted"),
    [
        ("send", "/topic/a", ["send /topic/a"]),
        ("receive", "/topic/*", ["receive /topic/*"]),
        ("receive", "DIAG/event/*", ["monitor DIAG/event/*"]),
        ("receive", ">", ["receive >", "monitor DIAG*", "monitor /queue/monitor"]),
        ("receive", "D*", ["receive D*", "monitor DIAG*"]),
        ("receive", "/q*", ["receive /q*", "monitor /queue/monitor"]),
        ("receive", "/queue/*", ["receive /queue/*"]),
        ("browse", "/queue/*", ["browse /queue/*"]),
        ("browse", "/queue/a", ["browse /queue/a"]),
        ("browse", "/topic/a", ["receive /topic/a"]),  # browsing a topic consumes
        ("create", ">", ["create >"]),
        # A stream is as open as its topic.
        ("receive", "/stream/topic/a", ["receive /topic/a"]),
        ("send", "/stream/topic/a", ["receive /topic/a"]),
        ("browse", "/stream/a", ["receive /a", "receive a"]),
        ("receive", "/stream/", ["receive /"]),
        ("receive", "/stream/>", ["receive /stream/>"]),
        ("receive", "/stream/queue/monitor", ["monitor /queue/monitor", "receive queue/monitor"]),
        ("admin", "/stream/a", ["admin /stream/a"]),
    ],
)
def test_permissions_that_actions_need(action: str, text: str, wanted: list[str]):
    pattern = compile_pattern(text, "native")
    asked = needs(Action(action), text, pattern)
    assert [f"{each} {name}" for each, name, _ in asked] == wanted
    for _, name, each in asked:
        assert each == (DIAG if name == "DIAG*" else compile_pattern(name, "native"))


def test_monitor_right_does_not_allow_reading_messages():
    watcher = rights("x", allow("**", actions="monitor"))
    asked = needs(Action.RECEIVE, ">", compile_pattern(">", "native"))
    assert [watcher.decide(*each).allowed for each in asked] == [False, True, True]


def test_resolved_destination_of_a_client():
    assert targets("/amq/queue/a,/topic/b.*") == (
        ("/queue/a", None),
        ("/topic/b.*", compile_pattern("/topic/b.*", "native")),
    )
    with pytest.raises(ProtocolError):
        targets("/topic/a*b")


# Rules that never decide.


@pytest.mark.parametrize(
    ("earlier", "later", "is_hidden"),
    [
        (allow("**"), deny("/topic/a"), True),
        (allow("**"), deny("/topic/a", users="bob", groups="ops"), True),
        (allow("**"), deny("/topic/a", users="anonymous"), False),
        (allow("**", users="*"), deny("/topic/a", users="anonymous"), False),
        (allow("**", users="* anonymous"), deny("/topic/a", users="anonymous"), True),
        (allow("**", users="*"), allow("a"), True),
        (allow("**", users="app-*"), allow("a"), False),
        (allow("**", users="app-*"), allow("a", users="app-1 app-x-*"), True),
        (allow("**", users="app-?"), allow("a", users="app-1 app-?"), True),
        (allow("**", users="app-?"), allow("a", users="app-*"), False),
        (allow("**", users="app-1"), allow("a", users="app-*"), False),
        (allow("**", users="app-*"), allow("a", users="app-1", groups="ops"), False),
        (allow("**", groups="ops"), allow("a"), False),
        (allow("**", groups="ops x"), allow("a", groups="ops"), True),
        (allow("**", groups="ops"), allow("a", groups="ops x"), False),
        (allow("**", groups="ops"), allow("a", users="bob"), True),
        (allow("**", groups="ops"), allow("a", users="b*"), False),
        (allow("**", users="bob"), allow("a", groups="ops"), False),
        (allow("**", actions="send"), allow("a", actions="send receive"), False),
        (allow("**", actions="send receive"), allow("a", actions="send"), True),
        (allow("a", "b"), deny("b", "a"), True),
        (allow("a", "b"), deny("b", "c"), False),
        (allow("/topic/*"), deny("/topic/**"), False),
        (allow("/topic/{user}/**"), allow("/topic/{user}/x"), True),
        (allow("/topic/{user}/**"), allow("/topic/{user}"), True),
        (allow("/topic/*/x"), allow("/topic/{user}/x"), True),
        (allow("/topic/{user}/x"), allow("/topic/*/x"), False),
        (allow("/topic/{*"), allow("/topic/{user}/x"), False),
        (allow("/topic/**"), deny("/topic/{user}/x"), True),
        (deny("/topic/{user}/x"), deny("/topic/{user}/x"), True),
        # These deny something to a user called a/b.
        (allow("/topic/{user}/x"), deny("/topic/{user}/x"), False),
        (allow("/topic/*/x"), deny("/topic/{user}/x"), False),
    ],
)
def test_rules_that_hide_others(earlier: Rule, later: Rule, is_hidden: bool):
    assert hides(earlier, later, {"ops": frozenset({"bob"})}) is is_hidden


TEXTS = st.sampled_from(
    ["**", "a", "a/*", "a/**", "a/{user}", "a/{user}/x", "a/*/x", "*", "{user}"]
)
GLOBS = st.sampled_from(["*", "a*", "?", "ab", "a", "anonymous", "a?"])
MADE = st.builds(
    Rule,
    st.booleans(),
    st.sets(st.sampled_from([Action.SEND, Action.RECEIVE]), min_size=1).map(frozenset),
    st.lists(TEXTS, min_size=1, max_size=2).map(tuple),
    st.lists(GLOBS, max_size=2).map(tuple),
    st.sets(st.sampled_from(["g", "h"]), max_size=1).map(frozenset),
)


@settings(max_examples=500, deadline=None)
@given(MADE, MADE, st.text("ab/", max_size=3), st.sampled_from(["a", "a/b", "a/b/x", "a/a/b/x"]))
def test_shadowed_rule_has_no_effect(earlier: Rule, later: Rule, user: str, name: str):
    groups = {"g": frozenset({"a", "ab"})}
    if hides(earlier, later, groups):
        for action in Action:
            found = AccessRules((earlier, later), groups).rights(Identity(user))
            rule = found.decide(action, name).rule
            assert rule is not later or earlier == later


def test_rights_made_for_users_are_bounded():
    rules = AccessRules()
    for number in range(MAX_MADE + 1):
        rules.rights(Identity(f"u{number}"))
    assert len(rules._made) == 1
