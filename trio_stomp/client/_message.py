"""One message, as the application gets it."""

import json
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

import trio
from attrs import define

from trio_stomp.protocol import Delivered

if TYPE_CHECKING:
    from trio_stomp.client._subscription import Subscription


@define(eq=False, repr=False)
class Message:
    """A message, and the means to acknowledge it.

    ``async with message:`` acknowledges it at the end of the block. If an exception leaves the
    block, it sends NACK and lets the exception pass. Where no acknowledgement is needed (``ack`` is
    ``auto``, answers to requests) it does nothing, as ``ack`` and ``nack`` do.
    """

    delivered: Delivered
    subscription: "Subscription | None" = None
    link_number: int = 0
    is_settled: bool = False
    """Whether it was acknowledged, either way: each message is, once; the first word counts."""
    _headers: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        size = len(self.delivered.body)
        return f"<Message {self.message_id} of {self.destination}, {size} bytes>"

    @property
    def body(self) -> bytes:
        """The body as it came."""
        return self.delivered.body

    @property
    def text(self) -> str:
        """The body as text.

        Raises:
          UnicodeDecodeError: it is not UTF-8; its sender's fault.
        """
        return self.delivered.body.decode()

    def json(self) -> Any:  # noqa: ANN401
        """Return the body as JSON.

        Raises:
          ValueError: it is none; its sender's fault.
        """
        return json.loads(self.delivered.body)

    @property
    def headers(self) -> Mapping[str, str]:
        """All headers. Of a repeated one the first counts."""
        if self._headers is None:
            self._headers = MappingProxyType(self.delivered.headers())
        return self._headers

    @property
    def destination(self) -> str:
        """The destination that it was sent to, as its sender spelled it."""
        return self.delivered.head.destination or ""

    @property
    def message_id(self) -> str:
        """The broker's name for this delivery."""
        return self.delivered.message_id

    @property
    def stream_offset(self) -> int | None:
        """Its offset in its stream, or None if it is of no stream."""
        return self.delivered.offset

    @property
    def redelivered(self) -> bool:
        """Return whether it was handed out before, perhaps to another consumer."""
        return self.delivered.head.get("redelivered") == "true"

    async def ack(self) -> None:
        """Acknowledge the message without waiting for the broker.

        It checks for cancellation, but lets no other task run.

        Raises:
          StaleMessage: the link that brought it is gone, and the subscription says ``raise``.
        """
        self.ack_nowait()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def nack(self, *, requeue: bool = True) -> None:
        """Reject the message. Does not wait for the broker.

        Args:
          requeue: Whether it is to be redelivered; else it becomes a dead letter.

        Raises:
          StaleMessage: as ``ack``.
          OptionError: STOMP 1.0 has no NACK.
        """
        self.nack_nowait(requeue=requeue)
        await trio.lowlevel.checkpoint_if_cancelled()

    def ack_nowait(self) -> None:
        """``ack`` without a checkpoint, for where nothing may be awaited."""
        if self.subscription is not None:
            self.subscription.acknowledge(self)

    def nack_nowait(self, *, requeue: bool = True) -> None:
        """``nack`` without a checkpoint."""
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
            # No await: the work of the block counts even if the task is being cancelled.
            self.subscription.acknowledge(self, negative=kind is not None, passes=kind is not None)
