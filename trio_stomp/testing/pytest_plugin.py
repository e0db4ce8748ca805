"""The fixtures: ``stomp_broker`` in the test's event loop, ``stomp_broker_port`` in a thread.

pytest loads this module wherever trio-stomp is installed, so it imports little until a fixture is
used. A marker sets options of the broker: ``@pytest.mark.stomp_broker(ttl_ms=5000)``. Of markers on
a test, its class and its module, the nearest wins for each option.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from trio_stomp.testing import TestBroker, ThreadedBroker


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "stomp_broker(**options): options of the broker's fixtures")


def trio_fixture(function: "Callable[..., AsyncIterator[TestBroker]]") -> object:
    """Return a fixture that pytest-trio runs, with or without its ``trio_mode``."""
    if find_spec("pytest_trio") is not None:
        import pytest_trio

        return pytest_trio.trio_fixture(function)

    def missing() -> None:
        raise pytest.UsageError(
            f"{function.__name__} needs pytest-trio: pip install 'trio-stomp[testing]'"
        )

    return pytest.fixture(missing)


def options_of(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options of the markers, merged with the defaults for tests.

    Raises:
      pytest.UsageError: a marker has options without a name.
    """
    # DIAG statistics would keep a mock clock busy.
    options: dict[str, Any] = {"diag_interval_s": 0.0}
    for marker in reversed(list(request.node.iter_markers("stomp_broker"))):
        if marker.args:
            raise pytest.UsageError(
                f"stomp_broker takes options by name, as in stomp_broker(ttl_ms=5000),"
                f" not {marker.args[0]!r}"
            )
        options |= marker.kwargs
    return options


@trio_fixture
async def stomp_broker(request: pytest.FixtureRequest) -> "AsyncIterator[TestBroker]":
    """Run a broker in the test's Trio loop, over memory. Needs pytest-trio.

    With ``autojump_clock`` a heart-beat of 60 s takes no time.
    """
    from trio_stomp.testing import open_test_broker

    async with open_test_broker(**options_of(request)) as broker:
        yield broker


@pytest.fixture
def stomp_broker_port(request: pytest.FixtureRequest) -> "Iterator[ThreadedBroker]":
    """Run a broker in a thread, on a free port, for clients that do not use Trio."""
    from trio_stomp.testing import threaded_broker

    with threaded_broker(**options_of(request)) as broker:
        yield broker
