"""Builds records of the schema's tables from the server and the broker, which stay unchanged."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import frozen

from trio_stomp.base import CloseReason
from trio_stomp.broker import (
    BOUNDS_MS,
    AnyBinding,
    Binding,
    Census,
    Destination,
    Histogram,
    ParkedDestination,
    Queue,
    Statistics,
    Subscription,
)
from trio_stomp.diag._stream import Record, timestamp

if TYPE_CHECKING:
    from trio_stomp.server import Connection, Server

INPUT = "input"
"""The name of the broker's input queue among the queues."""

_WITHOUT_ERROR = frozenset(
    {CloseReason.CLIENT_CLOSED, CloseReason.CLIENT_DISCONNECT, CloseReason.CONNECTION_LOST}
)


@frozen
class Stage:
    """The latencies of a destination's messages in one stage of their delivery."""

    destination: str
    name: str
    times: Histogram


def connection_record(connection: "Connection", now: float, wall_now: float) -> Record:
    """Return the fields of the table ``connection``.

    Args:
      connection: The connection.
      now: Seconds of the broker's clock.
      wall_now: Unix time at that moment.
    """
    client, outbox, session = connection.client, connection.outbox, connection.session
    has_error = (
        connection.lifecycle.pending_error is not None or connection.reason not in _WITHOUT_ERROR
    )
    return {
        "session_id": client.session_id,
        "user": client.user,
        "remote": client.remote,
        "transport": client.transport,
        "stomp_version": session.version.name if connection.is_open else "",
        "state": connection_state(connection),
        "connected_at": timestamp(wall_now - (now - connection.opened_at)),
        "subscriptions": len(client.subscriptions) + client.elsewhere,
        "frames_in_total": connection.frames_in,
        "frames_out_total": outbox.frames_out,
        "bytes_in_total": connection.bytes_in,
        "bytes_out_total": outbox.bytes_out,
        "errors_total": int(has_error),
        "heartbeats_missed_total": connection.heartbeats_missed,
        "heartbeat_rtt_ms": None,
        "last_in_age_s": max(0.0, now - connection.last_received),
    }


def connection_state(connection: "Connection") -> str:
    """Return ``opening``, ``open`` or ``closed``."""
    return "closed" if connection.outbox.is_closed else connection.session.state.name.lower()


def websocket_record(connection: "Connection") -> Record:
    """Return the fields of the table ``ws``, of a connection that is a WebSocket."""
    assert connection.websocket is not None
    websocket, outbox = connection.websocket.statistics(), connection.outbox
    return {
        "session_id": connection.client.session_id,
        "recv_buffer_bytes": websocket.buffered_bytes,
        "send_buffer_bytes": outbox.waiting_bytes,
        "send_buffer_limit_bytes": outbox.shared.limit_bytes,
        "send_buffer_hwm_bytes": outbox.peak_bytes,
        "pending_frames": outbox.waiting_messages,
        "fragments_total": websocket.fragments,
        "pings_total": websocket.pings,
        "pongs_total": websocket.pongs,
        "send_blocked_ms_total": outbox.blocked_s * 1000,
        "permessage_deflate": False,
        "compression_ratio": 1.0,
    }


def buffers_record(server: "Server", census: Census) -> Record:
    """Return the fields of ``DIAG/ws_buffer`` beside its items."""
    return {
        "allocated": census.ws_allocated,
        "hits": census.ws_hits,
        "misses": census.ws_misses,
        "dropped_frames": server.inbox.dropped,
        "underruns_fixed": server.websocket_reads.underruns_fixed,
        "cache_entries": server.codecs.cached_heads,
    }


def queue_record(
    server: "Server", thing: Queue | ParkedDestination | None, statistics: Statistics, now: float
) -> Record:
    """Return the fields of the table ``queue`` for a queue or parked messages.

    Args:
      server: The server.
      thing: The queue or parked messages; None = the input queue.
      statistics: The broker's statistics.
      now: Seconds of the broker's clock.
    """
    if thing is None:
        inbox = server.inbox
        return _queue_record(
            INPUT,
            input_depth=inbox.frames,
            input_bytes=inbox.bytes,
            capacity=server.limits.max_input_queue_size,
            oldest_input_age_s=None,
            dropped_total=inbox.dropped,
        )
    if isinstance(thing, Queue):
        return _waiting_record(thing, now)
    return _parked_record(thing, statistics.stale.capacity, now)


def _waiting_record(queue: Queue, now: float) -> Record:
    return _queue_record(
        queue.name,
        input_depth=queue.depth,
        ack_depth=queue.unacked,
        input_bytes=queue.size,
        capacity=queue.policy.max_messages,
        oldest_input_age_s=queue.oldest_waiting_age_s(now),
        oldest_unacked_age_s=queue.oldest_unacked_age_s(now),
        prefetch=sum(consumer.options.prefetch_count for consumer in queue.consumers),
        redelivered_total=queue.redelivered,
        expired_total=queue.destination.expired,
        dropped_total=queue.destination.dropped,
        nacked_total=queue.nacked,
        enqueued_total=queue.enqueued,
        acked_total=queue.dequeued,
    )


def _parked_record(parked: ParkedDestination, capacity: int, now: float) -> Record:
    return _queue_record(
        parked.destination.name,
        stale_depth=parked.size,
        input_bytes=parked.bytes,
        capacity=capacity,
        oldest_input_age_s=max(0.0, now - parked.first.publication.received_at),
        expired_total=parked.destination.expired,
        dropped_total=parked.destination.dropped,
    )


