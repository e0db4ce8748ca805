"""The flat list of options, and the way from flat names to ``Settings``."""

import attrs
import pytest

from trio_stomp.base import OptionError
from trio_stomp.broker.delivery import BrokerPolicies
from trio_stomp.config import ListenOptions, OptionSpec, Settings, build, from_text, options

SPECS = {spec.name: spec for spec in options()}


def test_flat_names_are_unique_over_the_groups() -> None:
    names = [spec.name for spec in options()]
    assert len(names) == len(set(names))


def test_options_keep_the_order_of_the_groups() -> None:
    groups = [spec.group for spec in options()]
    # Policies and rules are tables of the file, and sources are of all: no groups of options.
    tables = ("destinations", "rules", "sources")
    order = [field.name for field in attrs.fields(Settings) if field.name not in tables]
    assert list(dict.fromkeys(groups)) == order
    assert groups == sorted(groups, key=order.index)


@pytest.mark.parametrize("spec", options(), ids=lambda spec: spec.name)
def test_each_option_is_described_in_full(spec: OptionSpec) -> None:
    assert spec.help
    assert spec.type in (int, float, bool, str)
    assert type(spec.default) is spec.type
    assert spec.flag == "--" + spec.name.replace("_", "-")
    assert not spec.choices or spec.default in spec.choices


def test_a_spec_is_read_from_the_declaration() -> None:
    spec = SPECS["stale_overflow"]
    assert spec.group == "broker"
    assert spec.choices == ("drop-newest", "drop-oldest")
    assert SPECS["max_body_bytes"].flag == "--max-body-bytes"
    assert SPECS["max_body_bytes"].minimum == 1


def test_three_ways_to_the_same_settings() -> None:
    settings = Settings(listen=ListenOptions(port=0), broker=BrokerPolicies(ttl_ms=5000))
    assert build({"ttl_ms": 5000, "port": 0}) == settings
    assert Settings.of(port=0, ttl_ms=5000) == settings


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        settings.listen = ListenOptions()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("port", "61613", "a whole number"),
        ("port", 1.0, "a whole number"),
        ("port", True, "a whole number"),
        ("port", None, "a whole number"),
        ("port", -1, "0 or more"),
        ("port", 65_536, "65535 or less"),
        ("host", "", "a host name or an address"),
        ("host", b"::1", "text"),
        ("linger_s", "2", "a number"),
        ("linger_s", False, "a number"),
        ("linger_s", -0.5, "0.0 or more"),
        ("linger_s", float("nan"), "a finite number"),
        ("linger_s", float("inf"), "a finite number"),
        ("require_host", 1, "true or false"),
        ("stale_overflow", "drop", "one of drop-newest, drop-oldest"),
        ("max_body_bytes", 0, "1 or more"),
    ],
)
def test_bad_value_is_reported_with_option_and_rule(name: str, value: object, rule: str) -> None:
    with pytest.raises(OptionError) as caught:
        build({name: value})
    shown = str(value) if isinstance(value, float) else repr(value)
    assert str(caught.value) == f"{name} is {shown}, but must be {rule}"


def test_unknown_name_is_reported_with_the_nearest() -> None:
    with pytest.raises(OptionError) as caught:
        Settings.of(max_body_byte=5)
    message = str(caught.value)
    assert message == "unknown option 'max_body_byte'; did you mean max_body_bytes?"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "61613", 61613),
        ("port", "-1", -1),
        ("linger_s", "0.5", 0.5),
        ("linger_s", "2", 2.0),
        ("host", "::1", "::1"),
        ("require_host", "Yes", True),
        ("require_host", "false", False),
    ],
)
def test_text_is_read_in_the_type_of_the_option(name: str, text: str, value: object) -> None:
    read = from_text(SPECS[name], text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("port", "1e3", "a whole number"),
        ("port", "", "a whole number"),
        ("linger_s", "2s", "a number"),
        ("require_host", "maybe", "true or false"),
    ],
)
def test_text_of_another_type_is_refused(name: str, text: str, rule: str) -> None:
    with pytest.raises(OptionError) as caught:
        from_text(SPECS[name], text)
    assert str(caught.value) == f"{name} is {text!r}, but must be {rule}"


@pytest.mark.parametrize(
    "address", ["0.0.0.0:61614", "[::]:0", "*:1", "0:1", "[::0]:1", "10.0.0.1", "a:x"]
)
def test_an_address_at_which_no_node_can_be_reached_is_refused(address: str) -> None:
    with pytest.raises(OptionError, match="node_address is "):
        Settings.of(node_address=address)
