"""The users file: users and their passcodes, hashed or plain.

    # people
    alice:$argon2id$v=19$m=65536,t=3,p=4$Qmh4KS7bHM5pdiGuWdT2AA$4OOKu8a7Fzx+Eumz9FYzTQLYSOUTj...
    bob:plain text, as in the .passwd of stompserver

A line is split at its first colon (stompserver split at the last one), whitespace around both
parts is ignored, and a line that begins with ``#`` is a comment. A user without a passcode cannot
log in. Hashes are PHC strings of argon2id, version 19 (RFC 9106).
"""

import fcntl
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType

from attrs import field, frozen

from trio_stomp.base import ANONYMOUS_NAME, OptionError
from trio_stomp.security._passcodes import CONTROL, TOOL, check_passcode, is_hashed, read_hash

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_FILE_LINES = 1_000_000
MAX_NAME_BYTES = 255

FILE_MODE = 0o600
GROUP_READS = 0o040

SPACE = " \t\r"

# Prefixes of crypt(3), LDAP and others. As plain text, the hash itself would be the passcode.
FOREIGN = re.compile(r"\$argon2|\$[0-9A-Za-z_-]{1,32}\$|\{[0-9A-Z-]{2,32}\}")

Changes = Mapping[str, str | None]


def _frozen_copy(users: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(users))


@frozen(eq=False, repr=False)
class UserBook:
    """The users of a users file. Secret: never log it.

    Args:
      users: The PHC string or the plain passcode of each user.
      plain: The number of plain-text passcodes, computed.
    """

    users: Mapping[str, str] = field(converter=_frozen_copy)
    plain: int = field(init=False)

    @plain.default
    def _count_plain(self) -> int:
        return sum(not is_hashed(stored) for stored in self.users.values())


def check_name(name: str) -> None:
    """Refuse an invalid user name.

    Raises:
      OptionError: it breaks a rule, named in the text; the name is not quoted, as it may hold a
        passcode.
    """
    if ":" in name:
        raise OptionError("the user name holds a colon, which ends the name; leave it out")
    if not name:
        raise OptionError("the user name is empty; a line is user:passcode")
    if CONTROL.search(name):
        raise OptionError("the user name holds a control character; leave it out")
    if name != name.strip(SPACE) or name.startswith("#"):
        raise OptionError("the user name begins with # or space, or ends with space; name another")
    if (length := len(name.encode())) > MAX_NAME_BYTES:
        raise OptionError(
            f"the user name has {length} bytes, but at most {MAX_NAME_BYTES} are allowed"
        )
    if name == ANONYMOUS_NAME:
        raise OptionError(
            f"no user may be called {ANONYMOUS_NAME}: rules use this name for anonymous clients; "
            "name another"
        )


def read_user_file(path: str) -> UserBook:
    """Read a users file.

    Args:
      path: A regular file or a link to one, in UTF-8; at most 16 MiB and 1,000,000 lines.

    Raises:
      OptionError: the file is wrong; the text names the file, the line, the rule and the remedy,
        never a passcode.

    Blocks on the disk, so call it before the broker runs, or in a worker thread.
    """
    try:
        handle = _open(path)
        try:
            data = _read(handle)
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        raise _cannot(path, error) from None
    return _parse(path, _decoded(path, data))[0]


def warnings(path: str, book: UserBook) -> tuple[str, ...]:
    """Return warnings about a users file for the operator, one line each.

    Args:
      path: The file; of a link, its target.
      book: The content of the file.
    """
    found = []
    quoted = shlex.quote(path)
    if book.plain:
        found.append(
            f"{path}: {book.plain} of {len(book.users)} passcodes are plain text; hash them: "
            f"{TOOL} import {quoted} {quoted}"
        )
    if empty := [name for name, stored in book.users.items() if not stored]:
        found.append(
            f"{path}: {len(empty)} of {len(book.users)} have no passcode, as {empty[0]!r}: they"
            f" cannot log in; set one: {TOOL} add {quoted} {shlex.quote(empty[0])}"
        )
    with suppress(OSError, ValueError):
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & ~FILE_MODE:
            found.append(
                f"{path} has mode {mode:04o}, wider than {FILE_MODE:04o}: others may read the "
                f"passcodes; chmod 600 {quoted}"
            )
    return tuple(found)


def change_user_file(
    path: str, change: Callable[[UserBook], Changes], *, create: bool = False
) -> UserBook:
    """Change users, and keep all other lines, comments and the order.

    The file is replaced atomically: a reader sees either the old or the new one, even after a
    crash. Concurrent changes by this function are serialized. Owner and group are kept. The mode
    becomes 0600, except that 0640 is kept, since there a group reads the file on purpose.

    Args:
      path: The users file; of a link, its target is replaced.
      change: Given the content, returns the PHC string of each user to set, and None for each to
        remove. New users are appended. If it raises, the file is unchanged.
      create: Create the file if it does not exist.

    Returns:
      The new content.

    Raises:
      OptionError: the file cannot be read or written, or breaks a rule, before or after.

    Blocks on the disk, and while another change is running.
    """
    try:
        target = os.path.realpath(path)
    except ValueError as error:
        raise _cannot(path, error) from None
    try:
        with _locked(target, create=create) as handle:
            text = _decoded(path, _read(handle))
            book, line_indexes = _parse(path, text)
            changes = change(book)
            for name, stored in changes.items():
                check_name(name)
                if stored is not None:
                    read_hash(stored)
            if not changes:
                return book
            text = _edited(text, line_indexes, changes)
            # Never write a file that could not be read again.
            data = text.encode()
            _check_size(path, data)
            book, _ = _parse(path, text)
            _replace(target, data, os.fstat(handle))
            return book
    except OSError as error:
        raise _cannot(path, error) from None


