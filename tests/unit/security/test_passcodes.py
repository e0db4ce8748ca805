"""Passcodes: hashed, checked by several threads, without information in the time of a check."""

import hmac
import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trio_stomp.base import OptionError
from trio_stomp.security import (
    MAX_PASSCODE_BYTES,
    PasscodeChecker,
    UserBook,
    _passcodes,
    hash_passcode,
    needs_rehash,
)

argon2 = pytest.importorskip("argon2", reason="pip install 'trio-stomp[security]'")


def cheap(**options: int) -> "argon2.PasswordHasher":  # type: ignore[name-defined]
    return argon2.PasswordHasher(**{"time_cost": 1, "memory_cost": 8, "parallelism": 1, **options})


class CountingHasher:
    """A cheap hasher that knows what it was asked to verify."""

    def __init__(self) -> None:
        self.inner = cheap()
        self.verified: list[tuple[str, bytes]] = []

    def hash(self, password: str) -> str:
        return str(self.inner.hash(password))

    def verify(self, hash: str, password: bytes) -> bool:
        self.verified.append((hash, password))
        return bool(self.inner.verify(hash, password))

    def check_needs_rehash(self, hash: str) -> bool:
        return bool(self.inner.check_needs_rehash(hash))


@pytest.fixture
def hasher() -> CountingHasher:
    return CountingHasher()


@pytest.fixture
def checker(hasher: CountingHasher) -> PasscodeChecker:
    """A checker for users with hashed and plain-text passcodes."""
    users = {"hash": hasher.hash("right"), "plain": "right", "empty": "", "grün": hasher.hash("ü")}
    return PasscodeChecker(UserBook(users), hasher)


CASES = [
    ("hash", "right", True),
    ("hash", "wrong", False),
    ("hash", "", False),
    ("hash", "righ", False),
    ("hash", "right ", False),
    ("plain", "right", True),
    ("plain", "wrong", False),
    ("plain", "", False),
    ("empty", "", True),
    ("empty", "right", False),
    ("grün", "ü", True),
    ("grün", "u\u0308", False),
    ("gru\u0308n", "ü", False),
    ("nobody", "right", False),
    ("nobody", "", False),
    ("HASH", "right", False),
    ("", "", False),
    ("anonymous", "", False),
    ("\udcff", "\udcff", False),
    ("hash", "\udcff", False),
    ("plain", "right\0", False),
]


@pytest.mark.parametrize(("name", "passcode", "is_right"), CASES)
def test_every_check_does_the_same_work(
    checker: PasscodeChecker, hasher: CountingHasher, name: str, passcode: str, is_right: bool
) -> None:
    assert checker.check(name, passcode) is is_right
    ((verified, given),) = hasher.verified
    assert given == passcode.encode("utf-8", "surrogatepass")
    assert _passcodes.read_hash(verified) == _passcodes.Cost(8, 1, 1, 16, 32)
    assert checker.check(name, passcode) is is_right


def test_the_hash_itself_is_no_passcode(checker: PasscodeChecker, hasher: CountingHasher) -> None:
    assert not checker.check("hash", checker._book.users["hash"])
    assert not checker.check("nobody", checker._dummy_hash)


def test_an_unknown_user_costs_as_much_as_most_hashes() -> None:
    rare = cheap(memory_cost=64, time_cost=4).hash("x")
    usual = [cheap(memory_cost=16, time_cost=2, parallelism=2, salt_len=20).hash("x")] * 2
    users = {str(number): text for number, text in enumerate([rare, *usual])}
    hasher = CountingHasher()
    assert not PasscodeChecker(UserBook(users), hasher).check("nobody", "x")
    assert _passcodes.read_hash(hasher.verified[0][0]) == _passcodes.Cost(16, 2, 2, 20, 32)
    # Between as many of either, the dear one: too slow tells less of who is there than too fast.
    users = {"a": cheap().hash("x"), "b": rare, "c": cheap().hash("x"), "d": rare}
    PasscodeChecker(UserBook(users), hasher).check("nobody", "x")
    assert _passcodes.read_hash(hasher.verified[1][0]) == _passcodes.Cost(64, 4, 1, 16, 32)


