"""How each project's suite is run against a broker."""

from pathlib import Path
from typing import Protocol

from attrs import frozen

from _suites import activemq, outcomes, sides, stomp_py
from _suites.outcomes import Outcomes
from _suites.running import run, run_pytest
from _suites.sides import LOGIN, PASSCODE, STANDARD_PORT, Side, Start

GEM_PATIENCE_S = 120
"""For one setting, which takes 15 s."""


class Runs(Protocol):
    """Run a suite from its sources against a broker."""

    def __call__(self, sources: Path, side: Side, scratch: Path) -> Outcomes:
        """Return what became of each test."""


@frozen
class Suite:
    """A project's tests.

    Args:
      name: As on the command line.
      title: As in the documents.
      folder: Of its checkout, in the folder of sources.
      origin: Where that is had.
      needs: Programs, and paths of files.
      ours: Starts our broker.
      theirs: Starts the one that the suite was written for.
      run: Runs it.
    """

    name: str
    title: str
    folder: str
    origin: str
    needs: tuple[str, ...]
    ours: Start
    theirs: Start
    run: Runs

    def lacks(self, sources: Path) -> str:
        """Say what is missing to run it; nothing if it can be."""
        if not (sources / self.folder).is_dir():
            return f"{sources / self.folder} is missing: a checkout of {self.origin}"
        return next(filter(None, map(sides.missing, self.needs)), "")


def _rabbitmq(sources: Path, side: Side, scratch: Path) -> Outcomes:
    """Run its Python suite; what goes through AMQP or rabbitmqctl is no matter of STOMP's."""
    folder = sources / "rabbitmq-server/deps/rabbitmq_stomp/test/python_SUITE_data/src"
    # As in its main_runner.py, less those that publish or look by AMQP.
    names = ["parsing", "errors", "connect_disconnect", "ack", "reliability", "transactions"]
    names += ["destinations", "redelivered", "unsubscribe", "tls_connect_disconnect"]
    environment = {
        "STOMP_PORT": str(side.port),
        "STOMP_PORT_TLS": str(side.tls_port),
        "SSL_CERTS_PATH": str(scratch),
        "RABBITMQCTL": "true",
        "RABBITMQ_NODENAME": "-",
    }
    files = [f"{name}.py" for name in names]
    return run_pytest(folder, ["-o", "python_files=*.py", *files], environment, scratch)


def _gem(sources: Path, side: Side, scratch: Path) -> Outcomes:
    """Run the gem's tests once in each version, each with STOMP and with CRLF where it may."""
    del scratch
    load = 'Dir["./test/test_*.rb"].reject { |f| f =~ /helper/ }.sort.each { |f| require f }'
    if not side.tls_port:
        load = load.replace("helper", "helper|ssl")
    base = {
        "STOMP_HOST": "127.0.0.1",
        "STOMP_PORT": str(side.port),
        "STOMP_SSLPORT": str(side.tls_port),
        "STOMP_USER": LOGIN,
        "STOMP_PASSCODE": PASSCODE,
    }
    if side.tls_port:
        base["STOMP_TESTSSL"] = "1"
    if side.name == "rabbitmq":
        base |= {"STOMP_RABBIT": "1", "STOMP_DOTQUEUE": "1", "STOMP_NOWILD": "1"}
    settings: dict[str, dict[str, str]] = {"1.0": {}}
    for version in ("1.1", "1.2"):
        told = {"STOMP_TEST11p": version}
        settings |= {version: told, f"{version} STOMP": {**told, "STOMP_CONN": "1"}}
    crlf = {"STOMP_TEST11p": "1.2", "STOMP_CRLF": "1"}
    settings |= {"1.2 CRLF": crlf, "1.2 CRLF STOMP": {**crlf, "STOMP_CONN": "1"}}
    found: dict[str, str] = {}
    for setting, told in settings.items():
        command = ["ruby", "-Ilib", "-Itest", "-e", load, "--", "--verbose", "--no-use-color"]
        said = outcomes.of_test_unit(
            run(command, sources / "stomp-gem", {**base, **told}, GEM_PATIENCE_S)
        )
        found |= {f"{name} [{setting}]": each for name, each in said.items()}
    return found


# jasmine's own reporter names only what failed.
_JASMINE = """\
import {createRequire} from 'node:module';
const require = createRequire(process.env.SUITES_MODULES + '/');
const Jasmine = require('jasmine');
const jasmine = new Jasmine({projectBaseDir: process.env.SUITES_FOLDER});
jasmine.loadConfigFile('spec/support/jasmine.json').then(() => {
  jasmine.clearReporters();
  jasmine.addReporter({specDone: spec =>
    process.stdout.write('\\nSPEC ' +
      JSON.stringify({name: spec.fullName, status: spec.status}) + '\\n')});
  jasmine.addHelperFile(process.env.SUITES_HELPER);
  return jasmine.execute();
});
"""
_JASMINE_HELPER = """\
TEST.url = process.env.SUITES_URL;
"""


def _stompjs(sources: Path, side: Side, scratch: Path) -> Outcomes:
    """Run its spec with its own bundle; jasmine and ws are got as packages."""
    packages = sources / "npm"
    if not (packages / "node_modules" / "jasmine").is_dir():
        packages.mkdir(exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        run([*install, "--prefix", str(packages), "jasmine@5", "ws@8"], packages, {})
    runner, helper = scratch / "run.mjs", scratch / "helper.cjs"
    runner.write_text(_JASMINE, encoding="utf-8")
    helper.write_text(_JASMINE_HELPER, encoding="utf-8")
    told = {
        "SUITES_MODULES": str(packages),
        "SUITES_FOLDER": str(sources / "stompjs"),
        "SUITES_HELPER": str(helper),
        "SUITES_URL": f"ws://127.0.0.1:{side.web_port}/ws",
        "NODE_PATH": str(packages / "node_modules"),
    }
    return outcomes.of_spec_lines(run(["node", str(runner)], scratch, told))


def _our(*options: str, port: int = 0) -> Start:
    return lambda: sides.ours(*options, port=port)


SUITES = (
    Suite(
        "stomp.py",
        "stomp.py's tests",
        "stomp.py",
        "github.com/jasonrbriggs/stomp.py",
        (),
        # Its tests of stompserver log in as nobody, others with a login that must be wrong.
        _our("--anonymous", "loopback", port=STANDARD_PORT),
        sides.activemq,
        stomp_py.run,
    ),
    Suite(
        "gem",
        "the Ruby gem's tests",
        "stomp-gem",
        "github.com/stompgem/stomp",
        ("ruby",),
        lambda: sides.ours(login=""),
        lambda: sides.rabbitmq(anonymous=True),
        _gem,
    ),
    Suite(
        "rabbitmq",
        "RabbitMQ's Python suite",
        "rabbitmq-server",
        "github.com/rabbitmq/rabbitmq-server, of the version that is installed",
        (),
        # As RabbitMQ is without a line of configuration: one virtual host, a default user.
        _our("--dialect", "rabbitmq", "--hosts", "/", "--anonymous", "loopback"),
        sides.rabbitmq,
        _rabbitmq,
    ),
    Suite(
        "stompjs",
        "stompjs' spec",
        "stompjs",
        "github.com/stomp-js/stompjs",
        ("node", "npm"),
        _our(),
        sides.rabbitmq,
        _stompjs,
    ),
    Suite(
        "activemq",
        "ActiveMQ's JUnit tests",
        "activemq",
        "github.com/apache/activemq, of the version that is installed",
        activemq.NEEDS,
        activemq.ours,
        activemq.theirs,
        activemq.run,
    ),
)
