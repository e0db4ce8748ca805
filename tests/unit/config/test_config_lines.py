"""The positions of keys in a TOML file."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.config._toml_lines import Path, line_of, lines_of

TEXT = """\
# listen.port = 1
"port" = 1          # [listen]
a.b . "c d".'e"' = 2
[listen]
host = "port = 5 # no comment" # port = 6
text = '''
port = 7
[server]
''' # after it
more = \"\"\"
port = 8 \\\"\"\"
[[rule]] \"\"\"\"\"
port = 9
inline = { port = 10, deep = { x = [1, { y = 2 }] }, s = "},{" }

[ servers . "a.b" ] # a comment
list = [
  1, # two = 2
  "]", [ 3,
  { z = 4 }, ],
]
[[rule]]
to = 1
[rule.sub]
x = 1
[[rule]]
to = 2
[[rule.many]]
y = 1
[[rule.many]]
y = 2
[last]
when = 1979-05-27 07:32:00 # not, a } comma
"""

PLACES: dict[Path, int] = {
    ("port",): 2,
    ("a",): 3,
    ("a", "b"): 3,
    ("a", "b", "c d", 'e"'): 3,
    ("listen",): 4,
    ("listen", "host"): 5,
    ("listen", "text"): 6,
    ("listen", "more"): 10,
    ("listen", "port"): 13,
    ("listen", "inline"): 14,
    ("listen", "inline", "port"): 14,
    ("listen", "inline", "deep", "x", 1, "y"): 14,
    ("listen", "inline", "s"): 14,
    ("servers",): 16,
    ("servers", "a.b"): 16,
    ("servers", "a.b", "list"): 17,
    ("servers", "a.b", "list", 0): 18,
    ("servers", "a.b", "list", 1): 19,
    ("servers", "a.b", "list", 2, 1, "z"): 20,
    ("rule",): 22,
    ("rule", 0): 22,
    ("rule", 0, "to"): 23,
    ("rule", 0, "sub", "x"): 25,
    ("rule", 1): 26,
    ("rule", 1, "to"): 27,
    ("rule", 1, "many", 0, "y"): 29,
    ("rule", 1, "many", 1, "y"): 31,
    ("last", "when"): 33,
}


def paths_of(value: object, path: Path = ()) -> set[Path]:
    """All keys and places that a parsed document has."""
    found = {path} if path else set()
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= paths_of(inner, (*path, key))
    if isinstance(value, list):
        for number, inner in enumerate(value):
            found |= paths_of(inner, (*path, number))
    return found


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_each_key_has_its_line(end: str):
    text = TEXT.replace("\n", end)
    lines = lines_of(text)
    assert {path: lines.get(path) for path in PLACES} == PLACES
    assert set(lines) == paths_of(tomllib.loads(text))


def test_absent_key_is_located_by_the_enclosing_line():
    lines: dict[Path, int] = {("a",): 1, ("a", "b"): 2}
    assert line_of(lines, ("a", "b", "c")) == 2
    assert line_of(lines, ("a", "x")) == 1
    assert line_of(lines, ("x",)) == 0
    assert line_of({}, ()) == 0


@pytest.mark.parametrize(
    "text",
    [
        "a", "a = [", "a = [1", "a = [1 2]", "a = {b", "a = {b = 1", "[", "[a", "= 1", '"\\q" = 1',
        "]",
    ],
)  # fmt: skip
def test_invalid_toml_ends_the_search_without_an_error(text: str):
    assert set(lines_of(f"first = 1\n{text}")) >= {("first",)}


def test_deep_nesting_ends_the_search_without_an_error():
    lines = lines_of("first = 1\ndeep = " + "[" * 100_000)
    assert lines[("first",)] == 1


# Any document: written with many things that look like keys, and each key on a known line.

KEYS = st.text(st.sampled_from("ab =#.[]\"'{}é"), min_size=1, max_size=4)
STRINGS = st.text(st.sampled_from("ab =#.,[]\"'{}\\\n"), max_size=12)
SCALARS = st.integers() | st.booleans() | STRINGS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=4)


def quoted(text: str, style: int) -> str:
    if style == 1 and not set(text) & {"'", "\n"}:
        return f"'{text}'"
    if style == 2 and "'" not in text:
        return f"'''\n{text}'''"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if style == 3:
        return f'"""{escaped}"""'
    return '"' + escaped.replace("\n", "\\n") + '"'


def written(value: object, draw: st.DrawFn) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        pairs = [f"{quoted(key, 0)}= {written(inner, draw)}" for key, inner in value.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        space = draw(st.sampled_from([" ", "\n", " # x = 1, ]\n"]))
        return "[" + "".join(f"{space}{written(inner, draw)}{space}," for inner in value) + "]"
    return quoted(value, draw(st.integers(0, 3))) if isinstance(value, str) else str(value)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[Path, int]]:
    """A document, and the lines of its tables and of the keys in them."""
    text = ""
    places: dict[Path, int] = {}
    for table, content in draw(TABLES).items():
        text += draw(st.sampled_from(["", "\n", "# a = 1\n", "  # [x]\n\n"]))
        places[(table,)] = text.count("\n") + 1
        text += f"[{quoted(table, draw(st.integers(0, 1)))}] # b = 2\n"
        for key, value in content.items():
            text += draw(st.sampled_from(["", "\n", "  ", "#c = 3\n\t"]))
            places[(table, key)] = text.count("\n") + 1
            text += f"{quoted(key, draw(st.integers(0, 1)))} = {written(value, draw)}\n"
    return text, places


@given(documents())
def test_every_key_has_the_line_where_it_is_written(drawn: tuple[str, dict[Path, int]]):
    text, places = drawn
    lines = lines_of(text)
    assert {path: lines.get(path) for path in places} == places
    assert set(lines) == paths_of(tomllib.loads(text))


@given(st.text(st.sampled_from("ab =#.,[]\"'{}\\\n\r"), max_size=40))
def test_lines_of_arbitrary_text_are_within_it(text: str):
    lines = lines_of(text)
    assert all(0 < line <= text.count("\n") + 1 for line in lines.values())
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert set(lines) == paths_of(tables)
