"""The functions of ``Loop`` on Trio."""

import ssl
from typing import Any, cast

import trio

from trio_stomp.client.loops._loop import AsyncioConnector, Connector, Receiver, Sender, Stream


class TrioLoop:
    """Implements ``Loop`` on Trio."""

    broken = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
    would_block = trio.WouldBlock
    event = trio.Event
    parking_lot = trio.lowlevel.ParkingLot
    scope = trio.CancelScope
    move_on_after = staticmethod(trio.move_on_after)
    open_nursery = staticmethod(trio.open_nursery)
    current_time = staticmethod(trio.current_time)
    sleep = staticmethod(trio.sleep)
    sleep_until = staticmethod(trio.sleep_until)
    checkpoint = staticmethod(trio.lowlevel.checkpoint)
    checkpoint_if_cancelled = staticmethod(trio.lowlevel.checkpoint_if_cancelled)

    def open_channel(self, size: int) -> tuple[Sender[Any], Receiver[Any]]:
        """Implement ``Loop.open_channel``."""
        return trio.open_memory_channel[Any](size)

    async def connect(self, host: str, port: int, context: ssl.SSLContext | None) -> Stream:
        """Implement ``Loop.connect``."""
        stream = await trio.open_tcp_stream(host, port)
        if context is None:
            return stream
        try:
            secret = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
            await secret.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return secret

    async def call(self, connector: Connector | AsyncioConnector) -> Stream:
        """Implement ``Loop.call``."""
        return cast("trio.abc.Stream", await connector())

    async def close(self, stream: Stream) -> None:
        """Implement ``Loop.close``."""
        await trio.aclose_forcefully(cast("trio.abc.Stream", stream))
