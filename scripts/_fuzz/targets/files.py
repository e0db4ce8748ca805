"""A place for the files that a target has read."""

import tempfile
from pathlib import Path


def own_file(name: str) -> Path:
    """A file of this process alone; who started the process removes it."""
    return Path(tempfile.mkdtemp(prefix="fuzz-")) / name
