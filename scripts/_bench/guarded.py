"""Brokers with increasing security: their files and users."""

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from _bench.load import STRANGERS, Visitors
from _bench.process import ROOT, BenchError
from _bench.wire import HOST, Visitor

APPLICATIONS = 22
PUBLISHER, SUBSCRIBER = "bench", "desk-1"

FIRST_RULES = (
    ('allow = "all"', '"**"', 'group = "ops"'),
    ('allow = "monitor"', '["DIAG*", "/stream/DIAG*"]', 'group = "auditors"'),
    ('deny = ["receive", "browse"]', '"/queue/DLQ.>"', ""),
    ('allow = ["send", "receive", "create"]', '["/topic/{user}/**", "/queue/{user}/**"]', ""),
    ('allow = ["receive", "browse"]', '"/queue/inbox.{user}"', ""),
    ('allow = "send"', '"/queue/*/requests"', 'user = ["app-*", "billing"]'),
)
APPLICATION_RULES = (
    ('allow = "send"', '"/topic/app-%d/**"', 'user = "app-%d"'),
    ('allow = "receive"', '"/topic/app-%d/*/{user}"', 'user = "desk-*"'),
)
LAST_RULES = (('allow = "receive"', '"/topic/bench/**"', 'user = "desk-*"'),)
"""The rules that match for subscribers. All other rules are evaluated before them."""


BARE, RULES, SECRET = "plain", "acl", "tls"
SETTINGS = {
    BARE: "no logins, no rules, TCP",
    RULES: "logins and 51 rules, TCP",
    SECRET: "the same, TLS",
}
"""Descriptions of the settings that are compared."""


class Settings(NamedTuple):
    """The settings of one broker and its clients.

    Args:
      name: One of SETTINGS.
    """

    name: str
    options: tuple[str, ...] = ()
    visitors: Visitors = STRANGERS


def settings_in(directory: Path, users: int) -> tuple[Settings, ...]:
    """Create users, rules and certificates. Return the settings to compare, the bare one first.

    Args:
      users: The number of users besides publisher and subscriber.

    Raises:
      BenchError: something is missing that they are made with.
    """
    book, rules = directory / "users", directory / "rules.toml"
    visitors = write_users(book, (PUBLISHER, SUBSCRIBER, *user_names(users)))
    rules.write_text("".join(rules_text()), encoding="utf-8")
    guarded = ("--passwd-file", str(book), "--acl-file", str(rules))
    certificate, context = write_certificate(directory)
    one, other = visitors[:2]
    known = Visitors(one, other)
    secret = Visitors(one._replace(tls=context), other._replace(tls=context))
    return (
        Settings(BARE),
        Settings(RULES, guarded, known),
        Settings(SECRET, (*guarded, "--tls-cert", certificate), secret),
    )


def user_names(count: int) -> list[str]:
    """Return the names of users who only log in."""
    return [f"visitor-{number}" for number in range(count)]


def passcode_of(name: str) -> str:
    """Return the passcode of a user of the benchmark."""
    return f"passcode of {name}"


def write_users(path: Path, names: Sequence[str]) -> list[Visitor]:
    """Write a users file with hashed passcodes, as an operator would. Return the users.

    Raises:
      BenchError: the operator's tool refuses.
    """
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}:{passcode_of(name)}\n" for name in names), encoding="utf-8")
    command = [sys.executable, "-m", "trio_stomp", "passwd", "import", str(path), str(path)]
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"no users could be made: {done.stderr.strip()}")
    return [Visitor(name, passcode_of(name)) for name in names]


def rules_text() -> Iterator[str]:
    """Yield a file of 51 rules, nearly half of them with ``{user}``, as in a larger company.

    The fourth rule matches the publisher, the last one the subscribers.
    """
    yield '[groups]\nops = ["alice", "bob"]\nauditors = []\n'
    yield from map(_rule, FIRST_RULES)
    for number in range(APPLICATIONS):
        for action, to, who in APPLICATION_RULES:
            yield _rule((action, to % number, who.replace("%d", str(number))))
    yield from map(_rule, LAST_RULES)


def _rule(parts: tuple[str, str, str]) -> str:
    action, to, who = parts
    return f"\n[[rule]]\n{action}\nto = {to}\n{who}\n"


def write_certificate(directory: Path) -> tuple[str, ssl.SSLContext]:
    """Write a certificate with its key. Return its path, and the context that clients trust.

    Raises:
      BenchError: trustme is not installed.
    """
    try:
        import trustme
    except ImportError:
        raise BenchError("certificates are made with trustme: pip install -e '.[dev]'") from None
    authority = trustme.CA()
    path = directory / "broker.pem"
    path.touch(mode=0o600)
    issued = authority.issue_cert(HOST)
    issued.private_key_and_cert_chain_pem.write_to_path(str(path))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return str(path), context
