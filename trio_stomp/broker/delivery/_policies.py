"""Options of the messaging core."""

from attrs import frozen

from trio_stomp.base import option

DROP_NEWEST = "drop-newest"
DROP_OLDEST = "drop-oldest"
DISCONNECT = "disconnect"
SEED = "seed"


@frozen
class BrokerPolicies:
    """Limits and policies of destinations, subscriptions and the stale queue."""

    ttl_ms: int = option(
        0,
        "lifetime of a topic or work-queue message; 0 = no expiry, no stale queue",
        minimum=0,
        live=True,
    )
    max_stale_queue_size: int = option(
        1_000_000, "messages parked for late subscribers until they expire", minimum=1, live=True
    )
    max_stale_queue_bytes: int = option(
        256 * 1024 * 1024,
        "memory for messages parked for late subscribers",
        minimum=1024,
        live=True,
    )
    max_backlog_bytes: int = option(
        16 * 1024 * 1024,
        "messages queued for a subscriber that is still catching up",
        minimum=1024,
        live=True,
    )
    stale_overflow: str = option(
        DROP_NEWEST,
        "which message a full stale queue drops",
        choices=(DROP_NEWEST, DROP_OLDEST),
        live=True,
    )
    slow_consumer: str = option(
        DISCONNECT,
        "policy for a topic subscriber whose outbox or backlog is full",
        choices=(DISCONNECT, DROP_OLDEST, DROP_NEWEST),
        live=True,
    )
    max_subscriptions_per_connection: int = option(
        10_000, "maximum number of subscriptions of one connection", minimum=1, live=True
    )
    max_durables_per_user: int = option(
        2_500, "durable subscriptions per user, of the broker's 10,000", minimum=1, live=True
    )
    max_schedules_per_user: int = option(
        100_000, "scheduled messages per user", minimum=1, live=True
    )
    max_share_per_user: int = option(
        50,
        "quota of one user: percent of the names, subscriptions, waiting and stored messages that "
        "others leave; 100 = all",
        minimum=1,
        live=True,
    )
    max_destinations: int = option(
        200_000,
        "maximum number of destinations; idle ones are forgotten first",
        minimum=16,
        live=True,
    )
    max_destination_bytes: int = option(
        1024, "maximum length of a destination name", minimum=16, live=True
    )
    persistent: str = option(
        "header",
        "which messages to queues are stored before RECEIPT, for queues without a policy",
        choices=("header", "always", "never"),
        live=True,
    )
    max_redeliveries: int = option(
        4, "redeliveries after which a failed message becomes a dead letter", minimum=0, live=True
    )
    ack_timeout_ms: int = option(
        0,
        "time to acknowledge a message before it is redelivered; 0 = unlimited",
        minimum=0,
        live=True,
    )
    dialect: str = option(
        "native",
        "broker whose behaviour applies where brokers differ",
        choices=("native", "rabbitmq", "activemq", "artemis", "apollo", "stompica"),
    )
    unknown_ack: str = option(
        "error",
        "policy for an ACK of an unknown message: ERROR, or ignore",
        choices=("error", "ignore"),
    )
    explain_events: int = option(
        20_000, "events remembered for explain, and as many failures", minimum=0
    )
    monitor_interval_s: float = option(
        5.0, "interval of messages on /queue/monitor; 0 = none", minimum=0.0
    )
    wildcards: str = option(
        "native", "wildcard grammar: ours, or stompica's prefix rule", choices=("native", SEED)
    )
