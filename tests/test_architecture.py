"""The house rules that a program can check: floors, imports, state, sizes."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

PACKAGE = Path(__file__).parent.parent / "trio_stomp"
NAME = PACKAGE.name

# A floor imports only lower floors, or itself.
FLOORS = {
    "frames": 0,
    "protocol": 1,
    "store": 1,
    "broker": 2,
    "transport": 3,
    "security": 3,
    "client": 4,
    "peer": 4,
    "server": 4,
    "diag": 5,
    "web": 5,
    "config": 6,
    "cli": 7,
    "testing": 7,
}
SYNCHRONOUS = ("frames", "protocol", "broker")

# A client of the broker, for other processes: it imports no floor, and no floor imports it.
APART = {"spark"}

FOR_ALL = {"_errors", "_identity", "_value", "_option", "_version", "_schema"}
FOR_NOBODY = {"__init__", "__main__"}

# What ``config`` composes: the one use of another package's private module.
OPTION_MODULES = {"_limits", "_options", "_policies"}

# The synchronous core has no clock, no chance, no wire and no task of its own.
FORBIDDEN_BELOW = {"trio", "socket", "ssl", "time", "random", "asyncio", "threading"}
ALLOWED_BELOW = {("broker/topics/_stale.py", "trio")}

MUTABLE_LITERALS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
MUTABLE_CALLS = {"dict", "list", "set", "bytearray", "deque", "defaultdict", "OrderedDict"}

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60


@attrs.frozen
class Import:
    """One imported module, as a dotted path, and whether only the type checker sees it."""

    target: str
    line: int
    typing_only: bool


@attrs.frozen
class Module:
    """One source file of the package."""

    path: str
    tree: ast.Module
    text: str

    @property
    def floor(self) -> str:
        """The package directly below trio_stomp, or "" for a top-level module."""
        head, slash, _ = self.path.partition("/")
        return head if slash else ""


def read_modules() -> list[Module]:
    modules = []
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        modules.append(Module(file.relative_to(PACKAGE).as_posix(), ast.parse(text), text))
    return modules


MODULES = read_modules()


def imports(module: Module) -> Iterator[Import]:
    """Yield every import of a module, those inside of functions too."""
    hidden = {
        id(inner)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, id(node) in hidden)
        elif isinstance(node, ast.ImportFrom):
            for target in sorted(set(_targets(module, node))):
                yield Import(target, node.lineno, id(node) in hidden)


def _targets(module: Module, node: ast.ImportFrom) -> Iterator[str]:
    """Yield the modules that a ``from`` import names, relative ones made absolute."""
    base = node.module or ""
    if node.level:
        package = [NAME, *Path(module.path).parts[:-1]]
        kept = package[: len(package) - node.level + 1]
        base = ".".join([*kept, *([base] if base else [])])
    for alias in node.names:
        # ``from trio_stomp import config`` and ``from trio_stomp.frames import _frame`` name a
        # module; ``from trio_stomp.frames import Frame`` names a value of one.
        path = PACKAGE.parent.joinpath(*base.split("."), alias.name)
        inside = base.split(".")[0] == NAME
        is_module = inside and (path.is_dir() or path.with_suffix(".py").is_file())
        yield f"{base}.{alias.name}" if is_module else base


def own_imports(module: Module) -> Iterator[tuple[Import, list[str]]]:
    """Yield the imports from this package, with their path below it."""
    for found in imports(module):
        head, *rest = found.target.split(".")
        if head == NAME:
            yield found, rest


def show(violations: list[str]) -> str:
    return "\n".join(["", *violations])


def test_every_package_has_a_floor() -> None:
    assert {module.floor for module in MODULES if module.floor} <= FLOORS.keys() | APART


def test_a_floor_imports_only_lower_floors() -> None:
    violations = [
        f"{module.path}:{found.line}: {module.floor} ({FLOORS[module.floor]}) imports "
        f"{rest[0]} ({FLOORS[rest[0]]})"
        for module in MODULES
        if module.floor and module.floor not in APART
        for found, rest in own_imports(module)
        if rest and rest[0] in FLOORS and not found.typing_only and rest[0] != module.floor
        if FLOORS[rest[0]] >= FLOORS[module.floor]
    ]
    assert not violations, show(violations)


def test_what_stands_apart_imports_no_floor_and_is_imported_by_none() -> None:
    violations = [
        f"{module.path}:{found.line}: imports {found.target}"
        for module in MODULES
        for found, rest in own_imports(module)
        if rest and rest[0] != module.floor
        if (module.floor in APART and rest[0] not in FOR_ALL) or rest[0] in APART
    ]
    assert not violations, show(violations)


def test_what_stands_apart_needs_no_trio() -> None:
    code = "import sys, trio_stomp.base.schema; sys.exit('trio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_top_of_the_package_is_imported_by_nobody() -> None:
    violations = [
        f"{module.path}:{found.line}: imports {found.target}"
        for module in MODULES
        for found, rest in own_imports(module)
        if not rest or rest[0] in FOR_NOBODY
        if not found.typing_only
    ]
    assert not violations, show(violations)


def test_top_level_modules_import_no_floor() -> None:
    violations = [
        f"{module.path}:{found.line}: imports {found.target}"
        for module in MODULES
        if not module.floor and Path(module.path).stem in FOR_ALL
        for found, rest in own_imports(module)
        if not rest or rest[0] not in FOR_ALL
    ]
    assert not violations, show(violations)


def test_private_modules_stay_in_their_package() -> None:
    violations = [
        f"{module.path}:{found.line}: imports {found.target}; take it from {NAME}.{rest[0]}"
        for module in MODULES
        for found, rest in own_imports(module)
        if len(rest) > 1 and rest[0] != module.floor and rest[1].startswith("_")
        if rest[1] not in OPTION_MODULES
    ]
    assert not violations, show(violations)


def test_option_modules_import_no_floor() -> None:
    violations = [
        f"{module.path}:{found.line}: imports {found.target}"
        for module in MODULES
        if Path(module.path).stem in OPTION_MODULES
        for found, rest in own_imports(module)
        if not rest or rest[0] not in FOR_ALL
    ]
    assert not violations, show(violations)


def test_the_synchronous_floors_have_no_clock_no_wire_and_no_tasks() -> None:
    violations = [
        f"{module.path}:{found.line}: imports {found.target}"
        for module in MODULES
        if module.floor in SYNCHRONOUS
        for found in imports(module)
        if (top := found.target.split(".")[0]) in FORBIDDEN_BELOW
        if not found.typing_only and (module.path, top) not in ALLOWED_BELOW
    ]
    assert not violations, show(violations)


def test_the_synchronous_floors_never_await() -> None:
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    violations = [
        f"{module.path}:{node.lineno}: {type(node).__name__}"
        for module in MODULES
        if module.floor in SYNCHRONOUS
        for node in ast.walk(module.tree)
        if isinstance(node, kinds)
    ]
    assert not violations, show(violations)


def test_no_channel_is_unbounded() -> None:
    violations = [
        f"{module.path}:{node.lineno}: {ast.unparse(node)}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        if "open_memory_channel" in ast.unparse(node.func)
        if any("inf" in ast.unparse(argument) for argument in node.args)
    ]
    assert not violations, show(violations)


def _assigned(statement: ast.stmt) -> tuple[list[str], ast.expr | None]:
    """Return the names that a statement of a module's body assigns, and the value."""
    if isinstance(statement, ast.Assign):
        targets = [inner for target in statement.targets for inner in ast.walk(target)]
        return [node.id for node in targets if isinstance(node, ast.Name)], statement.value
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return [statement.target.id], statement.value
    return [], None


