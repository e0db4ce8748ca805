"""One run of the overload: a broker, the load, the quiet neighbours, DIAG, and RSS each second."""

import multiprocessing
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, NamedTuple

from _bench.process import cpu_of, rss_bytes

from _proof.diag import Diag
from _proof.judge import Ledger, Times, Verdict, judge_rss
from _proof.load import Place, run_load
from _proof.side import DESTINATION, run_side
from _proof.watched import ProofError, Watched, watched_broker

READY_S = 60.0
SAMPLE_S = 1.0
SETTLE_S = 1.0
PATIENCE_S = 240.0
"""Additional time for the drain."""
SKIP_SHARE = 0.1
"""Share of the run before the times count, while the outboxes fill."""

_fork = multiprocessing.get_context("fork")


class Scenario(NamedTuple):
    """A load, and the broker's options for it.

    Args:
      places: The destinations of the load with ``stuck`` subscribers in each.
      stuck_lives: Whether the broker disconnects stuck clients, which then connect again.
    """

    name: str
    options: tuple[str, ...]
    policies: str
    places: tuple[Place, ...]
    stuck_lives: bool


class Shape(NamedTuple):
    """The common parameters of all runs."""

    seconds: float
    side_subscribers: int
    side_rate: float
    max_memory_bytes: int
    broker_options: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """The result of one run."""

    scenario: str
    stuck: int
    verdicts: list[Verdict]
    own: Times
    side: Times
    figures: dict[str, Any]


def run_scenario(scenario: Scenario, shape: Shape, work: Path) -> Outcome:
    """Run a scenario once.

    Raises:
      ProofError: the broker or the generator failed.
    """
    with tempfile.TemporaryDirectory(dir=work) as directory:
        policies = Path(directory) / "policies.toml"
        policies.write_text(scenario.policies)
        options = (
            *("--max-memory-bytes", str(shape.max_memory_bytes)),
            *("--diag-interval-s", "1", "--diag-full-s", "0"),
            *("--policies", str(policies), *scenario.options, *shape.broker_options),
        )
        with watched_broker(options, Path(directory) / "broker.log") as broker:
            time.sleep(SETTLE_S)
            outcome = _run(scenario, shape, broker)
            bad = broker.bad_lines()
    clean = Verdict("no bug in the log", not bad, bad[0] if bad else "nothing")
    outcome.verdicts.append(clean)
    return outcome


def _run(scenario: Scenario, shape: Shape, broker: Watched) -> Outcome:
    idle = rss_bytes(broker.pid)
    load, loading = _start(
        run_load, broker.port, scenario.places, shape.seconds, stuck_lives=scenario.stuck_lives
    )
    skip_s = shape.seconds * SKIP_SHARE
    side, siding = _start(
        run_side,
        *(broker.port, shape.side_subscribers, shape.side_rate, shape.seconds),
        skip_s=skip_s,
    )
    diag = Diag(broker.port)
    try:
        for pipe in (loading, siding):
            _receive(pipe, READY_S)
        diag.wait_ticks(1, 5.0)
        used = cpu_of(broker.pid)
        for pipe in (loading, siding):
            pipe.send("go")
        samples = _sample(broker, loading, shape.seconds)
        seen_side = _receive(siding, PATIENCE_S)
        at_end, drained, generator_s = _receive(loading, PATIENCE_S)
        used = cpu_of(broker.pid).since(used)
        samples.append(rss_bytes(broker.pid))
        diag.wait_ticks(3, 10.0)
        ledgers = [
            _ledger(place, each, diag) for place, each in zip(scenario.places, drained, strict=True)
        ]
        peak = max(*samples, broker.high_water_bytes())
        verdicts = [judge_rss(peak, shape.max_memory_bytes, idle)]
        verdicts += [verdict for ledger in ledgers for verdict in ledger.verdicts()]
        # Messages of a queue's stuck consumer are redelivered after later ones, so their order is
        # not checked.
        is_queue = any(place.acks for place in scenario.places)
        verdicts += _sanity(seen_side, at_end if is_queue else drained, diag)
        figures = {
            "idle_rss_bytes": idle,
            "peak_rss_bytes": peak,
            "rss_bytes": samples,
            "broker_cpu_s": used.exact,
            "generator_cpu_s": generator_s,
            "side": _summary(seen_side),
            "load": [_summary(each) for each in at_end],
            "drained": [_summary(each) for each in drained],
            **_sums(ledgers, diag),
        }
        own = Times.sum_of(Times(each["times"]) for each in at_end)
        stuck = sum(place.stuck for place in scenario.places)
        return Outcome(scenario.name, stuck, verdicts, own, Times(seen_side["times"]), figures)
    finally:
        for process, pipe in ((load, loading), (side, siding)):
            if process.is_alive():
                _tell(pipe)
                process.join(5.0)
            process.kill()
        diag.close()


