"""conf/trio_stomp.toml: complete, true, and made by the script."""

import importlib
import re
import tomllib
from pathlib import Path

from trio_stomp.config import Settings, load, options, read_acl_file

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "conf" / "trio_stomp.toml"
TEXT = SAMPLE.read_text(encoding="utf-8")
SET = re.compile(r"^#(?=\w)", re.MULTILINE)


def test_the_sample_equals_the_output_of_its_script():
    script = importlib.import_module("options_table")
    assert script.sample() == TEXT, "run: python scripts/options_table.py --write"


def test_as_it_is_it_sets_nothing():
    found = load(str(SAMPLE))
    assert (found.settings, found.given) == (Settings(), {})


def test_with_every_line_in_force_it_sets_the_defaults(tmp_path: Path):
    path = tmp_path / "x.toml"
    path.write_text(SET.sub("", TEXT))
    found = load(str(path))
    assert found.settings == Settings()
    assert list(found.given) == [spec.name for spec in options()]


def test_each_option_is_listed_with_its_help_and_liveness():
    blocks = {
        match.group(2): " ".join(match.group(1).replace("#", " ").split())
        for match in re.finditer(r"((?:^# .*\n)+)^#(\w+) = ", TEXT, re.MULTILINE)
    }
    assert list(blocks) == [spec.name for spec in options()]
    for spec in options():
        reported = blocks[spec.name]
        assert spec.help.rstrip(".")[1:] in reported
        assert reported.endswith("Live") is spec.live
        assert all(choice in reported for choice in spec.choices)
    assert "Why: images and documents pass, films do not" in blocks["max_body_bytes"]
    assert "In bytes: 16 MiB" in blocks["max_body_bytes"]
    assert "In milliseconds" in blocks["ttl_ms"]


def test_its_lines_are_not_too_long():
    assert max(map(len, TEXT.splitlines())) <= 100


def test_its_examples_are_valid(tmp_path: Path):
    """The last part, which is prose to the script: policies and rules."""
    examples = "\n".join(
        line.removeprefix("#   ") for line in TEXT.splitlines() if line.startswith("#   ")
    )
    examples = "\n".join(line for line in examples.splitlines() if not line.startswith("python -m"))
    assert set(tomllib.loads(examples)) == {"destinations", "groups", "certificates", "rule"}
    path = tmp_path / "x.toml"
    path.write_text(examples)
    settings = load(str(path)).settings
    assert settings.destinations[0][1].stream
    assert settings.rules is not None


def test_the_rules_of_the_example_file_may_stand_in_settings():
    acl = str(ROOT / "conf" / "acl.toml")
    assert load(acl).settings.rules == read_acl_file(acl)
