"""The tables of docs/operate/sql.md, and the encoding of their columns. Needs SQLAlchemy."""

from hashlib import sha256

import sqlalchemy as sql

SCHEMA_VERSION = 1

TABLES = sql.MetaData()

# The collation C is independent of the database's locale, and supports searches by prefix.
_TEXT = sql.Text().with_variant(sql.Text(collation="C"), "postgresql")
# SQLite uses a primary key as row id only if it has this type.
_ID = sql.BigInteger().with_variant(sql.Integer(), "sqlite")

STATE = sql.Table(
    "trio_stomp_state",
    TABLES,
    sql.Column("schema_version", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("last_commit", sql.BigInteger, nullable=False),
    sql.Column("next_id", sql.BigInteger, nullable=False),
    sql.Column("writer", _TEXT, nullable=False),
)

MESSAGES = sql.Table(
    "trio_stomp_messages",
    TABLES,
    sql.Column("id", _ID, primary_key=True, autoincrement=False),
    sql.Column("place", _TEXT, nullable=False),
    sql.Column("destination", _TEXT, nullable=False),
    sql.Column("priority", sql.SmallInteger, nullable=False),
    sql.Column("headers", _TEXT),
    sql.Column("headers_bytes", sql.LargeBinary),
    sql.Column("body", sql.LargeBinary, nullable=False),
    sql.Column("received_at", sql.BigInteger, nullable=False),
    sql.Column("expires_at", sql.BigInteger, nullable=False),
    sql.Column("deliveries", sql.Integer, nullable=False),
    sql.Column("transient", sql.Boolean, nullable=False),
    sql.Index("trio_stomp_messages_order", "place", "priority", "id"),
)

SETTINGS = sql.Table(
    "trio_stomp_settings",
    TABLES,
    # A key may be too long for an index.
    sql.Column("digest", sql.String(64), primary_key=True),
    sql.Column("key", _TEXT, nullable=False),
    sql.Column("value", _TEXT, nullable=False),
)

STREAMS = sql.Table(
    "trio_stomp_streams",
    TABLES,
    sql.Column("id", _ID, primary_key=True),
    sql.Column("name", _TEXT, nullable=False),
    sql.Column("epoch", _TEXT, nullable=False),
    sql.Column("first_offset", sql.BigInteger, nullable=False),
    sql.Column("next_offset", sql.BigInteger, nullable=False),
    sql.Column("bytes", sql.BigInteger, nullable=False),
    # Ids are never reused: a reader of a dropped stream must not see a new one.
    sqlite_autoincrement=True,
)

STREAM_MESSAGES = sql.Table(
    "trio_stomp_stream_messages",
    TABLES,
    sql.Column("stream_id", _ID, primary_key=True, autoincrement=False),
    sql.Column("stream_offset", sql.BigInteger, primary_key=True, autoincrement=False),
    sql.Column("headers", _TEXT),
    sql.Column("headers_bytes", sql.LargeBinary),
    sql.Column("body", sql.LargeBinary, nullable=False),
    sql.Column("written_at", sql.BigInteger, nullable=False),
)

# Longer texts are replaced by a digest: an entry of a PostgreSQL index has at most 2,704 bytes.
_MAX_KIND = 100
_MAX_DESTINATION = 400

Head = tuple[str | None, bytes | None]


def to_text(text: str) -> str:
    """Escape NUL, which PostgreSQL does not accept."""
    return text.replace("\x1a", "\x1a1").replace("\0", "\x1a0")


def from_text(text: str) -> str:
    """Undo ``to_text``."""
    return text.replace("\x1a0", "\0").replace("\x1a1", "\x1a")


def to_head(head: bytes) -> Head:
    """Return the columns ``headers`` and ``headers_bytes``: text if possible, else bytes."""
    if b"\0" in head:
        return None, head
    try:
        return head.decode(), None
    except UnicodeDecodeError:
        return None, head


def from_head(headers: str | None, headers_bytes: bytes | None) -> bytes:
    """Undo ``to_head``."""
    return headers_bytes or b"" if headers is None else headers.encode()


def to_digest(text: str) -> str:
    """Return a digest of fixed length that identifies a text."""
    return sha256(text.encode()).hexdigest()


def to_place(place: str) -> tuple[str, str]:
    """Return the columns ``place`` (which is indexed) and ``destination``.

    In ``place``, a digest replaces a long destination.
    """
    place = to_text(place)
    kind, _, destination = place.partition(":")
    if not kind or kind == place or len(kind) > _MAX_KIND:
        kind, destination = "", place
    if len(destination) <= _MAX_DESTINATION:
        return place, destination
    return f"{kind}:{to_digest(destination)}", destination


def from_place(place: str, destination: str) -> str:
    """Undo ``to_place``."""
    if len(destination) > _MAX_DESTINATION:
        kind = place.partition(":")[0]
        place = f"{kind}:{destination}" if kind else destination
    return from_text(place)
