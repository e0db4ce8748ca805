"""The fields of the records that the broker publishes on its DIAG topics.

The broker builds records by these tables, and consumers (Spark, SQL) derive columns from them. So
this module imports attrs only.

A message's JSON body has the fields of ``PREFIX``, then those of one table: directly; or as objects
in the list ``items``, with the fields of ``PAGE`` and the table's ``beside`` next to it. Fields are
never removed; ``SCHEMA_VERSION`` changes when the meaning of a field does.

``…_total`` counts since the start of the broker and never decreases within a boot: take
differences. Other numbers are as of ``ts``. A field that does not apply is 0 or ""; a ``nullable``
field is null if its value is unknown.

``loop_lag_ms_…`` is the time for which turns of the dispatcher, with their output, held the event
loop in the last interval: other tasks that became ready waited for it. Each turn counts once, in a
histogram whose bounds double, so p50 and p99 are exact within a factor of two; the maximum is
exact. Turns of other tasks are not included.
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
    """One field of a record: a key in JSON, and a column in a table.

    Args:
      type: The SQL type. A TIMESTAMP is in ISO 8601, in UTC, with microseconds.
      meaning: The description in the documentation.
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
      name: Name of the table.
      topic: The topic of its messages; "" = none. If it ends with ``/``, the record's ``name``
        follows.
      fields: The fields after those of ``PREFIX``, in order.
      is_list: Whether a message has many records, in ``items``.
      beside: Fields of a message next to ``items``.
      headers: MESSAGE headers that repeat fields of the body, for clients of stompica: name and
        field.
    """

    name: str
    topic: str
    fields: tuple[Field, ...]
    is_list: bool = False
    beside: tuple[Field, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> tuple[Field, ...]:
        """Return ``PREFIX`` and the record's own fields: a whole row."""
        return PREFIX + self.fields


PREFIX = (
    Field("broker_id", STRING, "id of the broker, which survives restarts"),
    Field("epoch", STRING, "epoch of the stream; a new one means that the log was lost"),
    Field("offset", BIGINT, "offset of the message in its epoch, over all DIAG topics, from 0"),
    Field("ts", TIMESTAMP, "time of the figures, the same for all messages of one interval"),
    Field("interval_s", DOUBLE, "time between such messages; 0 = sent for each event"),
    Field("v", BIGINT, "SCHEMA_VERSION"),
    Field("boot", STRING, "id of the broker's start, at which counters are reset"),
)

PAGE = (
    Field("part", BIGINT, "number of this message in its list, from 1"),
    Field("parts", BIGINT, "number of messages of the list"),
    Field("full", BOOLEAN, "whether the list is complete, or has changes since the last one only"),
)

CONNECTION = Table(
    "connection",
    "DIAG/connections",
    is_list=True,
    fields=(
        Field("session_id", STRING, "header session of its CONNECTED"),
        Field("user", STRING, "user that logged in"),
        Field("remote", STRING, "address and port of the client"),
        Field("transport", STRING, "tcp or ws"),
        Field("stomp_version", STRING, "negotiated version; empty before CONNECT"),
        Field("state", STRING, "opening, open or closed (still sending its last bytes)"),
        Field("connected_at", TIMESTAMP, "time when it was accepted"),
        Field("subscriptions", BIGINT, "number of subscriptions"),
        Field("frames_in_total", BIGINT, "frames received, without heart-beats"),
        Field("frames_out_total", BIGINT, "MESSAGEs sent"),
        Field("bytes_in_total", BIGINT, "bytes received"),
        Field("bytes_out_total", BIGINT, "bytes sent"),
        Field("errors_total", BIGINT, "ERRORs sent; the first one ends the connection"),
        Field("heartbeats_missed_total", BIGINT, "silences longer than negotiated"),
        Field("heartbeat_rtt_ms", DOUBLE, "always null: heart-beats have no answer", nullable=True),
        Field("last_in_age_s", DOUBLE, "time since its last byte"),
    ),
)

