"""The fixtures: ``stomp_broker`` in the loop of the test, ``stomp_broker_port`` beside it.

pytest finds this module by itself where trio-stomp is installed. Options for the broker come from
a marker: ``@pytest.mark.stomp_broker(ttl_ms=5000)``.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from trio_stomp.config import Settings
from trio_stomp.testing import TestBroker, ThreadedBroker, open_test_broker, threaded_broker

QUIET = {"diag_interval_s": 0.0}
"""Statistics would keep a mock clock busy."""


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marker."""
    config.addinivalue_line("markers", "stomp_broker(**options): options of the broker's fixtures")


def options_of(request: pytest.FixtureRequest) -> dict[str, object]:
    """What the nearest marker says, over what suits tests."""
    marker = request.node.get_closest_marker("stomp_broker")
    return {**QUIET, **(marker.kwargs if marker is not None else {})}


@pytest.fixture
async def stomp_broker(request: pytest.FixtureRequest) -> AsyncIterator[TestBroker]:
    """A broker in the Trio loop of the test, over memory; pytest-trio runs it.

    With ``autojump_clock`` a heart-beat of 60 s takes no time.
    """
    async with open_test_broker(Settings.of(**options_of(request))) as broker:
        yield broker


@pytest.fixture
def stomp_broker_port(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    """A broker in a thread, on a port of its own: for clients that are not Trio's."""
    with threaded_broker(**options_of(request)) as broker:
        yield broker
