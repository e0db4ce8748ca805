"""The store: durable messages, settings and streams behind one interface.

Handles: journal, SQL database, memory; recovery, paging, disk failures.
Does not handle: STOMP, destinations, tasks, clocks (times are parameters).
"""

from typing import TYPE_CHECKING

from trio_stomp.store._memory import MemoryStore as MemoryStore
from trio_stomp.store._options import JournalOptions as JournalOptions
from trio_stomp.store._port import Page as Page
from trio_stomp.store._port import PlaceState as PlaceState
from trio_stomp.store._port import Progress as Progress
from trio_stomp.store._port import Recovered as Recovered
from trio_stomp.store._port import StaleSequence as StaleSequence
from trio_stomp.store._port import Store as Store
from trio_stomp.store._port import StoreBroken as StoreBroken
from trio_stomp.store._port import Stored as Stored
from trio_stomp.store._port import StoreError as StoreError
from trio_stomp.store._port import StoreLocked as StoreLocked
from trio_stomp.store._port import StoreStatistics as StoreStatistics
from trio_stomp.store._port import StoreUnavailable as StoreUnavailable
from trio_stomp.store._port import Streamed as Streamed
from trio_stomp.store._port import StreamState as StreamState
from trio_stomp.store._records import CHARGED as CHARGED
from trio_stomp.store._records import Append as Append
from trio_stomp.store._records import Atomic as Atomic
from trio_stomp.store._records import Begin as Begin
from trio_stomp.store._records import Delivered as Delivered
from trio_stomp.store._records import Done as Done
from trio_stomp.store._records import DropPlace as DropPlace
from trio_stomp.store._records import DropStream as DropStream
from trio_stomp.store._records import Forget as Forget
from trio_stomp.store._records import Keep as Keep
from trio_stomp.store._records import Put as Put
from trio_stomp.store._records import Record as Record
from trio_stomp.store._records import Trim as Trim
from trio_stomp.store._records import Turn as Turn
from trio_stomp.store._records import charged_to as charged_to
from trio_stomp.store._records import stored_cost as stored_cost
from trio_stomp.store._sound import LeftOut as LeftOut
from trio_stomp.store._sound import append_sound as append_sound
from trio_stomp.store._sound import flaws_of as flaws_of
from trio_stomp.store._sound import shape_of as shape_of
from trio_stomp.store.journal import JournalStore as JournalStore
from trio_stomp.store.tools import Scanned as Scanned
from trio_stomp.store.tools import compact as compact
from trio_stomp.store.tools import export_from as export_from
from trio_stomp.store.tools import import_to as import_to
from trio_stomp.store.tools import inspect as inspect
from trio_stomp.store.tools import verify as verify

if TYPE_CHECKING:
    from trio_stomp.store.sql import SqlStore as SqlStore
else:

    def __getattr__(name: str) -> object:
        """Import SqlStore on first access, because SQLAlchemy is optional."""
        if name != "SqlStore":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            from trio_stomp.store.sql import SqlStore
        except ModuleNotFoundError as error:
            raise StoreError(f"{error}: pip install 'trio-stomp[sql]'") from error
        return SqlStore