WS = Table(
    "ws",
    "DIAG/ws_buffer",
    is_list=True,
    fields=(
        Field("session_id", STRING, "as in connection"),
        Field("recv_buffer_bytes", BIGINT, "bytes of an incomplete frame"),
        Field("send_buffer_bytes", BIGINT, "bytes waiting to be written"),
        Field("send_buffer_limit_bytes", BIGINT, "option max_outbox_bytes"),
        Field("send_buffer_hwm_bytes", BIGINT, "maximum of bytes that waited for a full socket"),
        Field("pending_frames", BIGINT, "MESSAGEs waiting to be written"),
        Field("fragments_total", BIGINT, "frames received that were only a part of a message"),
        Field("pings_total", BIGINT, "pings received"),
        Field("pongs_total", BIGINT, "pongs received"),
        Field("send_blocked_ms_total", DOUBLE, "time in which the socket accepted no bytes"),
        Field("permessage_deflate", BOOLEAN, "always false: frames are not compressed"),
        Field("compression_ratio", DOUBLE, "bytes on the wire per byte of payload"),
    ),
    beside=(
        Field("allocated", BIGINT, "bytes of incomplete frames of all connections"),
        Field("hits", BIGINT, "reads that continued a frame"),
        Field("misses", BIGINT, "reads that began with a new frame"),
        Field("dropped_frames", BIGINT, "frames dropped at a full input queue, on any transport"),
        Field("underruns_fixed", BIGINT, "reads that completed a frame of an earlier read"),
        Field("cache_entries", BIGINT, "header blocks in the decoders' caches"),
    ),
    headers=(("allocated", "allocated"), ("hits", "hits"), ("misses", "misses")),
)

QUEUE = Table(
    "queue",
    "DIAG/queues",
    is_list=True,
    fields=(
        Field("destination", STRING, "name of the queue; input = the broker's input queue"),
        Field("subscription_id", STRING, "subscription that these figures are of", nullable=True),
        Field("input_depth", BIGINT, "frames waiting for the dispatcher"),
        Field("stale_depth", BIGINT, "messages parked for the next subscriber"),
        Field("ack_depth", BIGINT, "unacknowledged messages"),
        Field("input_bytes", BIGINT, "waiting bytes"),
        Field("capacity", BIGINT, "maximum of waiting frames or messages"),
        Field("oldest_input_age_s", DOUBLE, "age of the oldest waiting one", nullable=True),
        Field("oldest_unacked_age_s", DOUBLE, "age of the oldest unacknowledged message"),
        Field("prefetch", BIGINT, "maximum of unacknowledged messages"),
        Field("redelivered_total", BIGINT, "messages delivered again"),
        Field("expired_total", BIGINT, "messages whose TTL ended"),
        Field("dropped_total", BIGINT, "messages dropped"),
        Field("nacked_total", BIGINT, "messages rejected by NACK"),
        Field("enqueued_total", BIGINT, "messages added to the queue"),
        Field("acked_total", BIGINT, "messages that were delivered and acknowledged"),
    ),
)

DESTINATION = Table(
    "destination",
    "DIAG/destinations",
    is_list=True,
    fields=(
        Field("destination", STRING, "name of the destination"),
        Field("type", STRING, "topic, work-queue or diag"),
        Field("subscribers", BIGINT, "subscriptions that match it"),
        Field("enqueued_total", BIGINT, "messages sent to it"),
        Field("delivered_total", BIGINT, "copies delivered to subscribers"),
        Field("acked_total", BIGINT, "copies acknowledged"),
        Field("nacked_total", BIGINT, "copies rejected by NACK"),
        Field("dropped_total", BIGINT, "messages or copies dropped"),
        Field("bytes_in_total", BIGINT, "bytes of the bodies sent to it"),
        Field("bytes_out_total", BIGINT, "bytes of the copies delivered to subscribers"),
        Field("depth", BIGINT, "messages waiting for a subscriber"),
        Field("unacked", BIGINT, "unacknowledged copies"),
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
        Field("sum_ms_total", DOUBLE, "sum of their latencies"),
        Field("max_ms", DOUBLE, "maximum since the broker's start"),
        Field("le_ms", DOUBLES, "upper bounds of all buckets except the last, which has none"),
        Field("bucket_counts", BIGINTS, "messages in each bucket, not cumulative"),
    ),
)

