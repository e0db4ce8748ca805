"""``acl test``, ``acl check`` and ``acl show``."""

import json
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.commands import run_command
from tests.support.tool_fakes import OutputOf
from tests.support.tool_fakes import output_of as output_of
from trio_stomp.base import OptionError
from trio_stomp.cli.commands import _acl

EXAMPLE = Path(__file__).parents[3] / "conf" / "acl.toml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "acl.toml"
    path.write_text(
        "[groups]\nops = []\n"
        "[[rule]]\ndeny = 'receive'\nto = '/topic/secret'\n"
        "[[rule]]\nallow = ['send', 'receive']\nto = ['/topic/**', '/queue/{user}']\n"
        "[[rule]]\nallow = 'all'\nto = '**'\ngroup = 'ops'\n"
    )
    return path


class Ask(Protocol):
    """Asks the tool about a file, or about the built-in rules; what it prints."""

    def __call__(self, file: Path | None, *words: str, code: int = 0) -> str: ...


@pytest.fixture
def ask(output_of: OutputOf) -> Ask:
    def ask(file: Path | None, *words: str, code: int = 0) -> str:
        chosen = ["--acl-file", str(file)] if file is not None else []
        return output_of("acl", "test", *chosen, *words, code=code)

    return ask


# test


def test_permission_is_reported_with_the_location_of_the_rule(file: Path, ask: Ask):
    line = f"allowed by {file}:6 (rule 2): 'alice' may send to '/topic/x'\n"
    assert ask(file, "alice", "send", "/topic/x") == line


@pytest.mark.parametrize(
    ("words", "code", "verdict"),
    [
        (["alice", "receive", "/topic/secret"], 1, ":3 (rule 1): 'alice' may not receive from"),
        (["alice", "receive", "/topic/*"], 1, ":3 (rule 1), which is for a part of it: "),
        (["alice", "receive", "/topic/x/*"], 0, ":6 (rule 2): 'alice' may receive from"),
        (["alice", "browse", "/queue/alice"], 1, "denied, since no rule allows it: 'alice' may"),
        (["alice", "send", "/queue/alice"], 0, ":6 (rule 2)"),
        (["bob", "send", "/queue/alice"], 1, "no rule"),
        (["anonymous", "send", "/topic/x"], 1, "no rule allows it: anonymous may not send to"),
        (["--group", "ops", "bob", "admin", "/queue/alice"], 0, ":9 (rule 3): 'bob' may"),
        (["--group", "x", "--group", "ops", "bob", "admin", "a"], 0, ":9 (rule 3)"),
        (["--group", "x", "bob", "admin", "a"], 1, "no rule"),
        (["--group", "ops", "anonymous", "admin", "a"], 1, "no rule"),
        (["alice", "send", "/amq/queue/alice"], 0, "may send to '/queue/alice'"),
        (["alice", "receive", "/stream/topic/x"], 0, "may receive from '/topic/x'"),
        (["alice", "create", "/topic/*"], 1, "no rule"),
    ],
)
def test_the_verdict_of_rules_is_printed_and_is_the_exit_code(
    file: Path, words: list[str], code: int, verdict: str, ask: Ask
):
    assert verdict in ask(file, *words, code=code)


def test_every_part_of_a_composite_must_be_allowed(file: Path, ask: Ask):
    printed = ask(file, "alice", "receive", "/topic/x,/topic/secret,y", code=1)
    first, second, third = printed.splitlines()
    assert first.startswith("allowed by ")
    assert second.startswith("denied by ")
    assert "'/topic/y'" in third
    assert ask(file, "alice", "receive", "/topic/x,y")


@pytest.mark.parametrize(
    ("words", "code", "lines"),
    [
        (["ann", "receive", "DIAG/session"], 1, 2),
        (["--group", "monitor", "ann", "send", "DIAG/mine"], 0, 2),
        (["--group", "monitor", "ann", "receive", ">"], 0, 4),
        (["ann", "receive", "/topic/>"], 0, 1),
        (["ann", "monitor", "DIAG/session"], 1, 1),
    ],
)
def test_need_for_the_monitor_right_is_reported(words: list[str], code: int, lines: int, ask: Ask):
    printed = ask(None, *words, code=code).splitlines()
    assert len(printed) == lines
    is_noted = printed[-1].startswith("note: the broker's own topics require monitor, not ")
    assert is_noted is (lines > 1)


