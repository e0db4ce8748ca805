"""Policies by destination from a file."""

from pathlib import Path

import pytest

from trio_stomp.base import OptionError
from trio_stomp.broker import DestinationPolicy
from trio_stomp.config import read_policy_file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policies.toml"


def test_policies_keep_the_order_of_the_file(file: Path) -> None:
    file.write_text('["/queue/orders"]\npersistent = "always"\n["/topic/>"]\nstream = true\n')
    assert read_policy_file(str(file)) == (
        ("/queue/orders", DestinationPolicy(persistent="always")),
        ("/topic/>", DestinationPolicy(stream=True)),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["/topic/a"]\nttl = 5\n', "unknown field 'ttl'"),
        ('["/topic/a"]\nttl_ms = "5"\n', "must be a whole number"),
        ('["/topic/a"]\noverflow = "burn"\n', "burn"),
        ("ttl_ms = 5\n", "ttl_ms is outside of a table"),
        ("[/topic/a]\n", "is no TOML"),
        ('["/topic/>.b"]\n', "/topic/>.b"),
        ('[""]\n', "must not be empty"),
    ],
)
def test_a_bad_file_is_named_with_the_rule(file: Path, text: str, expected: str) -> None:
    file.write_text(text)
    with pytest.raises(OptionError) as caught:
        read_policy_file(str(file))
    assert str(file) in str(caught.value)
    assert expected in str(caught.value)
