"""The users file: what is read, what is refused and why, and how it is changed."""

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.files import save
from trio_stomp.base import OptionError
from trio_stomp.security import (
    MAX_PASSCODE_BYTES,
    UserBook,
    change_user_file,
    check_name,
    is_hashed,
    read_user_file,
    warnings,
)
from trio_stomp.security._passcodes import MAX_MEMORY_KIB, MAX_PASSES, Cost, read_hash

MAX_FILE_BYTES, MAX_FILE_LINES = 16 * 1024 * 1024, 1_000_000

CHEAP = Cost(memory_kib=8, passes=1, lanes=1, salt_bytes=16, hash_bytes=32)
HASH = CHEAP.phc(bytes(16), bytes(32))
OTHER = CHEAP.phc(bytes(16), bytes(31) + b"x")
OTHER_KINDS = (
    *("$2b$12$", "$6$salt$", "$5$rounds=5000$", "$y$j9T$", "$apr1$", "$pbkdf2-sha256$"),
    *("{SSHA}", "{SSHA512}"),
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "users")


def contents(path: str) -> str:
    return Path(path).read_bytes().decode()


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def refusal(path: str, data: bytes | str) -> str:
    """Return why a file is refused, and check that it names the file."""
    with pytest.raises(OptionError) as caught:
        read_user_file(save(path, data))
    text = str(caught.value)
    assert text.startswith(path)
    return text.removeprefix(path)


# Accepted content.


def test_hashes_and_plain_text_are_read(path: str) -> None:
    book = read_user_file(save(path, f"alice:{HASH}\nbob:secret\n"))
    assert dict(book.users) == {"alice": HASH, "bob": "secret"}
    assert book.plain == 1


@pytest.mark.parametrize(
    ("line", "name", "stored"),
    [
        ("user:pa:ss", "user", "pa:ss"),
        (" \t user \t:\t pass word ", "user", "pass word"),
        ("user:", "user", ""),
        ("user: ", "user", ""),
        ("user::", "user", ":"),
        ("two words:x", "two words", "x"),
        ("user:#x", "user", "#x"),
        ("us#er:x", "us#er", "x"),
        ("zwölf:grüß", "zwölf", "grüß"),
        ("user:$ecret", "user", "$ecret"),
        ("user:$$money$$", "user", "$$money$$"),
        ("user:{}", "user", "{}"),
        ("Anonymous:x", "Anonymous", "x"),
        ("user:x\r", "user", "x"),
        ("\ufeffuser:x", "user", "x"),
        (f"user:{'x' * MAX_PASSCODE_BYTES}", "user", "x" * MAX_PASSCODE_BYTES),
        (f"{'n' * 255}:x", "n" * 255, "x"),
    ],
)
def test_a_line_is_split_at_its_first_colon_and_trimmed(
    path: str, line: str, name: str, stored: str
) -> None:
    assert dict(read_user_file(save(path, line)).users) == {name: stored}


@pytest.mark.parametrize("data", ["", "\n\n", "# a:b\n", "  \t# a\n \r\n", "\ufeff", "#\x00\x1b\n"])
def test_comments_and_blank_lines_are_no_users(path: str, data: str) -> None:
    book = read_user_file(save(path, data))
    assert (dict(book.users), book.plain) == ({}, 0)


def test_a_link_is_followed(path: str, tmp_path: Path) -> None:
    save(path, "a:b")
    (tmp_path / "link").symlink_to("users")
    assert dict(read_user_file(str(tmp_path / "link")).users) == {"a": "b"}


def test_a_book_is_frozen_and_says_no_secret() -> None:
    given_users = {"a": "geheim"}
    book = UserBook(given_users)
    given_users["b"] = "late"
    assert dict(book.users) == {"a": "geheim"}
    assert "geheim" not in f"{book!r} {book} {[book]}"
    with pytest.raises(TypeError):
        book.users["b"] = "x"  # type: ignore[index]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        book.plain = 0  # type: ignore[misc]


