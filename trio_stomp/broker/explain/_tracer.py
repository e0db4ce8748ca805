"""Live traces of frames: of one connection in both directions, or of SENDs to one destination.

A SEND to ``DIAG/trace`` starts a trace; frames appear on ``DIAG/event/trace`` and in the log. It
ends by itself. Bodies are shown as their size; if requested, their beginning is in the log, which
only the operator reads, while others may receive events. Secrets are never shown. Clients without a
trace have no overhead.
"""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError, noop
from trio_stomp.broker.delivery import Outbox
from trio_stomp.broker.headers import Dialect, excerpt_of, quote, resolve
from trio_stomp.broker.names import TRACE, check_public
from trio_stomp.frames import FRAME_END, FrameRun, excerpt
from trio_stomp.protocol import Event

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Client, Delivery, Timers
    from trio_stomp.broker.routing import BrokerEvents

MAX_TRACES = 8
MAX_SECONDS = 3600.0
DEFAULT_SECONDS = 60.0
MAX_FRAMES = 10_000
"""Limit of frames of a trace. Then it ends."""
MAX_BODY = 200
"""Limit of bytes of a body, if bodies are requested."""
KEYS = ("session", "destination", "seconds", "bodies", "stop")
IN, OUT = ">>>", "<<<"
"""Frames to the broker, and from it."""


@define(eq=False, repr=False)
class Trace:
    """One trace.

    Args:
      session: The session to trace, or "".
      destination: The destination to trace, or "".
      bodies: Write the beginning of bodies to the log.
      until: The end, in seconds of the broker's clock.
      left: The number of frames left.
    """

    session: str
    destination: str
    bodies: bool
    until: float
    left: int = MAX_FRAMES


@define(eq=False, repr=False)
class Tracer:
    """Runs traces, and publishes the frames."""

    events: "BrokerEvents"
    clients: "dict[Client, None]"
    timers: "Timers"
    dialect: Dialect
    traces: list[Trace] = field(factory=list)
    log: Callable[[str], None] = noop
    """Writes to the operator's log."""

    def read(self, text: str) -> dict[str, str]:
        """Parse the body of a SEND to ``DIAG/trace``.

        Raises:
          ProtocolError: The request is invalid.
        """
        request = _read(text)
        if destination := request.get("destination"):
            for name in resolve(destination, self.dialect):
                check_public(name)
        return request

    def ask(self, text: str, is_check: bool, now: float) -> None:
        """Start or stop traces, by the body of a SEND to ``DIAG/trace``, or only check it.

        Raises:
          ProtocolError: The request is invalid, or there are too many traces.
        """
        request = self.read(text)
        session, destination = request.get("session", ""), request.get("destination", "")
        stops = bool(request.get("stop"))
        same = [
            each
            for each in self.traces
            if (each.session, each.destination) == (session, destination)
        ]
        if not stops and len(self.traces) - len(same) >= MAX_TRACES:
            raise _invalid(f"{MAX_TRACES} traces run already; stop one")
        client = next((each for each in self.clients if each.session_id == session), None)
        if session and client is None and not stops:
            raise _invalid(f"there is no session {session[:40]!r}")
        if is_check:
            return
        is_all = stops and not (session or destination)
        self._end(lambda each: is_all or each in same)
        if stops:
            return
        until = now + min(float(request.get("seconds", DEFAULT_SECONDS)), MAX_SECONDS)
        trace = Trace(str(session), str(destination), bool(request.get("bodies")), until)
        self.traces.append(trace)
        if client is not None and not isinstance(client.outbox, TracingOutbox):
            _rewire(client, TracingOutbox(client.outbox, self, client))
        self.timers.call_at(until, lambda _: self._end(lambda each: each is trace))

    def received(self, client: "Client", events: Sequence[Event], _now: float) -> None:
        """Trace frames that a client sent."""
        for trace in list(self.traces):
            for event in events:
                if trace.session == client.session_id or (
                    isinstance(event, FrameRun) and trace.destination == event.head.destination
                ):
                    self._trace_event(trace, client, event)

    def _trace_event(self, trace: Trace, client: "Client", event: Event) -> None:
        if not isinstance(event, FrameRun):
            text = excerpt_of(event) or type(event).__name__.encode()
            self.publish(trace, client, IN, text, None)
            return
        block = quote("SEND", event.head.headers)
        for body in event.bodies:
            self.publish(trace, client, IN, block, body)

    def sent(self, client: "Client", direction: str, block: bytes, body: bytes) -> None:
        """Trace a frame to a client, whose session has a trace."""
        for trace in [each for each in self.traces if each.session == client.session_id]:
            self.publish(trace, client, direction, block, body)

    def publish(
        self, trace: Trace, client: "Client", direction: str, block: bytes, body: bytes | None
    ) -> None:
        """Publish one frame: direction (IN or OUT), header block without secrets, and any body."""
        if trace.left <= 0:
            self._end(lambda each: each is trace)
            return
        trace.left -= 1
        text = block.decode(errors="replace").replace("\n", " | ")
        if body:
            text = f"{text} | {len(body)} bytes"
        line = f"{direction} {text}"
        shown = f" {body[:MAX_BODY]!r}" if body and trace.bodies else ""
        self.log(f"trace {client.session_id} {line}{shown}")
        self.events.record("trace", client, destination=trace.destination, detail=line)

    def _end(self, is_meant: Callable[[Trace], bool]) -> None:
        self.traces = [each for each in self.traces if not is_meant(each)]
        traced = {each.session for each in self.traces}
        for client in self.clients:
            outbox = client.outbox
            if isinstance(outbox, TracingOutbox) and client.session_id not in traced:
                _rewire(client, outbox.inner)


