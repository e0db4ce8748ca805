"""Authentication: the order of proofs, anonymous clients, delays, bounded threads."""

import threading
from pathlib import Path
from typing import Any

import argon2
import pytest
import trio
from attrs import define
from trio.testing import wait_all_tasks_blocked

from tests.support.files import save
from trio_stomp.base import ANONYMOUS, CloseReason, Identity, ProtocolError
from trio_stomp.security import (
    Accounts,
    Authenticator,
    Credentials,
    PasscodeChecker,
    SecurityOptions,
    UserBook,
)
from trio_stomp.security._tokens import TokenRefused

ALICE = (("login", "alice"), ("passcode", "wonder"))
FAR = "10.1.2.3:4567"


@define
class Guest:
    """A visitor that came from somewhere."""

    remote: str = FAR
    is_loopback: bool = False
    is_exposed: bool = False
    certificate_names: tuple[str, ...] = ()
    offered: Credentials | None = None


class FakeTokens:
    """Stands for a ``TokenVerifier`` that knows one token."""

    def __init__(self) -> None:
        self.asked_at: list[float] = []
        self.has_key = True

    def verify(self, token: str, wall_s: float) -> Identity:
        self.asked_at.append(wall_s)
        if token != "good":
            raise TokenRefused("its signature is wrong")
        return Identity("carol", frozenset({"ops"}), wall_s + 60, "token")

    def still_proves(self, identity: Identity) -> bool:
        return self.has_key


def as_verifier(tokens: FakeTokens) -> Any:
    return tokens


def accounts(**users: str) -> Accounts:
    book = UserBook(users)
    return Accounts(book, PasscodeChecker(book))


def authenticator(known: Accounts | None = None, **options: object) -> Authenticator:
    settings = SecurityOptions(**options)  # type: ignore[arg-type]
    return Authenticator(settings, known if known is not None else accounts(alice="wonder"))


async def refusal(
    subject: Authenticator, headers: tuple[tuple[str, str], ...], visitor: Guest
) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        await subject.identify(headers, visitor)
    assert caught.value.reason is CloseReason.AUTHENTICATION_FAILED
    return caught.value


# --- passcodes ------------------------------------------------------------------------------------


async def test_the_right_passcode() -> None:
    subject = authenticator()
    assert await subject.identify(ALICE, Guest()) == Identity("alice", method="passcode")
    assert subject.attempts.succeeded == 1


@pytest.mark.covers("C08")
async def test_failed_logins_get_the_same_error() -> None:
    subject = authenticator()
    reported = []
    for headers in (
        (("login", "alice"), ("passcode", "wrong")),
        (("login", "nobody"), ("passcode", "wonder")),
        (("login", "alice"),),
        (("passcode", "wonder"),),
    ):
        error = await refusal(subject, headers, Guest())
        reported.append((error.code, error.message, error.headers))
    assert reported == [reported[0]] * 4
    assert reported[0][0] == "authentication-failed"
    assert "alice" not in reported[0][1]


@pytest.mark.parametrize(
    ("headers", "anonymous"),
    [
        # F24: a line ``bob:`` is no passcode, or whoever knows the name is bob.
        ((("login", "bob"), ("passcode", "")), "auto"),
        ((("login", "bob"),), "auto"),
        # A wrong login is not let in as nobody.
        ((("login", "alice"), ("passcode", "x")), "always"),
        # There are only passcodes.
        ((("Authorization", "Bearer good"),), "auto"),
    ],
)
async def test_credentials_that_are_always_refused(
    headers: tuple[tuple[str, str], ...], anonymous: str
) -> None:
    subject = authenticator(accounts(alice="wonder", bob=""), anonymous=anonymous)
    assert (await refusal(subject, headers, Guest())).code == "authentication-failed"


# --- anonymous clients
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_users", [False, True])
@pytest.mark.parametrize("insecure", [False, True])
@pytest.mark.parametrize("is_loopback", [False, True])
@pytest.mark.parametrize("anonymous", ["auto", "never", "loopback", "always"])
async def test_connections_that_need_no_login(
    anonymous: str, is_loopback: bool, insecure: bool, has_users: bool
) -> None:
    known = accounts(alice="wonder") if has_users else Accounts()
    subject = authenticator(known, anonymous=anonymous, insecure=insecure)
    expected = {
        "auto": not has_users and (is_loopback or insecure),
        "never": False,
        "loopback": is_loopback,
        "always": True,
    }[anonymous]
    visitor = Guest(is_loopback=is_loopback)
    if expected:
        assert await subject.identify((), visitor) == ANONYMOUS
        assert subject.attempts.anonymous == 1
    else:
        assert (await refusal(subject, (), visitor)).code == "authentication-required"
        assert subject.attempts.not_anonymous == 1