# Refused content.


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("geheim", "has no colon"),
        (":geheim", "user name is empty"),
        (" : geheim", "user name is empty"),
        ("anonymous:geheim", "may be called anonymous"),
        *[
            (f"an{character}na:geheim", "user name holds a control character")
            for character in "\x1b\t\u202e\r\x85"
        ],
        ("anna:ge\x00heim", "passcode holds a control character"),
        ("anna:ge\theim", "passcode holds a control character"),
        ("anna:geheim\x0c", "passcode holds a control character"),
        ("n" * 256 + ":geheim", "user name has 256 bytes"),
        ("ü" * 128 + ":geheim", "user name has 256 bytes"),
        ("anna:geheim" + "x" * 1019, "passcode has 1025 bytes"),
        *[(f"anna:{kind}geheim", "another kind than argon2id") for kind in OTHER_KINDS],
        ("anna:" + HASH.replace("2id", "2i"), "another kind than argon2id"),
        ("anna:" + HASH.replace("2id", "2d"), "another kind than argon2id"),
        ("anna:" + HASH.upper(), "another kind than argon2id"),
        ("anna:$argon2id", "another kind than argon2id"),
        ("anna:$argon2id$", "damaged"),
        ("anna:" + HASH.replace("v=19", "v=16"), "not of version 19"),
        ("anna:" + HASH.replace("v=19$", ""), "not of version 19"),
        ("anna:" + HASH + "=", "damaged"),
        ("anna:" + HASH + "$", "damaged"),
        ("anna:" + HASH + " # she", "damaged"),
        ("anna:" + HASH[:-2], "damaged"),
        ("anna:" + HASH[:-1] + "B", "damaged"),
        ("anna:" + HASH.replace("m=8", "m=08"), "damaged"),
        ("anna:" + HASH.replace("m=8", "m=٨"), "damaged"),
        ("anna:" + HASH.replace("m=8", "m=7"), "damaged"),
        ("anna:" + HASH.replace("p=1", "p=2"), "damaged"),
        ("anna:" + HASH.replace("t=1", "t=0"), "damaged"),
        ("anna:" + CHEAP.phc(bytes(7), bytes(32)), "too short"),
        ("anna:" + CHEAP.phc(bytes(65), bytes(32)), "damaged"),
        ("anna:" + CHEAP.phc(bytes(8), bytes(15)), "too short"),
        ("anna:" + CHEAP.phc(bytes(8), bytes(65)), "damaged"),
    ],
)
def test_a_bad_line_is_refused_by_its_number(path: str, line: str, why: str) -> None:
    text = refusal(path, f"# first\nother:x\n{line}\n")
    assert text.startswith(", line 3: ")
    assert why in text
    # The faulty text may contain a secret, so it is not shown.
    assert "geheim" not in text
    assert HASH[-20:] not in text


@pytest.mark.parametrize(
    "cost",
    [
        attrs.evolve(CHEAP, memory_kib=MAX_MEMORY_KIB + 1),
        attrs.evolve(CHEAP, memory_kib=9_999_999_999),
        attrs.evolve(CHEAP, passes=MAX_PASSES + 1),
        attrs.evolve(CHEAP, memory_kib=8 * 17, lanes=17),
        attrs.evolve(CHEAP, memory_kib=MAX_MEMORY_KIB, passes=5),
    ],
)
def test_a_hash_that_would_stop_the_broker_is_refused(path: str, cost: Cost) -> None:
    text = refusal(path, f"a:{cost.phc(bytes(16), bytes(32))}")
    assert ", line 1: the hash costs too much" in text
    assert f"m={cost.memory_kib},t={cost.passes},p={cost.lanes}" in text


@pytest.mark.parametrize(
    "cost",
    [
        attrs.evolve(CHEAP, memory_kib=MAX_MEMORY_KIB, passes=4, lanes=16),
        attrs.evolve(CHEAP, passes=MAX_PASSES, salt_bytes=8, hash_bytes=16),
        attrs.evolve(CHEAP, salt_bytes=64, hash_bytes=64),
    ],
)
def test_the_limits_themselves_are_allowed(cost: Cost) -> None:
    assert read_hash(cost.phc(bytes(cost.salt_bytes), bytes(cost.hash_bytes))) == cost


