"""``config check``, ``show``, ``diff`` and ``import``."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import run_command
from tests.support.files import Write
from tests.support.files import write as write
from trio_stomp.base import OptionError
from trio_stomp.cli.aliases import _stompserver
from trio_stomp.config import Settings, load, options, read_ruby_file

RULE = "[[rule]]\nallow = 'send'\nto = '**'\n"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Clear the environment of the tester."""
    for spec in options():
        monkeypatch.delenv(f"TRIO_STOMP__{spec.group}__{spec.name}".upper(), raising=False)
    monkeypatch.delenv("TRIO_STOMP_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*words: str) -> tuple[int, str]:
        code = run_command("config", words)
        captured = capsys.readouterr()
        assert captured.err == ""
        return code, captured.out

    return run


# check


def test_check_counts_the_rules(run, write: Write):
    assert run("check") == (
        0,
        "no file was read: well; no options, no policies of destinations, no rules\n",
    )
    path = write("[listen]\nport = 1\n[destinations.a]\n" + RULE)
    printed = f"{path}: well; 1 option, 1 policy of destinations, 1 rule\n"
    assert run("check", path) == (0, printed)
    assert run("check", "--config", path) == (0, printed)
    more = write("[server]\nlinger_s = 1\n[destinations.b]\n" + RULE, "conf.d/y.toml")
    assert run("check", path) == (
        0,
        f"{path}, {more}: well; 2 options, 2 policies of destinations, 2 rules\n",
    )


def test_check_reports_overridden_settings(run, write: Write, monkeypatch: pytest.MonkeyPatch):
    path = write("[listen]\nport = 1\n[destinations.a]\n")
    later = write("[listen]\nport = 2\n[destinations.a]\n", "conf.d/y.toml")
    monkeypatch.setenv("TRIO_STOMP__LISTEN__PORT", "3")
    code, printed = run("check", path)
    assert code == 0
    assert printed.splitlines()[:-1] == [
        f"note: {path}:2: port = 1 does not count; TRIO_STOMP__LISTEN__PORT says 3",
        f"note: {later}:2: port = 2 does not count; TRIO_STOMP__LISTEN__PORT says 3",
        f'note: {path}:3: the policy "a" does not count; {later}:3 has one, too',
    ]


def test_check_refuses_a_public_address_without_logins_or_tls(run, write: Write):
    users = write("alice:wonder\n", "users")
    for words, why in (
        (["--host", "0.0.0.0"], "without a login"),
        (["--host", "0.0.0.0", "--passwd-file", users], "in the clear"),
    ):
        with pytest.raises(OptionError, match=why):
            run("check", *words)
        assert run("check", "--no-files", *words)[0] == 0
        assert run("check", *words, "--insecure", "--tls", "off")[0] == 0


def test_check_reads_the_files_that_settings_name(run, write: Write):
    path = write("[security]\npasswd_file = 'none'\n")
    with pytest.raises(OptionError, match="none"):
        run_command("config", ["check", path])
    assert run("check", "--no-files", path)[0] == 0
    assert run("check", path, "--no-files")[0] == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["check", "none.toml"], "none.toml: no such file or directory"),
        (["check", "--prot", "1"], "unknown option --prot; did you mean --port?"),
        (["check", "x", "y"], "unknown word 'y'"),
        (["show", "--jsn"], "unknown option --jsn"),
        (["show", "--changed", "--defaults"], "config show: argument --defaults: not allowed with"),
        ([], "config: the following arguments are required: COMMAND"),
        (["shwo"], "config: argument COMMAND: invalid choice: 'shwo'"),
        (["diff", "a"], "config diff: the following arguments are required: NEW"),
        (["diff", "a", "b", "c"], "config diff: unknown argument 'c' (--help)"),
        (["diff", "none", "none"], "none: no such file"),
        (["import", "a", "--port"], "config import: unknown argument '--port' (--help)"),
    ],
)
def test_mistake_is_reported(words: list[str], expected: str, write: Write):
    write("", "x")
    with pytest.raises(OptionError) as caught:
        run_command("config", words)
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("command", ["check", "show", "diff", "import"])
def test_help(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        run_command("config", [command, "--help"])
    assert caught.value.code == 0
    assert f"trio-stomp config {command}" in capsys.readouterr().out


# show


def test_show_lists_every_option_as_toml_with_its_source(run, write: Write):
    path = write(
        "[listen]\nport = 1\n[store]\nstore_url = 'postgresql://a:secret@b/c'\n"
        "[destinations.'/queue/a']\nttl_ms = 5\n" + RULE
    )
    later = write("[listen]\n\nport = 2\n[destinations.'/queue/a']\nttl_ms = 6\n", "conf.d/y.toml")
    code, printed = run("show", path, "--max-headers", "7")
    assert code == 0
    assert f"port = 2  # {later}:3; not 1, as {path}:2 says\n" in printed
    assert 'host = "127.0.0.1"  # default\n' in printed
    assert "max_headers = 7  # --max-headers\n" in printed
    assert f'[destinations."/queue/a"]  # {later}:4; not as {path}:5 says\nttl_ms = 6\n' in printed
    assert printed.endswith(f"\n# Rules, in the order of evaluation:\n# {path}:7 (rule 1): allow\n")
    assert "secret" not in printed
    tables = tomllib.loads(printed)
    assert list(tables) == [*dict.fromkeys(spec.group for spec in options()), "destinations"]
    for spec in options():
        assert spec.name in tables[spec.group]


def test_show_prints_changed_options_or_all_defaults(run, write: Write):
    path = write("[listen]\nport = 1\n[server]\nlinger_s = 2.0\n")
    assert run("show", "--changed", path) == (0, f"[listen]\nport = 1  # {path}:2\n")
    assert run("show", "--changed") == (0, "")
    assert run("show", "--changed", "port=5", "-d") == (
        0,
        '[listen]\nport = 5  # port=5\n\n[log]\nlog_level = "debug"  # --log-level\n',
    )
    code, printed = run("show", "--defaults", "none.toml")
    assert code == 0
    tables = tomllib.loads(printed)
    assert {name: value for table in tables.values() for name, value in table.items()} == {
        spec.name: spec.default for spec in options()
    }


def test_show_for_programs(run, write: Write, monkeypatch: pytest.MonkeyPatch):
    path = write("[listen]\nport = 1\n[destinations.a]\nttl_ms = 5\n" + RULE)
    later = write("[destinations.a]\n", "conf.d/y.toml")
    monkeypatch.setenv("TRIO_STOMP__LISTEN__PORT", "2")
    monkeypatch.setenv("TRIO_STOMP__STORE__STORE_URL", "x://a:secret@b/c")
    code, text = run("show", "--json", path)
    printed = json.loads(text)
    assert code == 0
    assert printed["files"] == [path, later]
    assert printed["options"]["listen.port"] == {
        "value": 2,
        "default": 61613,
        "source": "TRIO_STOMP__LISTEN__PORT",
        "live": False,
        "overridden": [{"value": 1, "source": f"{path}:2"}],
    }
    assert printed["options"]["server.linger_s"]["live"] is True
    assert printed["options"]["store.store_url"]["value"] == "x://a:***@b/c"
    assert len(printed["options"]) == len(options())
    assert printed["destinations"] == [
        {"pattern": "a", "policy": {}, "source": f"{later}:1", "overridden": [f"{path}:3"]}
    ]
    assert printed["rules"] == [f"{path}:5 (rule 1)"]
    code, text = run("show", "--json", "--changed")
    assert list(json.loads(text)["options"]) == ["listen.port", "store.store_url"]
    assert json.loads(text)["rules"] is None


def test_a_name_of_a_file_stays_in_its_line(run, write: Write):
    path = write("[listen]\nport = 1\n", "a\n[server].toml")
    code, printed = run("show", "--changed", path)
    assert code == 0
    assert tomllib.loads(printed) == {"listen": {"port": 1}}


# diff


def test_diff_reports_options_that_need_a_restart(
    run, write: Write, monkeypatch: pytest.MonkeyPatch
):
    old = write("[server]\nlinger_s = 1.0\n", "old.toml")
    live = write("[server]\nlinger_s = 3.0\n[destinations.a]\nttl_ms = 1\n", "live.toml")
    cold = write("[server]\nlinger_s = 3.0\n[listen]\nport = 1\n", "cold.toml")
    monkeypatch.setenv("TRIO_STOMP__SERVER__LINGER_S", "7")  # would hide what the files say
    assert run("diff", old, old) == (0, "nothing differs\n")
    assert run("diff", old, live) == (
        0,
        'live     [server] linger_s: 1.0 -> 3.0\nlive     [destinations."a"]: new: ttl_ms = 1\n',
    )
    assert run("diff", old, cold) == (
        1,
        "restart  [listen] port: 61613 -> 1\n"
        "live     [server] linger_s: 1.0 -> 3.0\n"
        "1 of 2 differences require a restart\n",
    )


# import

DEBIAN = """\
---
:daemon: true
:working_dir: /var/lib/stompserver
:logdir: /var/log/stompserver
:pidfile: /var/run/stompserver/stompserver.pid
:storage: /var/lib/stompserver/storage
:etcdir: /etc/stompserver
:queue: memory
:auth: false
:debug: false
:group: stompserver
:user: stompserver
:host: 127.0.0.1
:port: 61613
"""


def imported(write: Write, run: Callable[..., tuple[int, str]], text: str) -> tuple[Settings, str]:
    """Return the import of a stompserver file: as settings, and as text."""
    code, printed = run("import", write(text, "stompserver.conf"))
    assert code == 0
    return load(write(printed, "made.toml")).settings, printed


def test_import_of_debians_file(run, write: Write):
    settings, printed = imported(write, run, DEBIAN)
    assert settings == Settings()
    assert '[listen]\nhost = "127.0.0.1"\nport = 61613\n' in printed
    comments = printed.partition("# Not here:\n")[2].splitlines()
    assert [line.split()[1] for line in comments] == [
        ":daemon:", ":logdir:", ":pidfile:", ":group:", ":user:",
    ]  # fmt: skip
    assert '#   :user: "stompserver" - say User= of the systemd unit' in printed


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        (":port: 3000\n", {"port": 3000}),
        (":port: 1\n:port: 2\n", {"port": 2}),
        (":host: '::1'\n:port: 5 # a comment\n", {"host": "::1", "port": 5}),
        (':host: "a#b" # c\n', {"host": "a#b"}),
        (":host: it's\n", {"host": "it's"}),
        (":host: 'it''s'\n", {"host": "it's"}),
        (":host: ~\n:port:\n:checkpoint: null\n", {}),
        (":checkpoint: 3\n", {"checkpoint_s": 3.0}),
        (":checkpoint: 0.5\n", {"checkpoint_s": 0.5}),
        (":auth: yes\n", {"passwd_file": "etc/.passwd"}),
        (":auth: true\n:etcdir: /e\n:working_dir: /w\n", {"passwd_file": "/e/.passwd"}),
        (":auth: true\n:etcdir: e\n:working_dir: /w\n", {"passwd_file": "/w/e/.passwd"}),
        (
            ":queue: file\n:working_dir: /w\n",
            {"store": "journal", "data_dir": "/w/.stompserver", "persistent": "always"},
        ),
        (
            ":queue: dbm\n:storage: s\n",
            {"store": "sql", "store_url": "sqlite:///s/queues.db", "persistent": "always"},
        ),
        (
            ":queue: activerecord\n:storage: /s\n",
            {
                "store": "sql",
                "store_url": "sqlite:////s/stompserver_development",
                "persistent": "always",
            },
        ),
        (":queue: fille\n", {}),
    ],
)
def test_import_of_each_setting(run, write: Write, text: str, values: dict[str, object]):
    settings, _ = imported(write, run, text)
    assert settings == Settings.of(**values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":queue: fille\n", ':queue: "fille", which stompserver treated as memory'),
        (":queue: file\n:storage: /s\n", 'The directory "/s" must exist before the broker'),
        (":queue: file\n", "Relative paths start at the working directory; set WorkingDirectory="),
        (":queue: dbm\n", "Relative paths start at"),
        (":auth: true\n:etcdir: /e f\n", "passwd import '/e f/.passwd' '/e f/.passwd'"),
        (":debug: true\n", ":debug: true - not a setting: start with --debug"),
        (":prot: 5\n", ":prot: 5 - stompserver has no such setting; did you mean port?"),
        (':zz: "a\tb"\n', ':zz: "a\\tb" - stompserver has no such setting\n'),
    ],
)
def test_settings_without_an_equivalent_become_comments(
    run, write: Write, text: str, expected: str
):
    assert expected in imported(write, run, text)[1]


