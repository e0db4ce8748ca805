"""Records for the store, and effects that run when they are stored.

Handles: records, effects, atomic groups.
Does not handle: writing to disk; see ``store``.
"""

from trio_stomp.broker.durability._ledger import AtomicGroup as AtomicGroup
from trio_stomp.broker.durability._ledger import Callback as Callback
from trio_stomp.broker.durability._ledger import Effect as Effect
from trio_stomp.broker.durability._ledger import FrameReply as FrameReply
from trio_stomp.broker.durability._ledger import WrittenAgain as WrittenAgain
from trio_stomp.broker.durability._ledger import storage_error as storage_error
from trio_stomp.broker.durability._log import IDENTITY as IDENTITY
from trio_stomp.broker.durability._log import SOON_S as SOON_S
from trio_stomp.broker.durability._log import Log as Log
from trio_stomp.broker.durability._log import StoreRead as StoreRead
