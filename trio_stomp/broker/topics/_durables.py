"""Durable topic subscriptions: bindings that outlive the connections of their consumers.

In the store each has a setting, and a place for its messages.
"""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError, Quota
from trio_stomp.broker.durability import Log
from trio_stomp.broker.headers import DSUB
from trio_stomp.broker.names import compile_pattern
from trio_stomp.broker.topics._binding import Binding
from trio_stomp.store import DropPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.selectors import Selector
    from trio_stomp.broker.topics._bindings import Bindings

PREFIX = "durable:"
"""Prefix of the settings and places of durable subscriptions."""
OWNER_ENDS = "%01"
"""Separates owner and name. No quoted name contains it."""
MAX_DURABLES = 10_000
SHOWN_COUNT = 5
"""Maximum number of destinations in an ERROR."""


@define(eq=False, repr=False)
class Durables:
    """Durable subscriptions by name and owner.

    The key is a client id and a name, or a name alone, which connections share. Names are separate
    for each user. A durable subscription without owner, created when there were no logins, becomes
    that of the first user who resumes it.
    """

    _feeds: dict[tuple[str, str], Binding] = field(factory=dict)

    def __len__(self) -> int:
        return len(self._feeds)

    def __iter__(self) -> Iterator[Binding]:
        return iter(self._feeds.values())

    def find(self, name: str, owner: str, *, is_anybodys: bool) -> Binding | None:
        """Return a durable subscription of ``owner`` or without owner, or None.

        For a shared name without destination it is the oldest with that name.

        Args:
          name: The name of the durable subscription.
          owner: The user.
          is_anybodys: That of another user will do, as there are no access rules.
        """
        for user in dict.fromkeys((owner, "")):
            if (binding := self._feeds.get((name, user))) is not None:
                return binding
        found = self._named(name)
        for binding in found:
            if binding.owner in (owner, ""):
                return binding
        return found[0] if found and is_anybodys else None

    def meant(
        self, name: str, destination: str | None = None, targets: Sequence[str] = ()
    ) -> list[Binding]:
        """Return the durable subscriptions with a name, of all owners, oldest first.

        Args:
          name: The name in the header.
          destination: The destination as the client writes it; None = any.
          targets: The names that it resolves to.
        """
        if destination is None:
            return self._named(name)
        exact = self._exactly(durable_name(name, destination)) if is_shared(name) else []
        if exact:
            return exact
        return [
            each for each in self._named(name) if [at for at, _ in each.targets] == list(targets)
        ]

    def _exactly(self, name: str) -> list[Binding]:
        return [each for (key, _), each in self._feeds.items() if key == name]

    def _named(self, name: str) -> list[Binding]:
        """Return those with a name, which for a shared name are those of all destinations."""
        found = self._exactly(name)
        if is_shared(name) and not found:
            start = f"{name}\0"
            found = [each for (key, _), each in self._feeds.items() if key.startswith(start)]
        return found

    def add(self, binding: Binding) -> None:
        """Add a durable subscription.

        Raises:
          ProtocolError: there are ``MAX_DURABLES`` already.
        """
        if len(self._feeds) >= MAX_DURABLES:
            raise ProtocolError(
                "too-many-durable-subscriptions",
                f"the broker keeps {MAX_DURABLES} durable subscriptions, which is its limit",
                reason=CloseReason.LIMIT_EXCEEDED,
            )
        self._feeds[binding.durable, binding.owner] = binding

    def count(self, quota: Quota) -> int:
        """Return the number charged to a quota."""
        return sum(binding.quota is quota for binding in self._feeds.values())

    def give(self, binding: Binding, owner: str) -> None:
        """Set the owner of a durable subscription that has none."""
        self.remove(binding)
        binding.owner = owner
        self._feeds[binding.durable, owner] = binding

    def remove(self, binding: Binding) -> None:
        """Remove a durable subscription."""
        del self._feeds[binding.durable, binding.owner]


def durable_name(name: str, destination: str) -> str:
    """Return the key of a durable subscription.

    Without a client id it includes the destination: many clients number their subscriptions, and
    two applications must not end each other's.
    """
    if not is_shared(name) or destination.startswith(DSUB):
        return name
    return f"{name}\0{destination}"


def ambiguous(name: str, bindings: Sequence[Binding]) -> ProtocolError:
    """Return the error for a name that several durable subscriptions have."""
    shown = [",".join(target for target, _ in each.targets)[:80] for each in bindings[:SHOWN_COUNT]]
    more = ", …" if len(bindings) > SHOWN_COUNT else ""
    return ProtocolError(
        "ambiguous-subscription",
        f"several durable subscriptions are called {_bare(name)!r}: to {', '.join(shown)}{more}; "
        "send the header destination to select the one to end",
    )


def unknown(name: str, destination: str | None) -> str:
    """Return the text of an ERROR for a durable subscription that does not exist."""
    where = f" to {destination[:80]}" if destination is not None else ""
    return f"there is no durable subscription {_bare(name)!r}{where}"


def _bare(name: str) -> str:
    """Return a name as clients write it, cut to 60 characters."""
    return name.partition("\0")[2].partition("\0")[0][:60]


def is_shared(name: str) -> bool:
    """Return whether connections share the durable subscription: its name has no client id."""
    return name.startswith("\0")


def key_of(name: str, owner: str) -> str:
    """Return the key of a new durable subscription's place and setting.

    A restored one keeps its key: older brokers wrote keys without an owner.
    """
    return PREFIX + (_quoted(owner) + OWNER_ENDS if owner else "") + _quoted(name)


def _quoted(name: str) -> str:
    # PostgreSQL accepts no NUL in text.
    return name.replace("%", "%25").replace("\0", "%00")


def remember(log: Log, binding: Binding) -> None:
    """Write a durable subscription to the store."""
    record = {
        "name": binding.durable,
        "destinations": [name for name, _ in binding.targets],
        "selector": binding.selector_text,
        "no_local": binding.no_local,
        "owner": binding.owner,
    }
    log.keep(binding.queue.place, json.dumps(record))


def forget(log: Log, binding: Binding) -> None:
    """Delete a durable subscription and its messages from the store."""
    place = binding.queue.place
    with log.atomically():
        log.forget(place)
        log.write(DropPlace(place))


def read_back(
    place: str,
    text: str,
    number: int,
    *,
    bindings: "Bindings",
    compile_selector: "Callable[[str], Selector]",
    wildcards: str,
) -> Binding:
    """Return the binding that ``remember`` wrote.

    Args:
      place: The key of its place in the store.
      text: The record.
      number: Its position among the subscribers.
      bindings: Queue its messages.
      compile_selector: Parses a selector.
      wildcards: The wildcard grammar.

    Raises:
      ProtocolError, ValueError, KeyError: the record is damaged, or no longer valid.
    """
    record = json.loads(text)
    name, selector = record["name"], record["selector"]
    # A lowered limit must not reject what was accepted before.
    targets = [
        (each, compile_pattern(each, wildcards, max_words=None)) for each in record["destinations"]
    ]
    destination = bindings.destinations.detached(*targets[0])
    label = f"{targets[0][0]} of {name}".replace("\0", "/")
    queue = bindings.queues.private(destination, label, place)
    binding = Binding(number, targets=targets, queue=queue, host=bindings, durable=name)
    binding.selector = compile_selector(selector) if selector else None
    binding.selector_text, binding.no_local = selector, record["no_local"]
    binding.owner = record.get("owner", "")  # absent in records of older brokers
    binding.is_welcomed = True
    return binding
