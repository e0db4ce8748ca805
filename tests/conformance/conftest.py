"""The broker under test, dialled over each transport."""

from collections.abc import AsyncIterator

import pytest
from _fakes import MEMORY, TRANSPORTS, WS_MEMORY, WS_TCP, Dial, open_dial


@pytest.fixture(params=TRANSPORTS)
async def dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    """A broker of its own for each test, over each transport."""
    async with open_dial(request.param) as opened:
        yield opened


@pytest.fixture(params=(MEMORY, WS_MEMORY))
async def timed_dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    """The same for virtual time, which cannot see what waits in a real socket.

    The test must ask for ``autojump_clock`` itself: pytest-trio looks no deeper.
    """
    async with open_dial(request.param) as opened:
        yield opened


@pytest.fixture(params=(WS_MEMORY, WS_TCP))
async def ws_dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    """The same for WebSockets alone."""
    async with open_dial(request.param) as opened:
        yield opened


@pytest.fixture(params=(MEMORY, "tcp"))
async def raw_dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    """The same for what is no WebSocket."""
    async with open_dial(request.param) as opened:
        yield opened
