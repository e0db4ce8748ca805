"""One attack: a broker, an attacker, and other clients, measured before and during the attack."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, NamedTuple

from _bench.process import cpu_of, rss_bytes

from _proof import metered
from _proof.attacks import Assault
from _proof.judge import MIB, Verdict, judge_rss, rss_bound
from _proof.metered import LongestTurn
from _proof.neighbours import ATTACKER, NEIGHBOUR, hello, run_ping, run_probe
from _proof.tables import markdown
from _proof.watched import ProofError, Watched, watched_broker

IDLE_S = 3.0
AFTER_S = 1.0
"""Time after the attacker has left that still counts."""
PATIENCE_S = 300.0
SAMPLE_S = 0.1
GIVE_UP = 8
"""An attack ends when the broker has this multiple of its memory limit."""
LONGEST_S, P99_S = 0.200, 0.100
"""The longest wait of a neighbour, and that of 99 in 100, in processor time of the broker."""
LIVEZ_S = 1.0

_fork = multiprocessing.get_context("fork")


class Felt(NamedTuple):
    """The measurements of an attack."""

    name: str
    verdicts: list[Verdict]
    figures: dict[str, Any]


def run_attack(assault: Assault, work: Path, tree: Path) -> Felt:
    """Attack a broker of a checkout once.

    Raises:
      ProofError: the broker or another process failed before the attack.
    """
    with tempfile.TemporaryDirectory(dir=work) as directory:
        place = Path(directory)
        options = ["--max-memory-bytes", str(assault.limit_bytes), *assault.options]
        if assault.rules:
            (place / "acl.toml").write_text(assault.rules)
            options += ["--acl-file", str(place / "acl.toml")]
        if assault.policies:
            (place / "policies.toml").write_text(assault.policies)
            options += ["--policies", str(place / "policies.toml")]
        if assault.has_users:
            (place / "users").touch(0o600)
            (place / "users").write_text("".join(f"{n}:{n}\n" for n in (ATTACKER, NEIGHBOUR)))
            options += ["--passwd-file", str(place / "users")]
        if assault.is_stored:
            options += ["--data-dir", str(place / "data")]
        longest = LongestTurn(place / "turn")
        program = (str(Path(metered.__file__).resolve()), str(place / "turn"))
        felt: Felt | None = None
        try:
            with watched_broker(
                options, place / "broker.log", tree=tree, program=program
            ) as broker:
                felt = _attack(assault, broker, longest)
        except (ProofError, subprocess.TimeoutExpired) as error:
            if felt is None:
                raise ProofError(f"{assault.name}: {error}") from None
            # The attack broke the connection, which shows in the figures.
        return felt


def _attack(assault: Assault, broker: Watched, longest: LongestTurn) -> Felt:
    idle_bytes = rss_bytes(broker.pid)
    bound = GIVE_UP * rss_bound(assault.limit_bytes, idle_bytes)
    login = hello(NEIGHBOUR) if assault.has_users else hello()
    with (
        _process(run_ping, broker.port, broker.pid, login) as ping,
        _process(run_probe, broker.port) as probe,
        _process(_play, broker.port, assault) as attacker,
    ):
        for pipe in (ping, probe, attacker):
            _receive(pipe)
        alone = [_measure(pipe, IDLE_S) for pipe in (ping, probe)]
        longest.reset()
        used = cpu_of(broker.pid)
        for pipe in (ping, probe):
            pipe.send("begin")
        attacker.send("begin")
        began = time.monotonic()
        peak = _wait(attacker, broker, bound)
        took = time.monotonic() - began
        done = _receive(attacker) if attacker.poll() else {"refusals": ["broker killed"]}
        time.sleep(AFTER_S)
        beside = [_end(pipe) for pipe in (ping, probe)]
        with contextlib.suppress(OSError):
            peak = max(peak, broker.high_water_bytes())
            used = cpu_of(broker.pid).since(used)
        figures = {
            "limit_bytes": assault.limit_bytes,
            "idle_rss_bytes": idle_bytes,
            "peak_rss_bytes": peak,
            "turn_s": longest.seconds(),
            "broker_cpu_s": used.exact,
            "took_s": took,
            "ping_alone": alone[0],
            "ping": beside[0],
            "livez": beside[1],
            "refusals": sorted(set(done["refusals"])),
        }
    return Felt(assault.name, judge(figures), figures)


def judge(figures: dict[str, Any]) -> list[Verdict]:
    """Return the verdicts on the delay of other clients."""
    livez_s = figures["livez"]["longest"]
    return [
        *judge_waits(figures["ping"]),
        Verdict("/livez", livez_s <= LIVEZ_S, f"{livez_s * 1000:.0f} of {LIVEZ_S * 1000:g} ms"),
        judge_rss(figures["peak_rss_bytes"], figures["limit_bytes"], figures["idle_rss_bytes"]),
    ]


def judge_waits(waits: dict[str, float]) -> list[Verdict]:
    """Return whether a client that pings each 50 ms waits for the broker only as promised."""
    return [
        Verdict(
            f"ping-pong, {what}",
            waits[key] <= bound,
            f"{waits[key] * 1000:.1f} of {bound * 1000:g} ms of the broker's processor time",
        )
        for what, key, bound in (
            ("99 of 100", "cpu_p99", P99_S),
            ("longest", "cpu_longest", LONGEST_S),
        )
    ]


def _play(port: int, assault: Assault, pipe: Pipe) -> None:
    def begin() -> None:
        pipe.send({})
        pipe.recv()

    try:
        attackers = assault.run(port, begin)
    except OSError as error:
        pipe.send({"refusals": [type(error).__name__]})
        return
    pipe.send({"refusals": [each.refusal for each in attackers if each.refusal]})
    for each in attackers:
        each.close()


def _wait(attacker: Pipe, broker: Watched, bound: int) -> int:
    """Wait for the end of the attack or the memory limit. Return the peak resident memory."""
    until = time.monotonic() + PATIENCE_S
    peak = 0
    while not attacker.poll(SAMPLE_S) and time.monotonic() < until:
        with contextlib.suppress(OSError):
            peak = max(peak, rss_bytes(broker.pid))
        if peak > bound:
            os.kill(broker.pid, signal.SIGKILL)
            break
    return peak


@contextmanager
def _process(target: Callable[..., None], *arguments: object) -> Iterator[Pipe]:
    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def _measure(pipe: Pipe, seconds: float) -> dict[str, float]:
    pipe.send("begin")
    time.sleep(seconds)
    return _end(pipe)


def _end(pipe: Pipe) -> dict[str, float]:
    pipe.send("end")
    return _receive(pipe)


def _receive(pipe: Pipe) -> dict[str, Any]:
    if not pipe.poll(PATIENCE_S):
        raise ProofError("one of the clients does not answer")
    try:
        found: dict[str, Any] = pipe.recv()
        return found
    except EOFError:
        raise ProofError("one of the clients failed; see above") from None


def headline(felt: Felt) -> str:
    """Return one line of figures of an attack."""
    each = felt.figures
    return (
        f"{felt.name}: broker CPU {each['broker_cpu_s']:.1f} s, took {each['took_s']:.1f} s,"
        f" refused {', '.join(each['refusals']) or 'nothing'}"
    )


def table(felts: list[Felt]) -> str:
    """Return a table of all attacks in Markdown."""
    head = (
        "attack",
        "longest turn, CPU ms",
        "ping-pong p99 / longest, CPU ms",
        "by the clock: p50 / longest ms",
        "idle: p50 / longest ms",
        "`/livez` longest ms",
        "RSS MiB, of",
        "refused",
        "promises broken",
    )
    return markdown(head, map(_row, felts), ("attack", "refused"))


def _row(felt: Felt) -> tuple[str, ...]:
    each, failed = felt.figures, sum(not verdict.holds for verdict in felt.verdicts)
    bound = rss_bound(each["limit_bytes"], each["idle_rss_bytes"])
    return (
        felt.name,
        f"{each['turn_s'] * 1000:.1f}",
        _ms(each["ping"], "cpu_p99", "cpu_longest"),
        _ms(each["ping"], "p50", "longest"),
        _ms(each["ping_alone"], "p50", "longest"),
        f"{each['livez']['longest'] * 1000:.0f}",
        f"{each['peak_rss_bytes'] / MIB:.0f}, {bound / MIB:.0f}",
        ", ".join(each["refusals"]) or "-",
        f"{failed or 'all hold'}",
    )


def _ms(seen: dict[str, float], usual: str, longest: str) -> str:
    return f"{seen[usual] * 1000:.1f} / {seen[longest] * 1000:.1f}"
