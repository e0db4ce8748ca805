"""A received message."""

import json
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from attrs import define

from trio_stomp.client.loops import current_loop
from trio_stomp.protocol import Delivered

if TYPE_CHECKING:
    from trio_stomp.client._subscription import Subscription


@define(eq=False, repr=False)
class Message:
    """A received message, with methods to acknowledge it.

    ``async with message:`` sends ACK at the end of the block, or NACK if an exception leaves the
    block. If messages need no acknowledgement (``ack`` is ``auto``, replies to requests), this does
    nothing, and neither do ``ack`` and ``nack``.
    """

    delivered: Delivered
    subscription: "Subscription | None" = None
    link_number: int = 0
    is_settled: bool = False
    """Whether ACK or NACK was called; only the first call counts."""
    _headers: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        size = len(self.delivered.body)
        return f"<Message {self.message_id} of {self.destination}, {size} bytes>"

    @property
    def body(self) -> bytes:
        """The body as bytes."""
        return self.delivered.body

    @property
    def text(self) -> str:
        """The body as text.

        Raises:
          UnicodeDecodeError: it is not UTF-8, by its sender's fault.
        """
        return self.delivered.body.decode()

    def json(self) -> Any:  # noqa: ANN401
        """Return the body as JSON.

        Raises:
          ValueError: it is not JSON, by its sender's fault.
        """
        return json.loads(self.delivered.body)

    @property
    def headers(self) -> Mapping[str, str]:
        """All headers. Of a repeated header, the first value counts."""
        if self._headers is None:
            self._headers = MappingProxyType(self.delivered.headers())
        return self._headers

    @property
    def destination(self) -> str:
        """The destination, as its sender spelled it."""
        return self.delivered.head.destination or ""

    @property
    def message_id(self) -> str:
        """The id of the message, set by the broker."""
        return self.delivered.message_id

    @property
    def stream_offset(self) -> int | None:
        """The offset in its stream, or None outside a stream."""
        return self.delivered.offset

    @property
    def redelivered(self) -> bool:
        """Return whether it was delivered before, perhaps to another consumer."""
        return self.delivered.head.get("redelivered") == "true"

    async def ack(self) -> None:
        """Acknowledge the message without waiting for the broker.

        This checks for cancellation, but does not let other tasks run.

        Raises:
          StaleMessage: its connection has ended, and ``on_stale`` is ``raise``.
        """
        self.ack_nowait()
        await self._check()

    async def nack(self, *, requeue: bool = True) -> None:
        """Reject the message without waiting for the broker.

        Args:
          requeue: Whether to redeliver it; otherwise it becomes a dead letter.

        Raises:
          StaleMessage: as ``ack``.
          OptionError: STOMP 1.0 has no NACK.
        """
        self.nack_nowait(requeue=requeue)
        await self._check()

    async def _check(self) -> None:
        loop = current_loop() if self.subscription is None else self.subscription.loop
        await loop.checkpoint_if_cancelled()

    def ack_nowait(self) -> None:
        """Acknowledge the message without a checkpoint, for synchronous code."""
        if self.subscription is not None:
            self.subscription.acknowledge(self)

    def nack_nowait(self, *, requeue: bool = True) -> None:
        """Reject the message without a checkpoint."""
        if self.subscription is not None:
            self.subscription.acknowledge(self, negative=True, requeue=requeue)

    async def __aenter__(self) -> "Message":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.subscription is not None:
            # No await: the block's work is acknowledged even if the task is being cancelled.
            self.subscription.acknowledge(self, negative=kind is not None, passes=kind is not None)
