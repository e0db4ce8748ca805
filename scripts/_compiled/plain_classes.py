"""attrs classes written out as plain ones, for mypyc, which compiles plain classes only.

The methods that attrs creates for ``@define class A: x: int`` at run time are written into its
source: an ``__init__`` in one line replaces the docstring, so that every other line keeps its
number and a traceback leads to the real source. Other features of attrs (``evolve``, weak
references) are left out.
"""

import ast
from collections.abc import Collection, Iterator
from typing import NamedTuple

DECORATORS = frozenset({"define", "frozen", "value"})
KNOWN_OPTIONS = frozenset({"eq", "repr"})
KNOWN_FIELD_OPTIONS = frozenset({"default", "factory", "init", "repr"})


class CannotExpand(Exception):
    """A class uses a feature that this module does not support: change either of them."""


class Field(NamedTuple):
    """One attribute: its type and its default, as source text."""

    name: str
    type: str
    default: str | None
    is_made: bool
    """The default comes from a factory, which makes a new one for each object."""
    is_argument: bool
    said: str = ""
    """The field's part of an f-string, for ``__repr__``."""

    @property
    def is_set_later(self) -> bool:
        """Return whether ``__init__`` does not set it."""
        return not self.is_argument and self.default is None

    @property
    def parameter(self) -> str:
        """Return the name of its parameter of ``__init__``: attrs removes the underscore."""
        return self.name.lstrip("_")


def expand(source: str, subclassed: Collection[str] = ()) -> str:
    """Return a module's source with its attrs classes written out.

    Args:
      source: A module that begins with a docstring.
      subclassed: Names of classes that code which is not compiled has subclasses of.

    Raises:
      CannotExpand: a class uses more of attrs than is known here; the message names it.
    """
    lines = source.split("\n")
    module = ast.parse(source)
    marked = False
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and (decorator := _decorator(node)) is not None:
            _Expansion(node, decorator, lines).write()
            if node.name in subclassed:
                lines[decorator.lineno - 1] = "@mypyc_attr(allow_interpreted_subclasses=True)"
                marked = True
    if marked:
        _import_marker(module, lines)
    return "\n".join(lines)


def _import_marker(module: ast.Module, lines: list[str]) -> None:
    """Import mypyc's marker for type checking only: nothing is imported at run time."""
    imports = [node for node in module.body if isinstance(node, ast.Import | ast.ImportFrom)]
    docstring, last = module.body[0].end_lineno, imports[-1].end_lineno
    assert docstring is not None
    assert last is not None
    lines[docstring] = "from typing import TYPE_CHECKING"
    lines[last] = "if TYPE_CHECKING: from mypy_extensions import mypyc_attr"


def _decorator(node: ast.ClassDef) -> ast.expr | None:
    for decorator in node.decorator_list:
        named = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(named, ast.Name) and named.id in DECORATORS:
            return decorator
    return None


