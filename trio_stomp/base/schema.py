"""The fields of every record that the broker publishes on its DIAG topics.

The one place that knows them: the broker makes records by these tables, and whoever stores them
(Spark, SQL) makes columns by them. Hence nothing is imported here but attrs.

A message's JSON body holds the fields of ``PREFIX``, then those of one table: directly, or once
for each thing reported as objects in the list ``items``, with ``PAGE`` and the table's ``beside``
next to it. Tables only ever gain fields; ``SCHEMA_VERSION`` changes when a field's meaning does.

``…_total`` counts since the boot began, and only grows within it: take differences. Other numbers
are of the moment ``ts``. A field that has no meaning for a thing is 0 or ""; one that is
``nullable`` is null where the broker does not know it.

``loop_lag_ms_…`` tell how long turns of the dispatcher held the event loop within the last
interval, output included: whatever else became ready meanwhile waited so long. They are taken over
turns, each counting once, from a histogram whose bounds double, so that p50 and p99 are right
within a factor of two; the maximum is exact. Short turns of other tasks are not in them.
"""

from attrs import frozen

SCHEMA_VERSION = 1

BIGINT = "BIGINT"
DOUBLE = "DOUBLE"
STRING = "STRING"
BOOLEAN = "BOOLEAN"
TIMESTAMP = "TIMESTAMP"
DOUBLES = "ARRAY<DOUBLE>"
BIGINTS = "ARRAY<BIGINT>"


@frozen
class Field:
    """One field of a record: the key in JSON, and the column in a table.

    Args:
      type: In SQL. A TIMESTAMP is written in ISO 8601, in UTC, with microseconds.
      nullable: Whether it may be null.
    """

    name: str
    type: str
    meaning: str
    nullable: bool = False


