"""The test suites, and how to run each."""

from pathlib import Path
from typing import Protocol

from attrs import frozen

from _suites import activemq, gem, outcomes, sides, stomp_py
from _suites.outcomes import Outcomes
from _suites.running import run, run_pytest
from _suites.sides import Side, Start


class Runs(Protocol):
    """Run a suite from its sources against a broker."""

    def __call__(self, sources: Path, side: Side, scratch: Path) -> Outcomes:
        """Return the outcome of each test."""


@frozen
class Suite:
    """A project's tests.

    Args:
      name: The name on the command line.
      title: The title in the documents.
      folder: The folder of its checkout, within the folder of sources.
      origin: The source of that checkout.
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
        """Return a text that names the missing requirements, or ""."""
        if not (sources / self.folder).is_dir():
            return f"{sources / self.folder} is missing: a checkout of {self.origin}"
        return next(filter(None, map(sides.missing, self.needs)), "")


def _rabbitmq(sources: Path, side: Side, scratch: Path) -> Outcomes:
    """Run its Python suite, without tests that use AMQP or rabbitmqctl."""
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


# jasmine's own reporter names only failed tests.
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
    """Run its spec with its own bundle. jasmine and ws are installed as packages."""
    packages = sources / "npm"
    if not (packages / "node_modules" / "jasmine").is_dir():
        packages.mkdir(exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        run([*install, "--prefix", str(packages), "jasmine@5", "ws@8"], packages, {})
    runner, helper = scratch / "run.mjs", scratch / "helper.cjs"
    runner.write_text(_JASMINE, encoding="utf-8")
    helper.write_text(_JASMINE_HELPER, encoding="utf-8")
    environment = {
        "SUITES_MODULES": str(packages),
        "SUITES_FOLDER": str(sources / "stompjs"),
        "SUITES_HELPER": str(helper),
        "SUITES_URL": f"ws://127.0.0.1:{side.web_port}/ws",
        "NODE_PATH": str(packages / "node_modules"),
    }
    return outcomes.of_spec_lines(run(["node", str(runner)], scratch, environment))


def _our(*options: str) -> Start:
    return lambda: sides.ours(*options)


SUITES = (
    Suite(
        "stomp.py",
        "stomp.py's tests",
        "stomp.py",
        "github.com/jasonrbriggs/stomp.py",
        (),
        stomp_py.ours,
        stomp_py.theirs,
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
        gem.run,
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
