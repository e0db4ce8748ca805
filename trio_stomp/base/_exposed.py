"""Warns about files that other users of the machine may read or change."""

import os
import stat

READ, WRITE = 4, 2


def exposed(path: str, rights: int) -> str:
    """Return a warning if others have one of the rights to a file or directory, else "".

    A group of this process is no other: containers get volumes that their group may write.

    Args:
      path: The file or directory; one that is not there is not exposed.
      rights: ``READ``, ``WRITE``, or both.
    """
    try:
        found = os.stat(path)
    except OSError:
        return ""
    mode = stat.S_IMODE(found.st_mode)
    is_ours = found.st_gid in (os.getegid(), *os.getgroups())
    granted = (mode if is_ours else mode | mode >> 3) & rights
    if not granted:
        return ""
    what = "change" if granted & WRITE else "read"
    return f"{path} has mode {mode:04o}: other users may {what} it; restrict it with chmod"
