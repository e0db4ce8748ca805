"""The house rules that a program can check: floors, imports, state, sizes."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

PACKAGE = Path(__file__).parents[2] / "trio_stomp"
NAME = PACKAGE.name

# A floor imports only lower floors, or itself.
FLOORS = {
    "base": -1,
    "frames": 0,
    "protocol": 1,
    "store": 1,
    "broker": 2,
    "transport": 3,
    "security": 3,
    "nats": 3,
    "client": 4,
    "peer": 4,
    "server": 4,
    "cluster": 4,
    "diag": 5,
    "web": 5,
    "config": 6,
    "startup": 7,
    "cli": 8,
    "testing": 8,
}
SYNCHRONOUS = ("frames/", "protocol/", "broker/", "nats/codec/")

# The rooms of a floor, from the lowest: a module imports only lower rooms than its own, or its own,
# imports for type checking included. "" is the floor's own modules; others are named.
ROOMS = {
    "store": ("", "disk", "streams", "journal.format", "journal", "sql", "tools"),
    "broker": (
        *("names", "selectors", "headers", "rules", "delivery", "routing", "durability", "access"),
        *(
            "queues",
            "browsing",
            "streams",
            "topics",
            "explain",
            "sending",
            "managing",
            "subscribing",
            "",
        ),
    ),
    "transport": ("_options", "wire", "tls", "http", "websocket", ""),
    "client": ("_errors", "loops", ""),
    "server": ("_limits", "_clock", "_watchdog", "io", "connection", ""),
    "cli": (
        "process",
        "aliases",
        "",
        "commands",
        "commands._cluster",
        "commands._doctor",
        "commands._manage",
        "commands._top",
    ),
    "nats": ("codec", ""),
    "web": ("declared", "", "management.requests", "management"),
    "spark": (
        "_frames",
        "_address",
        "_client",
        "_types",
        "_columns",
        "_json",
        "_messages",
        "_rows",
        "lake",
        "",
        "format",
        "reporting",
        "running",
    ),
}

# A client of the broker, for other processes: of the floors it imports only the lowest, and no
# floor imports it, but the command that runs it.
APART = {"spark"}
FOR_APART = {"base", "frames"}
PLAYS_USERS = "spark/running/_demo.py"
"""It has clients of the broker like anybody's."""
COMMANDS_OF_APART = {"cli/commands/_tables.py", "cli/commands/_spark.py"}

FOR_ALL = {"_version", "_lazy", "base"}
FOR_NOBODY = {"__init__", "__main__"}

# Modules that ``config`` composes: the one use of another package's private module.
OPTION_MODULES = {"_limits", "_options", "_policies"}

# The synchronous core has no clock, no randomness, no sockets and no tasks.
FORBIDDEN_BELOW = {"trio", "socket", "ssl", "time", "random", "asyncio", "threading"}
ALLOWED_BELOW = {("broker/topics/_stale.py", "trio")}

MUTABLE_LITERALS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
MUTABLE_CALLS = {"dict", "list", "set", "bytearray", "deque", "defaultdict", "OrderedDict"}

MAX_MODULES = 16
MAX_CIRCLE = 2
MAX_POSITIONAL, MAX_PARAMETERS = 5, 6
OF_COLUMNS = {"pack", "pack_into", "select", "agg", "Table"}
"""Functions that take a value for each column, of ``struct``, SQL and Spark."""
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 60

# A module below this size that only one module beside it imports is a section of that module.
MAX_SECTION_LINES = 100
# Members of a kind: one of several like modules, by folder.
KINDS = {
    "cli/commands/_manage": {"_cancel", "_change", "_definitions", "_explain", "_history"},
    "client/loops": {"_trio"},
    "spark/running": {"_report"},
}
ALONE = {
    "broker/_receipts": "RECEIPTs, beside the order of frames",
    "broker/delivery/_histogram": "figures, which are no state of a destination",
    "broker/managing/_sending": "one of the operations of operators",
    "spark/_tables": "what the face gives to users of Spark, whether they want the analysis or not",
    "spark/reporting/_style": "CSS, which is another language than that of the report",
}
"""Other sections that stay modules, and why."""


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


def test_separate_packages_import_no_floor_and_are_imported_by_none() -> None:
    violations = [
        f"{module.path}:{found.line}: imports {found.target}"
        for module in MODULES
        for found, rest in own_imports(module)
        if rest and rest[0] != module.floor
        if module.path not in COMMANDS_OF_APART
        if (module.floor in APART and rest[0] not in FOR_ALL | FOR_APART) or rest[0] in APART
        if (module.path, rest[0]) != (PLAYS_USERS, "client")
    ]
    assert not violations, show(violations)