PROCESS = Table(
    "process",
    "DIAG/process",
    fields=(
        Field("pid", BIGINT, "process id"),
        Field("rss_bytes", BIGINT, "resident memory; without /proc, its maximum so far"),
        Field("vms_bytes", BIGINT, "virtual memory"),
        Field("cpu_user_s_total", DOUBLE, "CPU time in user mode since the process began"),
        Field("cpu_sys_s_total", DOUBLE, "CPU time in the kernel since the process began"),
        Field("fds", BIGINT, "open file descriptors"),
        Field("threads", BIGINT, "threads"),
        Field("trio_tasks", BIGINT, "Trio tasks"),
        Field("loop_lag_ms_p50", DOUBLE, "median of the times that turns held the loop"),
        Field("loop_lag_ms_p99", DOUBLE, "99th percentile of the times that turns held the loop"),
        Field("loop_lag_ms_max", DOUBLE, "longest turn of the interval"),
        Field("gc_collections_total", BIGINTS, "garbage collections by generation"),
        Field("gc_pause_ms_total", DOUBLE, "time in them while this topic had subscribers"),
        Field("gc_pause_ms_max", DOUBLE, "longest of them in the interval"),
        Field("uptime_s", DOUBLE, "time since the broker's start"),
        Field("store_bytes", BIGINT, "size of the store on disk", nullable=True),
        Field("store_live_messages", BIGINT, "unfinished messages in the store", nullable=True),
        Field("store_syncs_total", BIGINT, "syncs of the store", nullable=True),
        Field("store_sync_s_total", DOUBLE, "total time of these syncs", nullable=True),
        Field("store_damaged_total", BIGINT, "damaged records found in the store", nullable=True),
    ),
)

SESSION = Table(
    "session",
    "DIAG/session",
    fields=(
        Field("clients", BIGINT, "open connections that have sent something"),
        Field("websockets", BIGINT, "connections of these over WebSocket"),
        Field("stomp_connected", BIGINT, "STOMP sessions"),
        Field("subscriptions", BIGINT, "subscriptions of all clients"),
        Field("received_total", BIGINT, "messages sent to a destination"),
        Field("delivered_total", BIGINT, "copies delivered to subscribers, DIAG messages too"),
        Field("dropped_total", BIGINT, "messages or copies dropped, for all reasons"),
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
        Field("stale_bytes", BIGINT, "bytes of parked messages"),
        Field("parked_total", BIGINT, "messages parked"),
        Field("revived_total", BIGINT, "messages delivered to late subscribers"),
        Field("expired_total", BIGINT, "messages that expired while parked"),
        Field("dropped_total", BIGINT, "messages dropped because the stale queue was full"),
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
        Field("name", STRING, "name of the event, with which the topic's name ends"),
        Field("session_id", STRING, "session concerned, as in connection"),
        Field("user", STRING, "user concerned"),
        Field("destination", STRING, "destination concerned"),
        Field("reason", STRING, "reason of the event"),
        Field("detail", STRING, "description; for a drop, the number of messages"),
    ),
)

GAP = Table(
    "_gap",
    "",
    fields=(
        Field("lo", BIGINT, "first offset that a reader of the stream missed"),
        Field("hi", BIGINT, "offset after the last one missed"),
        Field("prev_epoch", STRING, "epoch of these offsets"),
        Field("reason", STRING, "retention or epoch"),
    ),
)

REPORTED = (CONNECTION, WS, QUEUE, DESTINATION, LATENCY, PROCESS, SESSION, STALE)
"""The tables published at each interval."""
TABLES = (*REPORTED, EVENT, GAP)
