"""UNSUBSCRIBE: ends a subscription of the connection, or a durable subscription."""

from collections.abc import Collection, Generator
from contextlib import suppress
from functools import partial

from attrs import define

from trio_stomp.base import ProtocolError
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import Client, Subscription, Work, after
from trio_stomp.broker.durability import Log
from trio_stomp.broker.headers import DSUB, Dialect, durable_name, resolve, routing_of
from trio_stomp.broker.subscribing._subscriber import Subscriptions
from trio_stomp.broker.topics import Binding, Bindings, ambiguous, unknown
from trio_stomp.frames import encode_receipt
from trio_stomp.protocol import Unsubscribed


@define(eq=False, repr=False, kw_only=True)
class Unsubscriber:
    """Ends the subscriptions that UNSUBSCRIBE frames name."""

    dialect: Dialect
    subscriptions: Subscriptions
    bindings: Bindings
    authorizer: Authorizer
    log: Log | None

    def unsubscribe(self, client: Client, event: Unsubscribed, now: float) -> Work:
        """Unsubscribe by id, or in STOMP 1.0 by destination: the oldest one (S13).

        A subscription that does not exist, or no longer, is ignored (S14).

        Raises:
          ProtocolError: there is no such durable subscription, or its name is ambiguous.
        """
        found = self._find(client, event)
        name = durable_name(event.headers, client.client_id)
        if found is None:
            meant = (yield from self._meant(client, name, event)) if name else None
            if meant is not None:
                yield from self._end_durable(client, meant, now)
                for each in [one for one in client.subscriptions.values() if one.binding is meant]:
                    self.subscriptions.end(each, now)
                self._receipt(client, event)
                return
            if not name:
                self._receipt(client, event, b"ignored:%b\n" % _named(event))
                return
            label = event.destination or "what it names"
            what = label if event.id is None else f"id:{event.id[:60]}"
            raise ProtocolError(
                "unknown-subscription",
                f"{what} is no subscription of this connection, and"
                f" {unknown(name, event.destination)}",
            )
        binding = found.binding
        yield from self.subscriptions.ending(found, now)
        if isinstance(binding, Binding) and binding.durable and name:
            yield from self._end_durable(client, binding, now)
        self._receipt(client, event)

    def _meant(
        self, client: Client, name: str, event: Unsubscribed
    ) -> Generator[None, None, Binding | None]:
        """Return the durable subscription that an UNSUBSCRIBE names, or None.

        Those of other users do not exist for a user who may not end them.

        Raises:
          ProtocolError: the name is ambiguous.
        """
        aliases = self.dialect.destination_aliases
        name_in_header = event.destination
        if name_in_header is None or (aliases and name_in_header.startswith(DSUB)):
            meant = self.bindings.durables.meant(name)
        else:
            targets = resolve(name_in_header, self.dialect, routing_of(event.headers))
            meant = self.bindings.durables.meant(name, name_in_header, targets)
        if len(meant) > 1:
            # The user's own ones take precedence over those of other users.
            own = [binding for binding in meant if binding.owner == client.identity.name]
            meant = own or meant
        found = []
        for binding in meant:
            with suppress(ProtocolError):  # recorded
                yield from after(partial(self.authorizer.check_durable, client, binding))
                found.append(binding)
        if len(found) > 1:
            raise ambiguous(name, found)
        return found[0] if found else None

    def _end_durable(self, client: Client, binding: Binding, now: float) -> Work:
        """End a durable subscription, and make the client wait until that is stored.

        Raises:
          ProtocolError: it belongs to another user.
        """
        yield from after(partial(self.authorizer.check_durable, client, binding))
        if not binding.durable:
            return  # another client ended it meanwhile
        self.bindings.end_durable(binding, now)
        if self.log is not None:
            client.awaited = self.log.turn

    def _receipt(self, client: Client, event: Unsubscribed, lines: bytes = b"") -> None:
        if event.receipt is None:
            return
        frame = encode_receipt(event.receipt, lines)
        if self.log is not None:
            self.log.stage_when_safe(client, frame, event.receipt)
        else:
            client.outbox.stage_frame(frame)

    def _find(self, client: Client, event: Unsubscribed) -> Subscription | None:
        if event.id is None:
            return self._find_by_destination(client, event)
        found = client.subscriptions.get(event.id)
        if self.dialect.allows_repeated_subscription_id:
            found = self._find_repeated(client, event) or found
        if found is not None and event.destination and not self._alike(client, event, [found]):
            raise ProtocolError(
                "destination-mismatch",
                f"id:{event.id[:60]} is subscribed to {found.destination[:80]}, not to"
                f" {(event.destination or '')[:80]}; leave the destination out",
            )
        return found

    def _find_by_destination(self, client: Client, event: Unsubscribed) -> Subscription | None:
        """Return the oldest subscription to a destination: one without an id, or else any."""
        alike = self._alike(client, event, client.subscriptions.values())
        return next((each for each in alike if each.id is None), alike[0] if alike else None)

    def _alike(
        self, client: Client, event: Unsubscribed, among: Collection[Subscription]
    ) -> list[Subscription]:
        """Return the subscriptions to the destination that an UNSUBSCRIBE names, however spelt."""
        name = event.destination or ""
        same = [each for each in among if each.destination == name]
        if same:
            return same
        names = {
            client.temporary.get(each, each)
            for each in resolve(name, self.dialect, routing_of(event.headers))
        }
        return [each for each in among if {target for target, _ in each.targets} == names]

    def _find_repeated(self, client: Client, event: Unsubscribed) -> Subscription | None:
        """Return the oldest subscription with an ambiguous id, to the given destination if any."""
        for each in client.subscriptions.values():
            if each.id == event.id and event.destination in (None, each.destination):
                return each
        return None


def _named(event: Unsubscribed) -> bytes:
    """Return the name of the header by which an UNSUBSCRIBE names a subscription."""
    return b"destination" if event.id is None else b"id"
