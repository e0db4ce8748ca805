"""Passcodes: hashed by the operator's tool, and checked at every login.

A check deliberately costs some 60 ms of CPU time and 64 MiB (argon2id, RFC 9106), so it runs in a
limited number of worker threads. A passcode that was right once is recognized without a hash.
"""

import base64
import hashlib
import hmac
import os
import re
import threading
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Protocol

from attrs import define, field, frozen

from trio_stomp.base import OptionError

if TYPE_CHECKING:
    from trio_stomp.security._users import UserBook

MAX_PASSCODE_BYTES = 1024
MAX_REMEMBERED = 10_000
KEY_BYTES = 32

# The cost limit of a verification: by RFC 9106 section 4, 1 GiB is the most for a machine that also
# does other work, and the product keeps the time near a second.
MAX_MEMORY_KIB = 1024 * 1024
MAX_PASSES = 64
MAX_LANES = 16
MAX_WORK_KIB = 4 * MAX_MEMORY_KIB

# Below 16 bytes a hash can be guessed instead of the passcode; above 64 is no gain.
SALT_BYTES = range(8, 65)
HASH_BYTES = range(16, 65)

ARGON2ID = "$argon2id$"
NUMBER = r"([1-9][0-9]{0,9})"
TEXT = r"([A-Za-z0-9+/]{1,100})"
PHC = re.compile(rf"\$argon2id\$v=19\$m={NUMBER},t={NUMBER},p={NUMBER}\${TEXT}\${TEXT}")

# Control characters, line separators, bidirectional marks (names are logged), and surrogates,
# which UTF-8 cannot encode.
CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

TOOL = "python -m trio_stomp passwd"
REMEDY = f"remove it, and set the passcode again: {TOOL} add FILE USER"


@frozen
class Cost:
    """The cost of verifying a hash, and the lengths of its parts.

    Args:
      memory_kib: Memory of one verification, in KiB.
      passes: The number of passes over the memory.
      lanes: The number of parallel threads.
      salt_bytes: The length of the salt.
      hash_bytes: The length of the hash.
    """

    memory_kib: int
    passes: int
    lanes: int
    salt_bytes: int
    hash_bytes: int

    @property
    def parameters(self) -> tuple[int, ...]:
        """Return the parameters that decide the time of a verification."""
        return self.memory_kib, self.passes, self.lanes

    @property
    def work_kib(self) -> int:
        """The total memory written, in KiB, which determines the time of a verification."""
        return self.memory_kib * self.passes

    def phc(self, salt: bytes, hash: bytes) -> str:
        """Return the PHC string of a hash of this cost."""
        parts = f"m={self.memory_kib},t={self.passes},p={self.lanes}"
        return f"{ARGON2ID}v=19${parts}${_base64(salt)}${_base64(hash)}"


def is_hashed(stored: str) -> bool:
    """Return whether an entry of a users file is a hash rather than a passcode."""
    return stored.startswith(ARGON2ID)


def read_hash(text: str) -> Cost:
    """Return the cost of verifying a PHC string.

    Raises:
      OptionError: it is not argon2id of version 19, is damaged, or exceeds the cost limits; the
        text does not quote the hash.

    Source: RFC 9106; the PHC string format (unpadded base64, parameters in the order m, t, p).
    """
    found = PHC.fullmatch(text)
    if found is None:
        if text.startswith(ARGON2ID):
            raise OptionError(f"the argon2id hash is damaged, or not of version 19; {REMEDY}")
        raise OptionError(f"the hash is of another kind than argon2id; {REMEDY}")
    memory_kib, passes, lanes = (int(number) for number in found.groups()[:3])
    salt, hash = (_length(part) for part in found.groups()[3:])
    if salt not in SALT_BYTES or hash not in HASH_BYTES or memory_kib < 8 * lanes:
        raise OptionError(f"the argon2id hash is damaged, or too short to be safe; {REMEDY}")
    cost = Cost(memory_kib, passes, lanes, salt, hash)
    if (
        memory_kib > MAX_MEMORY_KIB
        or passes > MAX_PASSES
        or lanes > MAX_LANES
        or cost.work_kib > MAX_WORK_KIB
    ):
        raise OptionError(
            f"the hash costs too much to verify (m={memory_kib},t={passes},p={lanes}; at most "
            f"m={MAX_MEMORY_KIB}, t={MAX_PASSES}, p={MAX_LANES}, m*t={MAX_WORK_KIB}); {REMEDY}"
        )
    return cost


