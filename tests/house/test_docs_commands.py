"""Every command in the documents is run, in the order of its page, or stands in a list here."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import trio
import trustme
from _crash.ports import free_port
from attrs import define, field, frozen

from tests.support.chromium import chromium_or_skip, running_chromium
from tests.support.foreign import JS
from trio_stomp.client import open_client
from trio_stomp.testing import threaded_broker

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
STATIC = ROOT / "trio_stomp" / "web" / "static"

TUTORIAL = "start/tutorial.md"
PAGES = ("../README.md", *sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")))

# Only something broken takes so long.
PATIENCE_S = 180

# Replacements for the text of the pages, in order.
PLACEHOLDERS = {
    "https://cdn.jsdelivr.net/npm/@stomp/stompjs@7.5.0/bundles/": "",  # a copy lies beside
    "rabbit:61613": "127.0.0.1:{old}",
    "activemq:61613": "127.0.0.1:{old}",
    "stompserver:61613": "127.0.0.1:{old}",
    "old:61613": "127.0.0.1:{old}",
    "new:61613": "127.0.0.1:{port}",
    "61613": "{port}",
    "3490": "{port}",
    "port=3000": "port={port}",
    "8000": "{web}",
    "--host 0.0.0.0 --passwd-file": "--host 127.0.0.1 --passwd-file",
    "/var/lib/trio_stomp": "lib",
    "sqlite:////var/lib/": "sqlite:///",
    "/etc/stompserver/": "",
    "/etc/trio-stomp/": "",
    "scale.py --json": "scale.py --quick --only subscriptions --json",
    "move_queue.py": "move_queue.py --quiet-s 1",
    # Short, and with less to look at.
    "bench.py --repeat 3": "bench.py --quick --scenario one-tcp",
    "crash.py --kills 1000": "crash.py --kills 1 --life 0.3",
    "crash.py --power-cuts 400": "crash.py --power-cuts 8",
    "mwqstd4d.2-4": "…",
    "${fpath[1]}": ".",  # zsh's
    "doctor --data-dir": "doctor --port {port} --data-dir",
    # Prompts at a terminal read a line here.
    "passwd add users alice": "passwd add --stdin --replace users alice <<< secret",
    "passwd verify users alice": "passwd verify --stdin users alice <<< secret",
}

LONG = {"inside/benchmarks.md", "inside/lab-notes/reliability.md"}
"""Pages whose commands run in the full tier, not on each push."""

# Blocks and commands that are not run, by page and beginning, and why.
INSTALLS = "it downloads packages: each run of the checks begins by it, see scripts/check.py"
EXCHANGE = "tests/foreign/test_foreign.py runs it"
SPARK = (
    "Spark takes minutes: tests/test_spark_*.py run its parts, and the options are looked up below"
)
DOCKER = "it needs Docker: tests/house/test_packaging.py takes the steps of the Dockerfile"
NOT_RUN = {
    ("start/tutorial.md", "python3 -m venv"): INSTALLS,
    ("start/tutorial.md", "npm install"): INSTALLS,
    ("../README.md", "python3 -m venv .venv && .venv/bin/pip install . "): INSTALLS,
    ("../README.md", "python3 -m venv .venv && .venv/bin/pip install --req"): INSTALLS,
    ("start/tutorial.md", ".venv/bin/pip install stomp.py"): INSTALLS,
    ("start/tutorial.md", "node tests/js/exchange.mjs"): EXCHANGE,
    ("start/tutorial.md", ".venv/bin/python scripts/examples/exchange.py"): EXCHANGE,
    ("operate/analysis.md", "trio-stomp tables --once"): SPARK,
    ("operate/analysis.md", "python scripts/make_diag_sample.py"): SPARK,
    ("operate/analysis.md", "spark-submit"): SPARK,
    ("operate/spark.md", "trio-stomp tables"): "it never ends: tests/unit/cli/test_cli_tables.py",
    ("operate/spark.md", "pip install"): INSTALLS,
    ("operate/spark.md", "python -m venv old"): INSTALLS,
    ("operate/spark.md", "git archive"): SPARK,
    ("operate/spark.md", "export SPARK_CONF_DIR"): SPARK,
    ("operate/spark.md", "SPARK_REMOTE="): SPARK,
    ("operate/spark.md", "python scripts/kill_spark.py"): SPARK,
    ("operate/spark.md", "python scripts/kill_spark_sink.py"): SPARK,
    ("operate/spark.md", "python scripts/bench_spark.py"): SPARK,
    ("operate/spark.md", "trio-stomp spark demo"): SPARK,
    ("operate/spark.md", "trio-stomp subscribe '/topic/insight/>'"): "it waits for Spark",
    ("inside/benchmarks.md", ".venv/bin/python scripts/bench.py --secure"): (
        "a minute; tests/scripts/test_bench.py runs it with --quick"
    ),
    ("inside/lab-notes/performance.md", ".venv/bin/python scripts/bench.py --profile"): (
        "five minutes; tests/scripts/test_bench_profile.py runs it for less"
    ),
    ("inside/lab-notes/performance.md", ".venv/bin/python scripts/bench.py --floor"): (
        "ten minutes; tests/scripts/test_bench.py runs it with --quick"
    ),
    ("inside/lab-notes/performance.md", ".venv/bin/python scripts/bench.py --peers"): (
        "half an hour; tests/scripts/test_bench_peers.py runs it with --quick"
    ),
    ("inside/performance.md", "TRIO_STOMP_COMPILE=1 pip install"): (
        "two minutes; scripts/check.py compiles a copy and runs the tests in it"
    ),
    ("inside/performance.md", "python scripts/wheels.py"): (
        "minutes; tests/house/test_packaging.py runs it"
    ),
    ("operate/deploy.md", "docker build"): DOCKER,
    ("operate/deploy.md", "mkdir conf/secrets"): DOCKER,
    ("operate/deploy.md", "digest=$(docker"): DOCKER,
    ("operate/deploy.md", "sudo cp"): "it needs systemd: tests/house/test_packaging.py verifies",
    (
        "operate/deploy.md",
        "kubectl",
    ): "it needs Kubernetes: test_packaging.py validates",
    ("operate/deploy.md", "journalctl"): "it needs systemd",
    ("operate/deploy.md", "trio-stomp store"): "operate/durability.md runs the same commands",
    ("reference/releases.md", ".ci/run"): "it makes a release: tests/scripts/test_release.py",
    ("reference/releases.md", "git push"): "it publishes",
    ("operate/durability.md", "python -m trio_stomp --store-url postgresql:"): (
        "it needs a PostgreSQL: tests/unit/store/test_sql_postgresql.py starts one"
    ),
}

# Blocks without a language that hold no command.
NO_COMMANDS = {
    ("../README.md", "socket"),
    ("operate/configuration.md", "trio-stomp: error: "),
    ("design.md", "serve()"),
    ("reference/diag.md", "DIAG\n"),
    ("reference/diag.md", "MESSAGE\n"),
    ("use/queues.md", "Queue: "),
    ("use/scheduling.md", "SEND\n"),
    ("use/durable-subscriptions.md", "SUBSCRIBE  "),
    ("use/temporary-destinations.md", "client  "),
}

# Their output depends on the machine; only their exit code is checked.
UNCOMPARED = ("trio-stomp doctor",)

# Commands that run until they are stopped, in a separate terminal.
BESIDE = ("trio-stomp subscribe /topic/hello --count 1", "python3 -m http.server")

# Output of a command that fails: its exit code is not 0.
REFUSALS = re.compile(r"^(?:denied, |trio-stomp\b.*: error: )", re.MULTILINE)

# Files that a page takes for granted.
STOMPSERVER_CONF = ":host: 127.0.0.1\n:port: 61613\n:queue: memory\n:daemon: true\n:auth: false\n"

FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([^"]+)"')
CODE = ("python", "js", "html", "toml")
SHELLS = ("", "sh", "console")
SERVES = re.compile(r"(?:\S*python\S* -m trio_stomp|trio-stomp) +(?:-\S|\w+=|serve\b)")
CARRIES_OVER = ("scripts/examples/move_queue.py", "stomp://old:")
SHOWS_DEAD = ("use/cli.md", "trio-stomp dlq ls --names")
SCRIPT = re.compile(r"\b(scripts/[\w/]+\.py)((?: +[^\s`|#]+)*)")


@frozen
class Command:
    """A command, and its output on the page; None = not shown."""

    text: str
    shown: tuple[str, ...] | None


@frozen
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    title: str
    text: str

    @property
    def begin(self) -> str:
        """Return the text that identifies it in the lists of this file."""
        return self.text.removeprefix("$ ")

    def is_in(self, names: "set[tuple[str, str]]") -> bool:
        """Return whether a list names it."""
        return is_listed(self.page, self.begin, names)

    def commands(self) -> list[Command]:
        """Its commands that are run."""
        every = self.every_command()
        return [each for each in every if not is_listed(self.page, each.text, set(NOT_RUN))]

    def every_command(self) -> list[Command]:
        """Yield its commands: those after ``$ `` with their output, or else line by line."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        lines = joined.splitlines()
        if not any(line.startswith("$ ") for line in lines):
            return [Command(line, None) for line in lines if line.strip()]
        found: list[Command] = []
        shown: list[str] = []
        for line in reversed(lines):
            if line.startswith("$ "):
                found.append(Command(line[2:], tuple(reversed(shown))))
                shown = []
            else:
                shown.append(line)
        assert not shown, f"{self.page}: output before the first command: {shown}"
        return found[::-1]


