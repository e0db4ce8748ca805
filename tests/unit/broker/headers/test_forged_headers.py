"""Headers that claim to be the broker's word on the sender."""

import pytest

from trio_stomp.broker.headers import dialect, make_plan
from trio_stomp.frames import Head

CLAIMS = (("JMSXUserID", "alice"), ("jmsxuserid", "bob"))


@pytest.mark.parametrize(("word", "claimed"), [("native", CLAIMS), ("stompica", ())])
def test_without_a_header_for_the_sender_nothing_is_claimed(
    word: str, claimed: tuple[tuple[str, str], ...]
) -> None:
    head = Head("SEND", (("destination", "/queue/a"), *CLAIMS), -1, "/queue/a")
    assert make_plan(head, dialect(word)).claims == claimed