async def test_credentials_prove_nothing_without_users() -> None:
    subject = authenticator(Accounts())
    assert await subject.identify(ALICE, Guest(is_loopback=True)) is ANONYMOUS


# --- certificates and tokens ----------------------------------------------------------------------

NAMES = ("CN=billing,O=Acme", "DNS:billing.example", "CN=billing")


@pytest.mark.parametrize(
    ("way", "table", "user"),
    [
        ("common-name", {}, "billing"),
        ("mapped", {"CN=billing,O=Acme": "b", "CN=billing": "other"}, "b"),
        ("mapped", {"DNS:billing.example": "d"}, "d"),
        ("mapped", {"CN=else": "e"}, None),
        ("off", {"CN=billing": "b"}, None),
    ],
)
async def test_a_certificate_is_a_login(way: str, table: dict[str, str], user: str | None) -> None:
    known = Accounts(tls_login=way, certificates=table)
    subject = authenticator(known, anonymous="never")
    visitor = Guest(certificate_names=NAMES)
    if user is None:
        assert (await refusal(subject, (), visitor)).code == "authentication-required"
    else:
        assert await subject.identify((), visitor) == Identity(user, method="certificate")
    assert (await refusal(subject, (), Guest())).code == "authentication-required"


@pytest.mark.parametrize("name", ["", "anonymous", "a\nb", "a\0"])
async def test_a_common_name_that_can_be_no_user(name: str) -> None:
    subject = authenticator(Accounts(tls_login="common-name"))
    error = await refusal(subject, (), Guest(certificate_names=(f"CN={name}",)))
    assert error.code == "authentication-required"


async def test_the_login_of_connect_wins_over_the_upgrades_and_both_over_a_certificate() -> None:
    book = UserBook({"alice": "wonder", "bob": "b"})
    known = Accounts(book, PasscodeChecker(book), None, "common-name")
    subject = authenticator(known)
    offered = Credentials("bob", "b")
    visitor = Guest(certificate_names=NAMES, offered=offered)
    assert (await subject.identify(ALICE, visitor)).name == "alice"
    assert (await subject.identify((), visitor)).name == "bob"
    wrong = (("login", "alice"), ("passcode", "x"))
    assert (await refusal(subject, wrong, visitor)).code == "authentication-failed"


async def test_a_token_is_judged_by_wall_time(autojump_clock) -> None:
    tokens = FakeTokens()
    subject = authenticator(Accounts(tokens=as_verifier(tokens)))
    subject.wall_s = lambda: 1e9 + trio.current_time()
    await trio.sleep(5)
    headers = (("Authorization", "Bearer good"),)
    identity = await subject.identify(headers, Guest())
    assert tokens.asked_at == [trio.current_time() + 1e9]
    assert (identity.name, identity.expires_at) == ("carol", tokens.asked_at[0] + 60)


@pytest.mark.parametrize(("longest_s", "lives_s"), [(0.0, 60), (59.0, 59), (61.0, 60)])
async def test_a_session_by_token_is_no_longer_than_allowed(
    longest_s: float, lives_s: float, autojump_clock
) -> None:
    tokens = FakeTokens()
    known = Accounts(tokens=as_verifier(tokens))
    subject = authenticator(known, max_token_session_s=longest_s)
    identity = await subject.identify((("Authorization", "Bearer good"),), Guest())
    assert identity.expires_at == tokens.asked_at[0] + lives_s


@pytest.mark.parametrize("headers", [(("Authorization", "Bearer bad"),), ALICE])
async def test_tokens_that_do_not_authenticate(
    headers: tuple[tuple[str, str], ...], caplog: pytest.LogCaptureFixture
) -> None:
    subject = authenticator(Accounts(tokens=as_verifier(FakeTokens())))
    assert (await refusal(subject, headers, Guest())).code == "authentication-failed"
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{FAR}: login of ")
    assert "good" not in record.getMessage()
    assert "wonder" not in record.getMessage()


