"""``acl test``, ``acl check`` and ``acl show``."""

import json
from pathlib import Path

import pytest

from trio_stomp.base._errors import OptionError
from trio_stomp.cli.commands import _acl
from trio_stomp.cli.commands._acl import main

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


def ask(file: Path | None, *words: str) -> int:
    chosen = ["--acl-file", str(file)] if file is not None else []
    return main(["test", *chosen, *words])


# test


def test_what_is_allowed_is_told_with_the_rules_place(
    file: Path, capsys: pytest.CaptureFixture[str]
):
    assert ask(file, "alice", "send", "/topic/x") == 0
    assert capsys.readouterr().out == (
        f"allowed by {file}:6 (rule 2): 'alice' may send to '/topic/x'\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "told"),
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
def test_the_verdict(
    file: Path, words: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
):
    assert ask(file, *words) == code
    assert told in capsys.readouterr().out


def test_every_part_of_a_composite_must_be_allowed(file: Path, capsys: pytest.CaptureFixture[str]):
    assert ask(file, "alice", "receive", "/topic/x,/topic/secret,y") == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("allowed by ")
    assert second.startswith("denied by ")
    assert "'/topic/y'" in third
    assert ask(file, "alice", "receive", "/topic/x,y") == 0


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
def test_what_takes_monitor_is_said(
    words: list[str], code: int, lines: int, capsys: pytest.CaptureFixture[str]
):
    assert ask(None, *words) == code
    told = capsys.readouterr().out.splitlines()
    assert len(told) == lines
    is_noted = told[-1].startswith("note: the broker's own topics require monitor, not ")
    assert is_noted is (lines > 1)


def test_for_programs(file: Path, capsys: pytest.CaptureFixture[str]):
    assert ask(file, "--json", "alice", "receive", "/topic/x,/queue/y") == 1
    assert json.loads(capsys.readouterr().out) == {
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
    ("argv", "told"),
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
def test_a_bad_option_is_an_error_of_one_line(argv: list[str], told: str):
    with pytest.raises(OptionError, match=told) as caught:
        main(argv)
    assert "\n" not in str(caught.value)


def test_a_client_that_is_called_like_an_option(file: Path, capsys: pytest.CaptureFixture[str]):
    assert ask(file, "--", "--json", "send", "/topic/x") == 0
    assert "'--json' may send" in capsys.readouterr().out


# check


def test_a_file_is_counted(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: 3 rules, 1 group, no certificates, no warnings\n"
    assert main(["check", str(EXAMPLE)]) == 0
    assert "no warnings" in capsys.readouterr().out


def test_a_rule_that_never_decides_is_warned_of(file: Path, capsys: pytest.CaptureFixture[str]):
    with file.open("a") as more:
        more.write("[[rule]]\ndeny = 'send'\nto = '/topic/a'\n")
    assert main(["check", str(file)]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"warning: {file}:13 (rule 4) never decides: {file}:6 (rule 2) precedes")
    assert told.endswith(", 1 warning\n")


def test_only_so_many_pairs_are_compared(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_acl, "MAX_COMPARED", 1)
    assert main(["check", str(file)]) == 0
    assert "note: not all pairs of 3 rules were compared\n" in capsys.readouterr().out


# show


def test_the_rules_are_listed(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["show", "--acl-file", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"1  deny receive to '/topic/secret' for every logged-in user  [{file}:3 (rule 1)]",
        "2  allow send, receive to '/topic/**', '/queue/{user}' for every logged-in user"
        f"  [{file}:6 (rule 2)]",
        f"3  allow everything to '**' for group 'ops'  [{file}:9 (rule 3)]",
        "-  deny everything else",
    ]


def test_without_a_file_the_built_in_rules_are_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["show"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "1  allow everything to '**' for group 'admin'  [built-in rule 1]"
    assert len(told) == 6


def test_names_cannot_drive_the_terminal(file: Path, capsys: pytest.CaptureFixture[str]):
    file.write_text('[[rule]]\nallow="send"\nto="a\\u001b[2J"\nuser="\\u0007"\n')
    assert main(["show", "--acl-file", str(file)]) == 0
    assert main(["test", "--acl-file", str(file), "\x07", "send", "a\x1b[2J"]) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()
