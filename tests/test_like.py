"""LIKE: against a matcher that follows the definition, and the work that it takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests._hostile import calls_of
from trio_stomp.broker._like import SHORT, like

CHARS = "ab%_.\n"


def defined(pattern: str, escape: str, text: str) -> bool:
    """By the definition, a table of which prefixes match which."""
    parts: list[str | None] = []  # None = %, "" = _
    place = 0
    while place < len(pattern):
        char = pattern[place]
        if char == escape and pattern[place + 1 : place + 2] in ("%", "_", escape):
            place += 1
            parts.append(pattern[place])
        else:
            parts.append(None if char == "%" else "" if char == "_" else char)
        place += 1
    reached = {0}
    for part in parts:
        if part is None:
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
        else:
            reached = {
                each + 1 for each in reached if each < len(text) and part in ("", text[each])
            }
    return len(text) in reached


@given(
    st.text(CHARS, max_size=12), st.sampled_from(["", "\\", "a", "%"]), st.text(CHARS, max_size=12)
)
def test_it_is_what_the_definition_says(pattern: str, escape: str, text: str) -> None:
    assert like(pattern, escape)(text) is defined(pattern, escape, text)


@given(st.text("ab_", min_size=SHORT + 1, max_size=SHORT + 9), st.text("ab", max_size=200))
def test_a_long_segment_is_found_where_it_first_fits(segment: str, text: str) -> None:
    for pattern in (f"%{segment}%", f"%{segment}%b", f"a%{segment}%"):
        assert like(pattern, "")(text) is defined(pattern, "", text)


@given(st.text("ab", min_size=SHORT * 2, max_size=300), st.integers(0, 50), st.data())
def test_a_long_segment_that_is_there_is_found(text: str, start: int, data: st.DataObject) -> None:
    holes = data.draw(st.sets(st.integers(start, start + SHORT), min_size=1))
    segment = "".join("_" if place in holes else char for place, char in enumerate(text))
    assert like(f"%{segment[start : start + SHORT + 1]}%", "")(text)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("%", "", True),
        ("%%", "abc", True),
        ("a%a", "a", False),  # the same character is not both ends
        ("a_%_a", "abba", True),
        ("a_%_a", "aba", False),
        ("_", "\U0001f600", True),
        ("%\n%", "a\nb", True),
        ("_", "\n", True),
    ],
)
def test_the_edges(pattern: str, text: str, expected: bool) -> None:
    assert like(pattern, "")(text) is expected


def test_the_escape_stands_for_itself_before_anything_else() -> None:
    assert like("x%y", "x")("%y")
    assert like("xxy", "x")("xy")
    assert like("xay", "x")("xay")
    assert like("ax", "x")("ax")


@pytest.mark.parametrize(
    "pattern",
    ["%a" * 2000 + "%a", "%_" * 2000 + "%a", "%" + "a_" * 30 + "b%", "%" + "a" * 4000 + "b%a"],
)
def test_the_work_is_a_search_for_each_segment(pattern: str) -> None:
    matches, text = like(pattern, ""), "a" * 16_000
    assert calls_of(lambda: matches(text)) < 8 * pattern.count("%") + 20


def test_a_long_segment_with_holes_takes_a_step_a_character() -> None:
    matches = like("%" + "a_" * 2000 + "b%", "")
    assert calls_of(lambda: matches("a" * 16_000)) < 2 * 16_000 + 40
    assert not matches("a" * 4001)  # its b is missing
    assert matches("xy" + "a" * 4000 + "bz")
    assert not matches("a" * 3999 + "b")
