"""A turn's time: what is large is done in pieces, and others are served between them.

The core has no clock of its own. It is lent one to see how long it has been at something; one that
stands still sets no bound, and everything is done at once.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import RemoteError, noop
from trio_stomp.broker.delivery._delivery import NEVER
from trio_stomp.broker.headers import internal_error

if TYPE_CHECKING:
    from trio_stomp.broker.delivery._subscription import Client


class Stop(Enum):
    """Why a work does nothing more in its share, though there may be time."""

    BLOCKED = auto()
    """It waits for others: until ``Turns.awaken``."""
    BEHIND = auto()
    """Others go first, who wait now."""


Work = Iterator[None]
"""Something large, a piece of some 50 µs at each step. It looks again at whatever may have changed
since the last one, and raises only what its client is to be told."""


class NotYet(Exception):
    """A client's request needs ``work`` first. Nothing has been done."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work


def after(call: "Callable[[], Work | None]") -> Work:
    """Do what may have other works to be done first, and then what it leaves to be done."""
    while True:
        try:
            work = call()
        except NotYet as later:
            yield from later.work
        else:
            break
    if work is not None:
        yield from work


SHARE_S = 0.002
"""What a connection's frames may take at a time. The rest waits until others have had theirs."""
PUMP_S = 0.003
"""What handing out from queues may take in a turn."""


class TurnsHost(Protocol):
    """The part of the core that turns use."""

    def refuse(self, client: "Client", error: RemoteError, now: float) -> None:
        """Tell a client what was wrong, and that it was the last it will be told."""

    def unblock(self, client: "Client", now: float) -> None:
        """Do what was kept back while its client had to wait."""


def _stands_still() -> float:
    return 0.0


@define(eq=False, repr=False)
class Turns:
    """Says when to stop, and remembers who goes on later: one after the other, a share in a turn.

    A client that is in here has its later frames held, so that they stay in order. A work may also
    be nobody's, whom nothing holds.
    """

    clock: Callable[[], float] = _stands_still
    """Seconds, of any beginning."""
    collect_young: Callable[[], None] = noop
    """Has Python look for garbage among what was made last, and not again among what is left of
    that. Who fills a container with very many things calls it while there are few in it: to look
    through all of them later would take as long as several turns."""
    ends_at: float = NEVER
    """When whatever is being done should be left for a later turn."""
    now: float = 0.0
    """When the turn began in which the works go on, by the broker's clock."""
    first: "Client | None" = None
    """Who goes on before all others, in half of the time: the store waits for it."""
    _waiting: "OrderedDict[object, tuple[Client | None, Work]]" = field(factory=OrderedDict)
    """By whose it is; a work that is nobody's by itself."""
    _blocked: "OrderedDict[Client, Work]" = field(factory=OrderedDict)
    """Those that wait for others, and have no turn before."""
    _stop: Stop | None = None
    """Why the work that goes on does nothing more in its share."""

    def __contains__(self, client: "Client") -> bool:
        return client in self._waiting or client in self._blocked

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, seconds: float) -> None:
        """Give whatever comes next so much time."""
        self.ends_at = self.clock() + seconds

    def is_over(self) -> bool:
        """Return whether the time is up."""
        return self.clock() >= self.ends_at

    def finishes(self, work: Work) -> bool:
        """Do at least a piece of ``work`` while there is time. Return whether it is done."""
        self._stop = None
        return all(self._stop is None and self.clock() < self.ends_at for _ in work)

    def stop(self, why: Stop) -> None:
        """End the current work's share: it yields next."""
        self._stop = why

    def wait(self, client: "Client", work: Work) -> None:
        """Have ``client`` go on with ``work`` once those had a share who wait already."""
        self._waiting[client] = client, work

    def carry_out(self, work: Work) -> None:
        """Have a work done that is nobody's, as ``wait``."""
        self._waiting[work] = None, work

    def start(self, work: Work, now: float) -> None:
        """Do a share of a work that is nobody's now, and the rest in later turns."""
        self.now = now
        self.begin(SHARE_S)
        if not self.finishes(work):
            self.carry_out(work)

    def awaken(self) -> bool:
        """Resume waiting works, as something has ended. Return whether there are any."""
        if not self._blocked:
            return False
        for client, work in self._blocked.items():
            self.wait(client, work)
        self._blocked.clear()
        return True

    def catch_up(self, host: TurnsHost, now: float) -> None:
        """Let those go on who wait: one after the other, while there is time."""
        if not self._waiting:
            return
        self.now = now
        if self.first in self._waiting:
            self.begin(SHARE_S if len(self._waiting) == 1 else SHARE_S / 2)
            client, work = self._waiting.pop(self.first)
            assert client is not None
            self._go_on_with(client, work, host, now)
            if client in self._waiting and len(self._waiting) == 1:
                return
            self.begin(SHARE_S / 2)
        else:
            self.begin(SHARE_S)
        for _ in range(len(self._waiting)):
            _, (client, work) = self._waiting.popitem(last=False)
            if client is None:
                self._go_on(work)
            else:
                self._go_on_with(client, work, host, now)
            if self.is_over():
                return

    def _go_on(self, work: Work) -> None:
        """Do a share of a work that is no client's. A bug in it is logged, and does not end it."""
        self.carry_out(work)
        if self.finishes(work):
            del self._waiting[work]

    def _go_on_with(self, client: "Client", work: Work, host: TurnsHost, now: float) -> None:
        try:
            if self.finishes(work):
                host.unblock(client, now)
            elif self._stop is Stop.BLOCKED:
                self._blocked[client] = work
            else:
                self.wait(client, work)
        except RemoteError as error:
            host.refuse(client, error.kept(), now)
            host.unblock(client, now)
        except Exception:  # a bug, for the log: it ends whom it concerns
            host.refuse(client, internal_error(), now)
            raise
