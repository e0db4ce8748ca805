"""What a client may do, asked where it is known which destination is meant.

A client's own words never decide: composite and foreign names are resolved before, a temporary or
durable destination is judged as what it is to others, a stream as the topic that it is the log of.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import ANONYMOUS_NAME, CloseReason, Identity, ProtocolError, RemoteError
from trio_stomp.broker.delivery import Client, NotYet, Nowhere, Turns, TurnsHost, Work, after
from trio_stomp.broker.headers import Dialect, SendOptions, SendPlan, resolve
from trio_stomp.broker.names import PRIVATE_QUEUE, TRACE, Kind, Pattern, classify
from trio_stomp.broker.routing import BrokerEvents, Quotas
from trio_stomp.broker.rules import AccessRules, Action, needs

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import AnyBinding, Place, Subscription

QUESTIONS = "DIAG"
"""What the command DIAG is judged as."""


def _nothing_to_judge(_: Client) -> None:
    """Rules have not changed."""


def _exists(_: Identity) -> bool:
    """Nobody is known to have been removed."""
    return True


@define(eq=False, repr=False)
class Authorizer:
    """Judges what clients ask for. A client without ``rights`` may do everything.

    Each ``check_…`` raises ProtocolError ``not-authorized`` if the client may not; nothing has
    been changed then. Those that are asked about wildcards raise NotYet if the rules for one are
    so many that they are to be looked at first.

    Args:
      rules: What is granted to whom; None = nothing is denied to anybody.
      is_there: Whether a queue exists, or the operator's policies name it, so that sending to it
        or consuming from it creates nothing.
    """

    events: BrokerEvents
    dialect: Dialect
    is_there: Callable[[str], bool]
    quotas: Quotas
    turns: Turns
    rules: AccessRules | None = None
    denied: int = 0
    revoked: int = 0
    """Messages that were left behind by who may not send them any more."""
    changes: int = 0
    """Changes of the rules, or of the users that exist, so far."""
    exists: Callable[[Identity], bool] = _exists
    """Whether there is still such a user, as far as can be known."""
    unjudged: dict[Client, None] = field(factory=dict)
    """Who has yet to be judged by rules that have changed."""
    _judge: Callable[[Client], None] = _nothing_to_judge
    """Judges one of them; what it is subscribed to comes later."""

    def admit(self, client: Client) -> None:
        """Give a client the rights and the quota of who it is, by the rules of now."""
        rules = self.rules
        client.rights = rules.rights(client.identity) if rules is not None else None
        client.quota = self.quotas.of(client)

    def check_send(self, client: Client, plan: SendPlan) -> None:
        """SEND, to all that a header block names."""
        rights = client.rights
        if rights is None:
            return
        cleared = rights.cleared
        for name in plan.names:
            if name not in cleared:
                self._check_send_to(client, name, plan.options)
        for header, text in plan.claims:
            if text != client.user:
                raise ProtocolError(
                    "not-authorized",
                    f"{header[:60]}:{text[:60]} is not the logged-in user; leave the header out",
                    reason=CloseReason.NOT_AUTHORIZED,
                )

    def _check_send_to(self, client: Client, name: str, options: SendOptions | None) -> None:
        self._need(client, Action.SEND, name)
        if name == TRACE:
            self._need(client, Action.ADMIN, name)  # it shows what others send
        kind = classify(name)
        if kind is Kind.QUEUE:
            self._check_new_queue(client, name)
        elif kind is Kind.STREAM or (kind is Kind.DIAG and options is not None):
            # It asks what the broker knows, and has it send the answer.
            for told in resolve(options.reply_to, self.dialect) if options is not None else ():
                self._need(client, Action.SEND, told)
        else:
            assert client.rights is not None
            client.rights.cleared.add(name)

    def lets_send(self, owner: Identity | None, plan: SendPlan, count: int) -> bool:
        """Return whether an owner may send deferred messages now. A refusal is logged and counted.

        Wills and scheduled messages are sent after their owner has gone.

        Args:
          owner: None = unknown, and allowed: an older broker did not store it.
          plan: What is to be sent, and where to.
          count: The number of messages.
        """
        if self.rules is None or owner is None:
            return True
        absent = Client("", Nowhere(), user=owner.name, identity=owner)
        self.admit(absent)
        try:
            if not self.exists(owner):
                raise self._denied(absent, Action.SEND, plan.names[0])
            self.check_send(absent, plan)
        except ProtocolError:
            self.revoked += count
            return False
        return True

    def may_end(self, client: Client, owner: Identity | None, names: Iterable[str]) -> bool:
        """Return whether a client may end it: its own, or with ``admin`` on all ``names``."""
        rights = client.rights
        if rights is None or (owner is not None and owner.name == client.identity.name != ""):
            return True
        return all(rights.allows(Action.ADMIN, name) for name in names)

    def check_subscribe(
        self, client: Client, places: Iterable["Place"], kind: Kind, *, browses: bool, lasts: bool
    ) -> None:
        """SUBSCRIBE to all of ``places``.

        Args:
          client: The client.
          places: The targets.
          kind: The kind of destination.
          browses: It looks at a queue without consuming.
          lasts: It makes a durable subscription, or comes back to one.
        """
        if client.rights is None:
            return
        own = client.temporary.values()
        action = Action.BROWSE if browses else Action.RECEIVE
        for name, pattern in places:
            if name in own:
                continue  # making it was judged
            self._need(client, action, name, pattern)
            if lasts:
                self._need(client, Action.CREATE, name, pattern)
            elif kind is Kind.QUEUE and pattern is None and not browses:
                self._check_new_queue(client, name)

    def judging(
        self,
        rules: AccessRules | None,
        clients: Iterable[Client],
        is_known: Callable[[Identity], bool],
        host: TurnsHost,
    ) -> Work:
        """Judge by other rules from now on, and bit by bit those who are here.

        Who sends something before is judged then (``judge``); it stays subscribed until its turn.

        Args:
          rules: The new rules.
          clients: The clients to check.
          is_known: Whether an identity that was proved before would be today.
          host: Refuses those who may not stay as they are.
        """
        for client in list(self.unjudged):
            self.judge(client)  # of the rules before: each change asks who was known before it
        self.rules = rules
        self.changes += 1
        here = list(clients)
        self.unjudged = dict.fromkeys(here)

        def judge(client: Client) -> None:
            self.admit(client)
            if not is_known(client.identity):
                error = ProtocolError(
                    "authentication-failed",
                    "the operator has changed the users; log in again",
                    reason=CloseReason.AUTHENTICATION_FAILED,
                )
                host.refuse(client, error, self.turns.now)

        self._judge = judge
        for client in here:
            self.judge(client)
            yield
            for each in list(client.subscriptions.values()):
                if client.is_refused:
                    break
                try:
                    yield from after(partial(self._check_again, client, each))
                except RemoteError as error:
                    host.refuse(client, error, self.turns.now)
                yield

    def judge(self, client: Client) -> None:
        """Judge who has yet to be, before anything else is done for it."""
        if client in self.unjudged:
            del self.unjudged[client]
            self._judge(client)

    def _check_again(self, client: Client, each: "Subscription") -> None:
        """Judge what a client is subscribed to again, by rules that have changed."""
        consumer, binding = each.consumer, each.binding
        places = binding.places if binding is not None else each.places
        self.check_subscribe(
            client,
            places,
            classify(places[0][0]),
            browses=consumer is not None and consumer.options.browser,
            lasts=binding is not None and bool(binding.durable),
        )

    def check_temporary(self, client: Client, name: str) -> None:
        """Make a temporary destination, as its owner calls it."""
        if client.rights is not None:
            self._need(client, Action.CREATE, name)

    def check_durable(self, client: Client, binding: "AnyBinding") -> None:
        """Consume from a durable subscription that is there, replace it or end it for good."""
        if client.rights is None:
            return
        # What was made when nobody had to log in belongs to whoever may make the like.
        action = Action.ADMIN if binding.owner else Action.CREATE
        if binding.owner != client.identity.name or not binding.owner:
            for name, pattern in binding.places:
                self._need(client, action, name, pattern)

    def check_question(self, client: Client) -> None:
        """Check the command DIAG, which may come before CONNECT."""
        if self.rules is None:
            return
        if client.rights is None:
            raise ProtocolError("not-connected", "Not connected! Send CONNECT before DIAG")
        self._need(client, Action.MONITOR, QUESTIONS)

    def _check_new_queue(self, client: Client, name: str) -> None:
        if not (name.startswith(PRIVATE_QUEUE) or self.is_there(name)):
            self._need(client, Action.CREATE, name)

    def _need(
        self, client: Client, action: Action, name: str, pattern: Pattern | None = None
    ) -> None:
        rights = client.rights
        assert rights is not None
        for need, place, reach in needs(action, name, pattern):
            if reach is None:
                is_allowed = rights.allows(need, place)
            elif rights.is_long(need, reach):
                raise NotYet(rights.asking(need, place, reach))
            else:
                is_allowed = rights.allows_pattern(need, place, reach)
            if not is_allowed:
                raise self._denied(client, need, place)

    def _denied(self, client: Client, action: Action, name: str) -> ProtocolError:
        self.denied += 1
        self.events.tell(
            "auth", client, destination=name, reason="not-authorized", detail=action.value
        )
        who = client.identity.name or ANONYMOUS_NAME
        return ProtocolError(
            "not-authorized",
            f"{who[:60]} may not {action.value} {name[:80]}; the operator's rules can allow it",
            reason=CloseReason.NOT_AUTHORIZED,
        )
