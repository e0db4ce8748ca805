"""Files, directories and the lock of a store, shared by all formats on disk.

Handles: opening, syncing and locking files and directories; quarantine of damaged bytes.
Does not handle: the content of files.
"""

from trio_stomp.store.disk._files import Files as Files
from trio_stomp.store.disk._files import OsFiles as OsFiles
from trio_stomp.store.disk._lock import LOCK_FLAGS as LOCK_FLAGS
from trio_stomp.store.disk._lock import DirectoryLock as DirectoryLock
from trio_stomp.store.disk._quarantine import Quarantine as Quarantine
