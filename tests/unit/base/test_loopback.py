"""Addresses that only this machine reaches."""

import pytest

from trio_stomp.base import is_every_address, is_loopback


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


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "0", "0x0", "0.0", "::", "[::]", "::0", "0:0:0:0:0:0:0:0", "*"]
)
def test_spellings_of_all_addresses(host: str) -> None:
    assert is_every_address(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.0.0.1", "a", "localhost", "", "1"])
def test_other_addresses(host: str) -> None:
    assert not is_every_address(host)
