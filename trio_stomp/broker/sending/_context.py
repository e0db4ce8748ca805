"""The context of a SEND: its sender, its times, its quota, and the group that it is part of."""

from typing import TYPE_CHECKING

from trio_stomp.base import value

if TYPE_CHECKING:
    from trio_stomp.base import Identity, Quota
    from trio_stomp.broker.delivery import Client, Work


@value(eq=False, repr=False)
class SendContext:
    """The context of a SEND, the same for all its destinations.

    Args:
      client: The sender; None = the broker.
      quota: The quota charged for its messages.
      received_at: When it was read from the sender, in seconds of the broker's clock.
      now: The time, in seconds of the broker's clock.
      in_commit: It is part of a COMMIT, whose RECEIPT does not count its subscribers.
      is_atomic: It is part of an atomic group that is stored.
      answers: Gets the rest of answers to its requests, which may return an outcome; None = they
        are begun at once.
      owner: On whose behalf the broker sends it; None = unknown.
    """

    client: "Client | None"
    quota: "Quota | None"
    received_at: float
    now: float
    in_commit: bool = False
    is_atomic: bool = False
    answers: "list[Work] | None" = None
    owner: "Identity | None" = None

    def as_atomic(self) -> "SendContext":
        """Return the same for a SEND that is part of an atomic group."""
        return SendContext(
            self.client,
            self.quota,
            received_at=self.received_at,
            now=self.now,
            in_commit=self.in_commit,
            is_atomic=True,
            answers=self.answers,
            owner=self.owner,
        )

    @classmethod
    def of_broker(cls, quota: "Quota | None", now: float) -> "SendContext":
        """Return that of a SEND by the broker, on behalf of a quota's owner."""
        return cls(None, quota, received_at=now, now=now)
