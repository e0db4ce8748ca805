"""``trio-stomp passwd``: edit and check the users file."""

import argparse
import getpass
import os
import sys
import warnings as python_warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.cli._progress import progress
from trio_stomp.cli._tool import (
    PROGRAM,
    Parser,
    add_commands,
    add_json,
    add_progress,
    say,
    show_json,
)
from trio_stomp.security import (
    MAX_PASSCODE_BYTES,
    Changes,
    Hasher,
    PasscodeChecker,
    UserBook,
    change_user_file,
    check_name,
    hash_passcode,
    is_hashed,
    needs_rehash,
    read_user_file,
    warnings,
)

NAME = "passwd"
WELL, CANNOT = 0, 1

TEXTS = {
    "add": "add a user to FILE or change a passcode; create FILE if it is missing",
    "del": "remove a user from FILE",
    "verify": "check a passcode: exit code 0 or 1",
    "list": "list the users in FILE, and whether their passcodes are hashed",
    "import": "hash the passcodes of SOURCE into FILE; SOURCE may be FILE itself",
}

EPILOG = """\
FILE is the --passwd-file of a broker. Passcodes are prompted for, or read from standard input with
--stdin; they are never given on the command line, which every user of the machine can see. SOURCE
has lines user:passcode, as stompserver's .passwd, or hashes. The exit code is 0 on success, 1 if
something is wrong or failed, 2 for a bad option.
"""

ON_THE_COMMAND_LINE = (
    "an unexpected argument or unknown option (not shown: it may be a passcode). A passcode is "
    "never taken from the command line, which every user of the machine and the shell's history "
    "see: omit it to be prompted, or use --stdin; for the options see --help"
)
SHOWN_USERS = 3