def test_for_programs(file: Path, ask: Ask):
    printed = ask(file, "--json", "alice", "receive", "/topic/x,/queue/y", code=1)
    assert json.loads(printed) == {
        "user": "alice",
        "action": "receive",
        "destination": "/topic/x,/queue/y",
        "allowed": False,
        "needed": [
            {
                "action": "receive",
                "destination": "/topic/x",
                "allowed": True,
                "rule": f"{file}:6 (rule 2)",
                "explanation": f"allowed by {file}:6 (rule 2): 'alice' may receive from '/topic/x'",
            },
            {
                "action": "receive",
                "destination": "/queue/y",
                "allowed": False,
                "rule": None,
                "explanation": "denied, since no rule allows it: 'alice' may not receive from"
                " '/queue/y'",
            },
        ],
    }


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["test", "alice", "sent", "/topic/x"], "unknown action 'sent'; did you mean send?"),
        (["test", "alice", "x", "/topic/x"], "unknown action 'x'; there are send, receive"),
        (["test", "", "send", "/topic/x"], "USER is empty; write anonymous for"),
        (["test", "alice", "send", ""], "DESTINATION is empty; write [*][*] for all of them"),
        (["test", "alice", "send", "/topic/*"], "is a wildcard, which cannot be sent to"),
        (["test", "alice", "receive", "/topic/a*b"], "acl test: destination:/topic/a[*]b has"),
        (["test", "alice", "receive", ","], "acl test: destination:, is a composite without"),
        (["test", "alice", "send"], "acl test: the following arguments are required: DESTINATION"),
        (["test", "--acl-file", "/nowhere/x", "a", "send", "a"], "/nowhere/x: no such file"),
        (["check", "/nowhere/x"], "/nowhere/x: no such file"),
        (["show", "--acl-file", "/nowhere/x"], "/nowhere/x: no such file"),
        (["check"], "acl check: the following arguments are required: FILE"),
        (["destroy"], "acl: argument COMMAND: invalid choice: 'destroy'"),
        ([], "acl: the following arguments are required: COMMAND"),
    ],
)
def test_a_bad_option_is_an_error_of_one_line(argv: list[str], expected: str):
    with pytest.raises(OptionError, match=expected) as caught:
        run_command("acl", argv)
    assert "\n" not in str(caught.value)


def test_a_client_that_is_called_like_an_option(file: Path, ask: Ask):
    assert "'--json' may send" in ask(file, "--", "--json", "send", "/topic/x")


# check


def test_a_file_is_counted(file: Path, output_of: OutputOf):
    counts = f"{file}: 3 rules, 1 group, no certificates, no warnings\n"
    assert output_of("acl", "check", str(file)) == counts
    assert "no warnings" in output_of("acl", "check", str(EXAMPLE))


def test_a_rule_that_never_decides_is_warned_of(file: Path, output_of: OutputOf):
    with file.open("a") as more:
        more.write("[[rule]]\ndeny = 'send'\nto = '/topic/a'\n")
    out = output_of("acl", "check", str(file))
    assert out.startswith(f"warning: {file}:13 (rule 4) never decides: {file}:6 (rule 2) precedes")
    assert out.endswith(", 1 warning\n")


def test_the_number_of_compared_pairs_is_bounded(
    file: Path, output_of: OutputOf, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_acl, "MAX_COMPARED", 1)
    assert "note: not all pairs of 3 rules were compared\n" in output_of("acl", "check", str(file))


# show


def test_the_rules_are_listed(file: Path, output_of: OutputOf):
    assert output_of("acl", "show", "--acl-file", str(file)).splitlines() == [
        f"1  deny receive to '/topic/secret' for every logged-in user  [{file}:3 (rule 1)]",
        "2  allow send, receive to '/topic/**', '/queue/{user}' for every logged-in user"
        f"  [{file}:6 (rule 2)]",
        f"3  allow everything to '**' for group 'ops'  [{file}:9 (rule 3)]",
        "-  deny everything else",
    ]


def test_without_a_file_the_built_in_rules_are_listed(output_of: OutputOf):
    lines = output_of("acl", "show").splitlines()
    assert lines[0] == "1  allow everything to '**' for group 'admin'  [built-in rule 1]"
    assert len(lines) == 6


def test_names_cannot_drive_the_terminal(file: Path, output_of: OutputOf, ask: Ask):
    file.write_text('[[rule]]\nallow="send"\nto="a\\u001b[2J"\nuser="\\u0007"\n')
    out = output_of("acl", "show", "--acl-file", str(file)) + ask(file, "\x07", "send", "a\x1b[2J")
    assert out.replace("\n", "").isprintable()