def _length(text: str) -> int:
    """Return the number of bytes that unpadded base64 decodes to, or 0 if it is invalid."""
    try:
        value = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return 0
    # argon2 refuses non-zero padding bits, and every login would fail.
    return len(value) if _base64(value) == text else 0


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode().rstrip("=")


def check_passcode(passcode: str) -> None:
    """Refuse an invalid passcode.

    Raises:
      OptionError: it breaks a rule, named in the text; the passcode is not quoted.
    """
    if CONTROL.search(passcode):
        raise OptionError("the passcode holds a control character; choose another passcode")
    if (length := len(passcode.encode())) > MAX_PASSCODE_BYTES:
        raise OptionError(
            f"the passcode has {length} bytes, but at most {MAX_PASSCODE_BYTES} are allowed; "
            "choose a shorter one"
        )


class Hasher(Protocol):
    """The part of argon2-cffi's ``PasswordHasher`` that is used here, by several threads."""

    def hash(self, password: str) -> str:
        """Return the PHC string of a passcode, with a new salt."""
        ...

    def verify(self, hash: str, password: bytes) -> bool:
        """Return True, or raise ``argon2.exceptions.VerifyMismatchError``."""
        ...

    def check_needs_rehash(self, hash: str) -> bool:
        """Return whether new hashes have other parameters."""
        ...


def default_hasher() -> Hasher:
    """Return argon2-cffi's hasher with its default profile.

    Raises:
      OptionError: argon2-cffi is not installed.
    """
    try:
        from argon2 import PasswordHasher
    except ImportError:
        raise OptionError("hashed passcodes need argon2-cffi: pip install argon2-cffi") from None
    return PasswordHasher()


def hash_passcode(text: str, hasher: Hasher | None = None) -> str:
    """Return the PHC string of a passcode for a users file.

    Args:
      text: The passcode, of at most 1024 bytes of UTF-8, without control characters.
      hasher: None = argon2-cffi's default profile.

    Raises:
      OptionError: the passcode breaks a rule, or argon2-cffi is not installed.

    Blocks: for about 60 ms.
    """
    check_passcode(text)
    return (hasher or default_hasher()).hash(text)


def needs_rehash(stored: str, hasher: Hasher | None = None) -> bool:
    """Return whether an entry of a users file is plain text, or hashed with other parameters.

    Args:
      stored: A value of ``UserBook.users``.
      hasher: The hasher with the wanted parameters; None = argon2-cffi's default profile.

    Raises:
      OptionError: argon2-cffi is not installed.
    """
    return not is_hashed(stored) or (hasher or default_hasher()).check_needs_rehash(stored)


@frozen
class PasscodeStatistics:
    """The counters of a ``PasscodeChecker`` since its creation.

    Args:
      checked: The number of checked passcodes.
      accepted: The number of right ones.
      recalled: The number of right ones recognized without a hash.
      hashed: The number of computed hashes.
      remembered: The number of right ones remembered now; at most 10,000.
    """

    checked: int
    accepted: int
    recalled: int
    hashed: int
    remembered: int


