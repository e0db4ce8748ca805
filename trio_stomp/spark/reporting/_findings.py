"""The findings of a report: the main results in words and numbers."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from attrs import frozen

from trio_stomp.base import rounded_size
from trio_stomp.spark._results import Results
from trio_stomp.spark._units import count, lasting, ms, share, short

BAD, WARN, NOTE, GOOD = "bad", "warn", "note", "good"
ORDER = (BAD, WARN, NOTE, GOOD)

SOON_H = 24.0 * 14
"""Growth that would take longer than this to fill the rest is not reported."""

REASONS = {
    "slow-consumer": "a subscriber was too slow",
    "input-queue-full": "the input queue was full",
    "no-subscriber": "nobody was subscribed",
    "stale-queue-full": "the stale queue was full",
    "queue-full": "a queue was full, and its policy drops",
    "backlog-full": "a subscription acknowledges too slowly",
    "unsent": "connections ended before all was sent to them",
    "backlog-abandoned": "a subscriber left before it had received older messages",
    "revoked": "their sender may no longer send to the destination",
    "too-many-events": "events, as there were too many",
}
QUEUES = {
    "input": "The input queue",
    "queue": "Queue",
    "stale": "The stale queue",
    "ack": "Prefetch",
}


@frozen
class Finding:
    """A result worth knowing.

    Args:
      grade: ``bad``, ``warn``, ``note`` or ``good``.
      title: A few words.
      text: A sentence or two.
    """

    grade: str
    title: str
    text: str


def findings(results: Results) -> list[Finding]:
    """Return all findings on one broker, the worst first."""
    found = [
        *_lost(results),
        *_episodes(results),
        *_consumers(results),
        *_subscribers(results),
        *_loop(results),
        *_room(results),
        *_starts(results),
        *_gaps(results),
        *_work(results),
    ]
    return sorted(found, key=lambda finding: ORDER.index(finding.grade))


def holes(results: Results) -> list[tuple[datetime, datetime]]:
    """Return the times without statistics in which the broker did not restart."""
    rows = sorted(results["load"], key=lambda row: row["bucket"])
    width = timedelta(seconds=results.thresholds.bucket_s)
    found = []
    for before, after in pairwise(rows):
        if after["bucket"] - before["bucket"] > 3 * width:
            found.append((before["bucket"] + width, after["bucket"]))
    return found


def starts(results: Results) -> list[tuple[datetime, float]]:
    """Return the restarts of the broker, with the seconds that it was not heard before each."""
    rows = sorted(results["starts"], key=lambda row: row["first"])
    return [
        (after["started"], max(0.0, (after["first"] - before["last"]).total_seconds()))
        for before, after in pairwise(rows)
    ]


def during(row: dict[str, Any], results: Results) -> str:
    """Return a text with the start, the end and the length of an episode."""
    begin, end = results.clock(row["begin"]), results.clock(row["end"])
    return f"{begin}-{end} ({lasting(row['seconds'])})"


def _lost(results: Results) -> Iterator[Finding]:
    by_reason: Counter[str] = Counter()
    for row in results["drops"]:
        by_reason[row["reason"]] += row["dropped"]
    unheard = by_reason.pop("no-subscriber", 0)
    if by_reason:
        parts = [
            f"{count(lost)} because {REASONS.get(reason, reason)}" if reason != "too-many-events"
            else f"{count(lost)} {REASONS[reason]}"
            for reason, lost in by_reason.most_common()
        ]  # fmt: skip
        yield Finding(BAD, f"{count(by_reason.total())} messages were lost", f"{'; '.join(parts)}.")
    if unheard:
        text = "They had no TTL, so they were not kept for a later one."
        yield Finding(NOTE, f"{count(unheard)} messages had no subscriber", text)


def _episodes(results: Results) -> Iterator[Finding]:
    for row in sorted(results["episodes"], key=lambda row: row["begin"]):
        kind, where = row["queue"], row["destination"]
        is_full = row["peak_fill"] >= 1
        name = QUEUES[kind] + ("" if kind == "input" else f" of {where}")
        grade = BAD if is_full and kind != "ack" else WARN
        state = "full" if is_full else f"{share(row['peak_fill'])} full"
        threshold = share(results.thresholds.saturated)
        yield Finding(
            grade,
            f"{name} was {state}",
            f"Above {threshold} during {during(row, results)}; at most"
            f" {count(row['peak_depth'])} of {count(row['capacity'])}.",
        )


def _consumers(results: Results) -> Iterator[Finding]:
    explanations = {
        "leaking": "more and more are never acknowledged",
        "stuck": "the oldest is never acknowledged",
        "slow": "they are acknowledged late",
    }
    for row in sorted(results["consumers"], key=lambda row: -row["seconds"]):
        verdict, destination = row["verdict"], row["destination"]
        title = {
            "leaking": f"A consumer of {destination} leaks",
            "stuck": f"A consumer of {destination} is stuck",
            "slow": f"Consumers of {destination} are slow",
        }[verdict]
        oldest = f", the oldest for {lasting(row['oldest_s'])}" if row["oldest_s"] else ""
        text = (
            f"{during(row, results)}: up to {count(row['unacked_peak'])} messages"
            f" without ACK{oldest}; {explanations[verdict]}."
        )
        if verdict == "leaking":
            text += f" It grows by {count(row['growth_per_h'])} an hour"
            text += f"; at {count(row['prefetch'])} nothing more is delivered."
        yield Finding(WARN if verdict == "slow" else BAD, title, text)


def _subscribers(results: Results) -> Iterator[Finding]:
    for row in sorted(results["slow_subscribers"], key=lambda row: row["begin"]):
        end = f", {count(row['dropped'])} messages lost" if row["dropped"] else ""
        end += "; it was disconnected for that" if row["put_out"] else ""
        seconds = (row["end"] - row["begin"]).total_seconds()
        # A single full row is a moment, not an episode.
        moment = f"At {results.clock(row['begin'])}"
        when = during({**row, "seconds": seconds}, results) if seconds >= 1 else moment
        often = "once" if row["times"] == 1 else f"{count(row['times'])} times"
        yield Finding(
            WARN,
            f"{row['user'] or 'A subscriber'} reads {row['destination'] or 'topics'} too slowly",
            f"{when}: its outbox was full {often}{end}.",
        )


def _loop(results: Results) -> Iterator[Finding]:
    limit = results.thresholds.lag_ms
    rows = results["load"]
    bad = [row for row in rows if row["loop_lag_ms_p99"] >= limit]
    if bad:
        worst = max(bad, key=lambda row: row["loop_lag_ms_max"])
        took = lasting(len(bad) * results.thresholds.bucket_s)
        yield Finding(
            WARN,
            f"The event loop was held for more than {ms(limit)}",
            f"By one turn in a hundred, during {took}; the longest took"
            f" {ms(worst['loop_lag_ms_max'])}, at {results.clock(worst['bucket'])}.",
        )


def _room(results: Results) -> Iterator[Finding]:
    for row in results["headroom"]:
        name, capacity, growth = row["resource"], row["capacity"], row["growth_per_h"]
        if name not in ("memory", "file descriptors") or not capacity:
            continue
        show = rounded_size if name == "memory" else count
        used = row["peak"] / capacity
        if used >= results.thresholds.saturated:
            text = f"At most {show(row['peak'])} of {show(capacity)} ({share(used)})."
            yield Finding(WARN, f"Little room: {name}", text)
        left_h = (capacity - row["latest"]) / growth if growth and growth > 0 else SOON_H
        if 0 < left_h < SOON_H:
            yield Finding(
                NOTE,
                f"The use of {name} grows",
                f"It was {show(row['latest'])} at the end; if it goes on at {show(growth)} an hour,"
                f" the limit of {show(capacity)} is reached in {lasting(left_h * 3600)}.",
            )


def _starts(results: Results) -> Iterator[Finding]:
    again = starts(results)
    if again:
        restarts = [
            f"{results.clock(start)} (not heard for {lasting(silent)})" for start, silent in again
        ]
        times = "once" if len(again) == 1 else f"{len(again)} times"
        text = f"At {', '.join(restarts)}. Counters started from 0, which rates take into account."
        yield Finding(NOTE if len(again) == 1 else WARN, f"The broker was restarted {times}", text)


def _gaps(results: Results) -> Iterator[Finding]:
    rows = results["gaps"]
    if rows:
        lost, reasons = sum(row["messages"] for row in rows), {row["reason"] for row in rows}
        silent = sum((end - begin).total_seconds() for begin, end in holes(results))
        text = f"Reason: {' and '.join(sorted(reasons))}."
        if silent:
            text += f" Nothing is known of {lasting(silent)}; rates there are means."
        yield Finding(NOTE, f"{count(lost)} messages of the statistics are missing", text)


def _work(results: Results) -> Iterator[Finding]:
    rows = results["top_destinations"]
    sent, delivered = (sum(row[name] for row in rows) for name in ("enqueued", "delivered"))
    times = [row["peak_per_s"] for row in rows]
    if not sent and not delivered:
        text = "The broker ran, and nobody sent a message."
        yield Finding(NOTE, "There was no traffic", text)
        return
    text = f"To {count(len(rows))} destinations"
    if busiest := max(rows, key=lambda row: row["enqueued"], default=None):
        part = busiest["enqueued"] / sent if sent else 0.0
        text += f"; {busiest['destination']} got {share(part)} of all that was sent"
        text += f", at most {short(max(times))} a second"
    yield Finding(GOOD, f"{short(sent)} messages came in, {short(delivered)} went out", f"{text}.")