def _open(path: str, flags: int = 0) -> int:
    """Open a regular file for reading without blocking. Refuse pipes, devices and directories."""
    flags |= os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    handle = os.open(path, flags, FILE_MODE)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OptionError(f"{path} is not a regular file; name one, or a link to one")
    return handle


def _read(handle: int) -> bytes:
    with open(handle, "rb", closefd=False) as file:
        return file.read(MAX_FILE_BYTES + 1)


def _cannot(path: str, error: OSError | ValueError) -> OptionError:
    cause = str(getattr(error, "strerror", None) or error).lower()
    remedy = "check its path and permissions"
    if isinstance(error, FileNotFoundError) and os.path.isdir(os.path.dirname(path) or "."):
        remedy = f"create it: {TOOL} add {shlex.quote(path)} USER"
    return OptionError(f"{path}: {cause}; {remedy}")


def _check_size(path: str, data: bytes) -> None:
    if len(data) > MAX_FILE_BYTES:
        raise OptionError(f"{path} has over {MAX_FILE_BYTES} bytes; split or shorten it")
    if data.count(b"\n", 0, -1) >= MAX_FILE_LINES:
        raise OptionError(f"{path} has over {MAX_FILE_LINES} lines; split or shorten it")


def _decoded(path: str, data: bytes) -> str:
    _check_size(path, data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise OptionError(f"{path}, line {line}: is not valid UTF-8; convert the file") from None


def _parse(path: str, text: str) -> tuple[UserBook, dict[str, int]]:
    """Return the users, and the line index of each."""
    users: dict[str, str] = {}
    line_indexes: dict[str, int] = {}
    for index, line in enumerate(text.split("\n")):
        line = line.strip(SPACE)
        if not line or line.startswith("#"):
            continue
        try:
            name, stored = _entry(line)
        except OptionError as error:
            raise OptionError(f"{path}, line {index + 1}: {error}") from None
        if name in users:
            raise OptionError(
                f"{path}, line {index + 1}: user {name!r} is in line {line_indexes[name] + 1}"
                " already; remove one of the two"
            )
        users[name], line_indexes[name] = stored, index
    return UserBook(users), line_indexes


def _entry(line: str) -> tuple[str, str]:
    name, colon, stored = line.partition(":")
    if not colon:
        raise OptionError("has no colon; a line is user:passcode, a comment begins with #")
    name, stored = name.rstrip(SPACE), stored.lstrip(SPACE)
    check_name(name)
    if FOREIGN.match(stored):
        read_hash(stored)
    else:
        check_passcode(stored)
    return name, stored


def _edited(text: str, line_indexes: Mapping[str, int], changes: Changes) -> str:
    lines: list[str | None] = [*text.split("\n")]
    if not lines[-1]:
        lines.pop()
    for name, stored in changes.items():
        line = None if stored is None else f"{name}:{stored}"
        if name in line_indexes:
            lines[line_indexes[name]] = line
        else:
            lines.append(line)
    return "".join(f"{line}\n" for line in lines if line is not None)


@contextmanager
def _locked(target: str, *, create: bool) -> Iterator[int]:
    """Open the users file under an exclusive lock. A file created here stays on success.

    The lock is on the file, not on its directory, which every reader of it could lock.
    """
    while True:
        handle, is_new = _open_or_make(target, create=create)
        try:
            # A file system without locks: the operator must avoid concurrent changes.
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_at(handle, target):
                # The file was replaced while we waited; we hold the old one.
                continue
            try:
                yield handle
            except BaseException:
                if is_new:
                    os.unlink(target)
                raise
            return
        finally:
            os.close(handle)


def _open_or_make(target: str, *, create: bool) -> tuple[int, bool]:
    while True:
        try:
            return _open(target), False
        except FileNotFoundError:
            if not create:
                raise
        with suppress(FileExistsError):
            return _open(target, os.O_CREAT | os.O_EXCL), True


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _replace(target: str, data: bytes, before: os.stat_result) -> None:
    directory = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        handle, part = tempfile.mkstemp(prefix=".passwd-", dir=os.path.dirname(target))
        try:
            with open(handle, "wb") as file:
                file.write(data)
                _take_over(handle, before)
                file.flush()
                os.fsync(handle)
            os.replace(part, target)
        except BaseException:
            os.unlink(part)
            raise
        os.fsync(directory)
    finally:
        os.close(directory)


def _take_over(handle: int, before: os.stat_result) -> None:
    """Give the new file the owner and group of the old one, so that the broker can read it."""
    made = os.fstat(handle)
    if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(handle, before.st_uid, before.st_gid)
        except PermissionError:
            raise OptionError(
                f"the users file belongs to user {before.st_uid}, group {before.st_gid}, which "
                "could not be kept; run this as root or as that user"
            ) from None
    is_read_by_all = before.st_mode & 0o007
    os.fchmod(handle, FILE_MODE | (0 if is_read_by_all else before.st_mode & GROUP_READS))