def test_a_duplicate_user_is_refused_with_both_lines(path: str) -> None:
    text = refusal(path, "a:geheim\n# and\n a :x\n")
    assert text.startswith(", line 3: user 'a' is in line 1 already")
    assert "geheim" not in text


def test_invalid_utf_8_is_refused_with_its_line(path: str) -> None:
    assert refusal(path, b"a:b\nc:gr\xfcn\n").startswith(", line 2: is not valid UTF-8")
    text = refusal(path, b"\xef\xbb\xbfa:b\n\nc:\xed\xa0\x80\n")
    assert text.startswith(", line 3: is not valid UTF-8")


def test_a_file_of_too_many_bytes_is_refused(path: str) -> None:
    read_user_file(save(path, b"#" * MAX_FILE_BYTES))
    assert "has over 16777216 bytes" in refusal(path, b"#" * (MAX_FILE_BYTES + 1))


def test_a_file_of_too_many_lines_is_refused(path: str) -> None:
    read_user_file(save(path, b"\n" * MAX_FILE_LINES))
    read_user_file(save(path, b"\n" * (MAX_FILE_LINES - 1) + b"#"))
    assert "has over 1000000 lines" in refusal(path, b"\n" * MAX_FILE_LINES + b"#")
    assert "has over 1000000 lines" in refusal(path, b"\n" * (MAX_FILE_LINES + 1))


def test_a_file_that_is_not_there_is_refused_with_the_way_to_make_it(path: str) -> None:
    with pytest.raises(OptionError, match=r"no such file.*create it: .* passwd add"):
        read_user_file(path)
    with pytest.raises(OptionError, match=r"no such file.*check its path"):
        read_user_file(f"{path}/deeper")


@pytest.mark.parametrize("kind", ["directory", "pipe", "device", "loop", "nul"])
def test_non_file_is_refused_without_waiting(path: str, kind: str) -> None:
    if kind == "directory":
        os.mkdir(path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        os.symlink("users", path)
    path = {"device": "/dev/zero", "nul": "a\0b"}.get(kind, path)
    whys = {"loop": "too many levels", "nul": "embedded null"}
    with pytest.raises(OptionError, match=whys.get(kind, "is not a regular file")):
        read_user_file(path)
    with pytest.raises(OptionError, match=whys.get(kind, "is not a regular file")):
        change_user_file(path, lambda book: {"a": HASH}, create=True)


@given(
    st.binary(max_size=200) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace"))
)
def test_any_bytes_are_users_or_one_clear_error(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        why, book = "", UserBook({})
        try:
            book = read_user_file(file.name)
        except OptionError as error:
            why = str(error)
        assert not why or (why.startswith(file.name) and "\n" not in why)
    for name, stored in book.users.items():
        check_name(name)
        assert stored == stored.strip(" \t\r")


NAMES = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters=":#"), min_size=1)


@given(
    st.dictionaries(
        NAMES.filter(lambda name: name != "anonymous" and len(name) < 60),
        st.integers(1, 9).map(lambda n: CHEAP.phc(bytes(16), bytes([n]) * 32)),
        max_size=5,
    ),
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=4),
)
def test_a_model_of_changes(users: dict[str, str], steps: list[tuple[int, bool]]) -> None:
    """Whatever is set and removed: the file holds what a dict would, and every comment."""
    with tempfile.TemporaryDirectory() as directory:
        path = save(f"{directory}/users", "# top: x\n\nfirst:plain\n# bottom")
        expected = {"first": "plain", **users}
        book = change_user_file(path, lambda book: users)
        for index, is_removal in steps:
            if index >= len(expected):
                continue
            name = [*expected][index]
            change = {name: None if is_removal else OTHER}
            book = change_user_file(path, lambda book, change=change: change)  # type: ignore[misc]
            if is_removal:
                del expected[name]
            else:
                expected[name] = OTHER
        assert [*read_user_file(path).users.items()] == [*expected.items()]
        assert dict(book.users) == expected
        lines = contents(path).split("\n")
        assert [line for line in lines if line.startswith("#")] == ["# top: x", "# bottom"]
        assert os.listdir(directory) == ["users"]


