"""The users file. No error and no repr ever shows a passcode."""

import random
from pathlib import Path

from _fuzz.target import Target, check, check_equal
from _fuzz.targets.files import own_file
from trio_stomp.base._errors import OptionError
from trio_stomp.security._passcodes import is_hashed
from trio_stomp.security._users import UserBook, change_user_file, read_user_file, warnings

SECRET = b"xyzzySECRET"
HASH = b"$argon2id$v=19$m=65536,t=3,p=4$Qmh4KS7bHM5pdiGuWdT2AA$"
HASH += b"4OOKu8a7Fzx+Eumz9FYzTQLYSOUTjA0LwH+CQKMLXVg"
STORED = (
    *(SECRET, b"", HASH, HASH[:-1], HASH.replace(b"m=65536", b"m=9999999999"), b"$argon2i$v=19$x"),
    *(b"$2b$12$abc", b"{SSHA}abc", b" " + SECRET + b" ", SECRET + b":" + SECRET, SECRET + b"\0"),
    *(SECRET + b"\xff", SECRET * 100, b"$6$" + SECRET, b"$argon2id$" + SECRET),
)
NAMES = (
    b"alice",
    b"bob",
    b"",
    b"#c",
    b" d ",
    b"anonymous",
    b"e\0",
    b"\xc3\xa9",
    b"f" * 256,
    b"alice",
)
MANY = b"\n".join(b"u%d:x" % number for number in range(50))
CHANGED = "changed-by-the-target"


def make(name: str) -> Target:
    """The target."""
    path = own_file("users")

    def run(data: bytes) -> None:
        path.write_bytes(data)
        path.chmod(0o600)
        judge(path, data)

    words = (
        *STORED,
        *NAMES,
        b":",
        b"\n",
        b"\r\n",
        b"#",
        b"\xef\xbb\xbf",
        b"\x0c",
        b"\xe2\x80\xa8",
        MANY,
    )
    files = ("security/_users.py",)
    return Target(name, run, files, generate, words, 8192)


def generate(chance: random.Random) -> bytes:
    """Return some lines."""
    lines = []
    for _ in range(chance.randint(1, 5)):
        name = chance.choice(NAMES[: chance.choice((2, 10))])
        lines.append(name + b":" + chance.choice(STORED[: chance.choice((3, 15))]))
        if chance.random() < 0.2:
            lines.append(chance.choice((b"# a comment", b"", b"  ", b"no colon", b"\t#x:y")))
    return chance.choice((b"\n", b"\n", b"\r\n")).join(lines) + chance.choice((b"", b"\n"))


def judge(path: Path, data: bytes) -> None:
    """Read, compare line by line, change, and read again."""
    try:
        book = read_user_file(str(path))
    except OptionError as error:
        check(str(path) in str(error), f"the file is not named: {error}")
        check_hides(data, str(error))
        return
    check(SECRET.decode() not in repr(book), "repr: tells a passcode")
    expected: dict[str, str] = {}
    for line in data.decode("utf-8-sig").split("\n"):
        name, colon, stored = line.strip(" \t\r").partition(":")
        if colon and not name.startswith("#"):
            expected[name.strip(" \t\r")] = stored.strip(" \t\r")
    check_equal(dict(book.users), expected, "users")
    check_equal(book.plain, sum(not is_hashed(each) for each in expected.values()), "plain")
    check_hides(data, "\n".join(warnings(str(path), book)))
    change(path, book, data)


def check_hides(data: bytes, text: str) -> None:
    """Check that at most names are shown. A line without a colon is no name."""
    names = b"".join(line.partition(b":")[0] for line in data.split(b"\n"))
    if SECRET not in names:
        check(SECRET.decode() not in text, f"tells a passcode: {text:.200}")


def change(path: Path, book: UserBook, data: bytes) -> None:
    """Set and remove a user, and check that the rest is unchanged."""
    first = next(iter(book.users), "")
    changes: dict[str, str | None] = {CHANGED: HASH.decode()}
    if first:
        changes[first] = None
    try:
        change_user_file(str(path), lambda _: changes)
    except OptionError as error:
        # A longer file may break a rule that the shorter one obeyed.
        check(str(path) in str(error), f"the file is not named: {error}")
        check_equal(path.read_bytes(), data, "the file that was not to be changed")
        return
    expected = {name: text for name, text in book.users.items() if name != first}
    check_equal(
        dict(read_user_file(str(path)).users), expected | {CHANGED: HASH.decode()}, "changed"
    )
