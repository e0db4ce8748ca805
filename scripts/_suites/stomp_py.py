"""The tests of stomp.py, including those over TLS."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from _suites import sides
from _suites.outcomes import Outcomes
from _suites.running import run_pytest
from _suites.sides import LOGIN, PASSCODE, STANDARD_PORT, Side

# Its tests of stompserver do not log in; others log in with a passcode that must be wrong.
_RULES = f"""\
[[rule]]
user = ["anonymous", "{LOGIN}"]
allow = "all"
to = "**"
"""


@contextmanager
def ours() -> Iterator[Side]:
    """Run our broker at the port that the tests name, for a user and clients without a login."""
    with tempfile.TemporaryDirectory(prefix="suites-") as name:
        rules = Path(name) / "acl.toml"
        rules.write_text(_RULES, encoding="utf-8")
        options = ("--anonymous", "loopback", "--acl-file", str(rules))
        with sides.ours(*options, port=STANDARD_PORT) as side:
            yield side


@contextmanager
def theirs() -> Iterator[Side]:
    """Run ActiveMQ."""
    with sides.activemq(anonymous=True, port=STANDARD_PORT) as side:
        yield side


def run(sources: Path, side: Side, scratch: Path) -> Outcomes:
    """Run the tests, with those over TLS if the broker has it."""
    folder = sources / "stomp.py"
    environment = {
        **_prefixed("STD_", side),
        **_prefixed("RABBITMQ_", side),
        **_prefixed("ARTEMIS_", side),
        **_prefixed("STOMPSERVER_", side),
        "IPV6_HOST": "127.0.0.1",
        "IPV6_PORT": str(side.port),
        "RABBITMQ_WS_HOST": "127.0.0.1",
        "RABBITMQ_WS_PORT": str(side.web_port or 1),
    }
    with ExitStack() as others:
        if not side.tls_port:
            left_out = [f"--ignore=tests/test_{name}.py" for name in ("ssl", "ssl_sni", "cli_ssl")]
            return run_pytest(folder, ["tests", *left_out], environment, scratch)
        yesterday = datetime.now(UTC) - timedelta(days=1)
        expired = others.enter_context(sides.ours(not_after=yesterday))
        _write_certificates(folder / "tmp", side, expired)
        environment["STD_SSL_PORT"] = str(side.tls_port)
        environment["STD_SSL_EXPIRED_PORT"] = str(expired.tls_port)
        return run_pytest(folder, ["tests"], environment, scratch)


def _prefixed(prefix: str, side: Side) -> Mapping[str, str]:
    environment = {"HOST": "127.0.0.1", "PORT": side.port, "USER": LOGIN, "PASSWORD": PASSCODE}
    return {prefix + name: str(value) for name, value in environment.items()}


def _write_certificates(folder: Path, side: Side, expired: Side) -> None:
    """Write the certificates that its containers would create.

    If a file is missing, stomp.py never ends: ``attempt_connection`` connects, finds no file, does
    not count that as an attempt, and begins again, forever and with any server. It never reaches
    TLS.
    """
    folder.mkdir(exist_ok=True)
    client = trustme.CA().issue_cert("client")
    client.private_key_pem.write_to_path(str(folder / "client.key"))
    client.cert_chain_pems[0].write_to_path(str(folder / "client.pem"))
    (folder / "broker.pem").write_bytes(side.authority)
    (folder / "broker2.pem").write_bytes(trustme.CA().cert_pem.bytes())
    (folder / "expiredbroker.pem").write_bytes(expired.authority)
