"""What the messaging core lets an operator choose."""

from attrs import frozen

from trio_stomp.base import option

DROP_NEWEST = "drop-newest"
DROP_OLDEST = "drop-oldest"
DISCONNECT = "disconnect"
SEED = "seed"


@frozen
class BrokerPolicies:
    """Bounds and policies of destinations, subscriptions and the stale queue."""

    ttl_ms: int = option(
        0,
        "lifetime of a topic or work-queue message; 0 = no expiry, no stale queue",
        minimum=0,
        live=True,
    )
    max_stale_queue_size: int = option(
        1_000_000, "messages kept for late subscribers while they live", minimum=1, live=True
    )
    max_stale_queue_bytes: int = option(
        256 * 1024 * 1024,
        "memory of the messages kept for late subscribers",
        minimum=1024,
        live=True,
    )
    max_backlog_bytes: int = option(
        16 * 1024 * 1024,
        "messages waiting for a subscriber that still gets older ones",
        minimum=1024,
        live=True,
    )
    stale_overflow: str = option(
        DROP_NEWEST,
        "what goes when the stale queue is full",
        choices=(DROP_NEWEST, DROP_OLDEST),
        live=True,
    )
    slow_consumer: str = option(
        DISCONNECT,
        "what happens to a topic subscriber whose outbox is full",
        choices=(DISCONNECT, DROP_OLDEST, DROP_NEWEST),
        live=True,
    )
    max_subscriptions_per_connection: int = option(
        10_000, "subscriptions of one connection", minimum=1, live=True
    )
    max_durables_per_user: int = option(
        2_500,
        "durable subscriptions that one user may make, of the 10,000 of the broker",
        minimum=1,
        live=True,
    )
    max_schedules_per_user: int = option(
        100_000, "messages of one user that wait for their time", minimum=1, live=True
    )
    max_share_per_user: int = option(
        50,
        "percent of names, subscriptions and waiting messages that one user may have, of what"
        " others leave; 100 = all",
        minimum=1,
        live=True,
    )
    max_destinations: int = option(
        200_000, "destinations remembered; the idle ones go first", minimum=16, live=True
    )
    max_destination_bytes: int = option(1024, "longest destination name", minimum=16, live=True)
    persistent: str = option(
        "header",
        "which messages to queues are stored before RECEIPT, where no policy names the queue",
        choices=("header", "always", "never"),
        live=True,
    )
    max_redeliveries: int = option(
        4, "failed deliveries after which a message is dead, less one", minimum=0, live=True
    )
    ack_timeout_ms: int = option(
        0,
        "time to acknowledge, then a message is offered again; 0 = for ever",
        minimum=0,
        live=True,
    )
    dialect: str = option(
        "native",
        "whose habits decide where brokers differ",
        choices=("native", "rabbitmq", "activemq", "artemis", "apollo", "stompica"),
    )
    unknown_ack: str = option(
        "error", "an ACK of an unknown message is an ERROR, or ignored", choices=("error", "ignore")
    )
    explain_events: int = option(
        20_000, "events that explain answers from; and as many of what went wrong", minimum=0
    )
    monitor_interval_s: float = option(
        5.0, "time between messages on /queue/monitor; 0 = none", minimum=0.0
    )
    wildcards: str = option(
        "native", "wildcard grammar: ours, or stompica's prefix rule", choices=("native", SEED)
    )
