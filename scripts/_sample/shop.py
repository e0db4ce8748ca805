"""A shop's broker over a day, minute by minute: the DIAG messages it would have published."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from attrs import define, field, frozen

from _sample.flow import Body, Flow, bell, between, queue

MIDNIGHT = datetime(2026, 3, 14, tzinfo=UTC)
ISO = "%Y-%m-%dT%H:%M:%S.%fZ"
INTERVAL_S = 60
EPOCH = "6c1f0a52d3b94b7e8f2a"
BOOTS = ("b07e44918c6d4f0da1c3", "2f90c1d7aa5e4c6b93e8")
MINUTES = 24 * 60
RESTART = 11 * 60 + 20
LOST = range(4 * 60, 4 * 60 + 12)
INPUT_CAPACITY, STALE_CAPACITY = 20_000, 4_000
BURST = (10 * 60 + 5, 10 * 60 + 35)
LEAK = (12 * 60, 16 * 60 + 30)
DAVE = (17 * 60 + 10, 17 * 60 + 40)
REPORTS = (19 * 60 + 30, 20 * 60 + 10)
EMAILS = (21 * 60, 21 * 60 + 25)


@frozen
class Message:
    """One message of the stream."""

    topic: str
    kind: str
    ts: datetime
    body: Body


def flows() -> list[Flow]:
    """Return the shop's traffic at noon: name, kind, messages a second, bytes, subscribers."""
    return [
        Flow("/queue/orders", "work-queue", 42.0, 412, 3, 3.0),
        Flow("/queue/invoices", "work-queue", 11.0, 1850, 2, 8.0),
        Flow("/queue/emails", "work-queue", 7.0, 940, 1, 14.0),
        Flow("/queue/audit", "work-queue", 25.0, 233, 1, 2.0),
        Flow("/topic/prices.eu", "topic", 120.0, 117, 6, 0.9),
        Flow("/topic/prices.us", "topic", 75.0, 117, 4, 0.9),
        Flow("/topic/reports", "topic", 2.5, 5200, 1, 1.2),
    ]


