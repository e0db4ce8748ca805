"""Queues that keep few messages in memory, and those whose hand-out fails."""

from collections.abc import Callable
from typing import Any

import pytest

from trio_stomp.broker.queues import _hand_out, _storage, _windows


def keep_few(patch: pytest.MonkeyPatch, count: int, share: float = 0.0) -> None:
    """Have queues keep ``count`` messages in memory, and ``share`` of what it has room for."""
    patch.setattr(_windows, "LOW_COUNT", count)
    patch.setattr(_storage, "LOW_COUNT", count)
    patch.setattr(_storage, "PAGE_SHARE", share)


def search_in_few(patch: pytest.MonkeyPatch, count: int) -> None:
    """Have consumers search in the stored messages of ``count`` queues at a time."""
    patch.setattr(_windows, "MAX_WINDOWS", count)


def hand_out_by(patch: pytest.MonkeyPatch, made_of: Callable[[Any], Any]) -> None:
    """Have queues hand out by what ``made_of`` returns, which gets the function that does it."""
    patch.setattr(_hand_out, "hand_out", made_of(_hand_out.hand_out))