# --- how often ------------------------------------------------------------------------------------


async def test_frequent_failures_cause_a_wait_of_a_stated_length(autojump_clock) -> None:
    subject = authenticator()
    wrong = (("login", "alice"), ("passcode", "x"))
    codes = []
    for _ in range(6):
        error = await refusal(subject, wrong, Guest())
        codes.append(error.code)
    assert codes[:3] == ["authentication-failed"] * 3
    assert codes[-1] == "too-many-attempts"
    # Even the right one, until the time is over; and nothing was tried meanwhile.
    waiting = await refusal(subject, ALICE, Guest())
    assert waiting.code == "too-many-attempts"
    (retry,) = waiting.headers
    assert retry[0] == "retry-after-ms"
    assert subject.attempts.throttled >= 2
    await trio.sleep(int(retry[1]) / 1000)
    assert (await subject.identify(ALICE, Guest())).name == "alice"


async def test_the_owner_is_not_locked_out_by_others(autojump_clock) -> None:
    subject = authenticator()
    for number in range(200):
        visitor = Guest(remote=f"10.9.{number % 7}.1:5")
        await refusal(subject, (("login", "alice"), ("passcode", f"x{number}")), visitor)
    assert (await subject.identify(ALICE, Guest())).name == "alice"


async def test_repeated_login_needs_no_thread() -> None:
    subject = authenticator()
    subject._limiter.total_tokens = 1
    subject._turns.busy = subject._turns.slots  # a hash would wait for ever now
    with trio.fail_after(5):
        assert (await subject.identify(ALICE, Guest())).name == "alice"


