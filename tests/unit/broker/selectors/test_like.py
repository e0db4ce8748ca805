"""LIKE: against a matcher that follows the definition, and the work that it takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hostile import calls_of
from trio_stomp.broker.selectors._like import MAX_STEPS, like, share

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
def test_like_follows_its_definition(pattern: str, escape: str, text: str) -> None:
    assert like(pattern, escape).matches(text) is defined(pattern, escape, text)


@given(st.text("ab%__", min_size=20, max_size=90), st.text("ab", max_size=200))
def test_long_parts_are_found_where_they_first_fit(part: str, text: str) -> None:
    for pattern in (f"%{part}%", f"%{part}%b", f"a%{part}%"):
        assert like(pattern, "").matches(text) is defined(pattern, "", text)


@given(st.text("ab", min_size=128, max_size=300), st.integers(0, 50), st.data())
def test_a_long_part_that_is_there_is_found(text: str, start: int, data: st.DataObject) -> None:
    holes = data.draw(st.sets(st.integers(start, start + 64), min_size=1))
    segment = "".join("_" if place in holes else char for place, char in enumerate(text))
    assert like(f"%{segment[start : start + 65]}%", "").matches(text)


@given(st.text("aé\0\1ж\U0001f600?_%", max_size=8), st.text("aé\0\1ж\U0001f600?", max_size=9))
def test_characters_of_all_sizes_are_distinguished(pattern: str, text: str) -> None:
    for each in (pattern, f"%{pattern}_%"):
        assert like(each, "").matches(text) is defined(each, "", text)


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
        ("%_%_%", "ab", True),
        ("%_%_%", "a", False),
        ("%a_%_a%", "abca", True),
        ("%aé_%", "aab", False),
        ("%\1_%", "é\1a", True),
        ("%\1_%", "éa\1", False),
    ],
)
def test_like_matches_at_the_edges_of_a_text(pattern: str, text: str, expected: bool) -> None:
    assert like(pattern, "").matches(text) is expected


def test_the_escape_stands_for_itself_before_anything_else() -> None:
    assert like("x%y", "x").matches("%y")
    assert like("xxy", "x").matches("xy")
    assert like("xay", "x").matches("xay")
    assert like("ax", "x").matches("ax")


@pytest.mark.parametrize(
    "pattern",
    ["%a" * 2000 + "%a", "%_" * 2000 + "%a", "%" + "a_" * 30 + "b%", "%" + "a" * 4000 + "b%a"],
)
def test_the_work_is_a_search_for_each_part(pattern: str) -> None:
    made, text = like(pattern, ""), "a" * 16_000
    steps = len(pattern) // 2 + pattern.count("%")
    assert calls_of(lambda: made.matches(text)) < 8 * steps + 20


class TestBounds:
    """A match that is too expensive is UNKNOWN, and costs nothing."""

    @pytest.mark.parametrize(
        ("patterns", "longest"),
        [
            (["%a%"], MAX_STEPS // 3),
            (["%a%b%c%"], MAX_STEPS // 3),
            (["%a%", "%b%"], 16 * 1024),  # whole headers, as long as they may be by default
            (["%a%"] * 8, 4 * 1024),
            (["%a_b%"], MAX_STEPS // 2),
            (["%a_b%ab%_%"], MAX_STEPS // 5),
            ([f"%{'_' * 63}b{number}%" for number in range(8)], MAX_STEPS // 16),
        ],
    )
    def test_all_patterns_of_a_selector_share_it(self, patterns: list[str], longest: int) -> None:
        made = [like(pattern, "") for pattern in patterns]
        share(made)
        for each in made:
            assert each.most_chars == longest
            assert each.matches("c" * longest) is False
            assert each.matches("c" * longest + "c") is None

    @pytest.mark.parametrize("pattern", ["a%", "%a", "a%a", "a_%_a", "a", "a_" * 100_000])
    def test_anchored_pattern_is_decided_whatever_the_length_of_the_text(
        self, pattern: str
    ) -> None:
        made = like(pattern, "")
        assert made.steps == 0
        text = "a" * 200_000
        assert made.matches(text) is (pattern != "a")
        assert made.matches("b" + text + "b") is False

    def test_wrong_prefix_or_suffix_does_not_match(self) -> None:
        made = like("a%b%c", "")
        assert made.matches("x" * 1_000_000) is False
        assert made.matches("a" + "x" * 1_000_000 + "c") is None

    def test_places_of_any_characters_alone_cost_nothing(self) -> None:
        made = like("%_%__%", "")
        assert made.steps == 0
        assert made.matches("x" * 1_000) is True
