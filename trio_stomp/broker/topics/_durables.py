"""Durable topic subscriptions: feeds that outlive the connections that consume them."""

from collections.abc import Iterator, Sequence

from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError, Quota
from trio_stomp.broker.headers import DSUB
from trio_stomp.broker.topics._binding import Binding

MAX_DURABLES = 10_000
SHOWN_COUNT = 5
"""Destinations that an ERROR names."""


@define(eq=False, repr=False)
class Durables:
    """Durable subscriptions by name and owner.

    A name is a client id and a name, or a name alone, which is shared. Each user has names of his
    own; those of nobody, from before there were users, are for whoever comes first.
    """

    _feeds: dict[tuple[str, str], Binding] = field(factory=dict)

    def __len__(self) -> int:
        return len(self._feeds)

    def __iter__(self) -> Iterator[Binding]:
        return iter(self._feeds.values())

    def find(self, name: str, owner: str, *, is_anybodys: bool) -> Binding | None:
        """Return the feed of a durable subscription, if there is one: the owner's own, or nobody's.

        A shared one may be told without its destination: then the oldest of the name is meant.

        Args:
          name: The name of the durable subscription.
          owner: The user or client id.
          is_anybodys: That of another owner will do: nothing is denied to anybody.
        """
        for user in dict.fromkeys((owner, "")):
            if (binding := self._feeds.get((name, user))) is not None:
                return binding
        found = self._known(name)
        for binding in found:
            if binding.owner in (owner, ""):
                return binding
        return found[0] if found and is_anybodys else None

    def meant(
        self, name: str, destination: str | None = None, places: Sequence[str] = ()
    ) -> list[Binding]:
        """All that a name may mean, whoever owns them, oldest first.

        Args:
          name: The name in the header.
          destination: What it must be to, as SUBSCRIBE wrote it; None = whatever it is to.
          places: What that means in our own names.
        """
        if destination is None:
            return self._known(name)
        exact = self._exactly(durable_name(name, destination)) if is_shared(name) else []
        if exact:
            return exact
        return [each for each in self._known(name) if [at for at, _ in each.places] == list(places)]

    def _exactly(self, name: str) -> list[Binding]:
        return [each for (key, _), each in self._feeds.items() if key == name]

    def _known(self, name: str) -> list[Binding]:
        """Return those of a name, and of a shared one all that differ by their destinations."""
        found = self._exactly(name)
        if is_shared(name) and not found:
            start = f"{name}\0"
            found = [each for (key, _), each in self._feeds.items() if key.startswith(start)]
        return found

    def add(self, binding: Binding) -> None:
        """Keep ``binding`` until somebody unsubscribes it for good.

        Raises:
          ProtocolError: there are too many.
        """
        if len(self._feeds) >= MAX_DURABLES:
            raise ProtocolError(
                "too-many-durable-subscriptions",
                f"the broker keeps {MAX_DURABLES} durable subscriptions, which is its limit",
                reason=CloseReason.LIMIT_EXCEEDED,
            )
        self._feeds[binding.durable, binding.owner] = binding

    def count(self, quota: Quota) -> int:
        """Return the number of those that are charged to a quota."""
        return sum(binding.quota is quota for binding in self._feeds.values())

    def give(self, binding: Binding, owner: str) -> None:
        """Make a durable subscription without an owner that of ``owner``."""
        self.remove(binding)
        binding.owner = owner
        self._feeds[binding.durable, owner] = binding

    def remove(self, binding: Binding) -> None:
        """Forget a durable subscription."""
        del self._feeds[binding.durable, binding.owner]


def durable_name(name: str, destination: str) -> str:
    """Return the name under which a durable subscription is kept.

    One that was named without a client id is also told by its destination: clients number their
    subscriptions, and two applications must not end each other's.
    """
    if not is_shared(name) or destination.startswith(DSUB):
        return name
    return f"{name}\0{destination}"


def ambiguous(name: str, bindings: Sequence[Binding]) -> ProtocolError:
    """Return the error for a client that did not tell which of several subscriptions it means."""
    shown = [",".join(place for place, _ in each.places)[:80] for each in bindings[:SHOWN_COUNT]]
    more = ", …" if len(bindings) > SHOWN_COUNT else ""
    return ProtocolError(
        "ambiguous-subscription",
        f"several durable subscriptions are called {_bare(name)!r}: to {', '.join(shown)}{more}; "
        "send the header destination to select the one to end",
    )


def unknown(name: str, destination: str | None) -> str:
    """Return what is not there, for an ERROR."""
    where = f" to {destination[:80]}" if destination is not None else ""
    return f"there is no durable subscription {_bare(name)!r}{where}"


def _bare(name: str) -> str:
    """Return a name as clients write it, and not too long."""
    return name.partition("\0")[2].partition("\0")[0][:60]


def is_shared(name: str) -> bool:
    """Return whether several connections may consume it: it was named without a client id."""
    return name.startswith("\0")
