"""Files of operators: settings, users, keys."""

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., str]


def save(path: Path | str, data: bytes | str, mode: int = 0o600) -> str:
    """Write a file that only its owner reads, and return its path."""
    file = Path(path)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    file.chmod(mode)
    return str(path)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of settings, and return its path."""

    def write(text: str, name: str = "x.toml") -> str:
        return save(tmp_path / name, text)

    return write
