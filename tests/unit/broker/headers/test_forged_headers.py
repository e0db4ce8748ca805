"""Headers that claim to be the broker's word on the sender."""

from trio_stomp.broker.headers._plan import claims


def test_without_a_header_for_the_sender_nothing_is_claimed() -> None:
    headers = (("JMSXUserID", "alice"), ("jmsxuserid", "bob"))
    assert claims(headers, "") == ()
    assert claims(headers, "jmsxuserid") == headers