def test_empty_sections_are_not_printed(run, write: Write):
    _, printed = imported(write, run, ":queue: file\n:storage: /s\n")
    assert "Relative" not in printed
    assert "Not here" not in imported(write, run, ":port: 1\n:debug: false\n")[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":port: x\n", "AT1: port is 'x', but must be a whole number"),
        ("\n# c\n:port: -1\n", "AT3: port is -1, but must be 0 or more"),
        (":port: 99999\n", "AT1: port is 99999, but must be 65535 or less"),
        (":port: true\n", "AT1: port is True, but must be a whole number"),
        (":port: 010\n", "AT1: port is '010', but must be a whole number"),
        (":host: 5\n", "AT1: host is 5, but must be a text"),
        (":auth: 1\n", "AT1: auth is 1, but must be true or false"),
        (":checkpoint: soon\n", "AT1: checkpoint is 'soon', but must be a number"),
        (":checkpoint: -1\n", "AT1: checkpoint_s is -1.0, but must be 0 or more"),
        ("port: 1\n", "AT1: 'port: 1' is no :key: value; stompserver reads keys that begin with"),
        (":a: 1\n  :b: 2\n", "AT2: ':b: 2' is no :key: value; stompserver has no settings within"),
        ("- a\n", "AT1: '- a' is no :key: value; stompserver has no settings within"),
        ("nonsense\n", "AT1: 'nonsense' is no :key: value"),
        (":port:1\n", "AT1: ':port:1' is no :key: value"),
        (":a: !ruby/object:Kernel {}\n", "AT1: a is '!ruby/object:Kernel {}', but must be a plain"),
        (":a: [1]\n", "must be a plain text, number or truth"),
        (":a: &x 1\n", "must be a plain text, number or truth"),
        (':a: "b\\n"\n', "must be a plain text, number or truth"),
        (":a: |\n", "must be a plain text, number or truth"),
    ],
)
def test_setting_that_is_not_simple_is_refused(write: Write, text: str, expected: str):
    path = write(text, "stompserver.conf")
    with pytest.raises(OptionError) as caught:
        run_command("config", ["import", path])
    assert expected.replace("AT", f"{path}:", 1) in str(caught.value)
    assert str(caught.value).startswith(path)


def test_file_that_is_not_text_is_refused(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(b":a: \xff\n")
    with pytest.raises(OptionError, match="the text is not UTF-8"):
        run_command("config", ["import", str(path)])
    assert read_ruby_file.__doc__


def test_users_are_read_from_the_paths_of_stompserver(run, write: Write, tmp_path: Path):
    write("a:b\n", "w/.passwd")
    settings, _ = imported(write, run, f":auth: true\n:working_dir: {tmp_path}/w\n")
    assert settings.security.passwd_file == f"{tmp_path}/w/.passwd"


def test_each_setting_of_stompservers_has_a_place():
    debian = {line.split(":")[1] for line in DEBIAN.splitlines()[1:]}
    known = {*_stompserver.USED, *_stompserver.LEFT_OUT}
    assert known == debian | {"logfile", "checkpoint", "passwd"}