def _read(text: str) -> dict[str, str]:
    try:
        request = json.loads(text)
        json.dumps(request, ensure_ascii=False).encode()  # there may be lone surrogates
    except (ValueError, RecursionError):
        raise _invalid("it is not valid JSON") from None
    if not isinstance(request, dict) or set(request) - set(KEYS):
        raise _invalid(f"its keys are {', '.join(KEYS)}")
    if not (request.get("session") or request.get("destination") or request.get("stop")):
        raise _invalid("it names neither a session nor a destination")
    seconds = request.get("seconds", DEFAULT_SECONDS)
    if not isinstance(seconds, (int, float)) or not 0 < seconds <= MAX_SECONDS:
        raise _invalid(f"seconds are a number up to {MAX_SECONDS:.0f}")
    if not all(isinstance(request.get(key, ""), str) for key in ("session", "destination")):
        raise _invalid("session and destination are texts")
    return request


def _invalid(why: str) -> ProtocolError:
    return ProtocolError(
        "invalid-question", f'{TRACE} wants {{"session": "…"}} or {{"destination": "…"}}: {why}'
    )


def _rewire(client: "Client", outbox: Outbox) -> None:
    client.outbox = outbox
    for subscription in client.subscriptions.values():
        subscription.outbox = outbox


@define(eq=False, repr=False)
class TracingOutbox:
    """The outbox of a client with a trace, which traces its frames."""

    inner: Outbox
    tracer: Tracer
    client: "Client"

    def stage(self, prefix: bytes, delivery: "Delivery") -> bool:
        """Implement ``Outbox.stage``."""
        is_taken = self.inner.stage(prefix, delivery)
        for tail in delivery.tails[1:]:
            block, _, body = (prefix + tail).partition(b"\n\n")
            direction = OUT if is_taken else f"{OUT} NOT SENT:"
            self.tracer.sent(self.client, direction, excerpt(block), body[: -len(FRAME_END)])
        return is_taken

    def stage_frame(self, frame: bytes) -> None:
        """Implement ``Outbox.stage_frame``."""
        self.inner.stage_frame(frame)
        block, _, body = frame.partition(b"\n\n")
        if block.strip():
            self.tracer.sent(self.client, OUT, excerpt(block), body[: -len(FRAME_END)])

    def drop_oldest(self, size: int) -> int:
        """Implement ``Outbox.drop_oldest``."""
        return self.inner.drop_oldest(size)

    def has_room(self) -> bool:
        """Implement ``Outbox.has_room``."""
        return self.inner.has_room()

    def discard(self) -> int:
        """Implement ``Outbox.discard``."""
        return self.inner.discard()

    def pause_reading(self, *, paused: bool) -> None:
        """Implement ``Outbox.pause_reading``."""
        self.inner.pause_reading(paused=paused)

    def close(self, reason: CloseReason) -> None:
        """Implement ``Outbox.close``."""
        self.inner.close(reason)
