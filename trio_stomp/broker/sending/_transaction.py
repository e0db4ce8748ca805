"""COMMIT: all actions of a transaction or none (T04)."""

from collections.abc import Sequence
from contextlib import nullcontext

from attrs import define, field

from trio_stomp.base import FrameBug, RemoteError
from trio_stomp.broker.delivery import Client, NotYet, Work
from trio_stomp.broker.headers import SendOutcome, committed
from trio_stomp.broker.queues import Acknowledger, Claim, Overflow, QueueBook
from trio_stomp.broker.sending._context import SendContext
from trio_stomp.broker.sending._planned import Planner
from trio_stomp.broker.sending._publisher import Publisher
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Acked, Committed

Actions = Sequence[FrameRun | Acked]


@define(eq=False, repr=False)
class TransactionCommitter:
    """Checks transactions as a whole, then carries them out."""

    publisher: Publisher
    acknowledger: Acknowledger
    queues: QueueBook
    overflow: Overflow
    planner: Planner = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.planner = Planner(self.publisher, self.acknowledger, self.queues, self.overflow)

    def commit(
        self, client: Client, event: Committed, now: float, answers: list[Work]
    ) -> SendOutcome | None:
        """Carry out all actions in order. If one concerns the store, all take effect once stored.

        Args:
          client: The client.
          event: The COMMIT.
          now: The time, in seconds of the broker's clock.
          answers: Gets the rest of answers to its requests.

        Returns:
          The outcome; None = the client has gone, and a RECEIPT, which might reach it, were wrong.

        Raises:
          NotYet: It must wait. Nothing has been carried out.
          ProtocolError: An action is not allowed, or does not fit. Nothing has been carried out.
          FrameBug: Any other exception. Nothing has been stored.
        """
        if not event.actions and not self.publisher.later.is_done(client, now):
            return None
        try:
            return self.carry_out(client, self._resolved(client, event), now, answers)
        except NotYet:
            raise
        except RemoteError as error:
            error.receipt_id = error.receipt_id or event.receipt
            acks = [action for action in event.actions if isinstance(action, Acked)]
            self.acknowledger.free(client, acks)
            raise
        except Exception as bug:
            raise FrameBug(event.receipt) from bug

    def cost_of(self, client: Client, event: Committed) -> float:
        """Return what a COMMIT costs, in seconds; 0 = it is refused."""
        try:
            return self.planner.cost_of(client, self._resolved(client, event))
        except RemoteError:
            return 0.0

    def _resolved(self, client: Client, event: Committed) -> Actions:
        """Return the actions of a COMMIT, its ACKs by the ids of deliveries."""
        return [
            each if isinstance(each, FrameRun) else self.acknowledger.resolve(client, each)
            for each in event.actions
        ]

    def carry_out(
        self, client: Client, actions: Actions, now: float, answers: list[Work] | None
    ) -> SendOutcome:
        """Carry out actions, all or none. Arguments and errors as of ``commit``."""
        planned = self.planner.check(client, actions, now)
        context = SendContext(
            client,
            client.quota,
            received_at=now,
            now=now,
            in_commit=True,
            is_atomic=planned.survives,
            answers=answers,
        )
        return self._act(client, actions, context)

    def _act(self, client: Client, actions: Actions, context: SendContext) -> SendOutcome:
        log, now, is_atomic = self.publisher.log, context.now, context.is_atomic
        outcomes: list[SendOutcome] = []
        claims: list[Claim] = []
        try:
            with log.atomically(must_retry=False) if log and is_atomic else nullcontext():
                for action in actions:
                    if isinstance(action, FrameRun):
                        outcomes.append(self.publisher.send(context, action)[1])
                        continue
                    claims.append(claim := Claim(client, self.acknowledger, action))
                    claim.take()
                    if log is None or not is_atomic:
                        claim.commit(now)
                        continue
                    if not action.negative and (stored := claim.stored):
                        log.finish_all(stored)
                    log.when_safe(claim)
        except BaseException:
            for claim in claims:  # those that wait for the store, too
                claim.withdraw(now)
            raise
        return committed(outcomes)
