"""The fuzz targets by name. ``make_target`` imports each in its own process."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from _fuzz.target import Target

MODULES: Mapping[str, str] = MappingProxyType(
    {
        "decoder-connect": "decoder",
        "decoder-1.0": "decoder",
        "decoder-1.1": "decoder",
        "decoder-1.2": "decoder",
        "encoder": "encoder",
        "nats": "nats",
        "session": "session",
        "websocket": "websocket",
        "handshake": "handshake",
        "sniff": "sniff",
        "proxy": "proxy",
        "configuration": "configuration",
        "policy-file": "policy_file",
        "users-file": "users_file",
        "acl-file": "acl_file",
        "rules": "rules",
        "credentials": "credentials",
        "tokens": "tokens",
        "selector": "selector",
        "wildcards": "wildcards",
        "journal": "journal",
        "stream-log": "stream_log",
    }
)
"""Name of the target → module here that makes it."""


def make_target(name: str) -> Target:
    """Import a target and the code under test.

    Raises:
      ModuleNotFoundError: the code under test, or a library that it needs, is not installed.
    """
    module = importlib.import_module(f"_fuzz.targets.{MODULES[name]}")
    target: Target = module.make(name)
    return target
