"""Files, directories and the lock of a store: what every format on disk needs.

Handles: opening, syncing and locking files and directories, and putting damaged ones aside.
Does not handle: what is in them.
"""

from trio_stomp.store.disk._files import Files as Files
from trio_stomp.store.disk._files import OsFiles as OsFiles
from trio_stomp.store.disk._lock import DirectoryLock as DirectoryLock
from trio_stomp.store.disk._quarantine import Quarantine as Quarantine
