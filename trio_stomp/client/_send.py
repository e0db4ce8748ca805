"""The headers of SEND, without the destination."""

from collections.abc import Mapping

Pairs = tuple[tuple[str, str], ...]

PERSISTENT: Pairs = (("persistent", "true"),)


def send_headers(headers: Mapping[str, str] | None, persistent: bool) -> Pairs:
    """Return the application's headers, and those for arguments of ``send``."""
    pairs = tuple(headers.items()) if headers else ()
    return PERSISTENT + pairs if persistent else pairs