class SlowChecker(PasscodeChecker):
    """Holds its threads until it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)
        self.checked: list[str] = []
        self.running = 0
        self.most = 0
        self.lock = threading.Lock()

    def recalls(self, name: str, passcode: str) -> bool:
        return False

    def check(self, name: str, passcode: str) -> bool:
        with self.lock:
            self.checked.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
        self.gate.acquire()
        with self.lock:
            self.running -= 1
        return passcode != "wrong"


async def logs_in(
    subject: Authenticator, login: str, passcode: str, remote: str, results: list[tuple[str, str]]
) -> None:
    """Log in, and note the login with the result."""
    headers = (("login", login), ("passcode", passcode))
    try:
        await subject.identify(headers, Guest(remote=remote))
    except ProtocolError as error:
        results.append((login, error.code))
    else:
        results.append((login, "in"))


@pytest.mark.parametrize("networks", [1, 700])
async def test_a_fleet_that_returns_with_one_login_costs_one_check(networks: int) -> None:
    checker = SlowChecker()
    subject = authenticator(Accounts(UserBook({"alice": "x"}), checker), max_waiting_logins=5)
    results: list[tuple[str, str]] = []
    async with trio.open_nursery() as nursery:
        for number in range(700):
            remote = f"10.{number % networks >> 8}.{number % networks & 255}.1:1"
            nursery.start_soon(logs_in, subject, "alice", "x", remote, results)
        await wait_all_tasks_blocked(0.05)
        assert subject.waiting == 1
        checker.gate.release()
    assert results == [("alice", "in")] * 700
    assert checker.checked == ["alice"]
    assert not subject._checks


async def test_equal_logins_are_checked_though_the_first_gives_up() -> None:
    checker = SlowChecker()
    subject = authenticator(Accounts(UserBook({"alice": "x"}), checker))
    results: list[tuple[str, str]] = []
    first = trio.CancelScope()

    async def give_up() -> None:
        with first:
            await subject.identify(ALICE, Guest())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_up)
        await wait_all_tasks_blocked(0.05)
        for number in range(3):
            nursery.start_soon(logs_in, subject, "alice", "wonder", f"10.0.{number}.1:1", results)
        await wait_all_tasks_blocked(0.05)
        first.cancel()
        await wait_all_tasks_blocked(0.05)
        assert len(checker.checked) == 2  # the thread of the first goes on
        checker.gate.release(2)
    assert results == [("alice", "in")] * 3


async def test_each_of_equal_wrong_logins_is_a_failure(autojump_clock) -> None:
    """Many equal guesses at once wait as different ones do."""
    checker = SlowChecker()
    subject = authenticator(Accounts(UserBook({"alice": "x"}), checker))
    results: list[tuple[str, str]] = []
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(logs_in, subject, "alice", "wrong", FAR, results)
        checker.gate.release()
    codes = [code for _, code in results]
    assert codes.count("authentication-failed") == subject.throttle.failures <= 4
    assert codes[-1] == "too-many-attempts"
    assert checker.checked == ["alice"]


async def test_behind_a_local_proxy_users_go_before_invented_names() -> None:
    checker = SlowChecker()
    known = Accounts(UserBook({"alice": "x", "bob": "y"}), checker)
    subject = authenticator(known, login_threads=1, max_waiting_logins=64)
    results: list[tuple[str, str]] = []
    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(logs_in, subject, f"g{number}", "wrong", "127.0.0.1:1", results)
        await wait_all_tasks_blocked(0.05)
        for name in ("alice", "bob"):
            nursery.start_soon(logs_in, subject, name, "x", "127.0.0.1:2", results)
        await wait_all_tasks_blocked(0.05)
        checker.gate.release(64)
    assert {("alice", "in"), ("bob", "in")} <= set(results)
    assert max(checker.checked.index("alice"), checker.checked.index("bob")) <= 4


async def test_login_threads_and_waiting_logins_are_bounded() -> None:
    checker = SlowChecker()
    known = Accounts(UserBook({"alice": "x"}), checker)
    subject = authenticator(known, login_threads=2, max_waiting_logins=5)
    done = []

    async def log_in(number: int) -> None:
        headers = (("login", "alice"), ("passcode", f"{number}"))
        done.append(await subject.identify(headers, Guest(remote=f"10.0.{number}.1:1")))

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(log_in, number)
        await wait_all_tasks_blocked(0.05)
        assert subject.waiting == 5
        busy = await refusal(subject, ALICE, Guest(remote="10.0.9.1:1"))
        assert (busy.code, busy.headers) == ("too-many-attempts", (("retry-after-ms", "1000"),))
        for _ in range(5):
            checker.gate.release()
    assert len(done) == 5
    assert checker.most <= 2
    assert subject.waiting == 0


async def test_a_client_that_gives_up_does_not_stay_in_the_count() -> None:
    checker = SlowChecker()
    subject = authenticator(Accounts(UserBook({"alice": "x"}), checker))
    with trio.move_on_after(0.05) as scope:
        await subject.identify(ALICE, Guest())
    assert scope.cancelled_caught
    assert subject.waiting == 0
    checker.gate.release()


async def test_earlier_success_has_its_own_turn_whatever_the_files_contain() -> None:
    """After SIGHUP no passcode is remembered: a fleet must not queue behind a flood."""
    subject = authenticator(login_threads=1)
    await subject.identify(ALICE, Guest())
    checker = SlowChecker()
    users = dict.fromkeys(["alice", *(f"guess{number}" for number in range(20))], "x")
    subject.accounts = Accounts(UserBook(users), checker)
    done: list[str] = []

    async def log_in(login: str, remote: str) -> None:
        await subject.identify((("login", login), ("passcode", "x")), Guest(remote=remote))
        done.append(login)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(log_in, f"guess{number}", f"[2001:{number:x}::1]:1")
        await wait_all_tasks_blocked(0.05)
        nursery.start_soon(log_in, "alice", FAR)
        await wait_all_tasks_blocked(0.05)
        for _ in range(21):
            checker.gate.release()
    assert done.index("alice") <= 2


async def test_a_token_is_not_slowed_by_another_nor_slows_a_passcode() -> None:
    """F6: an expired token that reconnects locked out its whole address."""
    known = accounts(alice="wonder")
    both = Accounts(known.users, known.checker, as_verifier(FakeTokens()))
    subject = authenticator(both)
    bad, good = (("Authorization", f"Bearer {word}") for word in ("bad", "good"))
    for _ in range(100):
        assert (await refusal(subject, (bad,), Guest())).code == "authentication-failed"
    assert (await subject.identify((good,), Guest())).name == "carol"
    assert (await subject.identify(ALICE, Guest())).name == "alice"
    # Nor is it by who guesses passcodes next door.
    for number in range(30):
        await refusal(subject, (("login", f"g{number}"), ("passcode", "x")), Guest())
    assert (await refusal(subject, ALICE, Guest())).code == "too-many-attempts"
    assert (await subject.identify((good,), Guest())).name == "carol"
    assert subject.attempts.failed >= 100


# --- other accounts -------------------------------------------------------------------------------


def test_users_after_a_change_of_the_files() -> None:
    before = accounts(alice="1", bob="2", carol="3")
    after = accounts(alice="1", bob="other")
    known = {name: after.knows(before.proven(name)) for name in ("alice", "bob", "carol")}
    assert known == {"alice": True, "bob": False, "carol": False}
    assert not Accounts().knows(before.proven("alice"))
    # Whatever has happened in between.
    assert accounts(bob="2").knows(before.proven("bob"))
    # Of the senders of stored messages only the name is known.
    assert after.knows(Identity("bob", method="passcode"))


def test_tokens_and_certificates_after_a_change_of_the_files() -> None:
    token = Identity("t", method="token", key="of its key")
    tokens = FakeTokens()
    assert not accounts(alice="1").knows(token)
    assert Accounts(tokens=as_verifier(tokens)).knows(token)
    tokens.has_key = False
    assert not Accounts(tokens=as_verifier(tokens)).knows(token)
    mapped = Accounts(tls_login="mapped", certificates={"CN=x": "billing", "CN=y": "billing"})
    certified = mapped.certified(("CN=x",))
    assert certified is not None
    assert mapped.knows(certified)
    others: tuple[dict[str, str], ...] = ({"CN=y": "billing"}, {"CN=x": "else", "CN=y": "billing"})
    for certificates in others:
        assert not Accounts(tls_login="mapped", certificates=certificates).knows(certified)
    by_name = Accounts(tls_login="common-name")
    assert not by_name.knows(certified)
    named = by_name.certified(("CN=billing",))
    assert named is not None
    assert by_name.knows(named)
    assert not accounts(alice="1").knows(named)


async def test_a_token_that_has_expired_is_known_no_more() -> None:
    subject = authenticator(Accounts(tokens=as_verifier(FakeTokens())))
    now_s = 1e9
    subject.wall_s = lambda: now_s
    identity = await subject.identify((("Authorization", "Bearer good"),), Guest())
    assert subject.knows(identity)
    now_s = identity.expires_at
    assert not subject.knows(identity)


@pytest.mark.parametrize("changed", ["removed", "passcode", "nothing"])
async def test_accounts_that_change_while_a_passcode_is_hashed(changed: str) -> None:
    checker = SlowChecker()
    subject = authenticator(Accounts(UserBook({"alice": "x"}), checker))
    results: list[tuple[str, str]] = []
    after = {"removed": accounts(), "passcode": accounts(alice="y"), "nothing": accounts(alice="x")}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs_in, subject, "alice", "x", FAR, results)
        await wait_all_tasks_blocked(0.05)
        subject.accounts = after[changed]
        checker.gate.release()
    assert results == [("alice", "in" if changed == "nothing" else "authentication-failed")]


@pytest.mark.parametrize(
    ("anonymous", "known"),
    [("always", [True, True]), ("loopback", [True, False]), ("never", [False, False])],
)
async def test_clients_without_a_login_are_known_by_where_they_are(
    anonymous: str, known: list[bool]
) -> None:
    subject = authenticator(Accounts(), anonymous="always")
    here, there = [await subject.identify((), Guest(is_loopback=each)) for each in (True, False)]
    subject.options = SecurityOptions(anonymous=anonymous)
    assert [subject.knows(here), subject.knows(there)] == known


def test_accounts_from_files(tmp_path: Path) -> None:
    users = save(tmp_path / "users", "alice:wonder\n")
    options = SecurityOptions(passwd_file=users)
    found = Accounts.read(options, "off", {})
    assert found.exist
    assert found.checker is not None
    assert found.checker.check("alice", "wonder")
    (warning,) = found.warnings(options)
    assert "plain" in warning
    save(users, "")
    empty = Accounts.read(options, "off", {})
    assert empty.exist, "a file without users lets nobody in, rather than everybody"
    assert "no client can log in" in empty.warnings(options)[0]
    hashes = [argon2.PasswordHasher(cost, 8, 1).hash("x") for cost in (1, 1, 2)]
    save(users, "".join(f"user{number}:{each}\n" for number, each in enumerate(hashes)))
    (warning,) = Accounts.read(options, "off", {}).warnings(options)
    assert "1 of 3 users have hashes with other parameters than most" in warning
    assert not Accounts.read(SecurityOptions(), "off", {}).exist
    assert Accounts().warnings(SecurityOptions()) == ()
