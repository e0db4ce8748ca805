"""Throttling of failed logins: a growing delay by address and login.

Policy:

- The pair of address and login: three failures are free, then 0.5 s, doubled each time up to 60 s.
  A login alone is never a key, or anybody could lock out its owner.
- The address alone: 20 failures are free, then 1 s, doubled up to 60 s. IPv6 counts by /64, which
  is what one customer gets. Clients of this machine are exempt, because all clients of a local
  proxy look like them.
- The site alone, which is an IPv6 network of 48 bits: 100 failures are free, then as an address.
  Wider networks are not delayed, or one customer could lock out others of the same provider.
  ``_turns`` handles floods from wide networks.
- Tokens are never delayed: signatures cannot be guessed.
- A success clears the pair and not the address. Otherwise the owner of one account could go on
  guessing the passcodes of others.
- A login that is refused because of a delay counts as no failure. One that was in progress when the
  delay began counts, but does not extend it.
- Failures are forgotten after 15 minutes without another one.

Each table has 10,000 entries in two halves: the first for keys with free failures only, the second
for delayed keys, which new keys cannot displace. When the second half is full, its oldest entry
moves to the new end of the first. When the first is full, its oldest entry is removed. To make the
broker forget a delayed pair, an attacker must bring 5,000 other pairs under delay, at four failures
each, and then 5,000 new ones, all within its 15 minutes; for an address, 5,000 other addresses with
21 failures each. Clients of this machine have a separate table of pairs, which only they can fill.
"""

from collections import OrderedDict
from collections.abc import Hashable
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from attrs import define, field

FORGET_S = 900.0
MOST_ENTRIES = 10_000
LONGEST_WAIT_S = 60.0
GRAIN_S = 0.001
"""Shorter waits count as over, so a client that waited the announced milliseconds may log in."""

PAIR_FREE, PAIR_FIRST_S = 3, 0.5
ADDRESS_FREE, ADDRESS_FIRST_S = 20, 1.0
SITE_FREE, SITE_FIRST_S = 100, 1.0
MAX_PAST_PAIRS = 10_000

_LOOPBACK = "loopback"
_UNKNOWN = "unknown"
_NOT_OF_A_NETWORK = ("unix", "in-memory")

_MOST_DOUBLINGS = 30
_FORGOTTEN_AT_ONCE = 2
_LOGIN_BYTES = 16

# RFC 6052: a NAT64 maps all of IPv4 into one /64.
_NAT64 = IPv6Network("64:ff9b::/96")


@define(eq=False, repr=False)
class _Record:
    """The failures of a key: their count, the last time, and the time of the next try."""

    last: float
    until: float
    failures: int = 0

    def is_over(self, now: float) -> bool:
        return now - self.last >= FORGET_S


Records = OrderedDict[Hashable, _Record]


@define(eq=False, repr=False)
class Delays:
    """A bounded table of failures by key. Every operation takes constant time.

    Args:
      free: The number of failures without a delay.
      first_s: The delay after the next failure, in seconds, doubled by each further one.
      most: The limit of entries.
    """

    free: int
    first_s: float
    most: int = MOST_ENTRIES
    _fresh: Records = field(factory=OrderedDict, init=False)
    _delayed: Records = field(factory=OrderedDict, init=False)

    def __len__(self) -> int:
        return len(self._fresh) + len(self._delayed)

    def wait_s(self, key: Hashable, now: float) -> float:
        """Return the seconds until ``key`` may try again, or 0.0."""
        record = self._fresh.get(key) or self._delayed.get(key)
        wait_s = record.until - now if record is not None else 0.0
        return wait_s if wait_s >= GRAIN_S else 0.0

    def failed(self, key: Hashable, now: float) -> None:
        """Count a failure."""
        self._forget_old(now)
        record = self._fresh.pop(key, None) or self._delayed.pop(key, None)
        if record is None or record.is_over(now):
            record = _Record(now, now)
        record.failures += 1
        record.last = now
        if record.until - now < GRAIN_S:
            record.until = now + self._delay_s(record.failures)
        records = self._fresh if record.failures <= self.free else self._delayed
        records[key] = record
        self._make_room()

    def forget(self, key: Hashable) -> None:
        """Forget all failures of ``key``."""
        self._fresh.pop(key, None)
        self._delayed.pop(key, None)

    def _delay_s(self, failures: int) -> float:
        paid = failures - self.free
        if paid <= 0:
            return 0.0
        return min(LONGEST_WAIT_S, self.first_s * 2.0 ** min(paid - 1, _MOST_DOUBLINGS))

    def _forget_old(self, now: float) -> None:
        # A failure adds at most one entry; removing two at a time outpaces that.
        for records in (self._fresh, self._delayed):
            for _ in range(_FORGOTTEN_AT_ONCE):
                oldest = next(iter(records.items()), None)
                if oldest is None or not oldest[1].is_over(now):
                    break
                del records[oldest[0]]

    def _make_room(self) -> None:
        half = self.most // 2
        if len(self._delayed) > half:
            key, record = self._delayed.popitem(last=False)
            self._fresh[key] = record
        if len(self._fresh) > half:
            self._fresh.popitem(last=False)


