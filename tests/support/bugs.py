"""Bugs that tests plant."""

import importlib
from typing import Any

import pytest


def plant(monkeypatch: pytest.MonkeyPatch, where: str, at: int = 1) -> None:
    """Have a function or method raise an exception at one of its next calls."""
    path = f"trio_stomp.broker.{where}"
    owner, name = path.rsplit(".", 1)
    module, _, cls = owner.rpartition(".")
    found: Any
    try:
        found = importlib.import_module(owner)
    except ModuleNotFoundError:
        found = getattr(importlib.import_module(module), cls)
    true, calls = getattr(found, name), [0]

    def call(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            raise KeyError("a bug")
        return true(*arguments, **named)

    monkeypatch.setattr(path, call)
