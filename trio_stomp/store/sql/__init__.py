"""The store in SQLite or PostgreSQL.

Handles: messages, settings and streams in tables; the differences between databases.
Does not handle: schema migration, vacuuming.
"""

from trio_stomp.store.sql._database import explained as explained
from trio_stomp.store.sql._database import open_database as open_database
from trio_stomp.store.sql._read import read as read
from trio_stomp.store.sql._read import read_stream as read_stream
from trio_stomp.store.sql._read import recover as recover
from trio_stomp.store.sql._store import SqlStore as SqlStore
from trio_stomp.store.sql._tables import MESSAGES as MESSAGES
from trio_stomp.store.sql._tables import STATE as STATE
from trio_stomp.store.sql._write import StreamEntry as StreamEntry