@given(st.binary(min_size=0, max_size=70), st.binary(min_size=0, max_size=70))
def test_a_hash_is_read_as_it_is_written(salt: bytes, hash: bytes) -> None:
    cost = Cost(64, 2, 3, len(salt), len(hash))
    text = cost.phc(salt, hash)
    assert is_hashed(text)
    if 8 <= len(salt) <= 64 and 16 <= len(hash) <= 64:
        assert read_hash(text) == cost
    else:
        with pytest.raises(OptionError):
            read_hash(text)


@given(st.integers(0, len(HASH) - 1), st.characters(codec="utf-8"))
def test_a_damaged_hash_is_refused_or_the_library_can_read_it(index: int, char: str) -> None:
    """Otherwise the login would fail later, when no operator is there to correct it."""
    argon2 = pytest.importorskip("argon2", reason="pip install 'trio-stomp[security]'")
    text = HASH[:index] + char + HASH[index + 1 :]
    try:
        cost = read_hash(text)
    except OptionError:
        return
    if cost.work_kib <= 1024:
        with pytest.raises(argon2.exceptions.VerifyMismatchError):
            argon2.PasswordHasher().verify(text, "x")


# Warnings for operators.


def test_all_is_well(path: str) -> None:
    assert warnings(save(path, f"a:{HASH}"), read_user_file(path)) == ()
    assert warnings(save(path, f"a:{HASH}", 0o400), read_user_file(path)) == ()


def test_plain_text_is_warned_of_with_the_remedy(tmp_path: Path) -> None:
    path = save(str(tmp_path / "the users"), f"a:{HASH}\nb:x\nc:y\n")
    (warning,) = warnings(path, read_user_file(path))
    assert "2 of 3 passcodes are plain text" in warning
    assert warning.endswith(f"passwd import '{path}' '{path}'")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o700, 0o4600])
def test_a_wide_mode_is_warned_of_with_the_remedy(path: str, mode: int, tmp_path: Path) -> None:
    save(path, "# nobody", mode)
    (tmp_path / "link").symlink_to(path)
    for name in (path, str(tmp_path / "link")):
        (warning,) = warnings(name, UserBook({}))
        assert f"has mode {mode:04o}, wider than 0600" in warning
        assert warning.endswith(f"chmod 600 {name}")


def test_user_without_a_passcode_causes_a_warning_with_the_remedy(path: str) -> None:
    book = read_user_file(save(path, f"alice:{HASH}\nbob:\n"))
    found = [each for each in warnings(path, book) if "no passcode" in each]
    assert found == [
        f"{path}: 1 of 2 have no passcode, as 'bob': they cannot log in; set one: "
        f"python -m trio_stomp passwd add {path} bob"
    ]


def test_a_file_that_is_gone_has_no_mode_to_warn_of(path: str) -> None:
    assert warnings(path, UserBook({})) == ()


# Editing the file.


BEFORE = "# one: not a user\r\n\n  alice : old \n# two\nbob:\nlast:x"


def test_other_lines_and_the_order_stay(path: str) -> None:
    save(path, BEFORE)
    book = change_user_file(path, lambda book: {"new": OTHER, "alice": HASH, "bob": None})
    assert contents(path) == (f"# one: not a user\r\n\nalice:{HASH}\n# two\nlast:x\nnew:{OTHER}\n")
    assert dict(book.users) == {"alice": HASH, "last": "x", "new": OTHER}
    assert os.listdir(os.path.dirname(path)) == ["users"]


def test_nothing_to_change_writes_nothing(path: str) -> None:
    save(path, BEFORE, 0o644)
    before = os.stat(path)
    assert change_user_file(path, lambda book: {}).plain == 3
    after = os.stat(path)
    # Reading it may well set the time of access.
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (after.st_mode, after.st_ctime_ns) == (before.st_mode, before.st_ctime_ns)


def test_removing_everybody_leaves_an_empty_file(path: str) -> None:
    save(path, "a:b")
    change_user_file(path, lambda book: {"a": None, "who": None})
    assert contents(path) == ""


