"""The table of ``scripts/bench.py --peers``: all brokers side by side, with notes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from _bench.peer_brokers import OURS
from _bench.peers import Measurement, Report
from _bench.scenarios import Scenario
from _bench.spread import Row, Spread, spread_row

NONE = "\N{EN DASH}"

MILLION = ("million_s", "CPU s per million")
FIGURES = {
    "load": (MILLION,),
    "latency": (("p50_us", "p50, µs"), ("p99_us", "p99, µs"), MILLION),
    "idle": (("kib", "KiB each"), ("connects_per_s", "connects/s"), ("connect_us", "CPU µs each")),
}
"""The figures of each kind of scenario, with the titles of their rows."""
RATES = (("per_s", "deliveries/s"),)

PROMISES = """\
Processor time is that of a broker's process and its descendants. Latency is from the
generator's socket to the subscriber's, by the kernel's clock. What survives is on the disk before
its RECEIPT comes, but not alike: trio_stomp syncs once for all that waits by then, RabbitMQ for
groups of messages, ActiveMQ's KahaDB for each SEND that asks for a receipt."""


class Line(NamedTuple):
    """One line: a figure of a scenario, by broker and round."""

    scenario: Scenario
    figure: str
    called: str
    values: dict[str, dict[int, float]]

    def ratios(self, peer: str) -> list[float]:
        """Return the ratio of a peer's figure to ours, for each round that has both."""
        ours, theirs = self.values.get(OURS, {}), self.values.get(peer, {})
        return [theirs[each] / ours[each] for each in sorted(ours.keys() & theirs.keys())]


def lines(
    runs: Sequence[Measurement], scenarios: Sequence[Scenario], figures: Sequence[str] = ()
) -> Iterator[Line]:
    """Yield the lines of a table, or only those of some figures."""
    known = dict([*RATES, *(each for kind in FIGURES.values() for each in kind)])
    for scenario in scenarios:
        of_kind = FIGURES[kind_of(scenario)]
        for figure in figures or [name for name, _ in of_kind]:
            values: dict[str, dict[int, float]] = {}
            for run in runs:
                if run.scenario == scenario.name and figure in run.figures:
                    values.setdefault(run.peer, {})[run.round] = run.figures[figure]
            if values:
                yield Line(scenario, figure, known[figure], values)


def kind_of(scenario: Scenario) -> str:
    """Return the name in FIGURES of a scenario's lines."""
    if scenario.shape is None:
        return "idle"
    return "latency" if scenario.name.startswith("latency") else "load"


def shown(value: float) -> str:
    """Return a figure with about three significant digits."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def cell(values: Sequence[float]) -> str:
    """Return the median, and the least and the most if there are several."""
    if not values:
        return NONE
    spread = Spread.of(values)
    if len(values) == 1:
        return shown(spread.median)
    return f"{shown(spread.median)} ({shown(spread.least)}-{shown(spread.most)})"


def peers_table(
    report: Report, scenarios: Sequence[Scenario], peers: Sequence[str], machine: str
) -> str:
    """Return the tables and notes in Markdown.

    Args:
      peers: All brokers of the comparison, ours first.
      machine: A description of the machine.
    """
    there = [OURS, *(each for each in peers if each not in (OURS, *report.absent))]
    text = [*_table(list(lines(report.runs, scenarios)), there)]
    if rates := list(lines(report.runs, scenarios, [name for name, _ in RATES])):
        text += ["", *_table(rates, there)]
    text += ["", *_notes(report, scenarios, there), "", PROMISES, "", machine]
    return "\n".join(text)


def _table(table: Sequence[Line], peers: Sequence[str]) -> Iterator[str]:
    others = peers[1:]
    titles = [f"{OURS}: median", *(f"{each} | times {OURS}, in each round" for each in others)]
    yield f"| scenario | what | {' | '.join(titles)} |"
    yield "|---|---|--:" + "|--:|--:" * len(others) + "|"
    for line in table:
        cells = [_median(line, OURS)]
        for peer in others:
            cells += [_median(line, peer), cell(line.ratios(peer))]
        what = f"{line.scenario.what}: {line.called}"
        yield f"| {line.scenario.name} | {what} | {' | '.join(cells)} |"


def _median(line: Line, peer: str) -> str:
    values = line.values.get(peer)
    return shown(Spread.of([*values.values()]).median) if values else NONE


def _notes(report: Report, scenarios: Sequence[Scenario], there: Sequence[str]) -> Iterator[str]:
    """Yield the brokers that were measured, those that were not, and the reasons for missing
    figures."""
    named = (f"{each} ({report.servers[each]})" for each in there if report.servers.get(each))
    yield f"Measured: {', '.join(named) or 'no broker'}."
    for absent in report.absent.values():
        yield f"- not measured: {absent}"
    order = {each.name: place for place, each in enumerate(scenarios)}
    for (peer, scenario), reason in sorted(
        report.failures.items(), key=lambda each: (order[each[0][1]], each[0][0])
    ):
        yield f"- {NONE} {scenario}, {peer}: {reason}"


def peers_figures(report: Report, scenarios: Sequence[Scenario]) -> dict[str, object]:
    """Return the content of the file of figures, with all runs."""
    rows: list[Row] = []
    for line in lines(report.runs, scenarios):
        rows += [_row(line, peer) for peer in line.values]
    for line in lines(report.runs, scenarios, [name for name, _ in RATES]):
        rows += [_row(line, peer) for peer in line.values]
    return {
        "servers": report.servers,
        "absent": report.absent,
        "failures": [
            {"peer": peer, "scenario": scenario, "reason": reason}
            for (peer, scenario), reason in report.failures.items()
        ],
        "rows": rows,
        "runs": [run._asdict() for run in report.runs],
    }


def _row(line: Line, peer: str) -> Row:
    row: Row = {"scenario": line.scenario.name, "figure": line.figure, "peer": peer}
    row |= spread_row("value", [*line.values[peer].values()])
    if ratios := line.ratios(peer):
        row |= spread_row("ratio", ratios)
    return row
