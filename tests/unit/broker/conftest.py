"""Cores for the tests of the broker. At the end of a test they must be empty."""

from collections.abc import Iterator

import pytest

from tests.support.core import Bench, Core
from tests.support.share_fakes import Clocked


@pytest.fixture
def core() -> Iterator[Core]:
    core = Core()
    yield core
    core.ends()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.ends()


@pytest.fixture
def desk() -> Iterator[Clocked]:
    desk = Clocked()
    yield desk
    desk.ends()
