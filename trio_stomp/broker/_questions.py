"""SENDs to a stream's own name: each asks what the stream holds."""

from collections.abc import Callable

from attrs import define

from trio_stomp._errors import ProtocolError
from trio_stomp._memory import Quota
from trio_stomp.broker._delivery import Publication
from trio_stomp.broker._destination import STREAM, check_sendable
from trio_stomp.broker._dialect import Dialect
from trio_stomp.broker._overflow import Overflow
from trio_stomp.broker._route import RouteTable
from trio_stomp.broker._send_options import SendOptions
from trio_stomp.broker._streams import Streams
from trio_stomp.frames import FrameRun, Head


@define(eq=False, repr=False)
class Questions:
    """Answers them, to where they say.

    Args:
      send: Sends a run that has no sender, for whom; how many of its messages were taken.
    """

    dialect: Dialect
    routes: RouteTable
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
                f"destination:{name[:80]} is a stream, which is sent to by its topic's name; a"
                " SEND here asks what the stream holds, and needs reply-to",
            )
        check_sendable(options.reply_to, self.dialect.wildcards)
        self.streams.find(name, self.routes.open)

    def answer(self, publication: Publication, now: float) -> None:
        """Answer each message of a run."""
        options, name = publication.options, publication.route.name
        assert options is not None
        headers, body = self.streams.answer(self.streams.find(name, self.routes.open))
        correlation = publication.head.get("correlation-id")
        if correlation is not None:
            headers = (*headers, ("correlation-id", correlation))
        told = (("destination", options.reply_to), ("content-type", "application/json"), *headers)
        bodies = [body] * len(publication.bodies)
        run = FrameRun(Head("SEND", told, len(body), options.reply_to), bodies, [])
        self.overflow.send_quietly(lambda: self.send(run, publication.quota, now))
