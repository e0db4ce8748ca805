"""The throttle of failed logins: what it costs to guess, and what it must not cost others."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.security._throttle import (
    ADDRESS_FIRST_S,
    ADDRESS_FREE,
    FORGET_S,
    GRAIN_S,
    LONGEST_WAIT_S,
    MAX_PAST_PAIRS,
    MOST_ENTRIES,
    PAIR_FIRST_S,
    PAIR_FREE,
    SITE_FIRST_S,
    SITE_FREE,
    Delays,
    Throttle,
    address_key,
)

HOST = "203.0.113.7:5000"
OTHER = "203.0.113.8:5000"
LOCAL = "127.0.0.1:5000"


def fail(throttle: Throttle, times: int, address: str, login: str, now: float = 0.0) -> float:
    """Fail so often, each time as soon as one may; when the last of them failed."""
    for _ in range(times):
        now += throttle.wait_s(address, login, now)
        throttle.failed(address, login, now)
    return now


def waits(throttle: Throttle, count: int, address: str, login: str) -> list[float]:
    """Return the wait after each of a number of failures."""
    now, found = 0.0, []
    for _ in range(count):
        throttle.failed(address, login, now)
        found.append(throttle.wait_s(address, login, now))
        now += found[-1]
    return found


def test_a_pair_has_three_free_then_a_delay_that_doubles() -> None:
    assert waits(Throttle(), 12, LOCAL, "ann") == [0, 0, 0, 0.5, 1, 2, 4, 8, 16, 32, 60, 60]


def test_an_address_has_twenty_free_then_a_delay_that_doubles() -> None:
    throttle, now, found = Throttle(), 0.0, []
    for number in range(29):
        throttle.failed(HOST, f"login{number}", now)
        found.append(throttle.wait_s(HOST, "fresh", now))
        now += found[-1]
    assert found == [0] * 20 + [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_longer_of_the_two_waits_counts() -> None:
    throttle = Throttle()
    for number in range(ADDRESS_FREE - 3):
        throttle.failed(HOST, f"login{number}", 0.0)
    for _ in range(4):
        throttle.failed(HOST, "ann", 0.0)
    assert throttle.wait_s(HOST, "ann", 0.0) == ADDRESS_FIRST_S
    assert throttle.wait_s(HOST, "bob", 0.0) == ADDRESS_FIRST_S
    assert throttle.wait_s(HOST, "ann", 0.75) == 0.25
    local = Throttle()
    now = fail(local, 6, HOST, "ann")
    assert local.wait_s(HOST, "ann", now) == 2.0
    assert local.wait_s(HOST, "bob", now) == 0.0


def test_retry_after_rounded_milliseconds_is_accepted() -> None:
    throttle = Throttle()
    now = fail(throttle, 4, LOCAL, "ann")
    assert throttle.wait_s(LOCAL, "ann", now + 0.5 - 2 * GRAIN_S) > 0
    assert throttle.wait_s(LOCAL, "ann", now + 0.5 - GRAIN_S / 2) == 0.0


def test_a_success_forgets_the_pair_and_not_the_address() -> None:
    throttle = Throttle()
    now = fail(throttle, ADDRESS_FREE, HOST, "ann")
    throttle.succeeded(HOST, "ann")
    assert throttle.wait_s(HOST, "ann", now) == 0.0
    throttle.failed(HOST, "bob", now)
    assert throttle.wait_s(HOST, "ann", now) == ADDRESS_FIRST_S
    throttle.succeeded(HOST, "carl")  # which never failed
    assert throttle.wait_s(HOST, "ann", now) == ADDRESS_FIRST_S


def test_old_entries_are_dropped_by_failures_of_others() -> None:
    throttle = Throttle()
    for number in range(100):
        fail(throttle, 1 + number % 5, f"198.51.100.{number}:1", "ann")
    assert throttle.entries == 200
    for number in range(100):
        throttle.failed(LOCAL, f"login{number}", FORGET_S * 2)
        throttle.failed(HOST, "ann", FORGET_S * 2)
    assert throttle.entries == 100 + 2


# Addresses that count as one.


@pytest.mark.parametrize(
    ("one", "another", "is_same"),
    [
        ("203.0.113.7:1", "203.0.113.7:65535", True),
        ("203.0.113.7:1", "[::ffff:203.0.113.7]:1", True),
        ("203.0.113.7:1", "[64:ff9b::203.0.113.7]:1", True),
        ("[2001:db8:1:2::1]:1", "[2001:db8:1:2:ffff:ffff:ffff:ffff]:9", True),
        ("[fe80::1%eth0]:1", "[fe80::2%eth1]:1", True),
        ("127.0.0.1:1", "127.255.255.254:1", True),
        ("127.0.0.1:1", "[::1]:1", True),
        ("127.0.0.1:1", "[::ffff:127.0.0.1]:1", True),
        ("unknown", "no-address:1", True),
        ("", "unknown", True),
        ("203.0.113.7:1", "203.0.113.71:1", False),
        ("[2001:db8:1:2::1]:1", "[2001:db8:1:3::1]:1", False),
        ("[64:ff9b::203.0.113.7]:1", "[64:ff9b::203.0.113.8]:1", False),
        ("[64:ff9b::127.0.0.1]:1", "127.0.0.1:1", False),
        ("unix", "127.0.0.1:1", False),
        ("unix", "in-memory", False),
        ("unix", "unknown", False),
        ("unix:1", "unix", False),
    ],
)
def test_addresses_that_share_an_entry(one: str, another: str, is_same: bool) -> None:
    assert (address_key(one) == address_key(another)) is is_same


@pytest.mark.parametrize("address", [LOCAL, "[::1]:9", "[::ffff:127.0.0.1]:9", "unix", "in-memory"])
def test_local_client_is_slowed_by_login_only(address: str) -> None:
    throttle = Throttle()
    for number in range(3 * ADDRESS_FREE):
        throttle.failed(address, f"login{number}", 0.0)
    assert throttle.wait_s(address, "fresh", 0.0) == 0.0
    fail(throttle, 1 + PAIR_FREE, address, "ann")
    assert throttle.wait_s(address, "ann", 0.0) == PAIR_FIRST_S


@pytest.mark.parametrize("address", [HOST, "unknown", "[64:ff9b::127.0.0.1]:1", "[fe80::1%e]:1"])
def test_remote_client_is_slowed_by_address(address: str) -> None:
    throttle = Throttle()
    for number in range(1 + ADDRESS_FREE):
        throttle.failed(address, f"login{number}", 0.0)
    assert throttle.wait_s(address, "fresh", 0.0) == ADDRESS_FIRST_S


def test_an_ipv6_site_is_slowed_later_than_one_of_its_networks() -> None:
    throttle = Throttle()
    for number in range(SITE_FREE + 1):
        assert throttle.wait_s("[2001:db8:1:ffff::1]:1", "fresh", 0.0) == 0.0
        throttle.failed(f"[2001:db8:1:{number:x}::1]:1", "ann", 0.0)
    assert throttle.wait_s("[2001:db8:1:ffff::1]:1", "fresh", 0.0) == SITE_FIRST_S
    assert throttle.wait_s("[2001:db8:2::1]:1", "fresh", 0.0) == 0.0
    for number in range(SITE_FREE + 1):
        throttle.failed(f"198.51.100.{number}:1", "ann", 0.0)
    assert throttle.wait_s("198.51.100.250:1", "fresh", 0.0) == 0.0


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("[2001:db8:1:2::1]:1", "[2001:db8:1:3::1]:1", 3),
        ("[2001:db8:1:2::1]:1", "[2001:db8:2:2::1]:1", 2),
        ("[2001:db8:1:2::1]:1", "[2001:db9:1:2::1]:1", 1),
        ("203.0.113.7:1", "203.0.113.8:9", 3),
        ("203.0.113.7:1", "203.0.114.7:1", 2),
        ("203.0.113.7:1", "203.1.113.7:1", 1),
        ("203.0.113.7:1", "[64:ff9b::203.0.113.7]:1", 6),
        ("203.0.113.7:1", "[2001:db8:1:2::1]:1", 1),
        ("0.1.0.0:1", "[::1:0:0:0]:1", 1),
        ("127.0.0.1:1", "127.9.9.9:1", 6),
        ("127.0.0.1:1", "[64:ff9b::127.0.0.1]:1", 1),
        ("unix", "in-memory", 1),
        ("unknown", "nonsense", 6),
    ],
)
def test_neighbours_share_the_beginning_of_their_path(one: str, other: str, common: int) -> None:
    throttle = Throttle()
    paths = [throttle.path_of(remote, "ann") for remote in (one, other)]
    same = [mine == theirs for mine, theirs in zip(*paths, strict=True)]
    assert [*same, False].index(False) == common


def test_successful_clients_have_a_separate_bounded_table() -> None:
    throttle = Throttle()
    assert throttle.path_of(HOST, "ann")[0] is False
    throttle.succeeded(HOST, "ann")
    assert throttle.path_of(HOST, "ann")[0] is True
    assert throttle.path_of(HOST, "bob")[0] is False
    assert throttle.path_of(OTHER, "ann")[0] is False
    for number in range(MAX_PAST_PAIRS):
        throttle.succeeded(HOST, f"login{number}")
    assert throttle.path_of(HOST, "ann")[0] is False
    assert len(throttle._past_pairs) == MAX_PAST_PAIRS


@given(st.text(max_size=20))
def test_any_address_is_some_place(remote: str) -> None:
    place, is_local = address_key(remote)
    assert len(place) <= 20
    assert is_local == (place in ("unix", "in-memory", "loopback"))


def test_logins_are_not_stored_in_the_clear() -> None:
    throttle = Throttle()
    throttle.failed(HOST, "s3cret" * 100, 0.0)
    throttle.failed(HOST, "\ud800", 0.0)
    assert throttle.entries == 3
    for key in throttle._pairs._fresh:
        assert isinstance(key, tuple)
        assert (key[0], len(key[1])) == ("203.0.113.7", 16)


# Floods: the tables are bounded, and displacing one's own entry is expensive.


def test_the_tables_are_bounded() -> None:
    delays = Delays(free=1, first_s=1.0, most=10)
    for number in range(100):
        for _ in range(1 + number % 3):
            delays.failed(number, 0.0)
        assert len(delays) <= 10
    assert len(delays) == 10


def test_new_entries_never_displace_delayed_ones() -> None:
    throttle = Throttle()
    fail(throttle, 4, LOCAL, "ann")
    fail(throttle, 4, HOST, "ann")
    for number in range(MOST_ENTRIES + 10):
        throttle.failed(LOCAL, f"login{number}", 0.0)
        address = f"[2001:db8:{number & 0xFFFF:x}:{number >> 16:x}::1]:1"
        throttle.failed(address, "ann", 0.0)
    assert throttle.wait_s(LOCAL, "ann", 0.0) == PAIR_FIRST_S
    assert throttle.wait_s(HOST, "ann", 0.0) == PAIR_FIRST_S
    assert len(throttle._pairs) <= MOST_ENTRIES
    assert len(throttle._local_pairs) <= MOST_ENTRIES
    assert len(throttle._addresses) <= MOST_ENTRIES


def test_entry_with_only_free_failures_is_fresh() -> None:
    delays = Delays(free=2, first_s=1.0, most=8)
    for _ in range(3):
        delays.failed("ann", 0.0)
    for number in range(20):
        for _ in range(2):
            delays.failed(number, 0.0)
    assert delays.wait_s("ann", 0.0) == 1.0
    assert len(delays) == 5


def test_entries_of_local_clients_do_not_displace_remote_ones() -> None:
    throttle = Throttle()
    fail(throttle, PAIR_FREE, HOST, "ann")
    for number in range(MOST_ENTRIES):
        throttle.failed(LOCAL, f"login{number}", 0.0)
    throttle.failed(HOST, "ann", 0.0)
    assert throttle.wait_s(HOST, "ann", 0.0) == PAIR_FIRST_S


def test_displaced_delay_is_kept_until_fresh_entries_displace_it() -> None:
    delays = Delays(free=1, first_s=1.0, most=8)
    for _ in range(3):
        delays.failed("ann", 0.0)  # the second sets a delay of 1 s, the third is under way
    delays.failed("ann", 1.0)
    for number in range(4):
        delays.failed(("delayed", number), 1.0)
        delays.failed(("delayed", number), 1.0)
    assert delays.wait_s("ann", 1.0) == 4.0
    for number in range(3):
        delays.failed(("fresh", number), 1.0)
    assert delays.wait_s("ann", 1.0) == 4.0
    delays.failed("ann", 5.0)
    assert delays.wait_s("ann", 5.0) == 8.0  # it is the youngest again, with its whole past
    for number in range(4):
        delays.failed(("again", number), 5.0)
        delays.failed(("again", number), 5.0)
    for number in range(4):
        delays.failed(("fresher", number), 5.0)
    assert delays.wait_s("ann", 5.0) == 0.0


# Against a model without bounds: few keys, any times.

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["try", "try", "try", "succeed", "late"]),
        st.sampled_from([HOST, OTHER, LOCAL, "unix"]),
        st.sampled_from(["ann", "bob"]),
        st.sampled_from([0.0, 0.25, 1.0, 7.0, 61.0, 600.0, 900.0]),
    ),
    max_size=80,
)


class Model:
    """The policy written down once more, plainly."""

    def __init__(self, free: int, first_s: float) -> None:
        self.free, self.first_s = free, first_s
        self.count: dict[object, int] = defaultdict(int)
        self.last: dict[object, float] = {}
        self.until: dict[object, float] = defaultdict(float)

    def failed(self, key: object, now: float) -> None:
        if now - self.last.get(key, now) >= FORGET_S:
            self.count[key] = 0
        self.count[key] += 1
        self.last[key] = now
        paid = self.count[key] - self.free
        if paid > 0 and now >= self.until[key]:
            self.until[key] = now + min(LONGEST_WAIT_S, self.first_s * 2 ** (paid - 1))

    def forget(self, key: object) -> None:
        for table in (self.count, self.last, self.until):
            table.pop(key, None)  # type: ignore[attr-defined]


@given(STEPS)
def test_it_does_as_a_model_without_bounds(steps: list[tuple[str, str, str, float]]) -> None:
    throttle, now = Throttle(), 0.0
    pairs, addresses = Model(PAIR_FREE, PAIR_FIRST_S), Model(ADDRESS_FREE, ADDRESS_FIRST_S)
    failures = refused = 0
    for what, address, login, pause in steps:
        now += pause
        pair, is_local = (address, login), address in (LOCAL, "unix")
        if what == "succeed":
            throttle.succeeded(address, login)
            pairs.forget(pair)
            continue
        until = max(pairs.until[pair], 0.0 if is_local else addresses.until[address])
        assert throttle.wait_s(address, login, now) == max(0.0, until - now)
        refused += until > now
        if until <= now or what == "late":
            throttle.failed(address, login, now)
            pairs.failed(pair, now)
            if not is_local:
                addresses.failed(address, now)
            failures += 1
    assert (throttle.failures, throttle.refused) == (failures, refused)