def test_a_new_file_is_for_its_owner_only(path: str) -> None:
    old = os.umask(0)
    try:
        change_user_file(path, lambda book: {"a": HASH}, create=True)
    finally:
        os.umask(old)
    assert (contents(path), mode_of(path)) == (f"a:{HASH}\n", 0o600)


def test_a_file_that_is_not_there_is_made_only_if_that_is_asked_for(path: str) -> None:
    with pytest.raises(OptionError, match="create it"):
        change_user_file(path, lambda book: {"a": HASH})
    with pytest.raises(OptionError, match="check its path"):
        change_user_file(f"{path}/deeper", lambda book: {"a": HASH}, create=True)
    assert not os.path.exists(path)


@pytest.mark.parametrize(
    ("before", "after"),
    [(0o644, 0o600), (0o640, 0o640), (0o660, 0o640), (0o666, 0o600), (0o400, 0o600)],
)
def test_the_mode_gets_no_wider_and_a_group_may_still_read(
    path: str, before: int, after: int
) -> None:
    save(path, "a:b", before)
    change_user_file(path, lambda book: {"a": HASH})
    assert mode_of(path) == after


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_stays(path: str) -> None:
    save(path, "a:b", 0o640)
    os.chown(path, 12345, 54321)
    change_user_file(path, lambda book: {"a": HASH})
    found = os.stat(path)
    assert (found.st_uid, found.st_gid, mode_of(path)) == (12345, 54321, 0o640)


