"""``trio-stomp passwd``: edit and check the users file."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from trio_stomp.base import OptionError
from trio_stomp.cli._command import JSON, PROGRESS, Argument, Command, Helper, Parser, act
from trio_stomp.cli._connect_options import typed
from trio_stomp.cli._progress import progress
from trio_stomp.cli._tool import CANNOT, WELL, report, say
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

UNTYPED = ("; use --stdin", ", so nothing was changed")
"""Remedies if a passcode cannot be typed."""

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
            message = f"unknown command; use one of {', '.join(COMMAND.commands)}"
        elif not message.startswith("the following arguments are required"):
            message = ON_THE_COMMAND_LINE
        Helper.error(self, message)


def _run(given: argparse.Namespace) -> int:
    """Run ``passwd``, and return the exit code.

    Raises:
      OptionError: the command line is wrong; the text is one line for the operator.
    """
    if "user" in given:
        check_name(given.user)
    try:
        return act(given)
    except (OptionError, OSError) as error:
        cause = str(error)
    except KeyboardInterrupt:
        cause = "interrupted"
    say(f"trio-stomp passwd {given.command}: error: {cause}", to=sys.stderr)
    return CANNOT


def _add(given: argparse.Namespace) -> int:
    file, user, replace = given.file, given.user, given.replace
    if os.path.exists(file):
        # Also before the prompt, so that no passcode is typed in vain.
        _check_new([user], read_user_file(file), file, replace=replace)
    passcode = _ask_passcode(user, stdin=given.stdin, twice=True)
    if not passcode:
        raise OptionError("the passcode is empty, so nothing was changed; give one")
    stored = hash_passcode(passcode, given.hasher)

    def change(book: UserBook) -> Changes:
        _check_new([user], book, file, replace=replace)
        return {user: stored}

    return _change(given, change, f"set the passcode of {user}", create=True)


def _check_new(users: Sequence[str], book: UserBook, file: str, *, replace: bool) -> None:
    if there := [] if replace else [user for user in users if user in book.users]:
        more = f" and {len(there) - SHOWN_USERS} more" if len(there) > SHOWN_USERS else ""
        names = ", ".join(map(repr, there[:SHOWN_USERS]))
        raise OptionError(f"{file} has {names}{more} already; give another passcode with --replace")


def _del(given: argparse.Namespace) -> int:
    file, user = given.file, given.user

    def change(book: UserBook) -> Changes:
        _check_there(user, book, file)
        return {user: None}

    return _change(given, change, f"removed {user}")


def _check_there(user: str, book: UserBook, file: str) -> None:
    if user not in book.users:
        raise OptionError(f"{file} has no user {user!r}; see who is there: passwd list")


def _change(
    given: argparse.Namespace,
    change: Callable[[UserBook], Changes],
    done: str,
    *,
    create: bool = False,
) -> int:
    """Apply the change, and print how a running broker takes it over."""
    file = given.file
    before = _mode(file)
    book = change_user_file(file, change, create=create)
    after = _mode(file)
    lines = [f"{file}: {done}"]
    if before not in (None, after):
        lines.append(f"{file}: changed its mode from {before:04o} to {after:04o}")
    lines.append("a running broker loads it on SIGHUP: kill -HUP PID")
    report(given, {"file": file, "done": done, "mode": f"{after:04o}"}, *lines)
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
    passcode = typed(f"Passcode of {user}: ", *UNTYPED)
    if twice and passcode != typed("Repeat the passcode: ", *UNTYPED):
        raise OptionError("the two passcodes differ, so nothing was changed; try again")
    return passcode


def _verify(given: argparse.Namespace) -> int:
    file, user = given.file, given.user
    book = read_user_file(file)
    _check_there(user, book, file)
    passcode = _ask_passcode(user, stdin=given.stdin)
    checker = PasscodeChecker(UserBook({user: book.users[user]}), given.hasher)
    is_right = checker.check(user, passcode)
    lines = [f"{file}: that is {'' if is_right else 'not '}the passcode of {user}"]
    if is_right and is_hashed(book.users[user]) and needs_rehash(book.users[user], given.hasher):
        lines.append(
            f"{file}: its hash has other parameters than new ones; passwd add --replace renews it"
        )
    found = {"file": file, "user": user, "right": is_right}
    return report(given, found, *lines, code=WELL if is_right else CANNOT)


def _list(given: argparse.Namespace) -> int:
    book = read_user_file(given.file)
    rows = [
        {
            "name": name,
            "kind": "hashed" if is_hashed(stored) else "plain",
            "needs_rehash": _is_outdated(stored, given.hasher),
        }
        for name, stored in book.users.items()
    ]
    old = "  (other parameters than new ones)"
    lines = (
        f"{row['kind']:<7} {row['name']}"
        f"{old if row['needs_rehash'] and row['kind'] == 'hashed' else ''}"
        for row in rows
    )
    return report(given, rows, *lines)


def _is_outdated(stored: str, hasher: Hasher | None) -> bool | None:
    """Return whether a hash is outdated, or None if argon2-cffi is not installed."""
    try:
        return needs_rehash(stored, hasher)
    except OptionError:
        return None


def _import(given: argparse.Namespace) -> int:
    source, file, replace = given.source, given.file, given.replace
    users = read_user_file(source).users
    is_upgrade = os.path.exists(file) and os.path.samefile(source, file)
    if not is_upgrade and os.path.exists(file):
        # Also before an hour of hashing.
        _check_new([*users], read_user_file(file), file, replace=replace)
    plain = {name: stored for name, stored in users.items() if not is_hashed(stored)}
    hashed: dict[str, str | None] = {}
    with progress("import", wanted=given.progress) as tell:
        for number, (name, passcode) in enumerate(plain.items(), 1):
            hashed[name] = hash_passcode(passcode, given.hasher)
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
    _change(given, change, done, create=True)
    if plain and not is_upgrade and not given.json:
        say(f"{source}: it still contains plain text; delete it once the broker no longer uses it")
    return WELL


FILE, USER = Argument("FILE"), Argument("USER")
STDIN = Argument("--stdin", "read the passcode from a line of standard input")
REPLACE = Argument("--replace", "replace the passcodes of existing users")
COMMAND = Command(
    _run,
    epilog=EPILOG,
    commands={
        "add": Command(
            _add,
            (FILE, USER, STDIN, REPLACE, JSON),
            "add a user to FILE or change a passcode; create FILE if it is missing",
        ),
        "del": Command(_del, (FILE, USER, JSON), "remove a user from FILE"),
        "verify": Command(_verify, (FILE, USER, STDIN, JSON), "check a passcode: exit code 0 or 1"),
        "list": Command(
            _list, (FILE, JSON), "list the users in FILE, and whether their passcodes are hashed"
        ),
        "import": Command(
            _import,
            (Argument("SOURCE"), FILE, REPLACE, JSON, PROGRESS),
            "hash the passcodes of SOURCE into FILE; SOURCE may be FILE itself",
        ),
    },
    # argon2-cffi's default profile; tests have a faster one.
    defaults={"hasher": None},
    parser=_Parser,
)
