"""Policies by destination from a TOML file.

    ["/topic/prices.>"]
    stream = true
    stream_max_age_ms = 3600000

    ["/queue/orders"]
    persistent = "always"

The first matching pattern counts, in the order of the file.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import attrs

from trio_stomp.base import OptionError
from trio_stomp.broker import DestinationPolicy, PolicyBook, read_policy
from trio_stomp.config._load import hint

Policies = tuple[tuple[str, DestinationPolicy], ...]


def read_policy_file(path: str) -> Policies:
    """Return the policies of a file, in order.

    Raises:
      OptionError: the file is wrong; the text names the file, the pattern, the field and the rule.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except OSError as error:
        raise OptionError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError) as error:  # TOML, UTF-8, digits or nesting
        raise OptionError(f"{path}: is no TOML: {error}") from None
    policies = []
    for pattern, values in tables.items():
        if not isinstance(values, dict):
            raise OptionError(
                f"{path}: {pattern} is outside of a table; write it under"
                ' ["/topic/name"], the pattern of destinations that it is for'
            )
        policies.append((pattern, _policy(path, pattern, values)))
    try:
        PolicyBook(tuple(policies))
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None
    return tuple(policies)


def _policy(path: str, pattern: str, values: Mapping[str, object]) -> DestinationPolicy:
    fields = attrs.fields_dict(DestinationPolicy)
    for name in values:
        if name not in fields:
            raise OptionError(
                f"{path}: policy {pattern!r}: unknown field {name!r}{hint(name, fields)};"
                f" there are {', '.join(fields)}"
            )
    try:
        return read_policy(pattern, values)
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None


def read_policy_table(
    location: str, pattern: str, values: Mapping[str, object], locations: Mapping[str, str]
) -> DestinationPolicy:
    """Return a policy of a settings file.

    Args:
      location: The position of its pattern.
      pattern: The pattern.
      values: The fields of the table.
      locations: The positions of the fields.

    Raises:
      OptionError: a field is wrong; the text names the position, the field and the rule.
    """
    for name, value in values.items():
        _policy(locations[name], pattern, {name: value})
    policy = _policy(location, pattern, values)
    try:
        PolicyBook(((pattern, policy),))
    except OptionError as error:
        raise OptionError(f"{location}: {error}") from None
    return policy