def test_a_file_owner_that_cannot_be_kept_is_an_error(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(path, "a:b")
    true = os.fstat

    def fstat(handle: int) -> os.stat_result:
        found = true(handle)
        # The new file, empty or written, is another user's than the old one.
        return os.stat_result((*found[:4], 12345, *found[5:])) if found.st_size != 3 else found

    def fchown(handle: int, user: int, group: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fstat", fstat)
    monkeypatch.setattr(os, "fchown", fchown)
    with pytest.raises(OptionError, match=r"belongs to user .*run this as root"):
        change_user_file(path, lambda book: {"a": HASH})
    assert contents(path) == "a:b"
    assert os.listdir(os.path.dirname(path)) == ["users"]


def test_a_link_stays_a_link(path: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/users")
    link = str(tmp_path / "link")
    for value in (HASH, OTHER):
        change_user_file(link, lambda book, value=value: {"a": value}, create=True)  # type: ignore[misc]
        assert os.readlink(link) == "there/users"
        assert contents(str(tmp_path / "there" / "users")) == f"a:{value}\n"


@pytest.mark.parametrize(
    ("name", "stored", "why"),
    [
        ("a:b", HASH, "holds a colon"),
        ("", HASH, "is empty"),
        (" a", HASH, "begins with # or space"),
        ("a ", HASH, "begins with # or space"),
        ("#a", HASH, "begins with # or space"),
        ("a\nb", HASH, "control character"),
        ("a\udcff", HASH, "control character"),
        ("anonymous", HASH, "may be called"),
        ("a", "geheim", "another kind"),
        ("a", "", "another kind"),
        ("a", HASH + "\nroot:geheim", "damaged"),
    ],
)
def test_nothing_is_written_that_is_no_user_or_no_hash(
    path: str, name: str, stored: str, why: str
) -> None:
    save(path, BEFORE)
    with pytest.raises(OptionError, match=why) as caught:
        change_user_file(path, lambda book: {"fine": HASH, name: stored})
    assert "geheim" not in str(caught.value)
    assert contents(path) == BEFORE


def test_a_file_is_not_written_too_long_to_be_read(path: str) -> None:
    save(path, b"#" * (MAX_FILE_BYTES - 10))
    with pytest.raises(OptionError, match="has over 16777216 bytes"):
        change_user_file(path, lambda book: {"a": HASH})
    save(path, b"\n" * MAX_FILE_LINES)
    with pytest.raises(OptionError, match="has over 1000000 lines"):
        change_user_file(path, lambda book: {"a": HASH})
    assert os.path.getsize(path) == MAX_FILE_LINES


def test_failed_change_leaves_the_file_unchanged_or_absent(path: str) -> None:
    def change(book: UserBook) -> dict[str, str | None]:
        raise OptionError("no")

    with pytest.raises(OptionError, match=r"^no$"):
        change_user_file(path, change, create=True)
    assert not os.path.exists(path)
    save(path, BEFORE)
    with pytest.raises(OptionError, match=r"^no$"):
        change_user_file(path, change, create=True)
    assert contents(path) == BEFORE


@pytest.mark.parametrize("step", ["fsync", "replace", "fchmod"])
def test_a_disk_that_fails_leaves_the_old_file_and_no_other(
    path: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    save(path, BEFORE)
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OptionError, match="no space left on device"):
        change_user_file(path, lambda book: {"a": HASH})
    assert contents(path) == BEFORE
    assert os.listdir(os.path.dirname(path)) == ["users"]


def test_the_file_then_the_directory_are_on_the_disk(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(handle: int) -> None:
        found = os.fstat(handle)
        done.append("directory" if stat.S_ISDIR(found.st_mode) else f"file of {found.st_size}")
        fsync(handle)

    def note_replace(source: str, target: str) -> None:
        assert os.path.dirname(source) == os.path.dirname(target)
        assert mode_of(source) == 0o600
        done.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    change_user_file(path, lambda book: {"a": HASH}, create=True)
    assert done == [f"file of {len(HASH) + 3}", "replace", "directory"]


def test_a_change_waits_for_another_and_sees_it(path: str) -> None:
    """The second change holds the file that the first one replaces, and must begin again."""
    save(path, "a:b\n")
    inside, going = threading.Event(), threading.Event()

    def slow(book: UserBook) -> dict[str, str | None]:
        inside.set()
        assert going.wait(10)
        return {"slow": HASH}

    def quick(book: UserBook) -> dict[str, str | None]:
        assert "slow" in book.users
        return {"quick": HASH}

    first = threading.Thread(target=change_user_file, args=(path, slow))
    second = threading.Thread(target=change_user_file, args=(path, quick))
    first.start()
    assert inside.wait(10)
    second.start()
    going.set()
    first.join(10)
    second.join(10)
    assert [*read_user_file(path).users] == ["a", "slow", "quick"]


def test_a_file_removed_while_a_change_waits_is_created_again(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(path, "a:b\n")
    flock = fcntl.flock
    gone: list[str] = []

    def remove_then_lock(handle: int, how: int) -> None:
        if not gone:
            gone.append(path)
            os.unlink(path)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    change_user_file(path, lambda book: {"c": HASH}, create=True)
    assert contents(path) == f"c:{HASH}\n"


def test_a_file_created_by_another_process_first_is_extended(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = os.open

    def make_first(name: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_EXCL and name == path and not os.path.exists(path):
            save(path, "theirs:x\n")
        return true(name, flags, mode)

    monkeypatch.setattr(os, "open", make_first)
    change_user_file(path, lambda book: {"ours": HASH}, create=True)
    assert contents(path) == f"theirs:x\nours:{HASH}\n"


def test_a_file_system_without_locks_can_be_used(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", fail)
    change_user_file(path, lambda book: {"a": HASH}, create=True)
    assert contents(path) == f"a:{HASH}\n"


CROWD = """
import sys
from trio_stomp.security import change_user_file
path, hash, which = sys.argv[1:]
for number in range(10):
    change_user_file(path, lambda book: {f"u{which}-{number}": hash}, create=True)
"""


def test_programs_that_change_it_at_once_lose_nothing(path: str) -> None:
    commands = [[sys.executable, "-c", CROWD, path, HASH, str(which)] for which in range(4)]
    running = [subprocess.Popen(command) for command in commands]
    assert [process.wait(60) for process in running] == [0, 0, 0, 0]
    assert len(read_user_file(path).users) == 40
    assert os.listdir(os.path.dirname(path)) == ["users"]


def test_no_descriptor_stays_open(path: str, tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    change_user_file(path, lambda book: {"a": HASH}, create=True)
    read_user_file(path)
    for bad in (str(tmp_path), str(tmp_path / "none")):
        with pytest.raises(OptionError):
            read_user_file(bad)
    with pytest.raises(OptionError):
        change_user_file(path, lambda book: {"a": "x"})
    assert len(os.listdir("/proc/self/fd")) == len(before)
