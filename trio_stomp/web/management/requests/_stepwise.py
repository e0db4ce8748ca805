"""Operations that take many turns.

An operation is a task of the connection that requested it, and ends when the connection does. With
``Accept: application/x-ndjson`` the answer has a line of JSON every half second, and one for the
result; otherwise it is the result.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio
from attrs import define

from trio_stomp.base import ProtocolError
from trio_stomp.broker import InSteps, Step
from trio_stomp.web._query import Query
from trio_stomp.web._site import Rights
from trio_stomp.web.management.requests._items import Items
from trio_stomp.web.management.requests._parameters import as_http
from trio_stomp.web.management.requests._result import Answering, Record

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.server import Send, Server

T = TypeVar("T", bound=InSteps)

PROGRESS_S = 0.5
"""Interval of lines about the progress."""
LATER_S = 0.005
"""Pause of an operation while the queue or the store is not ready for its next step."""


def messages(operation: InSteps) -> str:
    """Return how many messages an operation dealt with, such as ``1 message``."""
    return f"{operation.done} message{'s' * (operation.done != 1)}"


@define(eq=False, repr=False, kw_only=True)
class Stepwise(Generic[T]):
    """An operation in steps. Implements ``WebOperation``.

    Args:
      server: The server, whose dispatcher takes the steps, and whose core records the event.
      query: The query.
      rights: The rights that the operation requires.
      begin: Begins the operation, given the user and the parsed body of the request, in a turn. May
        raise ``ProtocolError``.
      result: Returns the fields of the result.
      items: The list of the result, if it has one.
      parse: Parses the body in a thread. May raise ``ProtocolError``.
      event: The name of the event; "" if the operation changes nothing.
      max_body_bytes: The maximum size of the body of the request; 0 if it has none.
      place: The destination that the event names.
      detail: Returns the detail of the event.
    """

    server: "Server"
    query: Query
    rights: Rights
    begin: "Callable[[Identity, Any], T]"
    result: Callable[[T], Record]
    items: Items | None = None
    parse: Callable[[bytes], object] = bytes
    event: str = ""
    max_body_bytes: int = 0
    place: str = ""
    detail: Callable[[T], str] = messages

    async def run(self, identity: "Identity", send: "Send", body: bytes = b"") -> None:
        """Implement ``WebOperation.run``."""
        act = partial(self.server.act, identity, self.rights)
        answering = Answering.to(self.query.request, send)
        try:
            given: object = body
            if self.parse is not bytes:
                given = await trio.to_thread.run_sync(self.parse, body)
            operation = await act(lambda _now: self.begin(identity, given))
        except ProtocolError as error:
            raise as_http(error) from None
        try:
            await self._drive(operation, act, answering)
        except ProtocolError as error:
            operation.problem = error.without_traceback()  # the user or a right has gone
        finally:
            if self.items is not None:
                self.items.charge(0)
            self.server.dispatcher.call_soon(partial(self._end, operation, identity.name))
        if operation.problem is None:
            name = self.items.name if self.items is not None else ""
            await answering.end(self.result(operation), name=name)
        else:
            why = as_http(operation.problem)
            record = {**self.result(operation), "error": why.text, "code": why.code}
            await answering.end(record, why.status)

    async def _drive(
        self,
        operation: T,
        act: Callable[[Callable[[float], Step]], Awaitable[Step]],
        answering: Answering,
    ) -> None:
        """Take steps until the operation is done and stored."""
        told_at = trio.current_time()
        while True:
            woken = trio.Event()
            operation.woken = woken.set
            step, items = await act(operation.step), self.items
            if items is not None:
                await items.write(answering)
            if step is Step.DONE or (items is not None and items.is_full):
                return
            if step is Step.WAIT:
                await woken.wait()
            elif step is Step.LATER:
                await trio.sleep(LATER_S)
            if trio.current_time() - told_at >= PROGRESS_S:
                told_at = trio.current_time()
                figures = {"seen": operation.seen, "total": operation.total}
                await answering.progress({**self.result(operation), **figures})

    def _end(self, operation: T, user: str, now: float) -> None:
        operation.end(now)
        if self.event and operation.done:
            detail = self.detail(operation)
            self.server.broker.note_operation(self.event, self.place, user, detail)
