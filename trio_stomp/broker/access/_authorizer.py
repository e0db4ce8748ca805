"""The authorizer: checks of access rules, after destinations are resolved.

Names are checked in their native form: composites and names of other brokers are resolved before,
a durable subscription is checked as its topics, and a stream as its topic.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import ANONYMOUS_NAME, CloseReason, Identity, ProtocolError, RemoteError, noop
from trio_stomp.broker.delivery import Client, NotYet, NullOutbox, Turns, TurnsHost, Work, after
from trio_stomp.broker.headers import Dialect, SendOptions, SendPlan, resolve
from trio_stomp.broker.names import PRIVATE_QUEUE, TRACE, Kind, Pattern, classify
from trio_stomp.broker.routing import BrokerEvents, Quotas
from trio_stomp.broker.rules import AccessRules, Action, needs

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import AnyBinding, Subscription, Target
    from trio_stomp.frames import Headers

QUESTIONS = "DIAG"
"""The destination as which the command DIAG is checked."""


@define(eq=False, repr=False)
class Authorizer:
    """Checks requests against the access rules. A client without ``rights`` may do everything.

    Each ``check_…`` raises ProtocolError ``not-authorized`` if a request is denied. For a wildcard
    with many patterns of rules it may raise NotYet: its work must be done first.

    Args:
      rules: The access rules; None = everything is allowed.
      is_there: Returns whether a queue exists or a policy names it, so that its use needs no right
        to create it.
    """

    events: BrokerEvents
    dialect: Dialect
    is_there: Callable[[str], bool]
    quotas: Quotas
    turns: Turns
    is_known: Callable[[Identity], bool]
    """Returns whether the credentials that proved an identity are still valid."""
    exists: Callable[[Identity], bool]
    """Returns whether a user still exists, as far as is known."""
    rules: AccessRules | None = None
    denied: int = 0
    revoked: int = 0
    """Scheduled messages and last values whose owner may no longer send them."""
    changes: int = 0
    """The generation of rules and users, counted up at each change. It travels with what is judged
    outside the core, which is judged again here if there was a change meanwhile."""
    unjudged: dict[Client, None] = field(factory=dict)
    """Clients still to be checked after a change of the rules."""
    _judge: Callable[[Client], None] = noop
    """Checks one of these clients, without its subscriptions."""

    def admit(self, client: Client) -> None:
        """Set the rights and quota of a client, by the current rules."""
        rules = self.rules
        client.rights = rules.rights(client.identity) if rules is not None else None
        client.quota = self.quotas.of(client)

    def check_login(self, identity: Identity, generation: int) -> None:
        """Check an identity that was authenticated in an earlier generation."""
        if generation != self.changes and not self.is_known(identity):
            raise _changed_users()

    def check_operator(self, identity: Identity, rights: Iterable[tuple[Action, str]]) -> None:
        """Check a user whose request has begun, and its rights, by the current users and rules."""
        self.check_login(identity, -1)
        for action, name in rights:
            lacks = self.lacks(identity, action, name)
            if lacks is not None:
                operator = Client("", NullOutbox(), user=identity.name, identity=identity)
                raise self._denied(operator, lacks, name)

    def lacks(self, identity: Identity, action: Action, name: str) -> Action | None:
        """Return the right that a user lacks for a part of an operation, or None.

        To send to a queue that is not there makes it, as for a client.
        """
        if self.rules is None:
            return None
        rights = self.rules.rights(identity)
        if not rights.allows(action, name):
            return action
        is_new = action is Action.SEND and classify(name) is Kind.QUEUE and self._is_new(name)
        return Action.CREATE if is_new and not rights.allows(Action.CREATE, name) else None

    def check_send(self, client: Client, plan: SendPlan) -> None:
        """Check a SEND to all destinations of a plan."""
        rights = client.rights
        if rights is None:
            return
        allowed_names = rights.allowed_names
        for name in plan.names:
            if name not in allowed_names:
                self._check_send_to(client, name, plan.options)
        if self.dialect.refuses_false_sender:
            for header, text in self.false_claims(client, plan):
                raise ProtocolError(
                    "not-authorized",
                    f"{header[:60]}:{text[:60]} is not the logged-in user; leave the header out",
                    reason=CloseReason.NOT_AUTHORIZED,
                )

    def false_claims(self, client: Client, plan: SendPlan) -> "Headers":
        """Return the headers of a SEND that claim to come from another user."""
        return tuple([pair for pair in plan.claims if pair[1] != client.user])

    def _check_send_to(self, client: Client, name: str, options: SendOptions | None) -> None:
        self._need(client, Action.SEND, name)
        if name == TRACE:
            self._need(client, Action.ADMIN, name)  # a trace shows messages of others
        kind = classify(name)
        if kind is Kind.QUEUE:
            self._check_new_queue(client, name)
        elif kind in (Kind.STREAM, Kind.DIAG):
            # A request: the broker sends its answer to ``reply-to``, on which the decision depends.
            for reply_to in resolve(options.reply_to, self.dialect) if options is not None else ():
                self._check_send_to(client, reply_to, None)
        else:
            assert client.rights is not None
            client.rights.allowed_names.add(name)

    def lets_send(self, owner: Identity | None, plan: SendPlan, count: int) -> bool:
        """Return whether the owner of scheduled messages or last values may send them now.

        A refusal is recorded as an event and counted.

        Args:
          owner: The owner; None = unknown (stored by an older broker), which is allowed.
          plan: The plan of the messages.
          count: The number of messages.
        """
        if self.rules is None or owner is None:
            return True
        absent = Client("", NullOutbox(), user=owner.name, identity=owner)
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
        """Return whether a client may end something of ``owner`` at ``names``.

        It may if it is the owner, or has the right ``admin`` on all names.
        """
        rights = client.rights
        if rights is None or (owner is not None and owner.name == client.identity.name != ""):
            return True
        return all(rights.allows(Action.ADMIN, name) for name in names)

    def allows_at_diag(self, identity: Identity, action: Action) -> bool:
        """Return whether a user has a right at DIAG, and so at what all users own."""
        return self.rules is None or self.rules.rights(identity).allows(action, QUESTIONS)

    def check_subscribe(
        self, client: Client, targets: Iterable["Target"], kind: Kind, *, browses: bool, lasts: bool
    ) -> None:
        """Check a SUBSCRIBE to all of ``targets``.

        Args:
          client: The subscriber.
          targets: The targets.
          kind: The kind of the targets.
          browses: It is a browser.
          lasts: The subscription is durable.
        """
        if client.rights is None:
            return
        own = client.temporary.values()
        action = Action.BROWSE if browses else Action.RECEIVE
        for name, pattern in targets:
            if name in own:
                continue  # checked when it was created
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
        """Apply new rules, and check connected clients and their subscriptions in pieces.

        A client that sends a frame meanwhile is checked before it (``judge``).

        Args:
          rules: The new rules; None = everything is allowed.
          clients: The connected clients.
          is_known: Returns whether an authenticated identity is still valid.
          host: Refuses clients and subscriptions that are no longer allowed.
        """
        for client in list(self.unjudged):
            self.judge(client)  # finish the previous change: ``is_known`` differs
        self.rules, self.is_known = rules, is_known
        self.changes += 1
        present = list(clients)
        self.unjudged = dict.fromkeys(present)

        def judge(client: Client) -> None:
            self.admit(client)
            if not is_known(client.identity):
                host.refuse(client, _changed_users(), self.turns.now)

        self._judge = judge
        for client in present:
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
        """Check a client before its next frame, if it was not checked since the last change."""
        if client in self.unjudged:
            del self.unjudged[client]
            self._judge(client)

    def _check_again(self, client: Client, each: "Subscription") -> None:
        """Check an existing subscription against new rules."""
        consumer, binding = each.consumer, each.binding
        targets = binding.targets if binding is not None else each.targets
        self.check_subscribe(
            client,
            targets,
            classify(targets[0][0]),
            browses=consumer is not None and consumer.options.browser,
            lasts=binding is not None and bool(binding.durable),
        )

    def check_temporary(self, client: Client, name: str) -> None:
        """Check the creation of a temporary destination, by its owner's name for it."""
        if client.rights is not None:
            self._need(client, Action.CREATE, name)

    def check_durable(self, client: Client, binding: "AnyBinding") -> None:
        """Check using, replacing or deleting an existing durable subscription."""
        for action, name, pattern in _of_durable(client, binding):
            self._need(client, action, name, pattern)

    def may_end_durable(self, client: Client, binding: "AnyBinding") -> bool:
        """Return whether ``check_durable`` lets a client pass, without recording a refusal.

        Raises:
          NotYet: As ``check_durable``.
        """
        return not any(self._missing(client, *each) for each in _of_durable(client, binding))

    def check_question(self, client: Client) -> None:
        """Check the command DIAG.

        Raises:
          ProtocolError: It is denied, or rules require a CONNECT first.
        """
        if self.rules is None:
            return
        if client.rights is None:
            raise ProtocolError("not-connected", "Not connected! Send CONNECT before DIAG")
        self._need(client, Action.MONITOR, QUESTIONS)

    def _check_new_queue(self, client: Client, name: str) -> None:
        if self._is_new(name):
            self._need(client, Action.CREATE, name)

    def _is_new(self, name: str) -> bool:
        """Return whether the use of a queue would make it."""
        return not (name.startswith(PRIVATE_QUEUE) or self.is_there(name))

    def _need(
        self, client: Client, action: Action, name: str, pattern: Pattern | None = None
    ) -> None:
        missing = self._missing(client, action, name, pattern)
        if missing is not None:
            raise self._denied(client, *missing)

    def _missing(
        self, client: Client, action: Action, name: str, pattern: Pattern | None
    ) -> tuple[Action, str] | None:
        """Return the first right that a client lacks for an action, and where, or None."""
        rights = client.rights
        assert rights is not None
        for need, target, pattern_needed in needs(action, name, pattern):
            if pattern_needed is None:
                is_allowed = rights.allows(need, target)
            elif rights.is_long(need, pattern_needed):
                raise NotYet(rights.asking(need, target, pattern_needed))
            else:
                is_allowed = rights.allows_pattern(need, target, pattern_needed)
            if not is_allowed:
                return need, target
        return None

    def _denied(self, client: Client, action: Action, name: str) -> ProtocolError:
        self.denied += 1
        self.events.record(
            "auth", client, destination=name, reason="not-authorized", detail=action.value
        )
        user = client.identity.name or ANONYMOUS_NAME
        return ProtocolError(
            "not-authorized",
            f"{user[:60]} may not {action.value} {name[:80]}; the operator's rules can allow it",
            reason=CloseReason.NOT_AUTHORIZED,
        )


def _changed_users() -> ProtocolError:
    return ProtocolError(
        "authentication-failed",
        "the login has expired, or the operator has changed the users; log in again",
        reason=CloseReason.AUTHENTICATION_FAILED,
    )


def _of_durable(
    client: Client, binding: "AnyBinding"
) -> Iterator[tuple[Action, str, Pattern | None]]:
    """Yield the actions that must be allowed to use or end an existing durable subscription."""
    if client.rights is None or binding.owner == client.identity.name != "":
        return
    # Without an owner, as created without authentication, the right to create is enough.
    action = Action.ADMIN if binding.owner else Action.CREATE
    for name, pattern in binding.targets:
        yield action, name, pattern
