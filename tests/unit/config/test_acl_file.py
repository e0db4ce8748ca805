"""Rules from a file: its contents, and the errors of a wrong one."""

from pathlib import Path

import pytest

from trio_stomp.base import ANONYMOUS, Identity, OptionError
from trio_stomp.broker.rules import AccessRules, Action, Rule
from trio_stomp.config import read_acl_file

MAX_RULES, MAX_PERSONAL_RULES = 10_000, 256
MAX_FILE_BYTES = 1024 * 1024

EXAMPLE = Path(__file__).parents[3] / "conf" / "acl.toml"

FULL = """\
# A comment, and [[rule]] within it.
[groups]
ops = ["alice", "bob"]
"roles of tokens" = []

[certificates]
"CN=billing,O=Acme" = "billing"

[[rule]]
allow = ["send", "receive"]
to = "/topic/{user}/**"
user = "app-*"

  [[ "rule" ]]   # indented, quoted
deny = "all"
to = ["/queue/x", "/queue/y.>"]
user = ["eve", "anonymous"]
group = ["ops", "roles of tokens"]
[['rule']]
group = "ops"
allow = ["monitor", "all"]
to = "**"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "acl.toml"


def read(file: Path, text: str) -> AccessRules:
    file.write_bytes(text.encode())
    return read_acl_file(str(file))


def test_a_file_is_read_in_its_order(file: Path):
    found = read(file, FULL)
    assert found == AccessRules(
        (
            Rule(
                True,
                frozenset({Action.SEND, Action.RECEIVE}),
                ("/topic/{user}/**",),
                ("app-*",),
                location=f"{file}:9 (rule 1)",
            ),
            Rule(
                False,
                frozenset(Action),
                ("/queue/x", "/queue/y.>"),
                ("eve", "anonymous"),
                frozenset({"ops", "roles of tokens"}),
                f"{file}:14 (rule 2)",
            ),
            Rule(
                True,
                frozenset(Action),
                ("**",),
                groups=frozenset({"ops"}),
                location=f"{file}:19 (rule 3)",
            ),
        ),
        {"ops": frozenset({"alice", "bob"}), "roles of tokens": frozenset()},
        {"CN=billing,O=Acme": "billing"},
    )


def test_lines_are_counted_as_editors_count_them(file: Path):
    found = read(file, FULL.replace("\n", "\r\n"))
    assert [rule.location.split(":")[-1] for rule in found.rules] == [
        "9 (rule 1)",
        "14 (rule 2)",
        "19 (rule 3)",
    ]


@pytest.mark.parametrize(
    "text",
    ['rule = [{allow = "send", to = "a"}]', "[[rule]]\nallow='send'\nto='''\n[[rule]]'''\n"],
    ids=["inline", "a-header-within-a-text"],
)
def test_a_line_that_is_not_sure_is_left_out(file: Path, text: str):
    assert [rule.location for rule in read(file, text).rules] == [f"{file} (rule 1)"]


def test_an_empty_file_allows_nothing(file: Path):
    found = read(file, "")
    assert found == AccessRules()
    assert not found.rights(Identity("alice")).allows(Action.SEND, "a")


RULE = '[[rule]]\nallow = "send"\nto = "/topic/a"\n'
BAD = [
    # The file as a whole.
    ("[[rules]]\n", "unknown key 'rules'; did you mean rule?"),
    ("x = 1\n", "unknown key 'x'; there are [groups], [certificates] and [[rule]]"),
    ("[rule]\nallow = 'send'\n", "rules begin with [[rule]], in double brackets"),
    ("rule = [1]\n", "rules begin with [[rule]], in double brackets"),
    ("groups = 1\n", "groups must be a table, which begins with [groups]"),
    ("[[certificates]]\n", "certificates must be a table, which begins with [certificates]"),
    ("[[rule]\n", ":1: is no TOML: "),
    ("x = " + "1" * 5000, "is no TOML: "),
    ("x = " + "[" * 5000, "is nested too deep"),
    # Groups and certificates.
    ("[groups]\nops = 'alice'\n", "group 'ops' is 'alice', but must be a list, as in"),
    ("[groups]\nops = [1]\n", "group 'ops' is [1], but must be a list"),
    ("[groups]\nops = ['app-*']\n", "'app-*', but groups hold names, not globs; write user = "),
    ("[groups]\nops = ['a?']\n", "groups hold names, not globs"),
    ("[groups]\nops = ['']\n", "group 'ops' holds '', which cannot be a user's name"),
    ("[groups]\nops = ['anonymous']\n", "group 'ops' holds 'anonymous', which cannot be a user"),
    ("[certificates]\nx = 1\n", "certificate 'x' is 1, but must be a user"),
    ("[certificates]\nx = ''\n", "certificate 'x' holds '', which cannot be a user's name"),
    ("[certificates]\nx = 'anonymous'\n", "certificate 'x' holds 'anonymous'"),
    # Rules; LINE is where the second one begins.
    ("[[rule]]\nalow = 'send'\nto = 'a'\n", "LINE unknown key 'alow'; did you mean allow?; there"),
    ("[[rule]]\nusers = 'a'\n", "LINE unknown key 'users'; did you mean user?"),
    ("[[rule]]\nto = 'a'\n", "LINE has neither allow nor deny; a rule has one of them"),
    ("[[rule]]\nallow='send'\ndeny='send'\nto='a'\n", "LINE has both allow and deny"),
    ("[[rule]]\nallow = 'send'\n", 'LINE to is missing; write to = "**" for everywhere'),
    (
        "[[rule]]\nallow = 'sent'\nto='a'\n",
        "LINE unknown action 'sent' in allow; did you mean send",
    ),
    ("[[rule]]\ndeny = ['send', 'x']\nto='a'\n", "unknown action 'x' in deny; there are send, rec"),
    ("[[rule]]\nallow = 'ALL'\nto='a'\n", "unknown action 'ALL'"),
    ("[[rule]]\nallow = []\nto='a'\n", "LINE allow is [], but must be a text or a list of texts"),
    ("[[rule]]\nallow = 1\nto='a'\n", "LINE allow is 1, but must be a text or a list of texts"),
    ("[[rule]]\nallow = 'send'\nto=[]\n", "LINE to is [], but must be"),
    ("[[rule]]\nallow = 'send'\nto=['a', '']\n", "LINE to is ['a', ''], but must be"),
    (
        "[[rule]]\nallow = 'send'\nto='a'\nuser=[]\n",
        "user is [], but must be a text or a list of te",
    ),
    ("[[rule]]\nallow = 'send'\nto='a'\nuser=[]\n", "; leave the key out to match all users"),
    ("[[rule]]\nallow = 'send'\nto='a'\ngroup=''\n", "; leave the key out to match all users"),
    ("[[rule]]\nallow = 'send'\nto='a'\nuser=[true]\n", "LINE user is [True], but must be"),
    (
        "[[rule]]\nallow='send'\nto='a'\ngroup='opps'\n",
        "LINE unknown group 'opps'; did you mean ops?",
    ),
    (
        "[[rule]]\nallow='send'\nto='a'\ngroup='x'\n",
        "declare it in [groups], with an empty list if",
    ),
    ("[[rule]]\nallow = 'send'\nto='a*b'\n", "LINE destination:a*b has 'a*b' where no wildcard"),
    ("[[rule]]\nallow = 'send'\nto='/topic/{user}*'\n", "LINE '/topic/{user}*' has * in a word"),
    (f"[[rule]]\nallow = 'send'\nto='a'\nuser='{'x' * 300}'\n", "has more than 256 characters"),
]


@pytest.mark.parametrize(("text", "expected"), BAD, ids=range(len(BAD)))
def test_a_bad_file_is_named_with_line_rule_key_and_remedy(file: Path, text: str, expected: str):
    is_rule = text.startswith("[[rule]]\n")
    before = "[groups]\nops = []\n" + RULE if is_rule else ""
    with pytest.raises(OptionError) as caught:
        read(file, before + text)
    message = str(caught.value)
    where = f"{file}:6 (rule 2): " if is_rule else f"{file}:"
    assert message.startswith(where)
    assert expected.removeprefix("LINE ") in message
    if expected.startswith("LINE "):
        assert message.startswith(where + expected.removeprefix("LINE "))
    assert "\n" not in message
    assert len(message) < 400


def test_the_size_of_a_file_is_bounded(file: Path):
    file.write_bytes(b"#" * MAX_FILE_BYTES)
    assert read_acl_file(str(file)) == AccessRules()
    file.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(OptionError, match=f"more than {MAX_FILE_BYTES} bytes; put users into"):
        read_acl_file(str(file))


def test_the_number_of_rules_is_bounded(file: Path):
    few = "rule = [" + "{allow='send',to='a'}," * MAX_RULES + "]"
    assert len(read(file, few).rules) == MAX_RULES
    with pytest.raises(OptionError, match=f"has {MAX_RULES + 1} rules, the limit is {MAX_RULES}"):
        read(file, few.replace("]", "{allow='send',to='a'}]"))


def test_the_number_of_rules_of_which_each_client_has_its_own_is_bounded(file: Path):
    one = "[[rule]]\nallow='send'\nto='/topic/{user}/x'\n"
    assert len(read(file, RULE + one * MAX_PERSONAL_RULES).rules) == MAX_PERSONAL_RULES + 1
    with pytest.raises(OptionError, match=r"one rule with \{user\} too many") as caught:
        read(file, one * (MAX_PERSONAL_RULES + 1))
    assert f":{3 * MAX_PERSONAL_RULES + 1} (rule {MAX_PERSONAL_RULES + 1}): " in str(caught.value)


# The example.


def test_the_example_allows_and_denies_as_its_comments_say():
    rules = read_acl_file(str(EXAMPLE))
    alice, shop, other = (rules.rights(Identity(name)) for name in ("alice", "app-shop", "carol"))
    auditor = rules.rights(Identity("carol", frozenset({"auditors"})))
    nobody = rules.rights(ANONYMOUS)
    assert all(alice.allows(action, "/queue/DLQ.x") for action in Action)
    assert [who.allows(Action.MONITOR, "DIAG/session") for who in (alice, auditor, other)] == [
        True,
        True,
        False,
    ]
    assert shop.allows(Action.SEND, "/topic/app-shop/orders")
    assert not shop.allows(Action.SEND, "/topic/app-news/orders")
    assert not other.allows(Action.SEND, "/topic/carol/orders")
    assert shop.allows(Action.SEND, "/queue/app-news/requests")
    assert not shop.allows(Action.RECEIVE, "/queue/app-news/requests")
    assert not other.allows(Action.BROWSE, "/queue/DLQ.orders")
    for who in (nobody, other, shop):
        assert who.allows(Action.RECEIVE, "/topic/prices/ibm")
        assert not who.allows(Action.SEND, "/topic/prices/ibm")
    assert not nobody.allows(Action.CREATE, "/temp-queue/x")
    assert not other.allows(Action.CREATE, "/temp-queue/x")
    assert shop.allows(Action.CREATE, "/temp-queue/x")
    assert rules.certificates == {"CN=billing,O=Acme": "billing"}