@frozen(eq=False)
class Table:
    """Records of one kind.

    Args:
      name: Of the table.
      topic: Where the broker publishes them; "" = it does not. One that ends with ``/`` is
        completed by the record's ``name``.
      fields: Behind those of ``PREFIX``, in order.
      is_list: Whether a message holds many records, in ``items``.
      beside: Fields of a message beside ``items``.
      headers: Names of the MESSAGE headers that repeat fields of the body, as stompica has them.
    """

    name: str
    topic: str
    fields: tuple[Field, ...]
    is_list: bool = False
    beside: tuple[Field, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> tuple[Field, ...]:
        """``PREFIX`` and the record's own fields: a whole row."""
        return PREFIX + self.fields


PREFIX = (
    Field("broker_id", STRING, "which broker; the same after a restart"),
    Field("epoch", STRING, "which beginning of its stream; a new one means that the log was lost"),
    Field("offset", BIGINT, "number of the message in its epoch, over all DIAG topics, from 0"),
    Field("ts", TIMESTAMP, "when the figures were taken; the same for all of one interval"),
    Field("interval_s", DOUBLE, "time between such messages; 0 = sent as it happens"),
    Field("v", BIGINT, "SCHEMA_VERSION"),
    Field("boot", STRING, "which start of the broker; counters begin anew with each"),
)

PAGE = (
    Field("part", BIGINT, "number of this message among those of one list, from 1"),
    Field("parts", BIGINT, "how many there are"),
    Field("full", BOOLEAN, "whether the list has everything, or what changed since the last one"),
)

CONNECTION = Table(
    "connection",
    "DIAG/connections",
    is_list=True,
    fields=(
        Field("session_id", STRING, "the session header of its CONNECTED"),
        Field("user", STRING, "its login"),
        Field("remote", STRING, "its address and port"),
        Field("transport", STRING, "tcp or ws"),
        Field("stomp_version", STRING, "negotiated; empty before CONNECT"),
        Field("state", STRING, "opening, open or closed (its farewell is not over)"),
        Field("connected_at", TIMESTAMP, "when it was accepted"),
        Field("subscriptions", BIGINT, "in force"),
        Field("frames_in_total", BIGINT, "frames received, heart-beats not counted"),
        Field("frames_out_total", BIGINT, "MESSAGEs sent"),
        Field("bytes_in_total", BIGINT, "bytes received"),
        Field("bytes_out_total", BIGINT, "bytes sent"),
        Field("errors_total", BIGINT, "ERRORs it was told: the first ends the connection"),
        Field("heartbeats_missed_total", BIGINT, "silences longer than promised"),
        Field("heartbeat_rtt_ms", DOUBLE, "STOMP heart-beats have no answer", nullable=True),
        Field("last_in_age_s", DOUBLE, "time since its last byte"),
    ),
)

WS = Table(
    "ws",
    "DIAG/ws_buffer",
    is_list=True,
    fields=(
        Field("session_id", STRING, "as in connection"),
        Field("recv_buffer_bytes", BIGINT, "held of a frame that is not yet whole"),
        Field("send_buffer_bytes", BIGINT, "waiting to be written"),
        Field("send_buffer_limit_bytes", BIGINT, "option max_outbox_bytes"),
        Field("send_buffer_hwm_bytes", BIGINT, "the most that ever waited for want of room"),
        Field("pending_frames", BIGINT, "MESSAGEs waiting to be written"),
        Field("fragments_total", BIGINT, "frames received that were only a part of a message"),
        Field("pings_total", BIGINT, "pings received"),
        Field("pongs_total", BIGINT, "pongs received"),
        Field("send_blocked_ms_total", DOUBLE, "time in which the socket took nothing"),
        Field("permessage_deflate", BOOLEAN, "whether frames are compressed: never"),
        Field("compression_ratio", DOUBLE, "bytes on the wire for one of payload"),
    ),
    beside=(
        Field("allocated", BIGINT, "bytes held of frames that are not yet whole, over all"),
        Field("hits", BIGINT, "reads that continued a frame"),
        Field("misses", BIGINT, "reads that began with a fresh one"),
        Field("dropped_frames", BIGINT, "frames dropped at a full input queue, on any transport"),
        Field("underruns_fixed", BIGINT, "reads that completed a frame begun by an earlier read"),
        Field("cache_entries", BIGINT, "header blocks remembered by the decoders"),
    ),
    headers=(("allocated", "allocated"), ("hits", "hits"), ("misses", "misses")),
)

QUEUE = Table(
    "queue",
    "DIAG/queues",
    is_list=True,
    fields=(
        Field("destination", STRING, "input = the broker's input queue"),
        Field("subscription_id", STRING, "whose share of the queue this is", nullable=True),
        Field("input_depth", BIGINT, "frames waiting for the dispatcher"),
        Field("stale_depth", BIGINT, "messages parked for the next subscriber"),
        Field("ack_depth", BIGINT, "messages delivered and not acknowledged"),
        Field("input_bytes", BIGINT, "bytes that wait here"),
        Field("capacity", BIGINT, "the most that may wait here, in frames or messages"),
        Field("oldest_input_age_s", DOUBLE, "age of the oldest that waits here", nullable=True),
        Field("oldest_unacked_age_s", DOUBLE, "age of the oldest not acknowledged"),
        Field("prefetch", BIGINT, "the most that may be not acknowledged"),
        Field("redelivered_total", BIGINT, "messages delivered again"),
        Field("expired_total", BIGINT, "messages that outlived their TTL"),
        Field("dropped_total", BIGINT, "messages thrown away"),
        Field("nacked_total", BIGINT, "messages refused"),
    ),
)

DESTINATION = Table(
    "destination",
    "DIAG/destinations",
    is_list=True,
    fields=(
        Field("destination", STRING, "its name"),
        Field("type", STRING, "topic, work-queue or diag"),
        Field("subscribers", BIGINT, "subscriptions that match it"),
        Field("enqueued_total", BIGINT, "messages sent to it"),
        Field("delivered_total", BIGINT, "copies given to subscribers"),
        Field("acked_total", BIGINT, "copies acknowledged"),
        Field("nacked_total", BIGINT, "copies refused"),
        Field("dropped_total", BIGINT, "messages or copies thrown away"),
        Field("bytes_in_total", BIGINT, "bytes of the bodies sent to it"),
        Field("bytes_out_total", BIGINT, "bytes of the copies given to subscribers"),
        Field("depth", BIGINT, "messages that wait at it for a subscriber"),
        Field("unacked", BIGINT, "copies delivered and not acknowledged"),
    ),
)

LATENCY = Table(
    "latency",
    "DIAG/latency",
    is_list=True,
    fields=(
        Field("destination", STRING, "as in destination"),
        Field("stage", STRING, "ingress: socket to dispatcher; delivery: socket to socket"),
        Field("count_total", BIGINT, "messages observed"),
        Field("sum_ms_total", DOUBLE, "their times, added up"),
        Field("max_ms", DOUBLE, "the longest of the boot"),
        Field("le_ms", DOUBLES, "upper bounds of the buckets but the last, which has none"),
        Field("bucket_counts", BIGINTS, "messages in each bucket; not added up over buckets"),
    ),
)

PROCESS = Table(
    "process",
    "DIAG/process",
    fields=(
        Field("pid", BIGINT, "process id"),
        Field("rss_bytes", BIGINT, "memory in use; where /proc is missing, the most so far"),
        Field("vms_bytes", BIGINT, "memory mapped"),
        Field("cpu_user_s_total", DOUBLE, "processor time in user mode, of the process's life"),
        Field("cpu_sys_s_total", DOUBLE, "processor time in the kernel, of the process's life"),
        Field("fds", BIGINT, "open file descriptors"),
        Field("threads", BIGINT, "threads"),
        Field("trio_tasks", BIGINT, "Trio tasks"),
        Field("loop_lag_ms_p50", DOUBLE, "half of the turns held the loop for less"),
        Field("loop_lag_ms_p99", DOUBLE, "99 of 100 turns held the loop for less"),
        Field("loop_lag_ms_max", DOUBLE, "the longest turn of the interval"),
        Field("gc_collections_total", BIGINTS, "garbage collections by generation"),
        Field("gc_pause_ms_total", DOUBLE, "time in them while somebody was subscribed here"),
        Field("gc_pause_ms_max", DOUBLE, "the longest of them in the interval"),
        Field("uptime_s", DOUBLE, "time since the boot began"),
        Field("store_bytes", BIGINT, "what the store takes on the disk", nullable=True),
        Field(
            "store_live_messages",
            BIGINT,
            "messages in it that are not finished with",
            nullable=True,
        ),
        Field(
            "store_syncs_total",
            BIGINT,
            "how often it has waited for the disk",
            nullable=True,
        ),
        Field("store_sync_s_total", DOUBLE, "how long, all told", nullable=True),
        Field("store_damaged_total", BIGINT, "records that it found damaged", nullable=True),
    ),
)

SESSION = Table(
    "session",
    "DIAG/session",
    fields=(
        Field("clients", BIGINT, "open connections that have sent something"),
        Field("websockets", BIGINT, "how many of them are WebSockets"),
        Field("stomp_connected", BIGINT, "STOMP sessions"),
        Field("subscriptions", BIGINT, "of all clients"),
    ),
    headers=(
        ("clients", "clients"),
        ("websockets", "websockets"),
        ("stomp_connected", "stomp_connected"),
        ("subscriptions", "subscriptions"),
    ),
)

STALE = Table(
    "stale",
    "DIAG/stale",
    fields=(
        Field("input_queue_size", BIGINT, "frames waiting for the dispatcher"),
        Field("output_queue_size", BIGINT, "MESSAGEs waiting for the writers"),
        Field("stale_queue_size", BIGINT, "messages parked for late subscribers"),
        Field("stale_bytes", BIGINT, "what they cost"),
        Field("parked_total", BIGINT, "messages parked"),
        Field("revived_total", BIGINT, "messages given to a late subscriber"),
        Field("expired_total", BIGINT, "messages that expired while parked"),
        Field("dropped_total", BIGINT, "messages that the stale queue had no room for"),
    ),
    headers=(
        ("input-queue-size", "input_queue_size"),
        ("output-queue-size", "output_queue_size"),
        ("stale-queue-size", "stale_queue_size"),
    ),
)

EVENT = Table(
    "event",
    "DIAG/event/",
    fields=(
        Field("name", STRING, "what happened; also the end of the topic's name"),
        Field("session_id", STRING, "to whom, as in connection"),
        Field("user", STRING, "its login"),
        Field("destination", STRING, "where"),
        Field("reason", STRING, "why"),
        Field("detail", STRING, "more, for people; of a drop: how many"),
    ),
)

GAP = Table(
    "_gap",
    "",
    fields=(
        Field("lo", BIGINT, "first offset that a reader of the stream missed"),
        Field("hi", BIGINT, "the offset behind the last that it missed"),
        Field("prev_epoch", STRING, "the epoch they belonged to"),
        Field("reason", STRING, "retention or epoch"),
    ),
)

REPORTED = (CONNECTION, WS, QUEUE, DESTINATION, LATENCY, PROCESS, SESSION, STALE)
"""What is published each interval."""
TABLES = (*REPORTED, EVENT, GAP)
