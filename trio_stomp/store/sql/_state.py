"""The row that names the current writer and the last commit. Needs SQLAlchemy."""

import sqlalchemy as sql

from trio_stomp.store._port import StoreError
from trio_stomp.store.sql._tables import MESSAGES, SCHEMA_VERSION, STATE, TABLES

# Built once: building a statement costs more than running it.
_NEXT = sql.bindparam("next", type_=sql.BigInteger)
_CLAIM = (
    STATE.update()
    .where(
        STATE.c.writer == sql.bindparam("token"),
        STATE.c.last_commit.between(sql.bindparam("from"), sql.bindparam("to")),
    )
    .values(
        last_commit=sql.bindparam("commit"),
        next_id=sql.case((STATE.c.next_id < _NEXT, _NEXT), else_=STATE.c.next_id),
    )
)


def prepare(writer: sql.Connection, shown: str, token: str) -> None:
    """Create missing tables, take them over, and delete transient messages.

    Args:
      writer: The connection for writing.
      shown: Name of the database in error texts.
      token: Unique word of this broker, which alone can ``claim`` from now on.

    Raises:
      StoreError: a later version of the program created the tables.
    """
    is_new = not sql.inspect(writer).has_table(STATE.name)
    found = SCHEMA_VERSION if is_new else writer.scalar(sql.select(STATE.c.schema_version))
    if found is not None and found > SCHEMA_VERSION:
        raise StoreError(
            f"{shown}: its tables are of version {found}, and this program knows "
            f"{SCHEMA_VERSION}: update the program, or name another database"
        )
    TABLES.create_all(writer)
    taken = writer.execute(STATE.update().values(writer=token)).rowcount
    if not taken:
        row = {"last_commit": 0, "next_id": 1, "writer": token}
        writer.execute(STATE.insert(), {"schema_version": SCHEMA_VERSION, **row})
    writer.execute(MESSAGES.delete().where(MESSAGES.c.transient))


def claim(
    writer: sql.Connection, token: str, last_range: tuple[int, int], commit: int, next_id: int
) -> bool:
    """Begin the transaction of a commit, and return whether it may continue.

    Args:
      writer: The connection for writing.
      token: This broker's token.
      last_range: Inclusive range of the last commit. A crash of the database may undo commits that
        did not wait for the disk.
      commit: Number of the new commit.
      next_id: Lower bound of the next id.
    """
    values = {
        "token": token,
        "from": last_range[0],
        "to": last_range[1],
        "commit": commit,
        "next": next_id,
    }
    return writer.execute(_CLAIM, values).rowcount == 1


def last_commit(writer: sql.Connection, token: str) -> int | None:
    """Return the number of the last commit, or None if another broker has taken over."""
    return writer.scalar(sql.select(STATE.c.last_commit).where(STATE.c.writer == token))


def touch(writer: sql.Connection) -> None:
    """Write a row unchanged, so that the next commit has something to sync."""
    writer.execute(STATE.update().values(writer=STATE.c.writer))