def is_listed(page: str, text: str, names: "set[tuple[str, str]]") -> bool:
    """Return whether a list names a text of a page by its beginning."""
    return any(each == page and text.startswith(name) for each, name in names)


def blocks(page: str) -> list[Block]:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = []
    for language, rest, body in FENCE.findall(text):
        title = TITLE.search(rest)
        found.append(Block(page, language, title[1] if title else "", body))
    return found


def shell_blocks(page: str) -> list[Block]:
    names = set(NOT_RUN) | NO_COMMANDS
    every = (block for block in blocks(page) if block.language in SHELLS)
    return [block for block in every if not block.is_in(names)]


@contextmanager
def subscription_noticed(port: int, destination: str) -> Iterator[None]:
    """The end of the block waits until a broker tells that somebody subscribed."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as peer:

        def read_until(end: bytes) -> None:
            received = b""
            while end not in received:
                more = peer.recv(9999)
                assert more, f"{end!r} was not told: {received!r}"
                received += more

        peer.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
        peer.sendall(b"SUBSCRIBE\nid:1\ndestination:DIAG/event/subscribe\nreceipt:1\n\n\0")
        read_until(b"receipt-id:1\n")
        yield
        read_until(b'"%b"' % destination.encode())


def matches(shown: str, reported: str) -> bool:
    """Return whether a line, or the whole output, is as shown; ``…`` stands for any text."""
    return re.fullmatch(re.escape(shown).replace("…", ".*"), reported, re.DOTALL) is not None


@define(eq=False)
class Desk:
    """The environment of one page's reader: a directory, a shell, and a running broker."""

    page: str
    directory: Path
    port: int = field(factory=free_port)
    old: int = field(factory=free_port)
    web: int = field(factory=free_port)
    left_out: list[str] = field(factory=list)
    _broker: "subprocess.Popen[str] | None" = None
    _reader: threading.Thread | None = None
    _beside: "list[tuple[Command, subprocess.Popen[str]]]" = field(factory=list)

    def __attrs_post_init__(self) -> None:
        programs = self.directory / "programs"
        for name, words in (("python", ""), ("python3", ""), ("trio-stomp", "-m trio_stomp ")):
            self._program(programs / name, words)
        self._program(self.directory / ".venv" / "bin" / "python", "")
        self._program(self.directory / ".venv" / "bin" / "trio-stomp", "-m trio_stomp ")
        (self.directory / "node_modules").symlink_to(JS / "node_modules")
        (self.directory / "scripts").symlink_to(ROOT / "scripts")
        shutil.copy(STATIC / "stomp.umd.min.js", self.directory)
        shutil.copy(ROOT / "conf" / "acl.toml", self.directory)
        (self.directory / "stompserver.conf").write_text(STOMPSERVER_CONF)
        (self.directory / ".passwd").write_text("bob:secret\n")
        certificate = trustme.CA().issue_cert("localhost", "127.0.0.1")
        certificate.private_key_and_cert_chain_pem.write_to_path(self.directory / "broker.pem")

    def _program(self, path: Path, words: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        path.chmod(0o755)

    def mapped(self, text: str) -> str:
        """The text, with the ports and files of this desk."""
        for name, instead in PLACEHOLDERS.items():
            text = text.replace(name, instead)
        ports = {"{port}": self.port, "{old}": self.old, "{web}": self.web}
        for name, port in ports.items():
            text = text.replace(name, str(port))
        return text

    def popen(self, text: str) -> "subprocess.Popen[str]":
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(self.directory / "programs"), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "HOME": str(self.directory),
            "TRIO_STOMP_URL": f"stomp://127.0.0.1:{self.port}",
            "TRIO_STOMP_PASSCODE": "secret",
            # The port for commands that name none.
            "TRIO_STOMP__LISTEN__PORT": str(self.port),
        }
        return subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", self.mapped(text)],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def do(self, block: Block) -> None:
        """Run the block as a reader does."""
        if block.title and block.language in CODE:
            (self.directory / block.title).write_text(self.mapped(block.text), encoding="utf-8")
        elif block.language in SHELLS and not block.is_in(set(NOT_RUN) | NO_COMMANDS):
            for command in block.commands():
                self.run(command)

    def run(self, command: Command) -> None:
        """Run one command, and compare its output with the page."""
        text = command.text
        fails = REFUSALS.search("\n".join(command.shown or ())) is not None
        if text.startswith("node ") and not has_node():
            self.left_out.append(text)
        elif SERVES.match(text) and not fails:
            self._serve(text)
        elif text.startswith(BESIDE):
            self._run_beside(command)
        else:
            if (self.page, text) == SHOWS_DEAD:
                self._bury()
            carries_over = any(each in text for each in CARRIES_OVER)
            with self._old_broker() if carries_over else nullcontext():
                self._finish(command, self.popen(text), fails)
            for each, process in self._beside:
                if "--count" in each.text:
                    self._finish(each, process, False)
            self._beside = [each for each in self._beside if "--count" not in each[0].text]

    def _serve(self, text: str) -> None:
        self.stop()
        self._broker = process = self.popen(f"exec {text}")
        assert process.stdout is not None
        line = process.stdout.readline()
        while "listening on" not in line:
            assert line, f"{self.page}: {text}: it does not listen"
            line = process.stdout.readline()
        # The log is not read further, so it must not fill the pipe.
        self._reader = threading.Thread(target=process.stdout.read, daemon=True)
        self._reader.start()

    def _run_beside(self, command: Command) -> None:
        is_page = "http.server" in command.text
        noticed = subscription_noticed(self.port, command.text.split()[2])
        with nullcontext() if is_page else noticed:
            process = self.popen(f"exec {command.text}")
            self._beside.append((command, process))
        if is_page:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Serving HTTP on"), line

    def _finish(self, command: Command, process: "subprocess.Popen[str]", fails: bool) -> None:
        result, _ = process.communicate(timeout=PATIENCE_S)
        where = f"{self.page}: {command.text}\n{result}"
        assert (process.returncode != 0) is fails, where
        if command.shown is not None and not command.text.startswith(UNCOMPARED):
            shown = self.mapped("\n".join(command.shown))
            assert matches(shown.strip(), result.replace("\0", "").strip()), where

    @contextmanager
    def _old_broker(self) -> Iterator[None]:
        """Run the broker that the reader migrates from. Another of ours takes its place."""
        with threaded_broker(port=self.old):
            for body in ("a lamp", "a chair"):
                url = f"--url stomp://127.0.0.1:{self.old}"
                with self.popen(f"trio-stomp send /queue/orders '{body}' {url}") as process:
                    assert process.wait(PATIENCE_S) == 0
            yield

    def _bury(self) -> None:
        """Dead letters, such as the page shows."""
        bodies = ("two apples", "three pears, ripe ones", "and a melon, please.")

        async def die() -> None:
            async with open_client(f"stomp://127.0.0.1:{self.port}") as client:
                # Before all that the page has sent there, and apart from it.
                headers = {"priority": "9", "dies": "yes"}
                for body in bodies:
                    await client.send("/queue/orders", body, headers=headers)
                async with client.subscribe(
                    "/queue/orders", ack="client-individual", selector="dies = 'yes'"
                ) as messages:
                    for _ in range(5 * len(bodies)):
                        await (await messages.receive()).nack()

        trio.run(die)

    def stop(self) -> None:
        """Stop the broker, if there is one."""
        if self._broker is not None:
            broker, self._broker = self._broker, None
            broker.terminate()
            self._ended(broker)
            assert broker.returncode == 0

    def end(self) -> None:
        """Stop all processes."""
        every = [each for _, each in self._beside]
        every += [self._broker] if self._broker is not None else []
        for process in every:
            process.kill()
        for process in every:
            self._ended(process)

    def _ended(self, process: "subprocess.Popen[str]") -> None:
        process.wait(PATIENCE_S)
        if self._reader is not None:
            self._reader.join()
        if process.stdout is not None:
            process.stdout.close()


