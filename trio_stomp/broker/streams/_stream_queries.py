"""SENDs to a stream's own name: each asks what the stream holds."""

from collections.abc import Callable

from attrs import define

from trio_stomp.base import ProtocolError, Quota
from trio_stomp.broker.delivery import Publication
from trio_stomp.broker.headers import Dialect, SendOptions
from trio_stomp.broker.names import STREAM, check_sendable
from trio_stomp.broker.queues import Overflow
from trio_stomp.broker.routing import Destinations
from trio_stomp.broker.streams._streams import Streams
from trio_stomp.frames import FrameRun, Head


@define(eq=False, repr=False)
class StreamQueries:
    """Answers them, to where they say.

    Args:
      send: Sends a run that has no sender, for whom; how many of its messages were taken.
    """

    dialect: Dialect
    destinations: Destinations
    streams: Streams
    overflow: Overflow
    send: Callable[[FrameRun, Quota | None, float], int]

    def check(self, name: str, options: SendOptions | None) -> None:
        """Refuse what is sent to a stream and asks nothing.

        Raises:
          ProtocolError: nobody can be answered, or there is no such stream.
        """
        if options is None or not options.reply_to or options.reply_to.startswith(STREAM):
            raise ProtocolError(
                "reserved-destination",
                f"destination:{name[:80]} is a stream; to publish, SEND to its topic; a SEND here "
                "requests the stream's bounds, and needs reply-to",
            )
        check_sendable(options.reply_to, self.dialect.wildcards)
        self.streams.find(name, self.destinations.open)

    def answer(self, publication: Publication, now: float) -> None:
        """Answer each message of a run."""
        options, name = publication.options, publication.destination.name
        assert options is not None
        headers, body = self.streams.answer(self.streams.find(name, self.destinations.open))
        correlation = publication.head.get("correlation-id")
        if correlation is not None:
            headers = (*headers, ("correlation-id", correlation))
        told = (("destination", options.reply_to), ("content-type", "application/json"), *headers)
        bodies = [body] * len(publication.bodies)
        run = FrameRun(Head("SEND", told, len(body), options.reply_to), bodies, [])
        self.overflow.send_quietly(lambda: self.send(run, publication.quota, now))
