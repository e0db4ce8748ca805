"""``passwd``: add, del, verify, list, import; prompts, messages, and secrets, never shown."""

import getpass
import io
import json
import os
import pty
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve, frozen

from tests.support.files import save
from tests.support.tool_fakes import Terminal
from trio_stomp.base import OptionError
from trio_stomp.cli.commands._passwd import COMMAND
from trio_stomp.security import PasscodeChecker, change_user_file, is_hashed, read_user_file

argon2 = pytest.importorskip("argon2", reason="pip install 'trio-stomp[security]'")

SECRET = "geheim"
HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
OLDER = argon2.PasswordHasher(time_cost=2, memory_cost=8, parallelism=1)


@frozen
class Ran:
    code: int
    out: str
    err: str


class Passwd:
    """Runs the tool, as a program does, and looks that it never shows a secret."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch = monkeypatch
        self.capsys = capsys
        self.asked: list[str] = []

    def __call__(self, *argv: str, stdin: bytes = b"", hasher: object = HASHER) -> Ran:
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return self._run(argv, hasher)

    def asked_by(self, ask: Callable[[str], str], *argv: str) -> Ran:
        """At a terminal, where this answers."""
        self.monkeypatch.setattr(sys, "stdin", Terminal())
        self.monkeypatch.setattr(getpass, "getpass", ask)
        return self._run(argv, HASHER)

    def typed(self, *argv: str, keys: list[str | BaseException]) -> Ran:
        """At a terminal, where these are typed."""
        keys = [*keys]

        def ask(prompt: str) -> str:
            self.asked.append(prompt)
            key = keys.pop(0)
            if isinstance(key, BaseException):
                raise key
            return key

        ran = self.asked_by(ask, *argv)
        assert keys == []
        return ran

    def _run(self, argv: tuple[str, ...], hasher: object) -> Ran:
        try:
            command = evolve(COMMAND, defaults={"hasher": hasher})
            code = command.run(command.make_parser("passwd").parse_args(argv))
        except OptionError as error:
            # As ``cli.main`` does for every tool.
            code = 2
            sys.stderr.write(f"trio-stomp: error: {error}\n")
        out, err = self.capsys.readouterr()
        assert SECRET not in out + err
        assert "$argon2" not in out + err
        assert (code == 0) is ("error:" not in err) or code == 1
        return Ran(code, out, err)


@pytest.fixture
def passwd(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Passwd:
    return Passwd(monkeypatch, capsys)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "users")


def text_of(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def knows(path: str, user: str, passcode: str) -> bool:
    return PasscodeChecker(read_user_file(path), HASHER).check(user, passcode)


# add


def test_a_user_is_added_to_a_new_file(passwd: Passwd, file: str) -> None:
    ran = passwd.typed("add", file, "alice", keys=[SECRET, SECRET])
    assert (ran.code, ran.err) == (0, "")
    assert passwd.asked == ["Passcode of alice: ", "Repeat the passcode: "]
    assert ran.out.splitlines() == [
        f"{file}: set the passcode of alice",
        "a running broker loads it on SIGHUP: kill -HUP PID",
    ]
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert knows(file, "alice", SECRET)
    assert read_user_file(file).plain == 0


@pytest.mark.parametrize(
    ("line", "passcode"),
    [
        (b"geheim\n", "geheim"),
        (b"geheim\r\n", "geheim"),
        (b"geheim", "geheim"),
        (b"geheim\nmore\n", "geheim"),
        (b" ge heim \n", " ge heim "),
        (b"a:b#c$d\n", "a:b#c$d"),
        ("grün\n".encode(), "grün"),
        (b"x" * 1024 + b"\r\n", "x" * 1024),
        (b"ge\\nheim\n", "ge\\nheim"),
    ],
)
def test_a_passcode_is_one_line_of_standard_input(
    passwd: Passwd, file: str, line: bytes, passcode: str
) -> None:
    assert passwd("add", file, "alice", "--stdin", stdin=line).code == 0
    assert knows(file, "alice", passcode)
    assert passwd("verify", "--stdin", file, "alice", stdin=line).code == 0
    assert passwd("verify", "--stdin", file, "alice", stdin=b"!" + line[1:]).code == 1


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "standard input is empty"),
        (b"\n", "the passcode is empty"),
        (b"\xff\n", "is not UTF-8"),
        (b"ge\0heim\n", "control character"),
        (b"ge\x1b[Aheim\n", "control character"),
        (b"x" * 1025 + b"\n", "over 1024 bytes"),
        ("ü".encode() * 100_000, "over 1024 bytes"),
    ],
)
def test_a_bad_passcode_changes_nothing(passwd: Passwd, file: str, line: bytes, why: str) -> None:
    ran = passwd("add", file, "alice", "--stdin", stdin=line)
    assert ran.code == 1
    assert ran.err.startswith("trio-stomp passwd add: error: ")
    assert why in ran.err
    assert not os.path.exists(file)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ([SECRET, "other"], "the two passcodes differ"),
        (["", ""], "the passcode is empty"),
        ([EOFError()], "no passcode was entered"),
        ([SECRET, EOFError()], "no passcode was entered"),
        ([KeyboardInterrupt()], "interrupted"),
        ([getpass.GetPassWarning("Can not control echo")], "cannot hide the input"),
        ([UnicodeDecodeError("ascii", b"\xff", 0, 1, "ordinal")], "character set"),
    ],
)
def test_mistyped_passcode_changes_nothing(
    passwd: Passwd, file: str, keys: list[str | BaseException], why: str
) -> None:
    ran = passwd.typed("add", file, "alice", keys=keys)
    assert (ran.code, ran.out) == (1, "")
    assert why in ran.err
    assert not os.path.exists(file)


def test_a_terminal_that_echoes_is_refused(passwd: Passwd, file: str) -> None:
    """``getpass`` itself only warns, and then reads with an echo."""

    def ask(prompt: str) -> str:
        warnings.warn("Can not control echo", getpass.GetPassWarning, stacklevel=2)
        return SECRET

    with warnings.catch_warnings():
        # As outside of the tests, where no warning is an error by itself.
        warnings.simplefilter("default")
        ran = passwd.asked_by(ask, "add", file, "alice")
    assert (ran.code, "use --stdin" in ran.err) == (1, True)
    assert not os.path.exists(file)


@pytest.mark.parametrize("command", ["add", "verify"])
def test_without_a_terminal_nothing_is_asked(passwd: Passwd, file: str, command: str) -> None:
    save(file, "bob:x\nalice:x\n")
    ran = passwd(command, file, "bob" if command == "verify" else "carol", stdin=b"geheim\n")
    assert (ran.code, "is not a terminal; use --stdin" in ran.err) == (1, True)


def test_an_existing_user_is_replaced_only_with_replace(passwd: Passwd, file: str) -> None:
    save(file, "# mine\nalice:old\nbob:x\n")
    ran = passwd.typed("add", file, "alice", keys=[])
    assert (ran.code, passwd.asked) == (1, [])
    assert f"{file} has 'alice' already; give another passcode with --replace" in ran.err
    assert text_of(file) == "# mine\nalice:old\nbob:x\n"
    ran = passwd("add", file, "alice", "--stdin", "--replace", stdin=b"geheim\n")
    assert ran.code == 0
    assert "1 of 2 passcodes are plain text" in ran.err
    first, alice, bob = text_of(file).splitlines()
    assert (first, alice[:10], bob) == ("# mine", "alice:$arg", "bob:x")
    assert knows(file, "alice", SECRET)


def test_a_user_added_during_the_prompt_is_not_replaced(passwd: Passwd, file: str) -> None:
    theirs = HASHER.hash("theirs")

    def ask(prompt: str) -> str:
        change_user_file(file, lambda book: {"alice": theirs}, create=True)
        return SECRET

    ran = passwd.asked_by(ask, "add", file, "alice")
    assert (ran.code, "has 'alice' already" in ran.err) == (1, True)
    assert knows(file, "alice", "theirs")


def test_tightened_mode_is_reported_and_group_mode_stays(passwd: Passwd, file: str) -> None:
    save(file, "", 0o644)
    ran = passwd("add", file, "alice", "--stdin", stdin=b"geheim\n")
    assert f"{file}: changed its mode from 0644 to 0600" in ran.out
    save(file, "", 0o640)
    ran = passwd("add", file, "alice", "--stdin", stdin=b"geheim\n")
    assert (ran.code, "its mode from" in ran.out) == (0, False)
    assert ran.err.startswith(f"trio-stomp passwd: warning: {file} has mode 0640")


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("anonymous", "may be called anonymous"),
        ("", "is empty"),
        ("alice:geheim", "holds a colon"),
        ("#alice", "begins with #"),
        ("al\nice", "control character"),
        ("al\udcffice", "control character"),
        ("x" * 256, "256 bytes"),
    ],
)
@pytest.mark.parametrize("command", ["add", "del", "verify"])
def test_a_bad_name_is_a_bad_option(
    passwd: Passwd, file: str, command: str, user: str, why: str
) -> None:
    ran = passwd(command, file, user, stdin=b"geheim\n")
    assert (ran.code, why in ran.err) == (2, True)


# Secrets, which are never on the command line.


@pytest.mark.parametrize(
    "words",
    [
        ["geheim"],
        ["geheim", "--stdin"],
        ["--stdin", "geheim"],
        ["--passcode", "geheim"],
        ["--passcode=geheim"],
        ["--password=geheim"],
        ["-p", "geheim"],
        ["-pgeheim"],
        ["-geheim"],
        ["-hgeheim"],
        ["--geheim"],
        ["--stdin=geheim"],
        ["--replace=geheim"],
        ["--stdi", "geheim"],
        ["--", "geheim"],
        ["--plain", "geheim"],
        ["geheim", "geheim"],
    ],
)
@pytest.mark.parametrize("command", ["add", "verify", "del"])
def test_a_passcode_on_the_command_line_is_refused_and_not_shown(
    passwd: Passwd, file: str, command: str, words: list[str]
) -> None:
    ran = passwd(command, file, "alice", *words, stdin=b"x\n")
    assert (ran.code, ran.out) == (2, "")
    assert "A passcode is never taken from the command line" in ran.err
    assert "or use --stdin" in ran.err
    assert not os.path.exists(file)


def test_a_secret_in_place_of_a_command_is_not_shown(passwd: Passwd) -> None:
    ran = passwd("geheim")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "passwd: unknown command; use one of add, del, verify, list, import" in ran.err


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ([], "COMMAND"),
        (["add"], "FILE, USER"),
        (["add", "x"], "USER"),
        (["del", "x"], "USER"),
        (["list"], "FILE"),
        (["import", "x"], "FILE"),
    ],
)
def test_missing_argument_is_named(passwd: Passwd, words: list[str], missing: str) -> None:
    ran = passwd(*words)
    name = " ".join(["passwd", *words[:1]])
    assert ran.code == 2
    assert f"{name}: the following arguments are required: {missing}\n" in ran.err


@pytest.mark.parametrize("words", [[], ["add"], ["del"], ["verify"], ["list"], ["import"]])
def test_each_command_has_help_with_its_options(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        COMMAND.make_parser("passwd").parse_args([*words, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(" ".join(["usage: trio-stomp passwd", *words]))
    assert ("--stdin" in out) is (words in ([], ["add"], ["verify"]))


# del, verify, list


def test_a_user_is_removed(passwd: Passwd, file: str) -> None:
    save(file, "# mine\nalice:x\nbob:y\n")
    ran = passwd("del", file, "alice")
    assert ran.code == 0
    assert f"{file}: removed alice\n" in ran.out
    assert "SIGHUP" in ran.out
    assert text_of(file) == "# mine\nbob:y\n"
    ran = passwd("del", file, "alice")
    assert (ran.code, ran.out) == (1, "")
    assert f"trio-stomp passwd del: error: {file} has no user 'alice'" in ran.err


@pytest.mark.parametrize("command", ["del", "verify", "list"])
def test_a_file_that_is_not_there_is_not_made(passwd: Passwd, file: str, command: str) -> None:
    ran = passwd(command, file, *(["alice"] if command != "list" else []))
    assert (ran.code, "no such file" in ran.err) == (1, True)
    assert not os.path.exists(file)


@pytest.mark.parametrize("stored", [HASHER.hash(SECRET), SECRET], ids=["hashed", "plain"])
def test_a_passcode_is_verified(passwd: Passwd, file: str, stored: str) -> None:
    save(file, f"alice:{stored}\nbob:other\n")
    ran = passwd.typed("verify", file, "alice", keys=[SECRET])
    assert ran == Ran(0, f"{file}: that is the passcode of alice\n", "")
    assert passwd.asked == ["Passcode of alice: "]
    for wrong in ("other", ""):
        ran = passwd.typed("verify", file, "alice", keys=[wrong])
        assert ran == Ran(1, f"{file}: that is not the passcode of alice\n", "")


def test_no_prompt_for_an_unknown_user(passwd: Passwd, file: str) -> None:
    save(file, "alice:x\n")
    ran = passwd.typed("verify", file, "bob", keys=[])
    assert (ran.code, "has no user 'bob'" in ran.err) == (1, True)


def test_hash_with_other_parameters_is_reported(passwd: Passwd, file: str) -> None:
    save(file, f"alice:{OLDER.hash(SECRET)}\n")
    ran = passwd("verify", file, "alice", "--stdin", stdin=b"geheim\n")
    assert (ran.code, "passwd add --replace renews it" in ran.out) == (0, True)


def test_the_list_says_how_each_passcode_is_stored(passwd: Passwd, file: str) -> None:
    save(file, f"alice:{HASHER.hash('x')}\nbob:geheim\n# no\ncarol:{OLDER.hash('x')}\n")
    ran = passwd("list", file)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "hashed  alice",
        "plain   bob",
        "hashed  carol  (other parameters than new ones)",
    ]
    assert json.loads(passwd("list", file, "--json").out) == [
        {"name": "alice", "kind": "hashed", "needs_rehash": False},
        {"name": "bob", "kind": "plain", "needs_rehash": True},
        {"name": "carol", "kind": "hashed", "needs_rehash": True},
    ]


def test_empty_list_of_users(passwd: Passwd, file: str) -> None:
    save(file, "")
    assert passwd("list", file) == Ran(0, "", "")
    assert passwd("list", file, "--json") == Ran(0, "[]\n", "")


def test_file_with_a_bad_line_is_reported_by_every_command(passwd: Passwd, file: str) -> None:
    save(file, "alice:x\nbob:$2b$12$geheim\n")
    others = [["list", file], ["import", file, file]]
    for words in [[command, file, "alice"] for command in ("add", "del", "verify")] + others:
        ran = passwd(*words, stdin=b"x\n")
        assert (ran.code, ran.out) == (1, "")
        assert f"{file}, line 2: the hash is of another kind" in ran.err


def test_without_the_library_there_is_a_list_and_a_remedy(
    passwd: Passwd, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(file, f"alice:{HASHER.hash('x')}\nbob:x\n")
    monkeypatch.setitem(sys.modules, "argon2", None)
    assert passwd("list", file, hasher=None).out.splitlines() == ["hashed  alice", "plain   bob"]
    rows = json.loads(passwd("list", file, "--json", hasher=None).out)
    assert [row["needs_rehash"] for row in rows] == [None, True]
    remedy = "pip install argon2-cffi"
    words = [["add", file, "carol", "--stdin"], ["import", file, file]]
    for each in [*words, ["verify", file, "alice", "--stdin"]]:
        ran = passwd(*each, stdin=b"x\n", hasher=None)
        assert (ran.code, remedy in ran.err) == (1, True)
    assert passwd("verify", file, "bob", "--stdin", stdin=b"x\n", hasher=None).code == 0
    assert passwd("del", file, "bob", hasher=None).code == 0


# import


SEED = "# stompserver\n  alice : geheim-a \n\nbob:geheim:b\nempty:\n"


def test_an_old_file_is_hashed_into_a_new_one(passwd: Passwd, file: str, tmp_path: Path) -> None:
    source = save(str(tmp_path / ".passwd"), SEED + f"there:{OLDER.hash('x')}\n", 0o644)
    before = text_of(source)
    ran = passwd("import", source, file, "--progress")
    assert (ran.code, "import: 100 %" in ran.err) == (0, True)
    assert ran.out.splitlines() == [
        f"{file}: 3 passcodes hashed, 1 were hashed before; "
        "1 hold a colon, where stompserver would split at the last one",
        "a running broker loads it on SIGHUP: kill -HUP PID",
        f"{source}: it still contains plain text; delete it once the broker no longer uses it",
    ]
    assert text_of(source) == before
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    book = read_user_file(file)
    assert ([*book.users], book.plain) == (["alice", "bob", "empty", "there"], 0)
    assert knows(file, "alice", "geheim-a")
    assert knows(file, "bob", "geheim:b")
    assert knows(file, "empty", "")
    assert knows(file, "there", "x")
    # The comments of another file stay there: they may be users who were shut out.
    assert "stompserver" not in text_of(file)


@pytest.mark.parametrize("is_link", [False, True])
def test_a_file_is_hashed_where_it_is(
    passwd: Passwd, file: str, tmp_path: Path, is_link: bool
) -> None:
    there = HASHER.hash("x")
    save(file, SEED + f"there:{there}\n", 0o644)
    target = file
    if is_link:
        target = str(tmp_path / "link")
        os.symlink("users", target)
    ran = passwd("import", file, target)
    assert (ran.code, ran.err) == (0, "")
    assert "3 passcodes hashed, 1 were hashed before" in ran.out
    assert "still holds" not in ran.out
    first, alice, blank, bob, empty, last = text_of(file).splitlines()
    assert (first, blank, last) == ("# stompserver", "", f"there:{there}")
    assert all(is_hashed(line.partition(":")[2]) for line in (alice, bob, empty))
    assert knows(file, "alice", "geheim-a")
    assert knows(file, "bob", "geheim:b")
    before = text_of(file)
    assert "0 passcodes hashed, 4 were hashed before" in passwd("import", file, file).out
    assert text_of(file) == before


def test_existing_users_are_imported_only_with_replace(
    passwd: Passwd, file: str, tmp_path: Path
) -> None:
    source = save(str(tmp_path / "old"), "".join(f"u{number}:geheim\n" for number in range(5)))
    save(file, "# mine\nu0:a\nu1:a\nu2:a\nu3:a\nother:a\n")
    before = text_of(file)
    ran = passwd("import", source, file)
    assert (ran.code, ran.out, text_of(file)) == (1, "", before)
    assert "has 'u0', 'u1', 'u2' and 1 more already" in ran.err
    ran = passwd("import", source, file, "--replace")
    assert ran.code == 0
    # The passcode that was not imported is still reported.
    assert "1 of 6 passcodes are plain text" in ran.err
    assert text_of(file).startswith("# mine\nu0:$argon2id$")
    assert [*read_user_file(file).users] == ["u0", "u1", "u2", "u3", "other", "u4"]
    assert knows(file, "u3", SECRET)
    assert knows(file, "other", "a")


class Meanwhile:
    """A hasher during whose work the file is changed."""

    def __init__(self, change: Callable[[], object]) -> None:
        self.change = change

    def hash(self, password: str) -> str:
        self.change()
        return str(HASHER.hash(password))


def test_an_upgrade_does_not_undo_a_concurrent_change(passwd: Passwd, file: str) -> None:
    save(file, "alice:geheim\nbob:geheim\n")
    new = HASHER.hash("new")
    hasher = Meanwhile(lambda: change_user_file(file, lambda book: {"bob": new, "carol": new}))
    ran = passwd("import", file, file, hasher=hasher)
    assert (ran.code, ran.out) == (1, "")
    assert "was changed by another program, and is left unchanged; try again" in ran.err
    assert text_of(file) == f"alice:geheim\nbob:{new}\ncarol:{new}\n"
    ran = passwd("import", file, file)
    assert ran.code == 0
    assert knows(file, "bob", "new")


def test_an_import_does_not_replace_a_user_added_meanwhile(
    passwd: Passwd, file: str, tmp_path: Path
) -> None:
    source = save(str(tmp_path / "old"), "alice:geheim\n")
    new = HASHER.hash("new")
    hasher = Meanwhile(lambda: change_user_file(file, lambda book: {"alice": new}, create=True))
    assert passwd("import", source, file, hasher=hasher).code == 1
    assert knows(file, "alice", "new")


def test_an_import_that_is_interrupted_changes_nothing(
    passwd: Passwd, file: str, tmp_path: Path
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    source = save(str(tmp_path / "old"), SEED)
    ran = passwd("import", source, file, hasher=Meanwhile(interrupt))
    assert (ran.code, ran.err) == (1, "trio-stomp passwd import: error: interrupted\n")
    assert os.listdir(tmp_path) == ["old"]


def test_an_import_of_nothing(passwd: Passwd, file: str, tmp_path: Path) -> None:
    ran = passwd("import", str(tmp_path / "old"), file)
    assert (ran.code, "no such file" in ran.err) == (1, True)
    source = save(str(tmp_path / "old"), "# nobody\n")
    ran = passwd("import", source, file, "--progress")
    assert (ran.code, ran.err) == (0, "")
    assert text_of(file) == ""
    assert "still holds" not in ran.out


# A real terminal.


PROGRAM = """
import argon2, os, sys
# The first of a session that opens a terminal makes it the session's.
os.close(os.open(os.ttyname(0), os.O_RDWR))
from attrs import evolve
from trio_stomp.cli.commands._passwd import COMMAND
hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
command = evolve(COMMAND, defaults={"hasher": hasher})
sys.exit(command.run(command.make_parser("passwd").parse_args(sys.argv[1:])))
"""


def test_a_real_terminal_shows_no_passcode(file: str) -> None:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "add", file, "alice"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        shown = _read_until(ours, b"Passcode of alice: ")
        os.write(ours, b"geheim\n")
        shown += _read_until(ours, b"Repeat the passcode: ")
        os.write(ours, b"geheim\n")
        shown += _read_until(ours, b"SIGHUP")
        assert process.wait(30) == 0
    finally:
        os.close(ours)
    assert b"geheim" not in shown
    assert knows(file, "alice", SECRET)


def _read_until(handle: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        shown += os.read(handle, 1024)
    return shown
