"""The rights of one client at a name, and at all names that a wildcard matches."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_stomp.base import ANONYMOUS, Identity, OptionError, ProtocolError
from trio_stomp.broker.names import Pattern, as_pattern, compile_pattern, matches
from trio_stomp.broker.rules import AccessRules, Action, Decision, Rights, Rule, _rights

SEND, RECEIVE = Action.SEND, Action.RECEIVE


def rule(kind: str, to: str, number: int, actions: str = "send receive") -> Rule:
    chosen = frozenset(map(Action, actions.split()))
    return Rule(kind == "allow", chosen, tuple(to.split()), location=f"acl.toml:{number}")


def rights(*lines: str, user: str = "alice") -> Rights:
    """The rights by rules that are written ``allow /topic/a /topic/b``."""
    made = []
    for number, line in enumerate(lines, 1):
        kind, _, to = line.partition(" ")
        made.append(rule(kind, to, number))
    return AccessRules(tuple(made)).rights(Identity(user))


def compiled(text: str, grammar: str = "native") -> Pattern:
    found = compile_pattern(text, grammar)
    assert found is not None
    return found


# One name.


def test_the_first_rule_that_matches_decides():
    mine = rights("allow /topic/a", "deny /topic/*", "allow /topic/b **")
    assert mine.allows(SEND, "/topic/a")
    assert not mine.allows(SEND, "/topic/b")
    assert mine.allows(SEND, "/queue/b")


def test_action_without_a_matching_rule_is_denied():
    assert not rights().allows(SEND, "/topic/a")
    assert not rights("allow /topic/a").allows(SEND, "/topic/b")
    assert not rights("allow /topic/a").allows(Action.ADMIN, "/topic/a")


def test_a_rule_is_for_its_actions_alone():
    rules = (rule("deny", "/topic/*", 1, "send"), rule("allow", "**", 2, "send receive browse"))
    mine = AccessRules(rules).rights(Identity("x"))
    assert [action.value for action in Action if mine.allows(action, "/topic/a")] == [
        "receive",
        "browse",
    ]


def test_a_rule_of_ones_own_has_its_place_among_the_others():
    first = rights("deny /topic/{user}/x", "allow /topic/alice/x")
    last = rights("allow /topic/alice/x", "deny /topic/{user}/x")
    assert not first.allows(SEND, "/topic/alice/x")
    assert last.allows(SEND, "/topic/alice/x")


def test_a_pattern_that_is_there_twice_is_one():
    assert rights("allow a.> a.** a.>").allows(SEND, "a.b")


# Explanations.


def test_a_verdict_names_the_rule_and_its_place():
    mine = rights("deny /topic/secret", "allow /topic/**")
    found = mine.decide(SEND, "/topic/a")
    assert found.allowed
    assert found.rule is not None
    assert found.rule.location == "acl.toml:2"
    assert found.explanation == "allowed by acl.toml:2: 'alice' may send to '/topic/a'"
    assert mine.decide(RECEIVE, "/topic/secret").explanation == (
        "denied by acl.toml:1: 'alice' may not receive from '/topic/secret'"
    )
    assert mine.decide(Action.ADMIN, "/topic/a") == Decision(
        False, None, "denied, since no rule allows it: 'alice' may not administer '/topic/a'"
    )


@pytest.mark.parametrize("action", Action)
def test_every_action_has_a_description(action: Action):
    mine = AccessRules().rights(ANONYMOUS)
    assert ": anonymous may not " in mine.decide(action, "x").explanation


def test_a_wildcards_verdict_names_the_deciding_rule():
    mine = rights(
        "deny /topic/secret",
        "allow /news/**",
        "allow /topic/a/**",
        "allow /topic/b.>",
        "deny /queue/>",
    )
    assert mine.decide(RECEIVE, "/topic/>", compiled("/topic/>")).explanation == (
        "denied by acl.toml:1, which is for a part of it: 'alice' may not receive from '/topic/>'"
    )
    assert mine.decide(RECEIVE, "/queue/a.*", compiled("/queue/a.*")).explanation == (
        "denied by acl.toml:5: 'alice' may not receive from '/queue/a.*'"
    )
    assert mine.decide(RECEIVE, "/topic/a*", compiled("/topic/a*")).explanation == (
        "denied, since no rule allows it: 'alice' may not receive from '/topic/a*';"
        " acl.toml:3 allows only a part of it"
    )
    assert mine.decide(RECEIVE, "/topic/a/*", compiled("/topic/a/*")).explanation == (
        "allowed by acl.toml:3: 'alice' may receive from '/topic/a/*'"
    )


def test_an_explanation_is_one_printable_line():
    mine = rights("allow /topic/**", user="e\nvil\x1b[2J" + "u" * 200)
    text = mine.decide(SEND, "/topic/\r\n\x1b]0;x\x07" + "n" * 2000).explanation
    assert text.isprintable()
    assert len(text) < 300


# Wildcards.


@pytest.mark.parametrize(
    ("lines", "asked", "wanted"),
    [
        (["allow **"], "/topic/>", True),
        (["allow /topic/**"], "/topic/>", True),
        (["allow /topic/*"], "/topic/*", True),
        (["allow /topic/*"], "/topic/>", False),
        (["allow /topic/a /topic/b"], "/topic/*", False),
        (["deny /topic/a", "allow /topic/**"], "/topic/>", False),
        (["deny /topic/a", "allow /topic/**"], "/topic/b.>", True),
        (["allow /topic/**", "deny /topic/a"], "/topic/>", True),
        (["allow /topic/a", "deny /topic/a", "allow **"], "/topic/>", False),
        (["allow /topic/a/*", "allow /topic/**"], "/topic/>", True),
        (["allow /topic/a/*", "deny /topic/b", "allow /topic/**"], "/topic/a/>", True),
        (["deny #*", "allow **"], "/topic/>", True),
        (["deny #*", "allow **"], ">", False),
        (["allow /topic/{user}/**"], "/topic/alice/>", True),
        (["allow /topic/{user}/**"], "/topic/*/x", False),
        (["deny /topic/{user}/x", "allow /topic/**"], "/topic/>", False),
        (["deny /topic/{user}/x", "allow /topic/**"], "/topic/bob/>", True),
        ([], ">", False),
    ],
)
def test_a_wildcard_is_allowed_if_all_that_it_reaches_is(
    lines: list[str], asked: str, wanted: bool
):
    mine = rights(*lines)
    assert mine.allows_pattern(RECEIVE, asked, compiled(asked)) is wanted
    assert mine.allows_pattern(RECEIVE, asked, compiled(asked)) is wanted
    assert mine.decide(RECEIVE, asked, compiled(asked)).allowed is wanted
    assert not mine.allows_pattern(Action.ADMIN, asked, compiled(asked))


def test_a_wildcard_follows_its_grammar():
    mine = rights("allow /topic/a.*")
    assert mine.allows_pattern(RECEIVE, "/topic/a.*", compiled("/topic/a.*"))
    assert not mine.allows_pattern(RECEIVE, "/topic/a.*", compiled("/topic/a.*", "seed"))


def test_a_pattern_and_a_name_that_are_spelled_alike_are_two_things():
    mine = rights("deny /topic/a", "allow /topic/*")
    assert mine.allows(RECEIVE, "/topic/*")
    assert not mine.allows_pattern(RECEIVE, "/topic/*", compiled("/topic/*"))


WORDS = ["a", "b", "*", "", "{user}", "a*", "**", ">", "#"]
NAMES = [
    first + sep + second + rest
    for first, sep, second, rest in product(
        "ab", ("", ".", "/"), ("", "a", "b", "ab"), ("", ".a", "/b", "/")
    )
]


@st.composite
def pattern_text(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(WORDS))
    for _ in range(draw(st.integers(0, 2))):
        text += draw(st.sampled_from("./")) + draw(st.sampled_from(WORDS))
    return text


@st.composite
def some_rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    made = []
    for number in range(draw(st.integers(1, 5))):
        text = draw(pattern_text())
        try:
            made.append(
                Rule(
                    draw(st.booleans()),
                    frozenset(draw(st.sets(st.sampled_from([SEND, RECEIVE]), min_size=1))),
                    (text, *draw(st.lists(st.sampled_from(["a/*", "b", "b.**"]), max_size=1))),
                    tuple(draw(st.lists(st.sampled_from(["a", "b", "a/*"]), max_size=1))),
                    location=str(number),
                )
            )
        except OptionError:  # the rule reports its own error
            continue
    return tuple(made)


USERS = st.sampled_from(["a", "b", "a/b", "*", "a.b"])


def naive(rules: tuple[Rule, ...], user: str, action: Action, name: str) -> bool:
    """The verdict as the words have it: from the top, one rule after the other."""
    for each in rules:
        if action in each.actions and each.is_for(user, frozenset()):
            patterns = (*each.fixed, *each.personal(user))
            if any(matches(pattern, name) for pattern in patterns):
                return each.allow
    return False


@settings(max_examples=400, deadline=None)
@given(some_rules(), USERS, pattern_text(), st.sampled_from(["native", "seed"]))
def test_nothing_that_an_allowed_wildcard_reaches_is_denied(
    rules: tuple[Rule, ...], user: str, asked: str, grammar: str
):
    mine = AccessRules(rules).rights(Identity(user))
    denied = []
    for name in NAMES:
        wanted = naive(rules, user, RECEIVE, name)
        assert mine.allows(RECEIVE, name) is wanted
        assert mine.decide(RECEIVE, name).allowed is wanted
        assert mine.decide(RECEIVE, name, as_pattern(name)).allowed is wanted
        if not wanted:
            denied.append(name)
    try:
        pattern = compile_pattern(asked, grammar)
    except ProtocolError:
        return
    if pattern is not None and mine.allows_pattern(RECEIVE, asked, pattern):
        assert [name for name in denied if matches(pattern, name)] == []


# The cache.


def test_an_answer_is_found_once(monkeypatch: pytest.MonkeyPatch):
    mine = rights("allow /topic/**", "deny /queue/**")
    assert mine.allows(SEND, "/topic/a")
    assert not mine.allows(SEND, "/queue/a")
    assert mine.allows_pattern(RECEIVE, "/topic/*", compiled("/topic/*"))
    assert not mine.allows_pattern(RECEIVE, "/queue/*", compiled("/queue/*"))
    monkeypatch.setattr(_rights, "min", None, raising=False)
    monkeypatch.setattr(_rights, "covers", None)
    monkeypatch.setattr(_rights, "overlaps", None)
    assert mine.allows(SEND, "/topic/a")
    assert not mine.allows(SEND, "/queue/a")
    assert mine.allows_pattern(RECEIVE, "/topic/*", compiled("/topic/*"))
    assert not mine.allows_pattern(RECEIVE, "/queue/*", compiled("/queue/*"))
    with pytest.raises(TypeError):
        mine.allows(RECEIVE, "/topic/a")  # another action is another question


def test_cache_is_bounded_by_number():
    mine = rights("allow /topic/**")
    largest = 0
    for number in range(3 * _rights.MAX_CACHED):
        assert mine.allows(SEND, f"/topic/{number}")
        largest = max(largest, len(mine._cache))
    assert largest == _rights.MAX_CACHED
    assert not mine.allows(SEND, "/queue/1")


def test_cache_is_bounded_by_size():
    mine = rights("allow /topic/**")
    for number in range(2000):
        assert mine.allows(SEND, f"/topic/{number}/" + "x" * 1000)
        size = sum(len(key) for _, key in mine._cache if isinstance(key, str))
        assert size == mine._cached_chars <= _rights.MAX_CACHED_CHARS
    text = "/topic/" + "x" * _rights.MAX_CACHED_CHARS
    assert mine.allows(SEND, text)  # too long to be worth it, but answered
    assert mine.allows_pattern(RECEIVE, text + "/*", compiled(text + "/*"))
    assert len(mine._cache) == 1


def test_an_action_hashes_as_fast_as_its_word():
    assert Action.__hash__ is str.__hash__  # that of Enum is written in Python
