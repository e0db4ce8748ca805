"""Addresses that only this machine reaches."""

import pytest

from trio_stomp.base import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.0.0.9", True),
        ("::1", True),
        ("::1%lo", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("0.0.0.0", False),
        ("128.0.0.1", False),
        ("localhost", True),
        ("a.localhost", True),
        ("localhost.example", False),
        ("notlocalhost", False),
        ("127.0.0.1.example", False),
        # The address of another socket family, and of none.
        ("3", False),
        ("", False),
    ],
)
def test_only_addresses_and_names_of_this_machine_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
