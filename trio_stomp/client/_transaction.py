"""A transaction, done as a whole at COMMIT or not at all."""

from collections.abc import Mapping

from attrs import define, field

from trio_stomp.client._awaited import Receipt
from trio_stomp.client._core import Core
from trio_stomp.client._errors import LinkLost
from trio_stomp.client._link import Link
from trio_stomp.client._message import Message
from trio_stomp.client._send import send_headers
from trio_stomp.frames import ABORT, BEGIN, COMMIT


@define(eq=False, repr=False)
class Transaction:
    """SENDs, ACKs and NACKs that take effect at COMMIT. It is lost with its connection.

    Args:
      name: The unique name of the transaction.
    """

    name: str
    receipt: Receipt | None = None
    """The RECEIPT of COMMIT, set at the end of the ``async with`` block."""
    _core: Core = field(kw_only=True)
    _link: Link | None = None
    _acknowledged: list[Message] = field(factory=list)

    async def send(
        self,
        destination: str,
        body: bytes | str = b"",
        *,
        headers: Mapping[str, str] | None = None,
        persistent: bool = False,
    ) -> None:
        """Send a message at COMMIT. This waits only for room to write.

        Args:
          destination: The destination.
          body: Text is sent as UTF-8.
          headers: Further headers, unescaped.
          persistent: Whether the message survives a restart.

        Raises:
          LinkLost: the transaction is lost.
          OptionError: a header cannot be sent.
        """
        data = body.encode() if isinstance(body, str) else body
        fields = send_headers(headers, persistent)
        link = await self._alive()
        link.write(link.frames.send(destination, data, fields, transaction=self.name))

    async def ack(self, message: Message) -> None:
        """Acknowledge a message at COMMIT.

        Raises:
          LinkLost: the transaction is lost.
          StaleMessage: the message arrived over an earlier connection.
        """
        await self._acknowledge(message, negative=False, requeue=True)

    async def nack(self, message: Message, *, requeue: bool = True) -> None:
        """Reject a message at COMMIT. Raises as ``Message.nack``, and LinkLost."""
        await self._acknowledge(message, negative=True, requeue=requeue)

    async def _acknowledge(self, message: Message, *, negative: bool, requeue: bool) -> None:
        await self._alive()
        subscription = message.subscription
        if subscription is not None and subscription.acknowledge(
            message, negative=negative, requeue=requeue, transaction=self.name
        ):
            self._acknowledged.append(message)

    async def _alive(self) -> Link:
        link = await self._core.ready()
        if link is not self._link:
            raise LinkLost(
                "the connection of this transaction ended, and the transaction was aborted"
            )
        return link

    async def begin(self) -> None:
        """Send BEGIN on the current connection."""
        self._link = link = await self._core.ready()
        link.write(link.frames.transact(BEGIN, self.name))

    async def commit(self) -> None:
        """Send COMMIT, and wait for its RECEIPT.

        Raises:
          LinkLost: the connection broke; if this was waiting, either all was done or nothing.
          ClientError: the broker refused; nothing was done.
        """
        await self._alive()
        self.receipt = await self._core.ask(
            lambda frames, receipt: frames.transact(COMMIT, self.name, receipt), again=False
        )

    def abort(self) -> None:
        """Send ABORT if still connected, and take back acknowledgements. Never waits."""
        link = self._link
        if link is not None and link is self._core.link:
            link.write(link.frames.transact(ABORT, self.name))
        for message in self._acknowledged:
            message.is_settled = False
