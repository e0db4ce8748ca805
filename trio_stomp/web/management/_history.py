"""The history of one queue: samples of its records in the stream of diagnostics."""

import json
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from trio_stomp.base import schema
from trio_stomp.broker import DIAG_STREAM, InSteps, Step, Steps
from trio_stomp.web._query import Query, Record
from trio_stomp.web._site import WATCH
from trio_stomp.web.declared import COUNT, NUMBER, OF_DESTINATIONS, QUEUE, TEXT, Number, Schema
from trio_stomp.web.management.requests import Endpoint, Stepwise, destination_of, maybe, record

if TYPE_CHECKING:
    from trio_stomp.broker import Manager
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server

MOST_MS = 2**53
SINCE = Number("since", "the begin, in ms since 1970; by default that of the stream", most=MOST_MS)
UNTIL = Number("until", "the end, in ms since 1970; by default now", most=MOST_MS)
POINTS = Number("points", "the most samples", default=60, least=2, most=1_000)
LEVELS = {
    "waiting": "input_depth",
    "unacked": "ack_depth",
    "bytes": "input_bytes",
    "oldest_age_s": "oldest_input_age_s",
}
"""The fields of a point, and those of the record."""
RATES = {"in_per_s": "enqueued_total", "out_per_s": "acked_total"}
"""The rates since the sample before, and their counters."""
POINT: Schema = record(
    {
        "ts_ms": COUNT,
        **dict.fromkeys(("waiting", "unacked", "bytes"), COUNT),
        **dict.fromkeys(("oldest_age_s", *RATES), maybe(NUMBER)),
    }
)


@define(eq=False, repr=False)
class History:
    """The request for the history of a queue."""

    server: "Server"
    manager: "Manager"
    figures: "Figures"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the request."""
        yield Endpoint(
            name="history",
            summary="Show the history of a queue, as far as the stream of diagnostics goes back:"
            " samples at equal distances, with rates since the sample before. A sample is missing"
            " where the queue was not among the 500 fullest.",
            right="monitor at DIAG",
            parameters=(QUEUE, SINCE, UNTIL, POINTS),
            answer={
                "queue": TEXT,
                **dict.fromkeys(("oldest_ms", "since_ms", "until_ms"), COUNT),
                "step_ms": NUMBER,
                "points": {"type": "array", "items": POINT},
            },
            errors=(*OF_DESTINATIONS, "unknown-stream"),
            operate=self.history,
        )

    def history(self, query: Query) -> "Stepwise[Samples]":
        """Return the operation that reads the history of a queue.

        Raises:
          HttpError: ``queue`` is no single destination.
        """
        queue = destination_of(self.manager, query, QUEUE)
        now_ms = int(self.figures.stream.wall() * 1000)

        def begin(_identity: object, _body: bytes) -> Samples:
            self.manager.streams.find(DIAG_STREAM)
            return Samples(
                self.manager.queues.turns,
                None,
                self.manager,
                queue=queue,
                count=query.number(POINTS),
                since_ms=query.number(SINCE),
                until_ms=min(query.number(UNTIL) or now_ms, now_ms),
            )

        return Stepwise(
            server=self.server,
            query=query,
            rights=WATCH,
            begin=begin,
            result=lambda samples: {
                "queue": queue,
                "oldest_ms": samples.oldest_ms,
                "since_ms": samples.since_ms,
                "until_ms": samples.until_ms,
                "step_ms": samples.step_ms,
                "points": samples.points,
            },
        )


@define(eq=False, repr=False)
class Samples(InSteps):
    """Reads samples of a queue from the stream of diagnostics.

    Args:
      manager: Reads the stream.
      queue: The name of the queue.
      count: The number of samples.
      since_ms: The time of the first sample, in ms since 1970, or the beginning of the stream if
        that is later.
      until_ms: The end of the time span, in ms since 1970; no sample is later.
    """

    manager: "Manager"
    queue: str
    count: int
    since_ms: int
    until_ms: int
    points: list[Record] = field(init=False, factory=list)
    oldest_ms: int = field(init=False, default=0)
    """The time of the oldest record of the stream."""
    _before: "Sample | None" = field(init=False, default=None)

    @property
    def step_ms(self) -> float:
        """Return the time between two samples."""
        return max(0, self.until_ms - self.since_ms) / self.count

    def work(self) -> Steps:
        """Implement ``InSteps.work``. The queue is found in some of the samples."""
        self.total = self.count
        oldest = None
        if self.since_ms < self.until_ms:
            oldest = yield from self._record(0, frozenset())
        if oldest is None:
            return
        self.oldest_ms, _ = oldest
        self.since_ms = max(self.since_ms, self.oldest_ms)
        while self.seen < self.count and self.since_ms < self.until_ms:
            at_ms = int(self.since_ms + self.seen * self.step_ms)
            found = yield from self._record(at_ms, frozenset([schema.QUEUE.topic]))
            self.seen += 1
            if found is not None:
                self._take(*found)
            self.done = len(self.points)
            yield Step.MORE

    def _record(
        self, at_ms: int, topics: frozenset[str]
    ) -> Generator[Step, None, tuple[int, bytes] | None]:
        """Return the time and the body of the first record from a time on, or None."""
        reading = self.manager.streams.read(DIAG_STREAM, 0, at_ms, 1, topics)
        yield from self.within(reading)
        return next(((at_ms, body) for _, at_ms, _, body in reading.found), None)

    def _take(self, at_ms: int, body: bytes) -> None:
        """Add the record as a sample, unless the next sample has the same record."""
        if at_ms >= min(self.since_ms + self.seen * self.step_ms, self.until_ms):
            return
        figures = _figures(body, self.queue)
        if figures is not None:
            before, self._before = self._before, Sample(_boot(body), at_ms, figures)
            self.points.append(self._before.point(before))


@frozen
class Sample:
    """The figures of a queue at one moment.

    Args:
      boot: The start of the broker, at which its counters began at 0.
      ts_ms: The time, in ms since 1970.
      figures: The fields of the queue's record.
    """

    boot: str
    ts_ms: int
    figures: Mapping[str, float | None]

    def point(self, before: "Sample | None") -> Record:
        """Return the point of the history, with rates since the sample before."""
        return {
            "ts_ms": self.ts_ms,
            **{name: self.figures[key] for name, key in LEVELS.items()},
            **{name: self._rate(before, key) for name, key in RATES.items()},
        }

    def _rate(self, before: "Sample | None", counter: str) -> float | None:
        """Return the growth of a counter in a second, or None if it is unknown."""
        if before is None or before.boot != self.boot or before.ts_ms >= self.ts_ms:
            return None
        now, then = self.figures.get(counter), before.figures.get(counter)
        if now is None or then is None:  # an older broker wrote it
            return None
        return max(0.0, now - then) * 1000 / (self.ts_ms - before.ts_ms)


def _figures(body: bytes, queue: str) -> Mapping[str, float | None] | None:
    """Return the record of a queue in a list, or None. Nothing else of the list is parsed."""
    # The name is the first field, and the only text. Quotes within names are escaped.
    name = b'{"destination":' + json.dumps(queue).encode() + b","
    begin = body.find(name)
    if begin < 0:
        return None
    end = body.index(b"}", begin + len(name)) + 1
    found: Mapping[str, float | None] = json.loads(body[begin:end])
    return found


def _boot(body: bytes) -> str:
    """Return the start of the broker that wrote a list."""
    found: Record = json.loads(body[: body.index(b',"items":')] + b"}")
    return f"{found['boot']}"
