"""Interpreted or compiled: all of a tree is the one or the other."""

import importlib
from pathlib import Path

from _compiled.build import MODULES

from trio_stomp.cli.process import variant_suffix

ROOT = Path(__file__).parents[3]


def test_running_variant_is_the_compiled_one() -> None:
    there = [name for name in MODULES if list(ROOT.glob(name.replace(".py", ".*.so")))]
    assert there in ([], list(MODULES))
    modules = {name: importlib.import_module(name[:-3].replace("/", ".")) for name in MODULES}
    files = {name: Path(str(module.__file__)) for name, module in modules.items()}
    assert all(file.is_relative_to(ROOT) for file in files.values())
    assert [name for name, file in files.items() if file.suffix == ".so"] == there
    assert variant_suffix() == (" (compiled)" if there else "")
