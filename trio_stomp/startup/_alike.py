"""Digests of the configuration that all nodes of a cluster share."""

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from attrs import asdict

from trio_stomp.config import Settings


def digests(settings: Settings) -> Mapping[str, str]:
    """Return the digests of a node's users, rules, policies and number of followers. Blocks.

    They depend on the contents of files, not on their names. Limits and certificates may differ.
    """
    security = settings.security
    files = {"passwd_file", "acl_file", "token_key_file", "token_jwks_file"}
    ways = {name: text for name, text in asdict(security).items() if name not in files}
    users = [security.passwd_file, security.token_key_file, security.token_jwks_file]
    rules = asdict(settings.rules, filter=_is_public) if settings.rules is not None else None
    return {
        "users": _digest(ways, *map(_content, users)),
        "rules": _digest(rules, _content(security.acl_file)),
        "policies": _digest(
            asdict(settings.broker),
            [(each, asdict(policy)) for each, policy in settings.destinations],
        ),
        "cluster_followers": _digest(settings.cluster.cluster_followers),
    }


def _is_public(field: object, _value: object) -> bool:
    return not getattr(field, "name", "").startswith("_")


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="latin-1") if path else ""
    except OSError:
        return ""  # as its option documents


def _digest(*parts: object) -> str:
    text = json.dumps(parts, sort_keys=True, default=_plain)
    return blake2b(text.encode(), digest_size=4).hexdigest()


def _plain(value: object) -> object:
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)
