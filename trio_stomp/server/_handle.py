"""Where clients come from, and how the program that runs a broker speaks to it."""

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from attrs import define, field, frozen


async def _nothing_to_reload(settings: object) -> None:
    await trio.lowlevel.checkpoint()


@frozen(eq=False, repr=False)
class Entrance:
    """Where clients come from, and whether their bytes are secret.

    Args:
      tls: ``off``, ``optional`` (the first bytes tell) or ``required``.
    """

    listener: "trio.abc.Listener[trio.abc.Stream]"
    tls: str = "off"


@define(eq=False, repr=False)
class ServerHandle:
    """A running broker, for the program that runs it."""

    addresses: tuple[str, ...]
    tls_addresses: tuple[str, ...] = ()
    """Of the port where TLS is required."""
    on_reload: Callable[[Any], Awaitable[None]] = _nothing_to_reload
    _stopping: trio.Event = field(factory=trio.Event)

    def stop(self) -> None:
        """Begin the ordered shutdown; ``serve`` returns when it is done."""
        self._stopping.set()

    async def reload(self, settings: object = None) -> None:
        """Read the files of users, rules, keys and certificates again; all of them, or none.

        Args:
          settings: ``Settings`` that shall hold from now on, as far as they can while the broker
            runs (docs/configuration.md); None = those it has.

        Raises:
          OptionError: something is wrong: the operator's fault. What held before still holds.

        Checkpoint: always. Cancel: nothing has changed, or everything has.
        """
        await self.on_reload(settings)

    async def wait_stopping(self) -> None:
        """Wait until somebody has called ``stop``. Checkpoint: always."""
        await self._stopping.wait()
