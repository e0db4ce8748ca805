"""Write docs/reference/interoperability.md: the results of foreign clients with this broker.

python scripts/interop_table.py            print the page
python scripts/interop_table.py --write    write it

It is made from expected.toml, reports.toml and results.json in tests/interop. The latter is written
by the tests, from a broker and clients that run:
TRIO_STOMP_INTEROP_RESULTS=tests/interop/results.json pytest tests/foreign/test_interop.py
"""

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from _check.page import print_or_write
from _suites import report

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "tests" / "interop"
PAGE = ROOT / "docs" / "reference" / "interoperability.md"

STEPS: Mapping[str, str] = {
    "connect": "CONNECT, and CONNECTED with a version of STOMP",
    "heart-beat": "heart-beats both ways; after 2 s of silence except for them, everything works",
    "topic": "SUBSCRIBE, SEND, MESSAGE: UTF-8 in the body, a custom header",
    "together": "20 messages that wait in a queue and arrive in one segment",
    "ack-auto": "`ack:auto`: delivered messages do not come again",
    "ack-client": "`ack:client`: ACK of the second of three; the third comes again",
    "ack-client-individual": "`ack:client-individual`: the same; the first and third come again",
    "nack": "NACK: the message comes again, with `redelivered:true`",
    "commit": "BEGIN, SEND, COMMIT: the message comes then, and not before",
    "abort": "BEGIN, SEND, ABORT: it never comes",
    "receipt": "SEND with `receipt`, and its RECEIPT",
    "reply": "a request with `reply-to:/temp-queue/answers`, answered by another connection",
    "wildcard": "SUBSCRIBE to `/topic/wild.*`",
    "binary": "1,000,000 bytes of all 256 values, NUL too, through a queue; SHA-256",
    "reconnect": "the connection is cut; the column says who connects again",
    "ordered-stop": "the broker stops in order (SIGTERM) and starts again: as above",
}
TRANSPORTS = {"tcp": "TCP", "tls": "TLS", "ws": "WebSocket", "wss": "wss"}

HEAD = """\
# Interoperability

This page lists foreign client libraries and what they can do with this broker. Each has a small \
program in `tests/interop/`, and all programs run the same steps. `tests/foreign/test_interop.py` \
runs every program over every transport of its library against a broker in a process of its own. \
It fails if a step fails, and also if a step succeeds that this page reports as failing. For the \
step `reconnect` the test cuts the connection; for the last step it stops the broker in order and \
starts it again.

`scripts/interop_table.py --write` generates this page. Clients that are not packages of pip or \
npm come from Debian: `scripts/install_foreign_clients.sh`. If a client is missing, its tests are \
skipped.
"""


def page() -> str:
    """Return the page.

    Raises:
      OSError: a file that it is made from is missing.
    """
    output = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))
    results = json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    notes = _Notes()
    parts = [
        HEAD,
        "## Clients\n",
        *_clients(output["client"], results),
        "",
        "## Steps\n",
        *_steps(output["client"], results, notes),
        "",
        *notes.lines(),
        "",
        "| step | what happens |",
        "|---|---|",
        *(f"| {step} | {text} |" for step, text in STEPS.items()),
        "",
        "## Test suites of other projects\n",
        "`scripts/suites.py --sources DIR` runs the tests of other projects from checkouts in a"
        " folder, against this broker and against the broker that they were written for."
        " `--write` records the results. It exits with 1 if a test fails here for a reason that"
        " is not in `scripts/_suites/explained.toml`.\n",
        "ActiveMQ's tests start ActiveMQ in their own process, with Debian's jars (`apt-get install"
        " activemq junit4 libxstream-java libjettison-java`). Here the same tests run against a"
        " broker started as in [Migrate from ActiveMQ](../migrate/activemq.md): `--dialect"
        " activemq`, and a policy with `max_redeliveries = 0`, `dead_letter` and"
        " `dead_letter_expired`. STOMP replaces their JMS, and"
        " [/queuez, /subsz and /connz](../operate/metrics.md#lists) replace ActiveMQ's beans."
        " Classes that set up the broker themselves (limits, timeouts, transports, plugins,"
        " virtual topics, advisories) are not run.\n",
        "stomp-php 5's functional tests, with `--server-name` of the broker that they ask for:"
        " RabbitMQ 18 of 19 (the other one expects NACK without a back-off), ActiveMQ 27 of 28"
        " (with the policies above; the other one asks the socket for a MESSAGE that came with the"
        " RECEIPT), Apollo 7 of 11 ([browses](deviations.md#apollo) by `from-seq` and with"
        " `browser-end:false`). Artemis' use names without `/queue/`, which are topics here.\n",
        *report.section(),
        "",
        "## Bug reports of other projects\n",
        "What users of other projects reported in public, tried with this broker through a socket."
        " A **bold** row is one in which this broker was wrong, too, until it was mended.\n",
        "| report | its user expects | here | test |",
        "|---|---|---|---|",
        *_reports(tomllib.loads((HERE / "reports.toml").read_text(encoding="utf-8"))["report"]),
        "",
        "## Clients not tested\n",
        "| client | why |",
        "|---|---|",
        *(f"| {each['name']} | {each['reason']} |" for each in output["left_out"]),
    ]
    return "\n".join(parts) + "\n"


class _Notes:
    """Footnotes: one number for each text."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers) + 1)

    def lines(self) -> Iterator[str]:
        for text, number in self._numbers.items():
            yield f"{number}. {text}"


def _clients(clients: Sequence[Mapping[str, Any]], results: Mapping[str, Any]) -> Iterator[str]:
    yield "| client | version | language | TCP | TLS | WebSocket | wss | notes |"
    yield "|---|---|---|---|---|---|---|---|"
    for client in clients:
        found = results[client["name"]]
        cells = ["yes" if each in client["transports"] else "-" for each in TRANSPORTS]
        language = f"{client['language']} ({found['on']})"
        notes = [client[key] for key in ("without", "note") if key in client]
        text = " ".join(_sentence(note) for note in notes)
        row = [client["name"], found["version"], language, *cells, text]
        yield f"| {' | '.join(row)} |"


def _reports(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in reports:
        name = f"{each['project']} {each['number']}"
        name = f"**{name}**" if each.get("mended") else name
        test = each["test"].removeprefix("tests/").replace("::", "` `")
        yield f"| {name} | {each['expects']} | {each['here']} | `{test}` |"


def _sentence(text: str) -> str:
    """Return a text with a capital and a full stop."""
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _steps(
    clients: Sequence[Mapping[str, Any]], results: Mapping[str, Any], notes: _Notes
) -> Iterator[str]:
    expected_values = ("reconnect", "ordered-stop")
    shown = [step for step in STEPS if step not in ("connect", *expected_values)]
    yield f"| client | connect | {' | '.join(shown)} | {' | '.join(expected_values)} |"
    yield "|---" * (len(shown) + 4) + "|"
    for client in clients:
        lacks = client.get("not_supported", {})
        # A client's note on a step is the same over all its transports.
        result = next(iter(results[client["name"]]["transports"].values()))
        cells = [f"no ({notes.number(lacks[step])})" if step in lacks else "yes" for step in shown]
        ends = [result[step].removeprefix("ok: ") for step in ("connect", *expected_values)]
        row = [client["name"], ends[0], *cells, *ends[1:]]
        yield f"| {' | '.join(row)} |"


def main(argv: Sequence[str]) -> None:
    """Print the page, or write it."""
    print_or_write(PAGE, page(), argv)


if __name__ == "__main__":
    main(sys.argv[1:])
