"""Links of trio_stomp.testing, seen from both ends, and the location of its plugin."""

from importlib.metadata import entry_points

import trio

from trio_stomp.testing import Faults, Link

PLUGIN = "trio_stomp.testing.pytest_plugin"

# pytest finds the plugin of an installed package, but not that of a checkout on the path.
IS_FOUND = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
NEEDED_PLUGINS = () if IS_FOUND else (PLUGIN,)
ARGUMENTS = ("-p", "no:cacheprovider", *(() if IS_FOUND else ("-p", PLUGIN)))

Ends = tuple[trio.abc.HalfCloseableStream, trio.abc.HalfCloseableStream]


def ends(faults: Faults | None = None) -> Ends:
    return Link("x", faults or Faults()).ends()


async def receive_all(stream: trio.abc.ReceiveStream) -> tuple[list[bytes], bool]:
    """Return the received pieces, and whether a reset ended the connection."""
    pieces = []
    try:
        while data := await stream.receive_some():
            pieces.append(bytes(data))
    except trio.BrokenResourceError:
        return pieces, True
    return pieces, False
