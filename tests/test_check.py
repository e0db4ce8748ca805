"""The one command for all checks: what it names is there."""

from pathlib import Path

import check

TESTS = Path(__file__).parent


def test_every_test_of_the_compiled_variant_is_there() -> None:
    names = check.COMPILED_TESTS
    assert [name for name in names if not (TESTS / f"test_{name}.py").is_file()] == []
    assert sorted(set(names)) == list(names)


def test_the_compiled_variant_is_asked_nothing_about_files_that_its_copy_has_not() -> None:
    """It has no ``.ci``: CI once ran tests/test_supply_chain.py there, and failed at its end."""
    texts = {name: (TESTS / f"test_{name}.py").read_text() for name in check.COMPILED_TESTS}
    assert [name for name, text in texts.items() if '".ci' in text] == []
