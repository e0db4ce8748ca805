"""Files for targets that read them."""

import tempfile
from pathlib import Path


def own_file(name: str) -> Path:
    """Return the path of a file of this process, which its parent removes."""
    return Path(tempfile.mkdtemp(prefix="fuzz-")) / name