@define(eq=False, repr=False)
class PasscodeChecker:
    """Verifies the passcodes of users, for several threads at once.

    The response time does not reveal user names: an unknown user, a wrong passcode and a user with
    a plain-text passcode each cost one hash, if the book has any. The dummy hash has the most
    common parameters of the book; users with other parameters (``odd``) can be distinguished by
    time until they are hashed again.

    Right passcodes are remembered by a keyed hash, so clients that reconnect often cost nothing.
    Above 10,000 the least recently used one is forgotten. After a reload of the book, create a new
    checker.

    Args:
      book: The users.
      hasher: None = that of argon2-cffi, which is needed only if the book holds a hash.

    Raises:
      OptionError: a hash in the book breaks a rule, or argon2-cffi is not installed.
    """

    _book: "UserBook"
    _hasher: Hasher | None = None
    odd: int = field(init=False)
    """The number of users whose hash takes another time than that of an unknown user."""
    _dummy_hash: str = field(init=False)
    _key: bytes = field(init=False, factory=lambda: os.urandom(KEY_BYTES))
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _right: OrderedDict[bytes, None] = field(init=False, factory=OrderedDict)
    _counts: Counter[str] = field(init=False, factory=Counter)

    def __attrs_post_init__(self) -> None:
        costs = Counter(read_hash(text) for text in self._book.users.values() if is_hashed(text))
        self._dummy_hash = _dummy_hash(costs)
        like = read_hash(self._dummy_hash).parameters if costs else ()
        self.odd = sum(costs[each] for each in costs if each.parameters != like)
        if not costs:
            self._hasher = None
        elif self._hasher is None:
            self._hasher = default_hasher()

    def check(self, name: str, passcode: str) -> bool:
        """Return whether this is the passcode of the user.

        Args:
          name: The client's login; any text.
          passcode: The client's passcode; over 1024 bytes it is wrong without a computation.

        Raises:
          MemoryError: the machine cannot compute the hash; never raised for a wrong passcode.

        Blocks: for the time of a hash; not at all if the passcode is remembered.
        """
        user, given = (text.encode("utf-8", "surrogatepass") for text in (name, passcode))
        is_right = False
        # Too long for every user alike, so the quick answer reveals nothing.
        if len(given) <= MAX_PASSCODE_BYTES:
            is_right = self._check(user, self._book.users.get(name), given)
        with self._lock:
            self._counts["checked"] += 1
            self._counts["accepted"] += is_right
        return is_right

    def recalls(self, name: str, passcode: str) -> bool:
        """Return whether a passcode is remembered as right.

        If not, call ``check`` in a thread. Blocks: never.
        """
        user, given = (text.encode("utf-8", "surrogatepass") for text in (name, passcode))
        stored = self._book.users.get(name)
        if stored is None or len(given) > MAX_PASSCODE_BYTES:
            return False
        if self._hasher is None:
            return self._is_same(stored, given)
        return self._recall(self._mark(user, stored.encode(), given))

    def statistics(self) -> PasscodeStatistics:
        """Return the counters."""
        with self._lock:
            counts = self._counts
            return PasscodeStatistics(
                checked=counts["checked"],
                accepted=counts["accepted"],
                recalled=counts["recalled"],
                hashed=counts["hashed"],
                remembered=len(self._right),
            )

    def _check(self, user: bytes, stored: str | None, given: bytes) -> bool:
        """Check a passcode, with the same steps for known and unknown users."""
        expected = self._dummy_hash if stored is None else stored
        if self._hasher is None:
            return self._is_same(expected, given) and stored is not None
        mark = self._mark(user, expected.encode(), given)
        if self._recall(mark):
            return True
        if is_hashed(expected):
            is_right = self._verify(self._hasher, expected, given) and stored is not None
        else:
            self._verify(self._hasher, self._dummy_hash, given)
            is_right = self._is_same(expected, given)
        if is_right:
            self._remember(mark)
        return is_right

    def _verify(self, hasher: Hasher, expected: str, given: bytes) -> bool:
        from argon2.exceptions import VerificationError, VerifyMismatchError

        with self._lock:
            self._counts["hashed"] += 1
        try:
            return hasher.verify(expected, given)
        except VerifyMismatchError:
            return False
        except VerificationError as error:
            raise MemoryError(f"{error}") from error

    def _is_same(self, expected: str, given: bytes) -> bool:
        # Digests, because compare_digest reveals the length of its arguments.
        return hmac.compare_digest(self._mark(expected.encode()), self._mark(given))

    def _mark(self, *parts: bytes) -> bytes:
        """Return a keyed hash of the parts and their lengths."""
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._key, text, hashlib.sha256)

    def _recall(self, mark: bytes) -> bool:
        with self._lock:
            if mark not in self._right:
                return False
            self._right.move_to_end(mark)
            self._counts["recalled"] += 1
            return True

    def _remember(self, mark: bytes) -> None:
        with self._lock:
            self._right[mark] = None
            # Another thread may have added it: move it to the newest end.
            self._right.move_to_end(mark)
            if len(self._right) > MAX_REMEMBERED:
                self._right.popitem(last=False)


def _dummy_hash(costs: Counter[Cost]) -> str:
    """Return a dummy hash for unknown users, which no known passcode matches."""
    if not costs:
        return os.urandom(KEY_BYTES).hex()
    cost = max(costs, key=lambda cost: (costs[cost], cost.work_kib))
    # Random bytes instead of the hash of a passcode; verifying it costs the same.
    return cost.phc(os.urandom(cost.salt_bytes), os.urandom(cost.hash_bytes))
