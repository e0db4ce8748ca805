"""The compiled variant: its sources are ours, with attrs' classes written out."""

import ast
import importlib
import inspect
import re
import types
from pathlib import Path
from typing import Any

import attrs
import pytest
from _compiled.build import MODULES, SUBCLASSED
from _compiled.hatch_hook import SWITCH, CompileHook
from _compiled.plain_classes import CannotExpand, expand
from mypy_extensions import mypyc_attr

ROOT = Path(__file__).parents[2]
SOURCES = {name: (ROOT / name).read_text(encoding="utf-8") for name in MODULES}


def run_expanded(name: str) -> types.ModuleType:
    """A module of that file, as mypyc sees it, interpreted."""
    full = name.removesuffix(".py").replace("/", ".")
    module = types.ModuleType(full)
    vars(module)["mypyc_attr"] = mypyc_attr  # known to mypyc, and left out by it
    exec(compile(expand(SOURCES[name], SUBCLASSED), name, "exec"), module.__dict__)
    return module


def expanded(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(expand(text), found)
    return found


def classes_of(module: types.ModuleType) -> dict[str, type]:
    return {
        name: each
        for name, each in vars(module).items()
        if inspect.isclass(each) and each.__module__ == module.__name__
    }


@pytest.mark.parametrize("name", MODULES)
def test_expanded_constructors_have_the_parameters_of_attrs(name: str) -> None:
    source = ast.parse(SOURCES[name])
    ours = classes_of(run_expanded(name))
    attrs_classes = {
        each: made
        for each, made in classes_of(importlib.import_module(name[:-3].replace("/", "."))).items()
        if attrs.has(made)
    }
    if not attrs_classes:
        assert not any(
            isinstance(node, ast.ClassDef) and node.decorator_list for node in source.body
        )
    for each, made in attrs_classes.items():
        theirs = inspect.signature(made).parameters
        written = inspect.signature(ours[each]).parameters
        assert list(written) == list(theirs)
        for parameter, known in theirs.items():
            is_needed = known.default is inspect.Parameter.empty
            assert (written[parameter].default is inspect.Parameter.empty) == is_needed
        assert "__attrs_attrs__" not in vars(ours[each])


@pytest.mark.parametrize("name", MODULES)
def test_every_function_stays_on_its_line(name: str) -> None:
    def lines(source: str) -> dict[str, int]:
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        return {
            f"{node.name} {node.lineno}": node.lineno
            for node in ast.walk(ast.parse(source))
            if isinstance(node, functions)
        }

    before, after = lines(SOURCES[name]), lines(expand(SOURCES[name], SUBCLASSED))
    assert before.items() <= after.items()
    written = {each.split()[0] for each in after.keys() - before}
    assert written <= {"__init__", "__repr__", "__eq__", "__hash__"}


def test_defaults_are_made_for_each_object_anew() -> None:
    made = expanded(
        "from attrs import define, field\n"
        "@define(eq=False)\n"
        "class A:\n"
        '    """A class."""\n'
        "\n"
        "    x: int\n"
        "    y: list[int] = field(factory=list)\n"
        "    z: list[int] = field(factory=lambda: [1])\n"
        "    _n: int = 5\n"
        "    later: int = field(init=False, repr=False)\n"
        "    hidden: int = field(default=1, repr=hex)\n"
        "    always: str = field(default='a', init=False)\n"
        "    def __attrs_post_init__(self):\n"
        "        self.later = self.x + self._n\n"
    )["A"]
    first, second = made(1), made(2, [7], n=6)
    assert (first.y, first.z, first._n, first.later, first.always) == ([], [1], 5, 6, "a")
    assert (second.y, second.z, second._n, second.later) == ([7], [1], 6, 8)
    assert first.z is not second.z
    assert first != made(1)
    assert repr(first) == "A(x=1, y=[], z=[1], _n=5, hidden=0x1, always='a')"


def test_expanded_classes_compare_the_same_fields_as_attrs() -> None:
    found = expanded(
        "from attrs import define, frozen\n"
        "@frozen\n"
        "class A:\n"
        '    """A class, of which there\n'
        "    is more to say.\n"
        '    """\n'
        "\n"
        "    x: int\n"
        "    y: str\n"
        "@define\n"
        "class B:\n"
        '    """Another,\n'
        '    as well."""\n'
        "\n"
        "    x: int\n"
    )
    one, other = found["A"](1, "a"), found["B"](1)
    assert one == found["A"](1, "a") != found["A"](1, "b")
    assert hash(one) == hash(found["A"](1, "a"))
    assert other == found["B"](1) != one
    with pytest.raises(TypeError, match="unhashable"):
        hash(other)


def test_a_class_may_set_more_attributes_after_its_constructor_than_its_base() -> None:
    found = expanded(
        "from attrs import define, field\n"
        "@define(eq=False, repr=False)\n"
        "class A:\n"
        '    """A class."""\n'
        "    x: int\n"
        "    def __attrs_post_init__(self):\n"
        "        self.y = -self.x\n"
        "@define(eq=False, repr=False)\n"
        "class B(A):\n"
        "    z: int = field(init=False)\n"
        "    def __attrs_post_init__(self):\n"
        "        super().__attrs_post_init__()\n"
        "        self.z = self.x + 1\n"
    )
    made = found["B"](5)
    assert (made.x, made.y, made.z) == (5, -5, 6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('@define\nclass A(B):\n    """A."""\n\n    x: int\n', "A: has bases, and more"),
        ('@define\n@other\nclass A:\n    """A."""\n\n    x: int\n', "A: has other decorators"),
        ("@define\nclass A:\n    x: int\n", "A: has no docstring"),
        (
            '@define\nclass A:\n    """A."""\n    x: int\n',
            "A: its docstring has fewer than 3 lines",
        ),
        ('@define(eq=True)\nclass A:\n    """A."""\n', "A: eq can be False only"),
        ('@define(slots=False)\nclass A:\n    """A."""\n', "A: only eq, repr are known"),
        (
            '@define\nclass A:\n    """A."""\n\n    x: int = field(converter=int)\n',
            "A.x: only default, factory, init, repr are known",
        ),
    ],
)
def test_class_that_cannot_be_written_out_is_named(text: str, expected: str) -> None:
    with pytest.raises(CannotExpand) as caught:
        expand(text)
    assert str(caught.value).startswith(expected)