def _start(target: Any, *arguments: Any, **named: Any) -> tuple[Any, Pipe]:  # noqa: ANN401
    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=target, args=(*arguments, theirs), kwargs=named, daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _receive(pipe: Pipe, limit_s: float) -> Any:  # noqa: ANN401
    if not pipe.poll(limit_s):
        raise ProofError(f"the generator said nothing for {limit_s:g} s")
    try:
        return pipe.recv()
    except EOFError:
        raise ProofError("the generator died; see its traceback above") from None


def _tell(pipe: Pipe) -> None:
    try:
        pipe.send("end")
    except OSError:
        return


def _sample(broker: Watched, loading: Pipe, seconds: float) -> list[int]:
    """Return RSS each second, until the load ends."""
    samples = []
    limit = time.monotonic() + seconds + PATIENCE_S
    while not loading.poll(SAMPLE_S):
        samples.append(rss_bytes(broker.pid))
        if time.monotonic() > limit:
            raise ProofError("the load did not come to an end")
    _receive(loading, 1.0)
    return samples or [rss_bytes(broker.pid)]


def _ledger(place: Place, seen: Mapping[str, Any], diag: Diag) -> Ledger:
    result = diag.items.get("DIAG/destinations", {}).get(place.destination, {})
    reasons = {reason: n for (name, reason), n in diag.drops.items() if name == place.destination}
    waiting = int(result.get("depth", 0)) + int(result.get("unacked", 0))
    nobody = 0
    if not place.acks:
        # The event has no destination, but all other destinations of the run have subscribers.
        nobody = reasons["no-subscriber"] = diag.drops["", "no-subscriber"]
        # Unwritten messages of a disconnected client have no destination either.
        reasons |= {
            reason: reasons.get(reason, 0) + diag.drops["", reason]
            for reason in ("unsent", "queue-full", "backlog-full")
            if diag.drops["", reason]
        }
        waiting = diag.figure("DIAG/stale", "output_queue_size")
    return Ledger(
        place.destination,
        seen["receipts"] if place.acks else seen["matched"],
        seen["acked"] if place.acks else seen["received"],
        int(result.get("dropped_total", 0)),
        waiting,
        reasons,
        diag.events_lost,
        nobody,
    )


def _sanity(
    side: Mapping[str, Any], load: Sequence[Mapping[str, Any]], diag: Diag
) -> list[Verdict]:
    """Return verdicts that must hold for the figures to mean anything."""
    disorder = side["disorder"] + sum(each["disorder"] for each in load)
    return [
        Verdict("in order", disorder == 0, f"{disorder} messages came out of order"),
        Verdict(
            f"nothing lost on {DESTINATION}",
            not side["lost"] and not side["errors"],
            f"{side['lost']} of {side['sent']} x subscribers, errors {side['errors'] or 'none'}",
        ),
        Verdict("DIAG is heard to the end", not diag.error, diag.error or "yes"),
    ]


def _sums(ledgers: Sequence[Ledger], diag: Diag) -> dict[str, Any]:
    """Return the figures of DIAG, and their sums."""
    return {
        "ledgers": [ledger._asdict() for ledger in ledgers],
        "missing": sum(ledger.missing for ledger in ledgers),
        "ends": dict(diag.ends),
        "drops": {f"{name} {reason}": n for (name, reason), n in diag.drops.items()},
    }


def _summary(seen: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in seen.items() if name != "times"}
