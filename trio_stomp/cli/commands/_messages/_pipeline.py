"""Sending many messages without waiting for each answer."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

import trio
from attrs import define, field

from trio_stomp.base import OptionError
from trio_stomp.cli._lines import Outgoing

Answer = TypeVar("Answer")

AT_ONCE, BYTES_AT_ONCE = 256, 16 * 1024 * 1024
"""Limits of messages whose answers have not arrived, in number and bytes."""


@define(eq=False)
class _Window:
    """Limits the number and bytes of unconfirmed messages."""

    count: int = 0
    bytes: int = 0
    _change: trio.Event = field(factory=trio.Event)

    async def enter(self, size: int) -> None:
        """Wait until there is room for a message."""
        while self.count >= AT_ONCE or (self.count and self.bytes + size > BYTES_AT_ONCE):
            await self._change.wait()
        self.count += 1
        self.bytes += size

    def leave(self, size: int) -> None:
        self.count -= 1
        self.bytes -= size
        self._change.set()
        self._change = trio.Event()


async def exchange_all(
    messages: AsyncIterator[Outgoing],
    exchange: Callable[[Outgoing], Awaitable[Answer]],
    note: Callable[[Outgoing, Answer], None],
) -> None:
    """Send messages in order, without waiting for each answer.

    Args:
      messages: The messages.
      exchange: Sends one and waits for its answer, such as a RECEIPT.
      note: Called with each message and its answer, in the order of the messages.

    Raises:
      OptionError: a message cannot be sent; those before it are confirmed.
      ClientError: the broker refused a message, or no answer arrived.
    """
    window, answers = _Window(), _InOrder(note)
    mistake: OptionError | None = None

    async def send(number: int, message: Outgoing, task_status: trio.TaskStatus[None]) -> None:
        # The starter continues when this task first waits: after the SEND was written.
        task_status.started()
        try:
            answers.take(number, message, await exchange(message))
        except OptionError as error:
            answers.mistake = answers.mistake or error
        window.leave(len(message.body))

    async with trio.open_nursery() as nursery:
        number = 0
        try:
            async for message in messages:
                await window.enter(len(message.body))
                if answers.mistake is not None:
                    break
                await nursery.start(send, number, message)
                number += 1
        except OptionError as error:
            mistake = error
    mistake = answers.mistake or mistake
    if mistake is not None:
        raise mistake


@define(eq=False)
class _InOrder(Generic[Answer]):
    """Reports answers in the order of the SENDs, since their tasks wake in any order."""

    note: Callable[[Outgoing, Answer], None]
    mistake: OptionError | None = None
    _next: int = 0
    _early: dict[int, tuple[Outgoing, Answer]] = field(factory=dict)

    def take(self, number: int, message: Outgoing, answer: Answer) -> None:
        self._early[number] = (message, answer)
        while (found := self._early.pop(self._next, None)) is not None:
            self._next += 1
            self.note(*found)
