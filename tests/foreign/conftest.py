"""The browser, and a broker with its dashboard."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chromium import Chromium, Page, chromium_or_skip, running_chromium
from tests.support.dashboard import OFTEN, guarded_broker, live, url
from tests.support.foreign import running_broker


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with running_chromium(chromium_or_skip(), tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def port(chromium: Chromium) -> Iterator[int]:
    with running_broker(*OFTEN) as found:
        yield found


@pytest.fixture
def page(chromium: Chromium, port: int) -> Iterator[Page]:
    """Yield the dashboard of an open broker. Check at the end that the page reported no errors."""
    with chromium.page(url(port)) as found:
        live(found)
        yield found
        assert found.complaints == []


@pytest.fixture
def guarded(chromium: Chromium, tmp_path: Path) -> Iterator[int]:
    """The port of a broker with users and rules."""
    with guarded_broker(tmp_path) as found:
        yield found
