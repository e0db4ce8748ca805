"""The queries that read the tables. Needs SQLAlchemy."""

from collections.abc import Mapping

import sqlalchemy as sql

from trio_stomp.store._port import PlaceState, Recovered, StreamState
from trio_stomp.store._records import CHARGED, charged_to, stored_cost
from trio_stomp.store._runs import MAX_ROWS, Row, StreamRow, count_within
from trio_stomp.store.sql._tables import (
    MESSAGES,
    SETTINGS,
    STATE,
    STREAM_MESSAGES,
    STREAMS,
    from_head,
    from_place,
    from_text,
    to_place,
)
from trio_stomp.store.sql._write import StreamEntry

# Built once: building a statement costs more than running it.
_WAITING = MESSAGES.c
_STREAM = STREAM_MESSAGES.c
_LANE = sql.and_(
    _WAITING.place == sql.bindparam("place"),
    _WAITING.priority == sql.bindparam("level"),
    _WAITING.id > sql.bindparam("after"),
)
_SIZES = (
    sql.select(_WAITING.id, sql.func.length(_WAITING.body))
    .where(_LANE)
    .order_by(_WAITING.id)
    .limit(MAX_ROWS)
)
_MESSAGES = (
    sql.select(
        _WAITING.id,
        _WAITING.body,
        _WAITING.headers,
        _WAITING.headers_bytes,
        _WAITING.received_at,
        _WAITING.expires_at,
        _WAITING.deliveries,
    )
    .where(_LANE, _WAITING.id <= sql.bindparam("end"))
    .order_by(_WAITING.id)
)
_PART = sql.and_(
    _STREAM.stream_id == sql.bindparam("stream"), _STREAM.stream_offset > sql.bindparam("after")
)
_STREAM_SIZES = (
    sql.select(_STREAM.stream_offset, sql.func.length(_STREAM.body))
    .where(_PART)
    .order_by(_STREAM.stream_offset)
    .limit(MAX_ROWS)
)
_STREAMED = (
    sql.select(
        _STREAM.stream_offset,
        _STREAM.body,
        _STREAM.headers,
        _STREAM.headers_bytes,
        _STREAM.written_at,
    )
    .where(_PART, _STREAM.stream_offset <= sql.bindparam("end"))
    .order_by(_STREAM.stream_offset)
)
_WRITTEN = sql.select(_STREAM.written_at).where(
    _STREAM.stream_id == sql.bindparam("stream"), _STREAM.stream_offset == sql.bindparam("offset")
)


def recover(connection: sql.Connection) -> tuple[Recovered, dict[str, StreamEntry]]:
    """Return the content of the tables, and the streams' entries by name."""
    last_commit, next_id = connection.execute(
        sql.select(STATE.c.last_commit, STATE.c.next_id)
    ).one()
    streams = {
        from_text(name): StreamEntry(id, StreamState(from_text(epoch), first, next, size))
        for id, name, epoch, first, next, size in connection.execute(sql.select(STREAMS))
    }
    delivered = sql.select(MESSAGES.c.id, MESSAGES.c.deliveries).where(MESSAGES.c.deliveries > 0)
    settings = connection.execute(sql.select(SETTINGS.c.key, SETTINGS.c.value))
    recovered = Recovered(
        last_commit,
        next_id=next_id,
        places=_places(connection),
        settings={from_text(key): from_text(value) for key, value in settings},
        deliveries={row.id: row.deliveries for row in connection.execute(delivered)},
        streams={name: entry.state for name, entry in streams.items()},
    )
    return recovered, streams


def _places(connection: sql.Connection) -> dict[tuple[str, int], PlaceState]:
    table = MESSAGES.c
    waiting = sql.select(
        table.place,
        sql.func.min(table.destination),
        table.priority,
        sql.func.count(),
        sql.func.sum(sql.func.length(table.body)),
        sql.func.min(table.id),
        sql.func.min(sql.func.nullif(table.expires_at, 0)),
    ).group_by(table.place, table.priority)
    charged = _charged(connection)
    return {
        (from_place(place, destination), level): PlaceState(
            count, int(size), first, charged.get((place, level), {}), expires_ms or 0
        )
        for place, destination, level, count, size, first, expires_ms in connection.execute(waiting)
    }


def _charged(connection: sql.Connection) -> dict[tuple[str, int], dict[bytes, int]]:
    """Return the cost of messages, by place and level, and by the line that names the user."""
    table = MESSAGES.c
    is_lite = connection.dialect.name == "sqlite"
    end = (sql.func.instr if is_lite else sql.func.strpos)(table.headers, "\n")
    line = sql.func.substr(table.headers, 1, end)
    headers = sql.cast(table.headers, sql.LargeBinary) if is_lite else table.headers
    head_bytes = (sql.func.length if is_lite else sql.func.octet_length)(headers)
    found = (
        sql.select(
            table.place,
            table.priority,
            line,
            sql.func.count(),
            sql.func.sum(sql.func.length(table.body) + head_bytes),
        )
        .where(table.headers.startswith(CHARGED.decode(), autoescape=True))
        .group_by(table.place, table.priority, line)
    )
    charged: dict[tuple[str, int], dict[bytes, int]] = {}
    for place, level, text, count, size in connection.execute(found):
        costs = charged.setdefault((place, level), {})
        costs[text.encode()] = stored_cost(0, count, int(size))
    binary = sql.select(
        table.place, table.priority, table.headers_bytes, sql.func.length(table.body)
    ).where(table.headers_bytes.is_not(None))
    for place, level, head, size in connection.execute(binary):
        if owner := charged_to(head):
            costs = charged.setdefault((place, level), {})
            cost = stored_cost(len(head), 1, size)
            costs[owner] = costs.get(owner, 0) + cost
    return charged


def read(
    connection: sql.Connection, place: str, level: int, after: int, limit_bytes: int
) -> tuple[list[Row], bool]:
    """Return messages of a place's level after an id, and whether they are the last ones."""
    lane = {"place": to_place(place)[0], "level": level, "after": after}
    end, is_last = _end(connection, _SIZES, lane, limit_bytes)
    rows = connection.execute(_MESSAGES, {**lane, "end": end})
    return [
        Row(id, body, from_head(headers, headers_bytes), *rest)
        for id, body, headers, headers_bytes, *rest in rows
    ], is_last


def read_stream(
    connection: sql.Connection, stream_id: int, first: int, limit_bytes: int
) -> list[StreamRow]:
    """Return messages of a stream from an offset on."""
    part = {"stream": stream_id, "after": first - 1}
    end, _ = _end(connection, _STREAM_SIZES, part, limit_bytes)
    rows = connection.execute(_STREAMED, {**part, "end": end})
    return [
        StreamRow(offset, body, from_head(headers, headers_bytes), written_at)
        for offset, body, headers, headers_bytes, written_at in rows
    ]


def _end(
    connection: sql.Connection, sizes: sql.Executable, part: Mapping[str, object], limit_bytes: int
) -> tuple[int, bool]:
    """Return the last id or offset to read, and whether it is the last of all.

    Looks at sizes only, so that no more bodies are fetched than fit the limit.
    """
    found = connection.execute(sizes, part).all()
    taken = count_within((size for _, size in found), limit_bytes)
    return found[taken - 1][0] if taken else 0, taken == len(found) < MAX_ROWS


def written_at(connection: sql.Connection, stream_id: int, offset: int) -> int:
    """Return when a message of a stream was written, or 0 if it has been trimmed."""
    return connection.scalar(_WRITTEN, {"stream": stream_id, "offset": offset}) or 0