def _is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).split("[")[0].split(".")[-1] in MUTABLE_CALLS
    return isinstance(value, MUTABLE_LITERALS)


def test_no_module_holds_state() -> None:
    violations = []
    for module in MODULES:
        for statement in module.tree.body:
            names, value = _assigned(statement)
            # Constants shout; __all__ and its like belong to the language.
            state = [name for name in names if not name.isupper() and not name.startswith("__")]
            if state and _is_mutable(value):
                violations.append(f"{module.path}:{statement.lineno}: {', '.join(state)}")
        violations += [
            f"{module.path}:{node.lineno}: {ast.unparse(node)}"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Global)
        ]
    assert not violations, show(violations)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_every_module_says_what_it_is(module: Module) -> None:
    assert ast.get_docstring(module.tree)


def test_every_floor_is_a_package() -> None:
    floors = {module.floor for module in MODULES if module.floor}
    assert [
        floor for floor in sorted(floors) if not (PACKAGE / floor / "__init__.py").exists()
    ] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_files_and_functions_are_small(module: Module) -> None:
    assert len(module.text.splitlines()) <= MAX_FILE_LINES
    long = [
        f"{module.path}:{node.lineno}: {node.name} has {lines} lines"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.end_lineno is not None
        if (lines := node.end_lineno - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert not long, show(long)
