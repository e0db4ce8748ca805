"""Which version is spoken."""

import pytest

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.frames import V1_0, V1_1, V1_2, FrameLimits, HeaderRules
from trio_stomp.protocol import (
    STOMP_1_0,
    STOMP_1_1,
    STOMP_1_2,
    SUPPORTED,
    Codecs,
    Opened,
    ProtocolOptions,
    Refused,
    ServerSession,
    Version,
)

VERSIONS = (STOMP_1_0, STOMP_1_1, STOMP_1_2)


def negotiate(offered: str | None) -> Version:
    """Return the version that a session speaks to a client that offers some."""
    limits = FrameLimits(max_header_line_bytes=20_000, max_header_block_bytes=30_000)
    session = ServerSession(Codecs(limits, ProtocolOptions()), may_ask=False)
    line = "" if offered is None else f"accept-version:{offered}\n"
    (event,) = session.receive_data(f"CONNECT\n{line}host:h\n\n\0".encode())
    if isinstance(event, Refused):
        raise event.error
    assert isinstance(event, Opened)
    return event.version


@pytest.mark.covers("C03")
def test_a_client_that_names_no_version_speaks_1_0() -> None:
    assert negotiate(None) is STOMP_1_0


@pytest.mark.covers("C04")
@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("1.0", STOMP_1_0),
        ("1.1", STOMP_1_1),
        ("1.2", STOMP_1_2),
        ("1.0,1.1,2.0", STOMP_1_1),
        ("1.2,1.1,1.0", STOMP_1_2),
        ("1.0,1.2,1.1", STOMP_1_2),
        (" 1.1 , 1.0 ", STOMP_1_1),
        ("1.1,,1.1", STOMP_1_1),
        ("1.20,1.0", STOMP_1_0),
    ],
)
def test_the_highest_common_version_is_spoken(offered: str, chosen: Version) -> None:
    assert negotiate(offered) is chosen


@pytest.mark.parametrize(
    "offered", ["", ",", "2.0", "1", "1.1.1", "01.1", "1.1;1.2", "v1.2", "١.١"]
)
def test_no_common_version_is_an_error_that_names_the_supported_ones(offered: str) -> None:
    # C05, but for the version header, which the broker writes.
    with pytest.raises(ProtocolError) as caught:
        negotiate(offered)
    assert caught.value.code == "unsupported-version"
    assert caught.value.reason is CloseReason.UNSUPPORTED
    assert f"accept-version:{offered}" in caught.value.message
    assert SUPPORTED in caught.value.message


def test_a_very_long_offer_is_not_quoted_in_full() -> None:
    with pytest.raises(ProtocolError) as caught:
        negotiate("9" * 10_000)
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("version", "rules", "is_new"),
    [(STOMP_1_0, V1_0, False), (STOMP_1_1, V1_1, True), (STOMP_1_2, V1_2, True)],
)
def test_differences_between_versions(version: Version, rules: HeaderRules, is_new: bool) -> None:
    assert version.rules is rules
    assert version.name == rules.name
    assert version.needs_id is is_new
    assert version.heartbeats is is_new


def test_the_versions_are_ordered_and_their_indices_are_places() -> None:
    assert [version.index for version in VERSIONS] == [0, 1, 2]
    assert ",".join(version.name for version in VERSIONS) == SUPPORTED == "1.0,1.1,1.2"
