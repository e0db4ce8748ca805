"""The command line of the scripts that make a page of the manual."""

import sys
from collections.abc import Sequence
from pathlib import Path


def print_or_write(page: Path, text: str, argv: Sequence[str]) -> None:
    """Print the text of a page, or with ``--write`` write it."""
    if "--write" in argv:
        page.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