class _Expansion:
    """One class, and the lines of its module."""

    def __init__(self, node: ast.ClassDef, decorator: ast.expr, lines: list[str]) -> None:
        self.node = node
        self.decorator = decorator
        self.lines = lines
        self.options = _options(decorator, KNOWN_OPTIONS, node.name)

    def write(self) -> None:
        for name, written in self.options.items():
            if ast.unparse(written) != "False":
                raise CannotExpand(f"{self.node.name}: {name} can be False only")
        if self.node.keywords or len(self.node.decorator_list) != 1:
            raise CannotExpand(f"{self.node.name}: has other decorators")
        fields = list(self._fields())
        if self.node.bases:
            self._inherit(fields)
            return
        methods = [self._init(fields)]
        if "repr" not in self.options:
            methods.append(self._repr(fields))
        if "eq" not in self.options:
            methods.append(self._eq(fields))
            if self.is_frozen:
                methods.append(self._hash(fields))
        free = self._free_lines()
        if len(free) < len(methods):
            raise CannotExpand(
                f"{self.node.name}: its docstring has fewer than {len(methods)} lines"
            )
        self._blank(self.decorator.lineno, self.decorator.end_lineno)
        self._blank(free[0], free[-1])
        for line, method in zip(free, methods, strict=False):
            self.lines[line - 1] = "    " * self._depth + method

    def _inherit(self, fields: list[Field]) -> None:
        """Keep the constructor of the base class, which sets all required fields."""
        if {"eq", "repr"} - self.options.keys() or any(not each.is_set_later for each in fields):
            name = self.node.name
            raise CannotExpand(f"{name}: has bases, and more than fields that are set later")
        self._blank(self.decorator.lineno, self.decorator.end_lineno)

    @property
    def is_frozen(self) -> bool:
        """Return whether attrs would make it hashable."""
        return ast.unparse(self.decorator).startswith("frozen")

    @property
    def _depth(self) -> int:
        return self.node.body[0].col_offset // 4

    def _free_lines(self) -> list[int]:
        """Return the lines of the docstring and the blank ones after it."""
        first = self.node.body[0]
        if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
            raise CannotExpand(f"{self.node.name}: has no docstring, so there is no line to spare")
        assert first.end_lineno is not None
        last = first.end_lineno
        while not self.lines[last].strip():
            last += 1
        return list(range(first.lineno, last + 1))

    def _fields(self) -> Iterator[Field]:
        for statement in self.node.body:
            if not isinstance(statement, ast.AnnAssign):
                continue
            assert isinstance(statement.target, ast.Name)
            kind = ast.unparse(statement.annotation)
            if isinstance(statement.annotation, ast.Constant):
                kind = str(statement.annotation.value)
            if kind.startswith("ClassVar"):
                continue
            yield self._field(statement.target.id, kind, statement.value)
            self._cut_value(statement)

    def _field(self, name: str, kind: str, value: ast.expr | None) -> Field:
        text = f"{name}={{self.{name}!r}}"
        if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "field"):
            default = None if value is None else ast.unparse(value)
            return Field(name, kind, default, is_made=False, is_argument=True, said=text)
        options = _options(value, KNOWN_FIELD_OPTIONS, f"{self.node.name}.{name}")
        factory = options.get("factory")
        if isinstance(factory, ast.Lambda):
            default = ast.unparse(factory.body)
        elif factory is not None:
            default = f"{ast.unparse(factory)}()"
        else:
            default = ast.unparse(options["default"]) if "default" in options else None
        if "repr" in options:
            shown = options["repr"]
            text = f"{name}={{{shown.id}(self.{name})}}" if isinstance(shown, ast.Name) else ""
        return Field(name, kind, default, factory is not None, "init" not in options, text)

    def _init(self, fields: list[Field]) -> str:
        parameters, body = ["self"], []
        for each in fields:
            if not each.is_argument:
                if each.default is not None:
                    body.append(f"self.{each.name} = {each.default}")
                continue
            quote = "'" if '"' in each.type else '"'
            given = each.parameter
            if each.is_made:
                parameters.append(f"{given}: {quote}{each.type} | None{quote} = None")
                given = f"{each.default} if {given} is None else {given}"
            elif each.default is None:
                parameters.append(f"{given}: {quote}{each.type}{quote}")
            else:
                parameters.append(f"{given}: {quote}{each.type}{quote} = {each.default}")
            body.append(f"self.{each.name} = {given}")
        methods = {node.name for node in self.node.body if isinstance(node, ast.FunctionDef)}
        if "__attrs_post_init__" in methods:
            body.append("self.__attrs_post_init__()")
        return f"def __init__({', '.join(parameters)}) -> None: {'; '.join(body) or 'pass'}"

    def _repr(self, fields: list[Field]) -> str:
        text = ", ".join(each.said for each in fields if each.said)
        return f"def __repr__(self) -> str: return f{f'{self.node.name}({text})'!r}"

    def _eq(self, fields: list[Field]) -> str:
        name = self.node.name
        same = " and ".join(f"self.{each.name} == other.{each.name}" for each in fields)
        return (
            f"def __eq__(self, other: object) -> bool: return isinstance(other, {name}) and {same}"
        )

    def _hash(self, fields: list[Field]) -> str:
        values = "".join(f"self.{each.name}, " for each in fields)
        return f"def __hash__(self) -> int: return hash(({values}))"

    def _cut_value(self, statement: ast.AnnAssign) -> None:
        """Remove the equals sign and the value from ``name: type = value``."""
        if statement.value is None:
            return
        line, column = statement.annotation.end_lineno, statement.annotation.end_col_offset
        assert line is not None
        kept = self.lines[line - 1].encode()[:column].decode()
        self._blank(line, statement.end_lineno)
        self.lines[line - 1] = kept

    def _blank(self, first: int, last: int | None) -> None:
        assert last is not None
        for line in range(first, last + 1):
            self.lines[line - 1] = ""


def _options(call: ast.expr, known: frozenset[str], where: str) -> dict[str, ast.expr]:
    """Return the keyword arguments of a call. Only those in ``known`` are supported."""
    if not isinstance(call, ast.Call):
        return {}
    options = {str(each.arg): each.value for each in call.keywords}
    if call.args or not known.issuperset(options):
        raise CannotExpand(f"{where}: only {', '.join(sorted(known))} are known, by keyword")
    return options
