"""Streams: listing, showing with readers, reading records, trimming."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import LOOKS, Pieces, ProtocolError, slices
from trio_stomp.broker import Action, Reading, StreamReader, Trimming, needs
from trio_stomp.web._query import Answer, Query, as_list
from trio_stomp.web._site import ADMIN
from trio_stomp.web.declared import AT, COUNT, FLAG, STREAM, TEXT, TIME, VERBS, Parameter, Schema
from trio_stomp.web.management._messages import BODY, SHOWN, SHOWN_BYTES
from trio_stomp.web.management._subscriptions import SUBSCRIPTION
from trio_stomp.web.management.requests import (
    BY_NAME,
    HEAD,
    LIMIT,
    NAME,
    OFFSET,
    Endpoint,
    Items,
    Listing,
    Record,
    Stepwise,
    as_http,
    http_error,
    listed,
    record,
    with_fields,
)

if TYPE_CHECKING:
    from trio_stomp.broker import Manager
    from trio_stomp.diag import Figures
    from trio_stomp.frames import Head
    from trio_stomp.server import Server

TOPIC = Parameter("topic", "a topic to which records were sent", most_times=16)
STREAM_FIELDS = {
    "stream": TEXT,
    "epoch": TEXT,
    "first": COUNT,
    "next": COUNT,
    "messages": COUNT,
    "bytes": COUNT,
    "window_bytes": COUNT,
    "stored": FLAG,
    "max_bytes": COUNT,
    "max_age_ms": COUNT,
    "oldest_ms": COUNT,
    "newest_ms": COUNT,
}
READER = with_fields(SUBSCRIPTION, {"offset": COUNT})
RECORD: Schema = {
    "type": "object",
    "properties": {
        "offset": COUNT,
        "written_ms": COUNT,
        "headers": {"type": "object", "additionalProperties": TEXT},
        "size": COUNT,
        "body": TEXT,
        "body_base64": {**TEXT, "contentEncoding": "base64"},
    },
    **BODY,
}


@define(eq=False, repr=False)
class StreamRequests:
    """The requests about streams."""

    server: "Server"
    manager: "Manager"
    figures: "Figures"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        yield Endpoint(
            name="streams",
            summary="List streams. The times of records that are only in the store are 0.",
            parameters=(NAME, LIMIT, OFFSET),
            answer=listed("streams", record(STREAM_FIELDS)),
            build=self.streams,
        )
        yield Endpoint(
            name="stream",
            summary="Show a stream with its readers.",
            parameters=(STREAM,),
            answer={
                **HEAD,
                **STREAM_FIELDS,
                "total": COUNT,
                "more": FLAG,
                "readers": {"type": "array", "items": READER},
            },
            errors=("unknown-stream",),
            build=self.stream,
        )
        yield Endpoint(
            name="records",
            summary="Show records of a stream. It examines up to 10,000. Continue at next_offset.",
            right="receive at the stream",
            parameters=(STREAM, AT, TIME, TOPIC, SHOWN, SHOWN_BYTES),
            answer={
                "stream": TEXT,
                "epoch": TEXT,
                **dict.fromkeys(("first", "next", "offset", "next_offset", "seen"), COUNT),
                "more": FLAG,
                "records": {"type": "array", "items": RECORD},
            },
            errors=("unknown-stream",),
            operate=self.records,
        )
        yield Endpoint.of(VERBS["trim"], self.trim)

    def streams(self, query: Query) -> Pieces[Answer]:
        """Return the streams, with their offsets, sizes and limits."""
        yield
        names = self.manager.streams.names()
        listing = Listing("streams", lambda name: (name,), self._record, {})
        return (yield from listing.page(query, names, BY_NAME, self.figures.head()))

    def _record(self, name: str) -> Record:
        return self.manager.streams.figures(name)

    def stream(self, query: Query) -> Pieces[Answer]:
        """Return a stream with its readers.

        Raises:
          HttpError: there is no such stream.
        """
        name = query.text(STREAM)
        try:
            stream = self.manager.streams.find(name)
        except ProtocolError as error:
            raise as_http(error) from None
        yield
        readers: list[StreamReader] = []
        for some in slices(list(self.server.broker.statistics().clients), LOOKS):
            for client in some:
                for subscription in client.subscriptions.values():
                    readers += self.manager.streams.readers(subscription, stream)
            yield
        fields = {**self.figures.head(), **self._record(name), "total": len(readers)}
        part = readers[: LIMIT.most]
        return (yield from as_list(fields, "readers", part, self._reader))

    def _reader(self, reader: StreamReader) -> Record:
        return {
            **self.figures.subscription(reader.consumer.subscription),
            "unacked": reader.unacked,
            "offset": reader.at,
        }

    def records(self, query: Query) -> Stepwise[Reading]:
        """Return the operation that reads records of a stream.

        Raises:
          HttpError: both ``offset`` and ``time`` are given.
        """
        name = query.text(STREAM)
        items = Items("records", self.server.memory, query.number(SHOWN_BYTES))
        self._check_start(query)

        def take(offset: int, written_ms: int, head: "Head", body: bytes) -> bool:
            record: Record = {"offset": offset, "written_ms": written_ms, "size": len(body)}
            return items.take({**record, "headers": dict(head.headers)}, body)

        def begin(_identity: object, _body: object) -> Reading:
            start, topics = (query.number(AT), query.number(TIME)), frozenset(query.texts(TOPIC))
            reading = self.manager.streams.read(name, *start, query.number(SHOWN), topics)
            reading.take = take
            return reading

        def result(reading: Reading) -> Record:
            stream = reading.stream
            return {
                "stream": stream.name,
                "epoch": stream.epoch,
                "first": stream.first,
                "next": stream.next,
                "offset": reading.first,
                "next_offset": items.found[0][0]["offset"] if items.is_full else reading.next,
                "seen": reading.seen,
                "more": items.is_full,
            }

        return Stepwise(
            server=self.server,
            query=query,
            rights=[(action, topic) for action, topic, _ in needs(Action.RECEIVE, name)],
            begin=begin,
            result=result,
            items=items,
        )

    def trim(self, query: Query) -> Stepwise[Trimming]:
        """Return the operation that drops the oldest records of a stream.

        Raises:
          HttpError: not exactly one of offset and time is given.
        """
        name = query.text(STREAM)
        self._check_start(query)
        if not (query.has(AT) or query.has(TIME)):
            raise http_error("bad-request", "offset and time are missing; give one of them")
        return Stepwise(
            server=self.server,
            query=query,
            rights=ADMIN,
            begin=lambda _identity, _body: self.manager.streams.trim(
                name, query.number(AT), query.number(TIME)
            ),
            result=lambda trimming: {
                "stream": name,
                "first": trimming.stream.first,
                "trimmed": trimming.done,
            },
            event="trim",
            place=name,
            detail=lambda trimming: f"{trimming.done} records",
        )

    def _check_start(self, query: Query) -> None:
        if query.has(AT) and query.has(TIME):
            raise http_error("bad-request", "offset and time are given; give one of them")