def test_separate_packages_need_no_trio() -> None:
    code = "import sys, trio_stomp.base.schema; sys.exit('trio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_module_imports_the_top_of_the_package() -> None:
    violations = [
        f"{module.path}:{found.line}: imports {found.target}"
        for module in MODULES
        for found, rest in own_imports(module)
        if not rest or rest[0] in FOR_NOBODY
        if not found.typing_only
    ]
    assert not violations, show(violations)


def test_the_lowest_floor_imports_no_other() -> None:
    violations = [
        f"{module.path}:{found.line}: imports {found.target}"
        for module in MODULES
        if module.floor in FOR_ALL
        for found, rest in own_imports(module)
        if not rest or rest[0] not in FOR_ALL
    ]
    assert not violations, show(violations)


def test_private_modules_stay_in_their_package() -> None:
    """A room inside of a package may import that package's modules; others take from its face."""
    violations = [
        f"{module.path}:{found.line}: imports {found.target}; take it from {NAME}.{room}"
        for module in MODULES
        for found, rest in own_imports(module)
        if rest and len(rest) > 1 and is_module(rest) and rest[-1].startswith("_")
        if rest[-1] not in OPTION_MODULES
        if not module.path.startswith("/".join(rest[:-1]) + "/") and (room := ".".join(rest[:-1]))
        if module.path != f"{rest[0]}/__init__.py"
    ]
    assert not violations, show(violations)


def is_module(path: list[str]) -> bool:
    """Return whether a dotted path below the package is a module, not a package."""
    return PACKAGE.joinpath(*path).with_suffix(".py").is_file()


def room_of(floor: str, path: list[str]) -> int:
    """Return the place of a module, or of a package's face, in the order of its floor's rooms."""
    dotted = ".".join(path)
    fitting = [room for room in ROOMS[floor] if not room or f"{dotted}.".startswith(f"{room}.")]
    return ROOMS[floor].index(max(fitting, key=len))


def parts_of(module: Module) -> list[str]:
    """Return a module's dotted path below the package; a face's is its package."""
    parts = module.path.removesuffix(".py").split("/")
    return parts[:-1] if parts[-1] == "__init__" else parts


def test_a_room_imports_only_lower_rooms() -> None:
    violations = [
        f"{module.path}:{found.line}: imports {found.target}"
        for module in MODULES
        if module.floor in ROOMS and module.path != f"{module.floor}/__init__.py"
        for found, rest in own_imports(module)
        if rest and rest[0] == module.floor
        if room_of(rest[0], rest[1:]) > room_of(rest[0], parts_of(module)[1:])
    ]
    assert not violations, show(violations)


def test_no_test_imports_another_and_no_script_a_test() -> None:
    """Shared code of tests is in tests/support, or in tests/interop."""
    line = re.compile(
        r"^\s*(?:from|import) (?:tests\.(?!support|interop)|tests import|test_)\S*", re.M
    )
    found = [
        f"{file.relative_to(PACKAGE.parent)}: {match[0].strip()}"
        for folder in ("tests", "scripts")
        for file in sorted((PACKAGE.parent / folder).rglob("*.py"))
        for match in line.finditer(file.read_text(encoding="utf-8"))
    ]
    assert found == []


def circles() -> Iterator[list[str]]:
    """Yield the sets of modules that import each other, those for type checking included.

    A name that is taken from a package's face counts as an import of the module that defines it.
    """
    faces = {".".join([NAME, *parts_of(module)]): module for module in MODULES}
    arrows = {
        name: {
            target
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
            if (target := home(faces, node.module, alias.name)) and target != name
        }
        for name, module in faces.items()
        if not module.path.endswith("__init__.py")
    }
    reach = {name: reached(arrows, name) for name in arrows}
    seen: set[str] = set()
    for name in sorted(arrows):
        circle = sorted(other for other in reach[name] if name in reach.get(other, ()))
        if name in circle and name not in seen:
            seen.update(circle)
            yield circle


def home(faces: dict[str, Module], package: str, name: str) -> str:
    """Return the module that defines a name of a package or module; "" if not ours."""
    if f"{package}.{name}" in faces:
        return f"{package}.{name}"
    module = faces.get(package)
    if module is None:
        return ""
    if not module.path.endswith("__init__.py"):
        return package
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return home(faces, node.module, alias.name)
    return ""