@define(eq=False)
class Shop:
    """Generates the day. It is the same each time."""

    chance: random.Random = field(factory=lambda: random.Random(14))
    flows: list[Flow] = field(factory=flows)
    boot: int = 0
    offset: int = 0
    minute: int = 0
    burst_drops: int = 0
    stale_drops: int = 0
    parked: int = 0
    processor_s: float = 40_000.0

    @property
    def ts(self) -> datetime:
        """Return the present moment of the day."""
        return MIDNIGHT + timedelta(minutes=self.minute, seconds=12)

    @property
    def since_start(self) -> int:
        """Return the minutes since the broker's start. The first start was two days earlier."""
        return self.minute - RESTART if self.boot else self.minute + 2 * MINUTES

    def day(self) -> Iterator[Message]:
        """Yield all messages of the day."""
        for minute in range(MINUTES):
            self.minute = minute
            if minute == RESTART:
                yield from self._restart()
            drops = self._advance()
            before = self.offset
            messages = [*self._events(drops), *self._statistics()]
            if minute not in LOST:
                yield from messages
            elif minute == LOST[0]:
                lost_from = before
            if minute == LOST[-1] + 1:
                yield self._gap(lost_from, before)

    def _restart(self) -> Iterator[Message]:
        self.boot = 1
        self.burst_drops = self.stale_drops = self.parked = 0
        self.processor_s = 0.0
        for flow in self.flows:
            flow.restart()
        for name, user in (("connect", "orders"), ("connect", "emails"), ("subscribe", "orders")):
            yield self._event(name, user=user)

    def _advance(self) -> dict[tuple[str, str, str], int]:
        """Advance a minute. Return the losses by reason, destination and user."""
        minute = self.minute
        share = 0.12 + 0.88 * bell(minute, 14 * 60, 270)
        burst = bell(minute, 10 * 60 + 20, 7) if between(minute, BURST) else 0.0
        drops = {}
        for flow in self.flows:
            factor = share * (1 + self.chance.randrange(-6, 7) / 100)
            sent = round(
                flow.rate
                * INTERVAL_S
                * factor
                * (1 + 9 * burst * (flow.name == "/topic/prices.eu"))
            )
            flow.advance(sent, 1 + 40 * burst)
            if burst > 0.55 and flow.name == "/topic/prices.eu":
                drops["input-queue-full", "", ""] = round(sent * (burst - 0.5) * 0.3)
            if between(minute, DAVE) and flow.name == "/topic/prices.us":
                drops["slow-consumer", flow.name, "dave"] = sent // 3
                flow.dropped += sent // 3
        self.burst_drops += drops.get(("input-queue-full", "", ""), 0)
        self._advance_consumers(drops)
        return {key: count for key, count in drops.items() if count}

    def _advance_consumers(self, drops: dict[tuple[str, str, str], int]) -> None:
        minute, by_name = self.minute, {flow.name: flow for flow in self.flows}
        audit, emails = by_name["/queue/audit"], by_name["/queue/emails"]
        audit.hold(between(minute, LEAK), 21, minute - LEAK[0])
        slow = between(minute, EMAILS)
        emails.unacked = 100 if slow else self.chance.randrange(0, 4)
        emails.oldest_unacked_s = 20 + 9 * (minute - EMAILS[0]) if slow else 0.4
        emails.depth = 160 * (minute - EMAILS[0]) if slow else max(0, emails.depth - 900)
        reports = by_name["/topic/reports"]
        reports.subscribers = 0 if between(minute, REPORTS) else 1
        self.parked = self.parked + 150 if between(minute, REPORTS) else 0
        if self.parked > STALE_CAPACITY:
            drops["stale-queue-full", "", ""] = self.parked - STALE_CAPACITY
            self.stale_drops += self.parked - STALE_CAPACITY
            self.parked = STALE_CAPACITY
        reports.parked = self.parked

    def _events(self, drops: dict[tuple[str, str, str], int]) -> Iterator[Message]:
        for (reason, destination, user), count in drops.items():
            yield self._event(
                "drop", user=user, destination=destination, reason=reason, detail=str(count)
            )
        minute = self.minute
        if between(minute, DAVE) and minute % 3 == 0:
            yield self._event(
                "slow", user="dave", destination="/topic/prices.us", reason="outbox-full"
            )
        if minute == DAVE[1]:
            yield self._event("disconnect", user="dave", reason="slow-consumer")
        if minute == LEAK[1]:
            yield self._event("disconnect", user="audit", reason="client-closed")

    def _statistics(self) -> Iterator[Message]:
        clients = 14 + round(20 * bell(self.minute, 14 * 60, 270)) - (self.minute > DAVE[1])
        yield self._say(
            "session",
            "DIAG/session",
            {
                "clients": clients,
                "websockets": clients // 3,
                "stomp_connected": clients - 1,
                "subscriptions": clients + 4,
                "received_total": sum(flow.enqueued for flow in self.flows),
                "delivered_total": sum(flow.delivered for flow in self.flows),
                "dropped_total": sum(flow.dropped for flow in self.flows),
            },
        )
        yield self._say("process", "DIAG/process", self._process(clients))
        input_depth = self._input_depth()
        yield self._say(
            "stale",
            "DIAG/stale",
            {
                "input_queue_size": input_depth,
                "output_queue_size": input_depth // 9,
                "stale_queue_size": self.parked,
                "stale_bytes": self.parked * 5200,
                "parked_total": self.parked + self.stale_drops,
                "revived_total": 0,
                "expired_total": 0,
                "dropped_total": self.stale_drops,
            },
        )
        yield self._list("destination", [flow.destination() for flow in self.flows])
        yield self._list("queue", list(self._queues(input_depth)))
        if self.minute % 15 == 0:
            yield self._list(
                "latency", [stage for flow in self.flows for stage in flow.latencies()]
            )
        if self.minute % 60 == 0:
            yield self._list("connection", list(self._connections()))
            yield self._list(
                "ws",
                [],
                allocated=0,
                hits=0,
                misses=self.since_start,
                dropped_frames=self.burst_drops,
                underruns_fixed=0,
                cache_entries=240,
            )

    def _input_depth(self) -> int:
        burst = bell(self.minute, 10 * 60 + 20, 9) if between(self.minute, BURST) else 0.0
        return (
            round(INPUT_CAPACITY * min(1.0, 1.25 * burst))
            if burst > 0.1
            else self.chance.randrange(9)
        )

    def _process(self, clients: int) -> Body:
        burst = bell(self.minute, 10 * 60 + 20, 9) if between(self.minute, BURST) else 0.0
        lag = (
            0.4 + 0.5 * bell(self.minute, 14 * 60, 270) + 95 * burst + self.chance.randrange(8) / 40
        )
        load = 0.02 + 0.2 * bell(self.minute, 14 * 60, 270) + 0.7 * burst
        self.processor_s += load * INTERVAL_S
        old = self.since_start
        rss = (52 << 20) + old * 27_000 + clients * 11_000 + int(burst * (60 << 20))
        return {
            "pid": 801 + 3000 * self.boot,
            "rss_bytes": rss,
            "vms_bytes": rss + (9 << 20),
            "cpu_user_s_total": round(self.processor_s * 0.7, 1),
            "cpu_sys_s_total": round(self.processor_s * 0.3, 1),
            "fds": clients + 12,
            "threads": 2,
            "trio_tasks": clients + 9,
            "loop_lag_ms_p50": round(lag / 8, 3),
            "loop_lag_ms_p99": round(lag, 3),
            "loop_lag_ms_max": round(lag * 2.6, 3),
            "gc_collections_total": [old * 40, old * 3, old // 9],
            "gc_pause_ms_total": old * 6.0,
            "gc_pause_ms_max": 2.0,
            "uptime_s": old * 60.0 + 12.0,
            "store_bytes": 4 << 20,
            "store_live_messages": 36,
            "store_syncs_total": old * 40,
            "store_sync_s_total": old * 6.0,
            "store_damaged_total": 0,
        }

    def _queues(self, input_depth: int) -> Iterator[Body]:
        yield queue(
            "input",
            input_depth=input_depth,
            input_bytes=input_depth * 260,
            capacity=INPUT_CAPACITY,
            oldest_input_age_s=None,
            dropped_total=self.burst_drops,
        )
        for flow in self.flows:
            if flow.kind == "work-queue":
                yield flow.queue()
            elif flow.parked:
                yield queue(
                    flow.name,
                    stale_depth=flow.parked,
                    input_bytes=flow.parked * 5200,
                    capacity=STALE_CAPACITY,
                    oldest_input_age_s=60.0 * (self.minute - REPORTS[0]),
                    dropped_total=self.stale_drops,
                )

    def _connections(self) -> Iterator[Body]:
        opened = (MIDNIGHT + timedelta(minutes=RESTART * self.boot)).strftime(
            "%Y-%m-%dT%H:%M:%S.000000Z"
        )
        for number, flow in enumerate(self.flows):
            yield {
                "session_id": f"17734464{self.boot}{number:02d}",
                "user": flow.name.rpartition("/")[2],
                "remote": f"10.0.3.{20 + number}:4{number}110",
                "transport": "ws" if number % 3 == 0 else "tcp",
                "stomp_version": "1.2",
                "state": "open",
                "connected_at": opened,
                "subscriptions": 1,
                "frames_in_total": flow.acked,
                "frames_out_total": flow.delivered,
                "bytes_in_total": flow.acked * 40,
                "bytes_out_total": flow.delivered * flow.size,
                "errors_total": 0,
                "heartbeats_missed_total": 0,
                "heartbeat_rtt_ms": None,
                "last_in_age_s": 0.5,
            }

    def _list(self, kind: str, items: list[Body], **beside: object) -> Message:
        topic = {"ws": "DIAG/ws_buffer", "latency": "DIAG/latency"}.get(kind, f"DIAG/{kind}s")
        return self._say(
            kind, topic, {"part": 1, "parts": 1, "full": True, **beside, "items": items}
        )

    def _event(self, name: str, **written: str) -> Message:
        body = dict.fromkeys(("name", "session_id", "user", "destination", "reason", "detail"), "")
        return self._say("event", f"DIAG/event/{name}", {**body, "name": name, **written}, 0.0)

    def _gap(self, lo: int, hi: int) -> Message:
        body: Body = {"lo": lo, "hi": hi, "prev_epoch": EPOCH, "reason": "retention"}
        # It uses no offset of its own: it has that of the first missing message.
        after, self.offset = self.offset, lo
        gap = self._say("_gap", "", body, 0.0)
        self.offset = after
        return gap

    def _say(
        self, kind: str, topic: str, reported: Body, interval_s: float = INTERVAL_S
    ) -> Message:
        ts = self.ts
        body: Body = {
            "v": 1,
            "broker_id": "north",
            "epoch": EPOCH,
            "offset": self.offset,
            "ts": ts.strftime(ISO),
            "interval_s": float(interval_s),
            "boot": BOOTS[self.boot],
            **reported,
        }
        self.offset += 1
        return Message(topic, kind, ts, body)
