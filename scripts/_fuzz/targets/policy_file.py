"""Policies by destination, from a TOML file."""

import random
from pathlib import Path

import attrs

from _fuzz.target import Target, check, check_equal
from _fuzz.targets.files import own_file
from trio_stomp.base._errors import OptionError
from trio_stomp.broker import DestinationPolicy, PolicyBook
from trio_stomp.config import read_policy_file

FIELDS = tuple(field.name.encode() for field in attrs.fields(DestinationPolicy))
VALUES = (
    *(
        b"0",
        b"1",
        b"-1",
        b"true",
        b"false",
        b"1.5",
        b"nan",
        b"inf",
        b'""',
        b'"reject"',
        b'"always"',
    ),
    *(b'"drop-oldest"', b"[]", b"[0.5, 1, nan]", b"[0, 1e9]", b"[true]", b"{}", b"1979-05-27"),
    *(
        b'"/queue/x"',
        b'"/topic/*"',
        b"99999999999999999999",
        b"'''\nx'''",
        b'"\\u0000"',
        b'"never"',
    ),
)
PATTERNS = (
    *(b'"/topic/prices.>"', b'"/queue/orders"', b'"*"', b"a", b'""', b'"/queue/DLQ.>"', b'"a**b"'),
    *(b'"/topic/a"."b"', b'"/queue/>"', b'"#.x"', b'"\\u0000"', b"[x]", b'"/queue/monitor"'),
)
NAMES = ("/queue/orders", "/topic/prices.eu", "/queue/DLQ.orders", "#x", "/queue/monitor", "a")


def make(name: str) -> Target:
    """Return the target. Its file belongs to the process."""
    path = own_file("policies.toml")

    def run(data: bytes) -> None:
        path.write_bytes(data)
        judge(path)

    words = (*(b"%b = " % each for each in FIELDS), *VALUES, *PATTERNS)
    words += (
        *(b"[%b]\n" % each for each in PATTERNS),
        b"\n",
        b"#",
        b"[",
        b"]",
        b'"',
        b"\xff",
        b"x=" + b"9" * 5000,
        b"x=" + b"[" * 3000,
    )
    files = ("config/_policy_file.py", "broker/routing/_destination_policy.py")
    return Target(name, run, files, generate, words, 8192)


def generate(chance: random.Random) -> bytes:
    """Return tables with fields."""
    lines = []
    for _ in range(chance.randint(1, 3)):
        lines.append(b"[%b]" % chance.choice(PATTERNS))
        fields = chance.choices(FIELDS, k=chance.randrange(3))
        lines += [b"%b = %b" % (name, chance.choice(VALUES)) for name in fields]
    return b"\n".join(lines) + b"\n"


def judge(path: Path) -> None:
    """Read a file, and compare the policy of some names with that of the first matching pattern."""
    try:
        policies = read_policy_file(str(path))
    except OptionError as error:
        check(str(path) in str(error), f"the file is not named: {error}")
        return
    check_equal(read_policy_file(str(path)), policies, "read again")
    book = PolicyBook(policies)
    for name in NAMES:
        policy = book.policy_for(name)
        check(policy == book.default or policy in [each for _, each in policies], "policy: unknown")
        for failures in (1, 2, 100):
            check(0 <= policy.delay_s(failures) <= 86_400, "delay: out of range")
        check(policy.dead_letter_for(name) != name, "dead letters: in a circle")
