"""Requests for the bounds of a stream: SENDs to its name."""

from collections.abc import Callable
from contextlib import suppress

from attrs import define

from trio_stomp.base import ProtocolError, Quota
from trio_stomp.broker.delivery import Publication
from trio_stomp.broker.headers import Dialect, SendOptions
from trio_stomp.broker.names import STREAM, check_sendable
from trio_stomp.broker.routing import Destinations
from trio_stomp.broker.streams._streams import Streams
from trio_stomp.frames import FrameRun, Head


@define(eq=False, repr=False)
class StreamQueries:
    """Answers requests for the bounds of streams.

    Args:
      dialect: The dialect of the broker.
      destinations: All destinations.
      streams: All streams.
      send: Sends a run of the broker, charged to a quota. Returns the number of messages accepted.
    """

    dialect: Dialect
    destinations: Destinations
    streams: Streams
    send: Callable[[FrameRun, Quota | None, float], int]

    def check(self, name: str, options: SendOptions | None) -> None:
        """Check a SEND to a stream.

        Raises:
          ProtocolError: It has no valid ``reply-to``, or there is no such stream.
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
        """Answer each message of a run, to ``reply-to``."""
        options, name = publication.options, publication.destination.name
        assert options is not None
        headers, body = self.streams.answer(self.streams.find(name, self.destinations.open))
        correlation = publication.head.get("correlation-id")
        if correlation is not None:
            headers = (*headers, ("correlation-id", correlation))
        fields = (("destination", options.reply_to), ("content-type", "application/json"), *headers)
        bodies = [body] * len(publication.bodies)
        run = FrameRun(Head("SEND", fields, len(body), options.reply_to), bodies, [])
        with suppress(ProtocolError):
            self.send(run, publication.quota, now)
