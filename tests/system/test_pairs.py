"""Pairs of features do what tests/pairs and docs/reference/features-that-meet.md say."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from features_table import Pair, features, pairs

from tests.support.play import Stage, stores_of

PERCENT = 40
"""This part of the scripts belongs to each push, over the first of their stores: a minute."""


def name_of(pair: Pair, number: int) -> str:
    return f"{' + '.join(pair.names)} {number}"


def is_sampled(pair: Pair, number: int) -> bool:
    """Return whether a script belongs to each push, which its name determines in every run."""
    return zlib.crc32(name_of(pair, number).encode()) % 100 < PERCENT


def cases() -> Iterator[Any]:
    """Yield each script with each of its stores."""
    for pair in pairs():
        for number, script in enumerate(pair.scripts, 1):
            for place, store in enumerate(stores_of(script)):
                marks = [pytest.mark.full] if place or not is_sampled(pair, number) else []
                yield pytest.param(
                    script, store, id=f"{name_of(pair, number)} {store}", marks=marks
                )


def test_each_push_has_scripts_of_every_feature() -> None:
    sampled = [pair.names for pair in pairs() if is_sampled(pair, 1)]
    assert [name for name in features() if not any(name in names for names in sampled)] == []


@pytest.mark.parametrize(("script", "store"), list(cases()))
async def test_the_sentence_is_true(
    script: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store == "sqlite":
        pytest.importorskip("sqlalchemy")
    directory = tmp_path / "broker"
    directory.mkdir()
    await Stage(store, directory, monkeypatch).run(script)