def _imported_from_elsewhere(tree: ast.Module) -> set[str]:
    """Return the names that are another project's, or a script's: not those of the package."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module
        for alias in node.names
        if node.module.partition(".")[0] != "trio_stomp"
    }


def test_classes_with_interpreted_subclasses_are_marked() -> None:
    compiled = {
        node.name: name
        for name, source in SOURCES.items()
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    }
    subclassed = set()
    for path in (*ROOT.glob("trio_stomp/**/*.py"), *ROOT.glob("tests/**/test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        others = _imported_from_elsewhere(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base) for base in node.bases}
                subclassed |= (bases & compiled.keys()) - others
    assert subclassed - {"Source"} == SUBCLASSED


def test_a_class_with_subclasses_is_marked_and_imports_nothing_for_it() -> None:
    found = expand(SOURCES["trio_stomp/frames/_decoder.py"], SUBCLASSED)
    assert "@mypyc_attr(allow_interpreted_subclasses=True)\nclass FrameDecoder:" in found
    assert found.count("mypy_extensions") == 1
    assert "if TYPE_CHECKING: from mypy_extensions import mypyc_attr" in found


# --- the wheel ------------------------------------------------------------------------------------


def hook(root: Path) -> CompileHook:
    metadata: Any = None
    return CompileHook(str(root), {}, None, metadata, str(root / "dist"), "wheel")


def data() -> dict[str, Any]:
    return {"force_include": {}, "pure_python": True, "infer_tag": False}


def test_a_wheel_is_of_python_alone_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for written in (None, "", "0"):
        if written is None:
            monkeypatch.delenv(SWITCH, raising=False)
        else:
            monkeypatch.setenv(SWITCH, written)
        result = data()
        hook(tmp_path).initialize("standard", result)
        assert result == data()
        assert hook(tmp_path).dependencies() == []


def test_a_compiled_wheel_has_the_libraries_beside_the_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = [Path("trio_stomp/a.so"), Path("all__mypyc.so")]
    copies: list[tuple[Path, Path]] = []

    def compile_nothing(source: Path, target: Path) -> list[Path]:
        assert not target.exists()
        target.mkdir(parents=True)
        copies.append((source, target))
        return libraries

    monkeypatch.setattr("_compiled.build.compile_copy", compile_nothing)
    monkeypatch.setenv(SWITCH, "1")
    for _ in range(2):  # the rest of an earlier build does not matter
        result = data()
        hook(tmp_path).initialize("standard", result)
    ((source, copy), *_) = copies
    assert source == tmp_path
    assert result["force_include"] == {str(copy / each): str(each) for each in libraries}
    assert (result["pure_python"], result["infer_tag"]) == (False, True)
    hook(tmp_path).finalize("standard", result, "x.whl")
    assert not copy.exists()


def test_compiling_requires_the_dependencies_and_a_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    needed = hook(ROOT).dependencies()
    assert {re.split("[<>=]", each)[0] for each in needed} >= {
        "trio",
        "attrs",
        "mypy",
        "setuptools",
    }


def test_an_editable_installation_cannot_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    with pytest.raises(SystemExit, match="install without -e"):
        hook(tmp_path).initialize("editable", data())