def _queue_record(destination: str, **fields: object) -> Record:
    record: Record = {
        "destination": destination,
        "subscription_id": None,
        "input_depth": 0,
        "stale_depth": 0,
        "ack_depth": 0,
        "input_bytes": 0,
        "capacity": 0,
        "oldest_input_age_s": 0.0,
        "oldest_unacked_age_s": 0.0,
        "prefetch": 0,
        "redelivered_total": 0,
        "expired_total": 0,
        "dropped_total": 0,
        "nacked_total": 0,
        "enqueued_total": 0,
        "acked_total": 0,
    }
    return record | fields


def destination_record(destination: Destination, statistics: Statistics) -> Record:
    """Return the fields of the table ``destination``."""
    subscribers, depth, unacked, acked, nacked = statistics.figures(destination)
    return {
        "destination": destination.name,
        "type": destination.kind.value,
        "subscribers": subscribers,
        "enqueued_total": destination.enqueued,
        "delivered_total": destination.delivered,
        "acked_total": acked,
        "nacked_total": nacked,
        "dropped_total": destination.dropped,
        "bytes_in_total": destination.bytes_in,
        "bytes_out_total": destination.bytes_out,
        "depth": depth + statistics.parked_at(destination.name),
        "unacked": unacked,
    }


def stages(destination: Destination) -> Iterator[Stage]:
    """Yield the stages with observed latencies of messages to ``destination``."""
    if destination.ingress is not None:
        yield Stage(destination.name, "ingress", destination.ingress)
    if destination.delivery is not None:
        yield Stage(destination.name, "delivery", destination.delivery)


def latency_record(stage: Stage) -> Record:
    """Return the fields of the table ``latency``."""
    names = {"destination": stage.destination, "stage": stage.name}
    return {**names, **times_record(stage.times), "le_ms": list(BOUNDS_MS)}


def times_record(times: Histogram) -> Record:
    """Return the fields of latencies, without the bounds of the buckets."""
    return {
        "count_total": times.count,
        "sum_ms_total": times.sum_s * 1000,
        "max_ms": times.max_s * 1000,
        "bucket_counts": list(times.buckets),
    }


def subscription_record(subscription: Subscription) -> Record:
    """Return the fields of a subscription. No table has them: they are only on pages."""
    client, consumer, binding = subscription.client, subscription.consumer, subscription.binding
    own = binding.queue if isinstance(binding, Binding) else None
    return {
        "state": "connected",
        "session_id": client.session_id,
        "user": client.user,
        "subscription_id": subscription.id,
        "destination": subscription.destination,
        "wildcard": any(pattern is not None for _, pattern in subscription.targets),
        "ack": "auto" if consumer is None else consumer.ack,
        **_selector_fields(subscription),
        "no_local": subscription.no_local,
        "durable": binding is not None and bool(binding.durable),
        **_durable_fields(binding),
        "consumers": 1 if own is None else len(own.consumers),
        "prefetch": 0 if consumer is None else consumer.options.prefetch_count,
        "waiting": None if own is None else own.depth,
        "unacked": 0 if consumer is None else len(consumer.unacked),
    }


def durable_record(binding: Binding) -> Record:
    """Return a durable subscription in the form of ``subscription_record``, connected or not.

    Fields of a single subscriber are filled only if there is exactly one.
    """
    consumers = binding.queue.consumers
    only = consumers[0] if len(consumers) == 1 else None
    client = None if only is None else only.subscription.client
    return {
        "state": "connected" if consumers else "away",
        "session_id": "" if client is None else client.session_id,
        "user": "" if client is None else client.user,
        "subscription_id": None if only is None else only.subscription.id,
        "destination": ",".join(name for name, _ in binding.targets),
        "wildcard": any(pattern is not None for _, pattern in binding.targets),
        "ack": None if only is None else only.ack,
        **_selector_fields(binding),
        "no_local": binding.no_local,
        "durable": True,
        **_durable_fields(binding),
        "consumers": len(consumers),
        "prefetch": sum(each.options.prefetch_count for each in consumers),
        "waiting": binding.queue.depth,
        "unacked": binding.queue.unacked,
    }


def _selector_fields(thing: Subscription | Binding) -> Record:
    text = "" if thing.selector is None else thing.selector.text
    return {"selector": thing.selector is not None, "selector_text": text}


def _durable_fields(binding: AnyBinding | None) -> Record:
    """Return the name of a durable subscription, its client id, and the user who made it."""
    if binding is None or not binding.durable:
        return {"name": None, "client_id": None, "owner": None}
    client_id, _, rest = binding.durable.partition("\0")
    name = rest.partition("\0")[0]  # the rest is the destination of a shared one
    return {"name": name, "client_id": client_id, "owner": binding.owner}


def session_record(statistics: Statistics, census: Census, dropped: int) -> Record:
    """Return the fields of the table ``session``; ``dropped`` is the sum over all reasons."""
    return {
        "clients": census.clients,
        "websockets": census.websockets,
        "stomp_connected": len(statistics.clients),
        "subscriptions": statistics.subscriptions,
        "received_total": statistics.messages.received,
        "delivered_total": statistics.messages.delivered,
        "dropped_total": dropped,
    }


def stale_record(statistics: Statistics, census: Census) -> Record:
    """Return the fields of the table ``stale``."""
    stale = statistics.stale
    return {
        "input_queue_size": census.input_queue_size,
        "output_queue_size": census.output_queue_size,
        "stale_queue_size": stale.size,
        "stale_bytes": stale.bytes,
        "parked_total": stale.parked,
        "revived_total": stale.revived,
        "expired_total": stale.expired,
        "dropped_total": stale.dropped,
    }
