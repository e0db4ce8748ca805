"""Brokers that the client is tested with: our own, and those of ``scripts/_bench/others.py``."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from _bench import others
from _bench.others import LOGIN, PASSCODE, NotInstalledError, OtherBroker

from tests.support.foreign import ROOT, running_broker


@contextmanager
def rabbitmq() -> Iterator[OtherBroker]:
    """Run RabbitMQ. Skip the test if it is not installed."""
    with _or_skip(others.rabbitmq) as broker:
        yield broker


@contextmanager
def activemq() -> Iterator[OtherBroker]:
    """Run ActiveMQ. Skip the test if it is not installed."""
    with _or_skip(others.activemq) as broker:
        yield broker


@contextmanager
def trio_stomp() -> Iterator[OtherBroker]:
    """Run our own broker, as strict about logins as the others."""
    with tempfile.TemporaryDirectory(prefix="trio-stomp-") as name:
        users = str(Path(name) / "users")
        add = [sys.executable, "-m", "trio_stomp", "passwd", "add", users, LOGIN, "--stdin"]
        subprocess.run(add, cwd=ROOT, input=PASSCODE, text=True, check=True, capture_output=True)
        with running_broker("--passwd-file", users) as port:
            yield OtherBroker("trio_stomp", port, port, 0)


@contextmanager
def _or_skip(run: Callable[[], AbstractContextManager[OtherBroker]]) -> Iterator[OtherBroker]:
    with ExitStack() as stack:
        try:
            running = stack.enter_context(run())
        except NotInstalledError as missing:
            pytest.skip(f"THE CLIENT WAS NOT TESTED: {missing}")
        yield running
