"""The places where one change makes a mutant: conditions and constants, one at a time."""

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

FOLDERS = ("frames", "protocol", "broker", "store")
"""Folders of the package: floors 0 to 2, and the store."""

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
}


class Mutant(NamedTuple):
    """One change of one file: the text from ``start`` to ``end`` becomes ``text``."""

    path: str
    line: int
    first_line: int
    """The first line of the statement."""
    start: int
    end: int
    text: str
    what: str
    name: str
    """A name that does not depend on the line number: path, text of the line, and change."""

    def applied(self, source: bytes) -> bytes:
        """Return the file's content with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


class Change(NamedTuple):
    """A change before it has a name: where, and the new text."""

    start: int
    end: int
    text: str
    what: str
    line: int


class Source:
    """A file, its tree, and the positions of its nodes in bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.tree = ast.parse(data)
        self._lines = [0]
        for line in data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def span(self, node: ast.expr) -> tuple[int, int]:
        """Return the offsets of a node's first byte and of the byte behind its last."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return (
            self._lines[node.lineno - 1] + node.col_offset,
            self._lines[end_line - 1] + end_column,
        )

    def between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Change]:
        """Yield the change of an operator between two operands."""
        start, end = self.span(left)[1], self.span(right)[0]
        found = re.search(old.encode(), self.data[start:end])
        if found:
            where = self.data.count(b"\n", 0, start + found.start()) + 1
            what = f"{found[0].decode()} to {new}"
            yield Change(start + found.start(), start + found.end(), new, what, where)


def mutants_of(path: str, data: bytes) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    source = Source(data)
    lines = data.decode().splitlines()
    seen: Counter[str] = Counter()
    for statement, node in _nodes(source.tree, 1):
        for change in _changes(source, node):
            base = f"{path}: {lines[change.line - 1].strip()}: {change.what}"
            seen[base] += 1
            name = f"{base} ({seen[base]})"
            yield Mutant(
                path, change.line, statement, change.start, change.end, change.text,
                change.what, name,
            )  # fmt: skip


def _nodes(node: ast.AST, statement: int) -> Iterator[tuple[int, ast.AST]]:
    """Yield the nodes that run, with the first line of their statement: no annotations, no
    docstrings."""
    if isinstance(node, ast.stmt):
        statement = node.lineno
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return
    yield statement, node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _nodes(child, statement)


def _changes(source: Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, node.comparators, strict=False):
            yield from source.between(left, right, *COMPARISONS[type(operator)])
    elif isinstance(node, ast.BoolOp):
        old, new = (r"\band\b", "or") if isinstance(node.op, ast.And) else (r"\bor\b", "and")
        if len(node.values) == 2:
            yield from source.between(node.values[0], node.values[1], old, new)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        start, end = source.span(node)[0], source.span(node.operand)[0]
        text = source.data[start:end].decode().replace("not", "", 1)
        yield Change(start, end, text, "without not", node.lineno)
    elif isinstance(node, ast.Constant):
        yield from _of_constant(source, node)
    for test in _tests(node):
        if not isinstance(test, ast.Compare | ast.UnaryOp | ast.Constant):
            start, end = source.span(test)
            text = f"(not ({source.data[start:end].decode()}))"
            yield Change(start, end, text, "the other way round", test.lineno)


def _of_constant(source: Source, node: ast.Constant) -> Iterator[Change]:
    start, end = source.span(node)
    if repr(node.value) != source.data[start:end].decode() and not source.data[start:end].isalnum():
        return  # In an f-string of older Pythons the places are wrong.
    if isinstance(node.value, bool):
        yield Change(start, end, repr(not node.value), f"{node.value} turned", node.lineno)
    elif isinstance(node.value, int | float):
        yield Change(start, end, repr(node.value + 1), f"{node.value} and one", node.lineno)


def _tests(node: ast.AST) -> Iterable[ast.expr]:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return [node.test]
    return node.ifs if isinstance(node, ast.comprehension) else ()


def all_mutants(root: Path) -> Iterator[Mutant]:
    """Yield every mutant of the folders, in the order of their files."""
    for folder in FOLDERS:
        for file in sorted((root / "trio_stomp" / folder).rglob("*.py")):
            yield from mutants_of(file.relative_to(root).as_posix(), file.read_bytes())


def sample(mutants: Iterable[Mutant], seed: int, count: int) -> list[Mutant]:
    """Return some mutants: chosen by their names, so a change elsewhere chooses no others."""
    by_chance = sorted(
        mutants, key=lambda each: hashlib.sha256(f"{seed} {each.name}".encode()).digest()
    )
    return sorted(by_chance[:count], key=lambda each: (each.path, each.start, each.what))
