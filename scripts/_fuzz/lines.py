"""Measures the lines of a target's files that have run, for the corpus and the report."""

import dis
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

Line = tuple[str, int]
MONITOR_ID = 4
"""A number of ``sys.monitoring`` that no other tool has by convention."""


class Lines:
    """Lines within functions. Lines that run on import do not count.

    Use it as a context manager around the code to trace.

    Args:
      files: Python files.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.all: dict[str, set[int]] = {str(path): set(_lines(path)) for path in files}
        self.seen: set[Line] = set()
        self._left: dict[CodeType, set[int]] = {}
        """The lines of each function that have not run yet. Functions without any are not
        traced."""
        self._before: Any = None

    @property
    def total(self) -> int:
        """Return the number of lines."""
        return sum(map(len, self.all.values()))

    def missing(self) -> list[str]:
        """Return the lines that have not run, as ``file:line``."""
        return [
            f"{Path(name).name}:{line}"
            for name, lines in self.all.items()
            for line in sorted(lines)
            if (name, line) not in self.seen
        ]

    def __enter__(self) -> "Lines":
        if sys.version_info >= (3, 12):
            self._monitor()
        else:
            self._before = sys.gettrace()
            sys.settrace(self._call)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if sys.version_info >= (3, 12):
            sys.monitoring.set_events(MONITOR_ID, 0)
        else:
            sys.settrace(self._before)

    def _note(self, code: CodeType, line: int) -> None:
        if line in self.all.get(code.co_filename, ()):
            self.seen.add((code.co_filename, line))

    def _call(self, frame: FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
        code = frame.f_code
        left = self._left.get(code)
        if left is None:
            known = self.all.get(code.co_filename, set())
            left = self._left[code] = set(_own_lines(code)) & known
        return self._line if left else None

    def _line(self, frame: FrameType, event: str, _arg: object) -> Callable[..., Any]:
        if event == "line":
            self._note(frame.f_code, frame.f_lineno)
            self._left[frame.f_code].discard(frame.f_lineno)
        return self._line

    if sys.version_info >= (3, 12):

        def _monitor(self) -> None:
            monitoring = sys.monitoring
            if monitoring.get_tool(MONITOR_ID) is None:
                monitoring.use_tool_id(MONITOR_ID, "fuzz")

            def line(code: CodeType, number: int) -> object:
                self._note(code, number)
                return monitoring.DISABLE

            monitoring.register_callback(MONITOR_ID, monitoring.events.LINE, line)
            monitoring.set_events(MONITOR_ID, monitoring.events.LINE)


def _lines(path: Path) -> Iterator[int]:
    for code in _codes(compile(path.read_text(encoding="utf-8"), str(path), "exec")):
        yield from _own_lines(code)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield all functions in ``code``, without modules and class bodies."""
    if code.co_flags & inspect.CO_OPTIMIZED:
        yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _own_lines(code: CodeType) -> set[int]:
    return {line for _, line in dis.findlinestarts(code) if line} - {code.co_firstlineno}
