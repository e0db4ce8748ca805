"""Looking at queues without consuming."""

from collections import deque

from attrs import define, field

from trio_stomp.broker._consumer import Consumer
from trio_stomp.broker._message import Message
from trio_stomp.broker._queue import Queue
from trio_stomp.frames import encode_header


@define(eq=False, repr=False)
class Browse:
    """What one browser still has to be shown: its queues as they were when it came.

    A message that has been consumed meanwhile is shown all the same, as JMS allows.
    """

    consumer: Consumer
    queues: list[Queue]
    tells_end: bool
    _left: deque[tuple[Queue, Message]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._left = deque(
            (queue, message) for queue in self.queues for message in queue.waiting.in_order()
        )

    def go_on(self, now: float) -> bool:
        """Show more, as far as there is room; whether it has been shown everything."""
        outbox = self.consumer.subscription.outbox
        while self._left:
            if not outbox.has_room():
                return False
            queue, message = self._left.popleft()
            if message.publication.expires_at > now and self.consumer.wants(message):
                self.consumer.show(queue, message)
        if self.tells_end:
            outbox.stage_frame(self._end_marker())
        return True

    def _end_marker(self) -> bytes:
        subscription = self.consumer.subscription
        rules = subscription.client.rules
        number = self.consumer.fan_out.number(1)
        where = encode_header("destination", subscription.places[0][0], rules)
        return b"%b%d\n%bbrowser:end\n\n\0" % (subscription.prefix, number, where)