class _Parser(Parser):
    """A parser that raises its errors, and never quotes a possible secret."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("argument COMMAND"):
            message = f"unknown command; use one of {', '.join(TEXTS)}"
        elif not message.startswith("the following arguments are required"):
            message = ON_THE_COMMAND_LINE
        raise OptionError(f"{self.prog.partition(' ')[2]}: {message}")


@frozen
class _Tool:
    """One call of the tool.

    Args:
      given: The parsed command line.
      hasher: None = that of argon2-cffi.
    """

    given: argparse.Namespace
    hasher: Hasher | None

    def hash(self, passcode: str) -> str:
        return hash_passcode(passcode, self.hasher)


def main(argv: Sequence[str], *, hasher: Hasher | None = None) -> int:
    """Run ``passwd``, and return the exit code.

    Args:
      argv: The arguments after ``passwd``.
      hasher: The hash function; None = argon2-cffi's default profile.

    Raises:
      OptionError: the command line is wrong; the text is one line for the operator.
    """
    given = make_parser().parse_args(list(argv))
    if "user" in given:
        check_name(given.user)
    try:
        return COMMANDS[given.command](_Tool(given, hasher))
    except (OptionError, OSError) as error:
        cause = str(error)
    except KeyboardInterrupt:
        cause = "interrupted"
    say(f"trio-stomp passwd {given.command}: error: {cause}", to=sys.stderr)
    return CANNOT


def make_parser() -> Parser:
    """Return the parser of the arguments after ``passwd``."""
    parser = _Parser(
        prog=f"{PROGRAM} {NAME}",
        description="Manage the users and passcodes of a broker.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for name, command in add_commands(parser, TEXTS).items():
        if name == "import":
            command.add_argument("source", metavar="SOURCE")
        command.add_argument("file", metavar="FILE")
        if name in ("add", "del", "verify"):
            command.add_argument("user", metavar="USER")
        if name in ("add", "verify"):
            command.add_argument(
                "--stdin",
                action="store_true",
                help="read the passcode from a line of standard input",
            )
        if name in ("add", "import"):
            command.add_argument(
                "--replace", action="store_true", help="replace the passcodes of existing users"
            )
        add_json(command)
        if name == "import":
            add_progress(command)
    return parser


def _add(tool: _Tool) -> int:
    file, user, replace = tool.given.file, tool.given.user, tool.given.replace
    if os.path.exists(file):
        # Also before the prompt, so that no passcode is typed in vain.
        _check_new([user], read_user_file(file), file, replace=replace)
    passcode = _ask_passcode(user, stdin=tool.given.stdin, twice=True)
    if not passcode:
        raise OptionError("the passcode is empty, so nothing was changed; give one")
    stored = tool.hash(passcode)

    def change(book: UserBook) -> Changes:
        _check_new([user], book, file, replace=replace)
        return {user: stored}

    return _change(tool, change, f"set the passcode of {user}", create=True)


def _check_new(users: Sequence[str], book: UserBook, file: str, *, replace: bool) -> None:
    if there := [] if replace else [user for user in users if user in book.users]:
        more = f" and {len(there) - SHOWN_USERS} more" if len(there) > SHOWN_USERS else ""
        names = ", ".join(map(repr, there[:SHOWN_USERS]))
        raise OptionError(f"{file} has {names}{more} already; give another passcode with --replace")


def _del(tool: _Tool) -> int:
    file, user = tool.given.file, tool.given.user

    def change(book: UserBook) -> Changes:
        _check_there(user, book, file)
        return {user: None}

    return _change(tool, change, f"removed {user}")


def _check_there(user: str, book: UserBook, file: str) -> None:
    if user not in book.users:
        raise OptionError(f"{file} has no user {user!r}; see who is there: passwd list")


def _change(
    tool: _Tool, change: Callable[[UserBook], Changes], done: str, *, create: bool = False
) -> int:
    """Apply the change, and print how a running broker takes it over."""
    file = tool.given.file
    before = _mode(file)
    book = change_user_file(file, change, create=create)
    after = _mode(file)
    if tool.given.json:
        show_json({"file": file, "done": done, "mode": f"{after:04o}"})
    else:
        say(f"{file}: {done}")
        if before not in (None, after):
            say(f"{file}: changed its mode from {before:04o} to {after:04o}")
        say("a running broker loads it on SIGHUP: kill -HUP PID")
    for warning in warnings(file, book):
        say(f"trio-stomp passwd: warning: {warning}", to=sys.stderr)
    return WELL


def _mode(file: str) -> int | None:
    return os.stat(file).st_mode & 0o7777 if os.path.exists(file) else None


def _ask_passcode(user: str, *, stdin: bool, twice: bool = False) -> str:
    """Read the passcode without echo, from the terminal or a line of standard input."""
    if stdin:
        line: bytes = sys.stdin.buffer.readline(MAX_PASSCODE_BYTES + 3)
        if not line:
            raise OptionError("standard input is empty; --stdin needs a line with the passcode")
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(line) > MAX_PASSCODE_BYTES:
            raise OptionError(f"the passcode has over {MAX_PASSCODE_BYTES} bytes; shorten it")
        try:
            return line.decode()
        except UnicodeDecodeError:
            raise OptionError("the passcode is not UTF-8; convert it") from None
    if not sys.stdin.isatty():
        raise OptionError("standard input is not a terminal; use --stdin")
    passcode = _typed(f"Passcode of {user}: ")
    if twice and passcode != _typed("Repeat the passcode: "):
        raise OptionError("the two passcodes differ, so nothing was changed; try again")
    return passcode


def _typed(prompt: str) -> str:
    try:
        with python_warnings.catch_warnings():
            # getpass would go on, and echo the passcode.
            python_warnings.simplefilter("error", getpass.GetPassWarning)
            return getpass.getpass(prompt)
    except getpass.GetPassWarning:
        raise OptionError("the terminal cannot hide the input; use --stdin") from None
    except UnicodeDecodeError:
        raise OptionError("the passcode is not in the terminal's character set") from None
    except EOFError:
        raise OptionError("no passcode was entered, so nothing was changed") from None


def _verify(tool: _Tool) -> int:
    file, user = tool.given.file, tool.given.user
    book = read_user_file(file)
    _check_there(user, book, file)
    passcode = _ask_passcode(user, stdin=tool.given.stdin)
    checker = PasscodeChecker(UserBook({user: book.users[user]}), tool.hasher)
    is_right = checker.check(user, passcode)
    if tool.given.json:
        show_json({"file": file, "user": user, "right": is_right})
        return WELL if is_right else CANNOT
    if not is_right:
        say(f"{file}: that is not the passcode of {user}")
        return CANNOT
    say(f"{file}: that is the passcode of {user}")
    if is_hashed(book.users[user]) and needs_rehash(book.users[user], tool.hasher):
        say(f"{file}: its hash has other parameters than new ones; passwd add --replace renews it")
    return WELL


def _list(tool: _Tool) -> int:
    book = read_user_file(tool.given.file)
    rows = [
        {
            "name": name,
            "kind": "hashed" if is_hashed(stored) else "plain",
            "needs_rehash": _is_outdated(stored, tool.hasher),
        }
        for name, stored in book.users.items()
    ]
    if tool.given.json:
        show_json(rows)
        return WELL
    for row in rows:
        remark = "  (other parameters than new ones)" if row["needs_rehash"] else ""
        say(f"{row['kind']:<7} {row['name']}{remark if row['kind'] == 'hashed' else ''}")
    return WELL


def _is_outdated(stored: str, hasher: Hasher | None) -> bool | None:
    """Return whether a hash is outdated, or None if argon2-cffi is not installed."""
    try:
        return needs_rehash(stored, hasher)
    except OptionError:
        return None


def _import(tool: _Tool) -> int:
    source, file, replace = tool.given.source, tool.given.file, tool.given.replace
    users = read_user_file(source).users
    is_upgrade = os.path.exists(file) and os.path.samefile(source, file)
    if not is_upgrade and os.path.exists(file):
        # Also before an hour of hashing.
        _check_new([*users], read_user_file(file), file, replace=replace)
    plain = {name: stored for name, stored in users.items() if not is_hashed(stored)}
    hashed: dict[str, str | None] = {}
    with progress("import", wanted=tool.given.progress) as tell:
        for number, (name, passcode) in enumerate(plain.items(), 1):
            hashed[name] = tool.hash(passcode)
            tell(number, len(plain))

    def change(book: UserBook) -> Changes:
        if not is_upgrade:
            _check_new([*users], book, file, replace=replace)
            return {**users, **hashed}
        if any(book.users.get(name) != stored for name, stored in plain.items()):
            raise OptionError(
                f"{file} was changed by another program, and is left unchanged; try again"
            )
        return hashed

    done = f"{len(hashed)} passcodes hashed, {len(users) - len(hashed)} were hashed before"
    if colons := sum(":" in passcode for passcode in plain.values()):
        done += f"; {colons} hold a colon, where stompserver would split at the last one"
    _change(tool, change, done, create=True)
    if plain and not is_upgrade and not tool.given.json:
        say(f"{source}: it still contains plain text; delete it once the broker no longer uses it")
    return WELL


COMMANDS: dict[str, Callable[[_Tool], int]] = {
    "add": _add,
    "del": _del,
    "verify": _verify,
    "list": _list,
    "import": _import,
}