def has_node() -> bool:
    return shutil.which("node") is not None and (JS / "node_modules" / "@stomp").is_dir()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.full if page in LONG else ())
        for page in PAGES
        if shell_blocks(page)
    ],
)
def test_the_commands_of_a_page(page: str, tmp_path: Path) -> None:
    desk = Desk(page, tmp_path)
    try:
        for block in blocks(page):
            desk.do(block)
        desk.stop()
    finally:
        desk.end()
    if desk.left_out:
        pytest.skip(f"NODE OR ITS PACKAGES ARE NOT THERE (npm ci in tests/js): {desk.left_out}")


def test_the_page_of_the_tutorial_greets_itself(tmp_path: Path) -> None:
    chromium = chromium_or_skip()
    desk = Desk(TUTORIAL, tmp_path)
    steps = [block for block in blocks(TUTORIAL) if block.title == "page.html"]
    steps += [block for block in blocks(TUTORIAL) if "--allowed-origins" in block.text]
    steps += [block for block in blocks(TUTORIAL) if "http.server" in block.text]
    assert len(steps) == 3
    try:
        for block in steps:
            desk.do(block)
        with (
            running_chromium(chromium, tmp_path) as browser,
            browser.page(f"http://127.0.0.1:{desk.web}/page.html") as page,
        ):
            page.until("document.getElementById('heard').textContent.includes('a browser')")
            assert page.text("#heard").strip() == "hello from a browser"
        desk.stop()
    finally:
        desk.end()


