"""Lists and removal of scheduled messages, durable subscriptions and last values.

Users end what is theirs, as over STOMP. Operators, who have the right ``admin`` at DIAG, end all.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import Identity, ProtocolError
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import Client, NotYet, NullOutbox, Turns, after
from trio_stomp.broker.headers import Removal, removal_of
from trio_stomp.broker.managing._task import Task
from trio_stomp.broker.rules import Action

if TYPE_CHECKING:
    from trio_stomp.broker.durability import Log
    from trio_stomp.broker.sending import LeftoverRequests, Scheduled
    from trio_stomp.broker.topics import Binding, Bindings, LastValueOwner

SHOWN = 5
"""Limit of subscriptions in an error."""


@define(eq=False, repr=False)
class LeftManager:
    """Lists and ends what clients leave in the broker.

    Args:
      requests: Describes scheduled messages and last values, and knows where they are.
      bindings: Keeps durable subscriptions.
      authorizer: Has the access rules.
      turns: Limits the time of a step.
      log: The log, if there is a store.
    """

    requests: "LeftoverRequests"
    bindings: "Bindings"
    authorizer: Authorizer
    turns: Turns
    log: "Log | None"

    def schedules(self) -> "list[Scheduled]":
        """Return the scheduled messages, those of one SEND together, in the order of SENDs."""
        return [each for each in self.requests.scheduler.jobs.beginning_at(0) if each.timer]

    def last_values(self) -> "list[tuple[str, LastValueOwner]]":
        """Return the topics with a last value, and the owner of each."""
        return list(self.requests.last_values.owners.items())

    def cancel(self, ids: "Sequence[str]", identity: Identity) -> Task:
        """Begin to cancel scheduled messages. Those that the user may not cancel stay.

        Args:
          ids: Their numbers, or ranges as 17-20.
          identity: The user.

        Raises:
          ProtocolError: An id is no number and no range.
        """
        return Task(self.turns, self.log, self._cancelling(list(map(removal_of, ids)), identity))

    def _cancelling(self, removals: list[Removal], identity: Identity) -> Iterator[int]:
        may_cancel = self.may_cancel(identity)
        done = 0
        for removal in removals:
            count = 0
            for count in self.requests.scheduler.cancelling(removal, may_cancel):
                yield done + count
            done += count

    def may_cancel(self, identity: Identity) -> "Callable[[Scheduled], bool]":
        """Return a function that tells whether a user may cancel scheduled messages."""
        scheduler, authorizer = self.requests.scheduler, self.authorizer
        client = self._client(identity)

        def may_cancel(item: "Scheduled") -> bool:
            authorizer.admit(client)  # the rules may change while it goes on
            is_admin = authorizer.allows_at_diag(identity, Action.ADMIN)
            return is_admin or authorizer.may_end(client, item.owner, scheduler.names(item))

        return may_cancel

    def may_end_durable(self, identity: Identity) -> "Callable[[Binding], bool]":
        """Return a function that tells whether a user may end a durable subscription.

        If that takes long, it returns True; the broker then checks it when the user tries.
        """
        client = self._client(identity)
        if self.authorizer.allows_at_diag(identity, Action.ADMIN):
            return lambda _binding: True

        def may_end(binding: "Binding") -> bool:
            try:
                return self.authorizer.may_end_durable(client, binding)
            except NotYet:
                return True

        return may_end

    def end_durable(
        self, name: str, client_id: str, *, owner: str, destination: str, identity: Identity
    ) -> Task:
        """Begin to end a durable subscription with its messages.

        The task fails if there is none, if there are several, or if it belongs to another user.

        Args:
          name: Its name.
          client_id: The client id of its subscriber; "" = none.
          owner: The user who created it; "" = any, with those of ``identity`` before others.
          destination: Its destination; "" = any.
          identity: The user.
        """
        found = [
            each
            for each in self.bindings.durables.meant(f"{client_id}\0{name}")
            if owner in ("", each.owner) and destination in ("", _targets(each))
        ]
        if len(found) > 1:
            found = [each for each in found if each.owner == identity.name] or found
        return Task(self.turns, self.log, self._ending(found, name, client_id, identity), 1)

    def _ending(
        self, found: "Sequence[Binding]", name: str, client_id: str, identity: Identity
    ) -> Iterator[int]:
        if not self.authorizer.allows_at_diag(identity, Action.ADMIN):
            client = self._client(identity)
            mine = []
            for each in found:
                with suppress(ProtocolError):  # recorded; for this user there are no others
                    for _ in after(partial(self.authorizer.check_durable, client, each)):
                        yield 0
                    mine.append(each)
            found = mine
        if len(found) > 1:
            listed = ", ".join(f"{_targets(each)[:80]} of {each.owner!r}" for each in found[:SHOWN])
            raise ProtocolError(
                "ambiguous-subscription",
                f"several durable subscriptions are called {name[:80]!r}: to {listed}; name the"
                " destination and the owner, too",
            )
        if not found:
            raise ProtocolError(
                "no-such-subscription",
                f"there is no durable subscription {name[:80]!r} of client id {client_id[:80]!r};"
                " GET durables lists them",
            )
        if found[0].durable:  # nobody has ended it meanwhile
            self.bindings.end_durable(found[0], self.turns.now)
            yield 1

    def clear(self, topic: str) -> Task:
        """Begin to remove the last value of a topic, without a message to its subscribers."""
        return Task(self.turns, self.log, self._clearing(topic), 1)

    def _clearing(self, topic: str) -> Iterator[int]:
        if self.requests.last_values.clear(topic):
            yield 1

    def _client(self, identity: Identity) -> Client:
        """Return a client with the rights of a user, and without a connection."""
        client = Client("", NullOutbox(), user=identity.name, identity=identity)
        self.authorizer.admit(client)
        return client


def _targets(binding: "Binding") -> str:
    return ",".join(name for name, _ in binding.targets)