@define(eq=False, repr=False)
class Throttle:
    """The delays before the next login. Pure: time is a parameter, on the broker's clock.

    Addresses have the form of a wire's ``remote``: ``1.2.3.4:567``, ``[::1]:567``, ``unix``,
    ``in-memory``.

    Args:
      failures: The total of failed logins.
      refused: The total of logins refused because they had to wait.
    """

    failures: int = 0
    refused: int = 0
    _pairs: Delays = field(factory=lambda: Delays(PAIR_FREE, PAIR_FIRST_S))
    _local_pairs: Delays = field(factory=lambda: Delays(PAIR_FREE, PAIR_FIRST_S))
    _addresses: Delays = field(factory=lambda: Delays(ADDRESS_FREE, ADDRESS_FIRST_S))
    _sites: Delays = field(factory=lambda: Delays(SITE_FREE, SITE_FIRST_S))
    _past_pairs: OrderedDict[Hashable, None] = field(factory=OrderedDict)
    """Pairs that have logged in before, kept across reloads."""

    @property
    def entries(self) -> int:
        """Return the number of entries: pairs, addresses and sites."""
        tables = self._pairs, self._local_pairs, self._addresses, self._sites
        return sum(len(table) for table in tables)

    def wait_s(self, address: str, login: str, now: float) -> float:
        """Return the seconds until a login may be tried again, or 0.0.

        If logins queue, for example for a hashing thread, call this when a login's turn comes;
        otherwise all guesses that arrive before the first failure would be tried. A login that
        must wait is counted as refused.
        """
        key, is_local = address_key(address)
        wait_s = self._pairs_of(is_local).wait_s((key, _login_digest(login)), now)
        if not is_local:
            wait_s = max(wait_s, self._addresses.wait_s(key, now))
            if (site := _site_of(address)) is not None:
                wait_s = max(wait_s, self._sites.wait_s(site, now))
        self.refused += wait_s > 0
        return wait_s

    def failed(self, address: str, login: str, now: float) -> None:
        """Count a login that was tried and failed, but not one refused by the delay."""
        key, is_local = address_key(address)
        self._pairs_of(is_local).failed((key, _login_digest(login)), now)
        if not is_local:
            self._addresses.failed(key, now)
            if (site := _site_of(address)) is not None:
                self._sites.failed(site, now)
        self.failures += 1

    def succeeded(self, address: str, login: str) -> None:
        """Forget the failures of address and login together, but not those of the address."""
        key, is_local = address_key(address)
        pair = key, _login_digest(login)
        self._pairs_of(is_local).forget(pair)
        self._past_pairs[pair] = None
        self._past_pairs.move_to_end(pair)
        if len(self._past_pairs) > MAX_PAST_PAIRS:
            self._past_pairs.popitem(last=False)

    def path_of(self, address: str, login: str, *, is_known: bool = False) -> tuple[Hashable, ...]:
        """Return the path of a login in the fair queue.

        It begins with whether the pair has logged in before, and then has the networks. Behind a
        local proxy all clients have one address, so within it logins of users are apart from those
        of invented names.

        Args:
          address: The address.
          login: The login.
          is_known: There is such a user.
        """
        key, _ = address_key(address)
        digest = _login_digest(login)
        return ((key, digest) in self._past_pairs, *_networks_of(address), key, is_known, digest)

    def _pairs_of(self, is_local: bool) -> Delays:
        return self._local_pairs if is_local else self._pairs


def address_key(remote: str) -> tuple[str, bool]:
    """Return the key of an address, and whether it is on this machine.

    The key of an IPv4 address is the address, even if mapped into IPv6; that of an IPv6 address is
    its /64. All loopback addresses share one key.
    """
    if remote in _NOT_OF_A_NETWORK:
        return remote, True
    address, is_local = _address_of(remote)
    if address is None or is_local:
        return (_LOOPBACK, True) if is_local else (_UNKNOWN, False)
    return (f"{int(address) >> 64:x}/64" if address.version == 6 else str(address)), False


def networks_of(remote: str) -> tuple[str, ...]:
    """Return the networks whose clients a limit counts together, the narrowest first.

    An IPv6 /48 is as easy to get as the /64 in it, so both count.
    """
    site = _site_of(remote)
    return (address_key(remote)[0], *([site] if site is not None else ()))


def _address_of(remote: str) -> tuple[IPv4Address | IPv6Address | None, bool]:
    """Return the IP address of a wire's ``remote``, and whether it is on this machine."""
    try:
        address = ip_address(remote.rpartition(":")[0].removeprefix("[").removesuffix("]"))
    except ValueError:
        return None, False
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped, address.ipv4_mapped.is_loopback
        if address in _NAT64:  # its loopback is another machine's
            return IPv4Address(int(address) & 0xFFFFFFFF), False
    return address, address.is_loopback


def _networks_of(remote: str) -> tuple[str, str]:
    """Return the approximate networks of an address: the provider's, and the site's within it."""
    address, is_local = _address_of(remote)
    if address is None or is_local:
        return address_key(remote)[0], ""
    wide, narrow = (96, 80) if address.version == 6 else (16, 8)
    words = [f"{address.version}:{int(address) >> bits:x}" for bits in (wide, narrow)]
    return words[0], words[1]


def _site_of(remote: str) -> str | None:
    """Return the /48 of an IPv6 address, which is as easy to get as a /64."""
    name = _networks_of(remote)[1]
    return f"{name.removeprefix('6:')}/48" if name.startswith("6:") else None


def _login_digest(login: str) -> bytes:
    # A login may be as long as a header line, and may be a misplaced passcode.
    return blake2b(login.encode("utf-8", "surrogatepass"), digest_size=_LOGIN_BYTES).digest()