def names_something(block: Block, name: tuple[str, str]) -> bool:
    """Return whether an entry of a list is about a block, or one of its commands."""
    starts = (block.begin, *(each.text for each in block.every_command()))
    return any(is_listed(block.page, each, {name}) for each in starts)


def test_every_block_is_run_or_listed() -> None:
    found = [block for page in PAGES for block in blocks(page) if block.language in SHELLS]
    assert len(found) > 40
    for names in (set(NOT_RUN), NO_COMMANDS):
        stale = [name for name in names if not any(names_something(each, name) for each in found)]
        assert stale == [], "these lists name blocks that are not there"
    # Without a language it may be anything; then it must begin as a command does.
    programs = ("python", ".venv/bin/", "trio-stomp", "curl", "node", "npm", "mkdir", "$ ")
    strange = [
        (block.page, block.text.splitlines()[0])
        for page in PAGES
        for block in shell_blocks(page)
        if not block.language and not block.text.startswith(programs)
    ]
    assert strange == [], "neither commands nor listed in NO_COMMANDS"
    for (_, begin), reason in NOT_RUN.items():
        if reason is EXCHANGE:
            script = begin.split("/")[-1]
            assert script in (ROOT / "tests" / "foreign" / "test_foreign.py").read_text(
                encoding="utf-8"
            )


def test_commands_stand_in_fences() -> None:
    """These tests find commands only in fences, not in blocks marked by indentation."""
    indented = re.compile(
        r"^ {4,}(?:\S+=\S+ )?(?:\S*python3?|pip|trio-stomp|spark-submit) \S", re.M
    )
    found = [
        (page, line)
        for page in PAGES
        for line in indented.findall(FENCE.sub("", (DOCS / page).read_text(encoding="utf-8")))
    ]
    assert found == []


def test_options_of_scripts_are_known() -> None:
    """Those of commands too that are not run."""
    reported: dict[str, set[str]] = {}
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8").replace("\\\n", "")
        for script, words in SCRIPT.findall(text):
            reported.setdefault(script, set()).update(re.findall(r"(?<= )--[a-z][a-z-]*", words))
    assert len(reported) > 5
    for script, options in reported.items():
        if options:
            run = subprocess.run(
                [sys.executable, str(ROOT / script), "--help"],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=True,
            )
            known = set(re.findall(r"--[a-z][a-z-]*", run.stdout))
            assert sorted(options - known) == [], script
