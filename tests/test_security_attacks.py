"""Attacks that once worked, over real sockets: each test is what the attacker did."""

import re

from tests._fakes import TCP, open_dial
from tests._site import ask_over_wire

QUIET = {"diag_interval_s": 0, "heartbeat_send_ms": 0, "heartbeat_expect_ms": 0}


async def test_a_reply_to_another_connection_cannot_be_forged_from_ones_own_session_id() -> None:
    """F16: ids are counted, so the neighbour's is one's own less one."""
    async with open_dial(TCP, **QUIET) as dial:
        victim, service = await dial.connect(), await dial.connect()
        mallory = await dial.open()
        own = int((await mallory.connect())["session"])
        await service.subscribe("/queue/ask")
        await victim.publish("/queue/ask", b"?", headers={"reply-to": "/temp-queue/replies"})
        public = (await service.receive())["reply-to"]
        for session in (own - 1, own - 2):
            await mallory.publish(f"/reply-queue/{session}.replies", b"forged", receipt=True)
        await service.publish(public, b"true")
        assert (await victim.receive()).body == b"true"
        # 96 bits in hexadecimal, anew for each name and each connection.
        assert re.fullmatch(r"/reply-queue/\d+-[0-9a-f]{24}\.replies", public)
        await victim.publish("/queue/ask", b"?", headers={"reply-to": "/temp-queue/others"})
        other = (await service.receive())["reply-to"]
        assert other.rpartition("-")[2].partition(".")[0] not in public


async def test_a_broker_that_hides_its_version_hides_it_on_its_page_too() -> None:
    """F23: the start page told version and listening address to everybody."""
    async with open_dial(TCP, **QUIET, hide_server=True) as dial:
        page = (await ask_over_wire(await dial.stream(), "/")).text
        assert dial.handle.addresses[0] not in page
        assert not re.search(r"trio_stomp (<small[^>]*>)?\d", page)
    async with open_dial(TCP, **QUIET) as dial:
        page = (await ask_over_wire(await dial.stream(), "/")).text
        assert dial.handle.addresses[0] in page
        assert re.search(r"<h2>trio_stomp \d", page)