def reached(arrows: dict[str, set[str]], name: str) -> set[str]:
    """Return all that a module imports, directly or not."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        fresh = arrows.get(ahead.pop(), set()) - found
        found |= fresh
        ahead += fresh
    return found


def test_circles_of_imports_are_small() -> None:
    large = [circle for circle in circles() if len(circle) > MAX_CIRCLE]
    assert not large, show([" ".join(circle) for circle in large])


def sections() -> set[str]:
    """Return the small modules with exactly one importer, which is in the same folder.

    Faces do not count as importers: they name what a module gives to others.
    """
    importers: dict[str, set[str]] = {}
    for module in MODULES:
        if not module.path.endswith("__init__.py"):
            path = module.path.removesuffix(".py")
            for _, rest in own_imports(module):
                importers.setdefault("/".join(rest), set()).add(path)
    return {
        path
        for module in MODULES
        if (path := module.path.removesuffix(".py")) in importers
        if module.text.count("\n") < MAX_SECTION_LINES
        if len(found := importers[path] - {path}) == 1
        if Path(*found).parent == Path(path).parent
    }


def test_no_module_is_a_section_of_its_only_importer() -> None:
    """A module that is read with its only importer belongs into it, unless there is a reason."""
    kinds = {f"{folder}/{name}" for folder, names in KINDS.items() for name in names}
    known = kinds | ALONE.keys()
    assert len(ALONE) <= 12
    assert sorted(sections() - known) == []
    assert sorted(known - sections()) == []  # remove these from the tables


def test_no_folder_has_many_modules() -> None:
    folders = {file.parent for file in PACKAGE.rglob("*.py")}
    counts = {
        folder.relative_to(PACKAGE).as_posix(): len(list(folder.glob("[!_]*.py")))
        + len([file for file in folder.glob("_*.py") if file.stem not in FOR_NOBODY])
        for folder in folders
    }
    assert {folder: count for folder, count in counts.items() if count > MAX_MODULES} == {}


def test_no_room_hides_a_public_name() -> None:
    """``trio_stomp.run`` is a function: a package of that name would take its place."""
    for module in MODULES:
        if module.path.endswith("__init__.py"):
            rooms = {p.parent.name for p in (PACKAGE / module.path).parent.glob("*/__init__.py")}
            assert not rooms & public_names(module), module.path


def public_names(module: Module) -> set[str]:
    """Return the names that a face takes from modules."""
    return {
        alias.asname
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }


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
        if module.path.startswith(SYNCHRONOUS)
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
        if module.path.startswith(SYNCHRONOUS)
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
def test_every_module_has_a_docstring(module: Module) -> None:
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


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_calls_name_their_arguments(module: Module) -> None:
    """A call with many arguments by position does not say which is which."""
    violations = [
        f"{module.path}:{node.lineno}: {ast.unparse(node.func)} has {len(node.args)} by position"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and len(node.args) > MAX_POSITIONAL
        if ast.unparse(node.func).split(".")[-1] not in OF_COLUMNS
    ]
    assert not violations, show(violations)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_functions_of_the_core_take_few_parameters(module: Module) -> None:
    violations = [
        f"{module.path}:{node.lineno}: {node.name} takes {', '.join(names)}"
        for node in ast.walk(module.tree)
        if module.floor in ("frames", "protocol", "broker")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for names in [[each.arg for each in (*node.args.args, *node.args.kwonlyargs)]]
        if len([each for each in names if each not in ("self", "cls")]) > MAX_PARAMETERS
    ]
    assert not violations, show(violations)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_docstrings_name_arguments_that_there_are(module: Module) -> None:
    """A rename that forgets ``Args:`` leaves a reader with a name that is nowhere."""
    violations = [
        f"{module.path}:{node.lineno}: {node.name} has no {name}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if (there := arguments(node))
        for name in documented(ast.get_docstring(node) or "")
        if name not in there
    ]
    assert not violations, show(violations)


def arguments(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the arguments of a function, or the fields of a class."""
    if isinstance(node, ast.ClassDef):
        fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
        return {each.id.lstrip("_") for each in fields if isinstance(each, ast.Name)}
    every = ast.walk(node.args)
    return {each.arg for each in every if isinstance(each, ast.arg)}


def documented(docstring: str) -> list[str]:
    """Return the names in the ``Args:`` of a docstring."""
    _, _, block = docstring.partition("Args:\n")
    return re.findall(r"^  (\w+):", block.partition("\n\n")[0], re.MULTILINE)


LATE_JOINS = {
    "broker/_broker.py": ["self.manager.core"],
    "broker/_assembly.py": ["setup.memory.quota_percent"],
}
"""Attributes that are set on a part of the core after it was made, as docs/design.md tells."""


def test_parts_of_the_core_are_complete_when_they_are_made() -> None:
    """Where the core is put together, nothing is set on a part from outside."""
    for path, known in LATE_JOINS.items():
        (module,) = [each for each in MODULES if each.path == path]
        found = [
            ast.unparse(target)
            for assembly in ast.walk(module.tree)
            if isinstance(assembly, ast.FunctionDef)
            if path.endswith("_assembly.py") or assembly.name == "__attrs_post_init__"
            for node in ast.walk(assembly)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Attribute)
            if not (isinstance(target.value, ast.Name) and target.value.id == "self")
        ]
        assert found == known