def test_stand_ins_are_not_the_same_twice(hasher: CountingHasher) -> None:
    for users in ({}, {"a": hasher.hash("x")}):
        one, other = (PasscodeChecker(UserBook(users), hasher)._dummy_hash for _ in range(2))
        assert one != other


def test_a_book_of_plain_text_needs_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "argon2", None)
    checker = PasscodeChecker(UserBook({"a": "right", "empty": ""}))
    wanted = [("a", "right"), ("a", "wrong"), ("who", "right"), ("empty", ""), ("who", "")]
    assert [checker.check(*pair) for pair in wanted] == [True, False, False, True, False]
    # Not even what stands in for who is not there.
    assert not checker.check("who", checker._dummy_hash)
    assert checker.statistics() == _passcodes.PasscodeStatistics(6, 2, 0, 0, 0)


def test_empty_book_has_no_users() -> None:
    assert not PasscodeChecker(UserBook({})).check("", "")


def test_plain_text_is_compared_in_constant_time(
    checker: PasscodeChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides are as long, whatever is compared: the length is a secret as well."""
    lengths: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def note(one: bytes, other: bytes) -> bool:
        lengths.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", note)
    for passcode in ("right", "r", "", "x" * 1000):
        checker.check("plain", passcode)
        PasscodeChecker(UserBook({"plain": "right"})).check("plain", passcode)
        PasscodeChecker(UserBook({"plain": "right"})).check("nobody", passcode)
    assert lengths == [(32, 32)] * 12


@pytest.mark.parametrize("name", ["hash", "plain", "nobody"])
def test_a_long_passcode_is_wrong_and_costs_nothing(
    checker: PasscodeChecker, hasher: CountingHasher, name: str
) -> None:
    assert not checker.check(name, "x" * (MAX_PASSCODE_BYTES + 1))
    assert not checker.check(name, "ü" * (MAX_PASSCODE_BYTES // 2 + 1))
    assert hasher.verified == []
    assert not checker.check(name, "x" * MAX_PASSCODE_BYTES)
    assert len(hasher.verified) == 1
    assert checker.statistics() == _passcodes.PasscodeStatistics(3, 0, 0, 1, 0)


def test_the_longest_passcode_is_right(hasher: CountingHasher) -> None:
    passcode = "ü" * (MAX_PASSCODE_BYTES // 2)
    users = {"hash": hash_passcode(passcode, hasher), "plain": passcode}
    checker = PasscodeChecker(UserBook(users), hasher)
    assert checker.check("hash", passcode)
    assert checker.check("plain", passcode)


# The cache.


def test_repeated_correct_passcode_needs_no_hash(
    checker: PasscodeChecker, hasher: CountingHasher
) -> None:
    for name in ("hash", "plain"):
        assert [checker.check(name, "right") for _ in range(5)] == [True] * 5
    assert len(hasher.verified) == 2
    assert checker.statistics() == _passcodes.PasscodeStatistics(10, 10, 8, 2, 2)


def test_cache_entry_is_for_one_user_and_passcode(hasher: CountingHasher) -> None:
    """Names and passcodes that run into each other are not the same."""
    users = {"ab": hasher.hash("c"), "a": hasher.hash("other"), "abc": hasher.hash("other")}
    checker = PasscodeChecker(UserBook(users), hasher)
    assert checker.check("ab", "c")
    assert not checker.check("a", "bc")
    assert not checker.check("abc", "")
    assert not checker.check("ab", "cc")
    assert not checker.check("a", "c")
    # "a" + "bb" + "bb" is "ab" + "bb" + "b".
    checker = PasscodeChecker(UserBook({"a": "bb", "ab": "bb", "c": hasher.hash("c")}), hasher)
    assert checker.check("a", "bb")
    assert not checker.check("ab", "b")


def test_a_new_checker_has_forgotten(hasher: CountingHasher) -> None:
    users = {"a": hasher.hash("right")}
    assert PasscodeChecker(UserBook(users), hasher).check("a", "right")
    again = PasscodeChecker(UserBook({"a": hasher.hash("new")}), hasher)
    assert not again.check("a", "right")
    assert again.check("a", "new")


def test_remembered_logins_contain_neither_passcode_nor_hash(checker: PasscodeChecker) -> None:
    checker.check("hash", "right")
    other = PasscodeChecker(checker._book, checker._hasher)
    other.check("hash", "right")
    (mark,), (other_mark,) = checker._right, other._right
    assert len(mark) == 32
    # Keyed: who sees the one cannot try passcodes against it.
    assert mark != other_mark
    assert "right" not in repr(checker)


class RememberedMachine(RuleBasedStateMachine):
    """A checker with room for three does what a plain comparison does, whatever is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.hasher = CountingHasher()
        self.truth = {"a": "1", "b": "", "c": "3", "d": "4", "e": "5"}
        users = {name: self.hasher.hash(text) for name, text in self.truth.items()}
        users["e"] = "5"
        self.checker = PasscodeChecker(UserBook(users), self.hasher)
        self.recent: list[tuple[str, str]] = []
        self.limit = _passcodes.MAX_REMEMBERED
        _passcodes.MAX_REMEMBERED = 3

    def teardown(self) -> None:
        _passcodes.MAX_REMEMBERED = self.limit

    @rule(name=st.sampled_from("abcdef"), passcode=st.sampled_from(["", "1", "3", "4", "5"]))
    def check(self, name: str, passcode: str) -> None:
        before = len(self.hasher.verified)
        is_right = self.truth.get(name) == passcode
        assert self.checker.check(name, passcode) is is_right
        pair = (name, passcode)
        assert len(self.hasher.verified) - before == (pair not in self.recent)
        if is_right:
            self.recent = [*(each for each in self.recent if each != pair), pair][-3:]

    @invariant()
    def is_bounded(self) -> None:
        assert self.checker.statistics().remembered == len(self.recent)


TestRemembered = RememberedMachine.TestCase
TestRemembered.settings = settings(max_examples=25, stateful_step_count=30)


# Threads.


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_several_threads_at_once(hasher: CountingHasher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_passcodes, "MAX_REMEMBERED", 7)
    users = {str(number): hasher.hash(str(number)) for number in range(20)}
    checker = PasscodeChecker(UserBook(users), hasher)
    wrong: list[tuple[int, int]] = []

    def work(thread: int) -> None:
        for step in range(200):
            user, passcode = (thread * 7 + step) % 20, (thread * 7 + step // 2 * 2) % 20
            if checker.check(str(user), str(passcode)) is not (user == passcode):
                wrong.append((user, passcode))

    in_threads(4, work)
    assert wrong == []
    statistics = checker.statistics()
    assert (statistics.checked, statistics.accepted) == (800, 400)
    assert statistics.recalled + statistics.hashed == 800
    assert statistics.hashed == len(hasher.verified)
    assert statistics.remembered == 7


def test_threads_compute_side_by_side_and_remember_once() -> None:
    """No lock is held while a hash is computed: all are inside at the same time."""
    together = threading.Barrier(3, timeout=10)

    class Meeting(CountingHasher):
        def verify(self, hash: str, password: bytes) -> bool:
            together.wait()
            return super().verify(hash, password)

    hasher = Meeting()
    checker = PasscodeChecker(UserBook({"a": hasher.hash("right")}), hasher)
    found: list[bool] = []
    in_threads(3, lambda _: found.append(checker.check("a", "right")))
    assert found == [True] * 3
    assert checker.statistics() == _passcodes.PasscodeStatistics(3, 3, 0, 3, 1)


# Errors.


def test_a_failure_to_hash_is_not_a_wrong_passcode(hasher: CountingHasher) -> None:
    class OutOfMemory(CountingHasher):
        def verify(self, hash: str, password: bytes) -> bool:
            raise argon2.exceptions.VerificationError("Memory allocation error")

    checker = PasscodeChecker(UserBook({"a": hasher.hash("right")}), OutOfMemory())
    with pytest.raises(MemoryError, match="allocation"):
        checker.check("a", "right")
    assert checker.statistics().remembered == 0


def test_a_book_with_a_bad_hash_is_refused() -> None:
    with pytest.raises(OptionError, match="damaged"):
        PasscodeChecker(UserBook({"a": "$argon2id$v=19$geheim"}))


def test_missing_library_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    text = cheap().hash("right")
    monkeypatch.setitem(sys.modules, "argon2", None)
    calls: list[Callable[[], object]] = [
        lambda: hash_passcode("right"),
        lambda: PasscodeChecker(UserBook({"a": text})),
        lambda: needs_rehash(text),
    ]
    for call in calls:
        with pytest.raises(OptionError, match="pip install argon2-cffi"):
            call()
    assert needs_rehash("plain")


# Hashing.


def test_a_hash_is_salted_and_of_a_kind_that_is_read(hasher: CountingHasher) -> None:
    one, other = (hash_passcode("right", hasher) for _ in range(2))
    assert one != other
    assert (
        _passcodes.read_hash(one) == _passcodes.read_hash(other) == _passcodes.Cost(8, 1, 1, 16, 32)
    )


@pytest.mark.parametrize("passcode", ["a\0b", "a\nb", "\x1b[A", "a\udcff", "x" * 1025])
def test_passcode_that_no_client_can_send_is_not_hashed(
    passcode: str, hasher: CountingHasher
) -> None:
    with pytest.raises(OptionError, match="the passcode h") as caught:
        hash_passcode(passcode, hasher)
    assert passcode not in str(caught.value)


def test_hashes_that_need_rehashing(hasher: CountingHasher) -> None:
    assert not needs_rehash(hasher.hash("x"), hasher)
    assert needs_rehash(cheap(time_cost=2).hash("x"), hasher)
    assert needs_rehash("plain", hasher)
    assert needs_rehash("", hasher)
    assert needs_rehash(hasher.hash("x"))


def test_the_default_profile_is_allowed_and_works() -> None:
    """The only test that pays for a real hash: of what an operator gets."""
    text = hash_passcode("right")
    cost = _passcodes.read_hash(text)
    assert cost.memory_kib >= 19 * 1024
    assert not needs_rehash(text)
    checker = PasscodeChecker(UserBook({"a": text}))
    assert checker.check("a", "right")
    assert not checker.check("a", "wrong")
    assert _passcodes.default_hasher().verify(text, b"right")


def test_decision_without_a_hash_is_immediate(hasher: CountingHasher) -> None:
    book = UserBook({"alice": hasher.hash("wonder"), "bob": "plain"})
    checker = PasscodeChecker(book, hasher)
    assert not checker.recalls("alice", "wonder"), "it has never been checked"
    assert checker.check("alice", "wonder")
    assert checker.recalls("alice", "wonder")
    for name, passcode in (("alice", "wrong"), ("nobody", "wonder"), ("alice", "x" * 5000)):
        assert not checker.recalls(name, passcode)
    # In a book with hashes plain text costs one too, so that it cannot be told apart by time.
    assert not checker.recalls("bob", "plain")
    plain = PasscodeChecker(UserBook({"bob": "plain"}))
    assert plain.recalls("bob", "plain")
    assert not plain.recalls("bob", "other")


def test_hashes_that_take_another_time_than_most_are_counted(hasher: CountingHasher) -> None:
    dear = argon2.PasswordHasher(time_cost=2, memory_cost=8, parallelism=1).hash("x")
    users = {"a": hasher.hash("x"), "b": hasher.hash("y"), "c": "plain"}
    assert PasscodeChecker(UserBook(users), hasher).odd == 0
    assert PasscodeChecker(UserBook({**users, "d": dear}), hasher).odd == 1
    assert PasscodeChecker(UserBook({"c": "plain"})).odd == 0
