"""Hatch's hook: with ``TRIO_STOMP_COMPILE=1`` in the environment, a wheel with compiled modules."""

import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "TRIO_STOMP_COMPILE"

# Hatch runs this file on its own: its neighbours are not on the path yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


class CompileHook(BuildHookInterface[Any]):
    """Compiles a copy of the tree, and adds the libraries to the modules in the wheel."""

    def dependencies(self) -> list[str]:
        if not self._is_wanted():
            return []
        from _compiled.build import NEEDS

        project = tomllib.loads((Path(self.root) / "pyproject.toml").read_text(encoding="utf-8"))
        return [*project["project"]["dependencies"], *NEEDS]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._is_wanted():
            return
        if version == "editable":
            raise SystemExit(f"{SWITCH}=1 compiles wheels: install without -e, or without it")
        from _compiled.build import compile_copy

        self._remove_copy()
        for library in compile_copy(Path(self.root), self._copy):
            build_data["force_include"][str(self._copy / library)] = str(library)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        if self._is_wanted():
            self._remove_copy()

    def _remove_copy(self) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)

    @property
    def _copy(self) -> Path:
        return Path(self.root) / "build" / "wheel"

    def _is_wanted(self) -> bool:
        return self.target_name == "wheel" and os.environ.get(SWITCH, "") not in ("", "0")
