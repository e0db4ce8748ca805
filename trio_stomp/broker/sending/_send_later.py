"""A SEND whose headers tell when it is to be sent: its messages are kept until then."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from trio_stomp.broker.headers import JOB_IS, STORED, Removal

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Client
    from trio_stomp.broker.headers import SendPlan
    from trio_stomp.broker.sending._publisher import Publisher
    from trio_stomp.frames import Head


def schedule(
    publisher: "Publisher",
    client: "Client | None",
    head: "Head",
    plan: "SendPlan",
    bodies: list[bytes],
    now: float,
) -> tuple[int, bytes]:
    """Keep messages until their time, or end some that are kept; as ``Publisher.send``."""
    assert plan.schedule is not None
    count, log, known = len(bodies), publisher.log, publisher.known
    if isinstance(plan.schedule, Removal):
        assert client is not None  # the broker itself ends none so
        return count, publisher.scheduler.end(client, plan.schedule)
    name = plan.options.dedup_id if plan.options is not None else ""
    quota = publisher.quota_of(client)
    destination = publisher.destinations.open(plan.names[0], quota)
    # Told apart now: its repetitions are no duplicates.
    evidence = known.find(client, destination, name) if name else None
    if evidence is not None:
        publisher.duplicates += count
        return count, evidence
    if name:
        known.check_room(quota, destination, name)
    survives = log is not None and (publisher.binds or destination.stores(plan.options))
    with nullcontext() if log is None else log.together(is_kept=client is None):
        kept = bodies[:1] if name else bodies
        job = publisher.scheduler.keep(
            client,
            quota=quota,
            destination=destination,
            head=head,
            schedule=plan.schedule,
            bodies=kept,
            now=now,
            survives=survives,
        )
        if name:
            known.remember(client, quota, destination, name, is_stored=survives)
    publisher.duplicates += count - len(kept)
    stored = log.stored if log is not None and survives else STORED
    return count, stored + (JOB_IS % job)
