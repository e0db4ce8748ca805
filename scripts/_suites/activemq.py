"""ActiveMQ's STOMP tests (JUnit), with Debian's jars.

For ActiveMQ they run unchanged, and start a broker in their own process. For our broker,
``activemq_junit/`` replaces their base classes: it connects to the broker outside, translates the
few JMS calls to STOMP, and answers for ActiveMQ's beans from our figures (``/queuez``, ``/subsz``,
``/connz``). A test that needs anything else is left out.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from _bench.process import BenchError

from _suites import outcomes, sides
from _suites.outcomes import Outcomes
from _suites.sides import Side

SUPPORT = Path(__file__).parent / "activemq_junit"
PATIENCE_S = 1500
_TESTS = Path("src/test/java")
_PACKAGE = "org/apache/activemq/transport/stomp"

USERS = {"system": "manager", "user": "password", "guest": "password"}
"""Login and passcode; the tests have them in their code."""

CLASSES = (
    "StompTest",
    "Stomp11Test",
    "Stomp12Test",
    "StompTelnetTest",
    "StompCompositeDestinationTest",
    "StompEmptyDestinationTest",
    "StompMissingMessageTest",
    "StompSubscriptionRemoveTest",
)
"""The classes that check frames. Others configure the broker in their process (limits, timeouts,
transports, plugins, virtual topics), or have no broker at all."""

# In Debian: activemq, libactivemq-java and what they need, junit4, libhamcrest-java,
# libxstream-java, libjettison-java, libxpp3-java, libslf4j-java.
_JAR_NAMES = (
    *("activemq-broker", "activemq-client", "activemq-stomp", "activemq-openwire-legacy"),
    *("activemq-spring", "activemq-jaas", "activemq-kahadb-store", "hawtbuf", "xbean-spring"),
    *("geronimo-jms_1.1_spec", "geronimo-j2ee-management-1.1-spec", "geronimo-annotation-1.3-spec"),
    *("spring3-core", "spring3-beans", "spring3-context", "jcl-over-slf4j"),
    *("jackson-databind", "jackson-core", "jackson-annotations"),
    *("slf4j-api", "slf4j-nop", "junit4", "hamcrest", "xstream", "jettison", "xpp3"),
)
_JARS = tuple(f"/usr/share/java/{name}.jar" for name in _JAR_NAMES)
NEEDS = ("java", "javac", *_JARS)
"""Programs and files."""


# As docs/migrate/activemq.md recommends for clients that rely on these.
_POLICIES = """\
["*"]
max_redeliveries = 0
dead_letter = "/queue/ActiveMQ.DLQ"
dead_letter_expired = true
"""
_RULES = """\
[groups]
admins = ["system"]
users = ["system", "user"]

[[rule]]
group = "admins"
allow = "all"
to = "**"

[[rule]]
group = "users"
allow = "all"
to = ["/queue/USERS.**", "/topic/USERS.**", "/queue/GUEST.**", "/topic/GUEST.**"]

[[rule]]
user = "guest"
allow = "all"
to = ["/queue/GUEST.**", "/topic/GUEST.**"]
"""


@contextmanager
def ours() -> Iterator[Side]:
    """Run our broker with the users, rules and policies that the tests expect."""
    with tempfile.TemporaryDirectory(prefix="suites-") as name:
        home = Path(name)
        users, rules, policies = home / "users", home / "acl.toml", home / "policies.toml"
        users.write_text("".join(f"{who}:{word}\n" for who, word in USERS.items()))
        users.chmod(0o600)
        rules.write_text(_RULES)
        policies.write_text(_POLICIES)
        values = ["--passwd-file", users, "--acl-file", rules, "--policies", policies]
        # StompTelnetTest does not log in.
        more = ["--anonymous", "loopback", "--dialect", "activemq"]
        with sides.ours(*map(str, values), *more, login="") as side:
            yield side


@contextmanager
def theirs() -> Iterator[Side]:
    """Do nothing: the tests start ActiveMQ themselves."""
    yield Side("activemq", 0, 0, 0)


def run(sources: Path, side: Side, scratch: Path) -> Outcomes:
    """Compile the tests with their substitutes, and run them."""
    stomp, broker = (sources / "activemq" / f"activemq-{part}" for part in ("stomp", "broker"))
    # Theirs finds its keys from where its classes are.
    classes = scratch / "target" / "classes"
    classes.mkdir(parents=True)
    (scratch / "src").mkdir()
    (scratch / _TESTS).parent.symlink_to(stomp / _TESTS.parent)
    path = os.pathsep.join([str(classes), *_JARS])
    support = SUPPORT.glob("*.java") if side.name == sides.OURS else [SUPPORT / "RunTests.java"]
    files = [*support, *(stomp / _TESTS / _PACKAGE / f"{each}.java" for each in CLASSES)]
    found_by = os.pathsep.join(str(part / _TESTS) for part in (broker, stomp))
    compiler = ["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(classes)]
    result = _run([*compiler, "-cp", path, "-sourcepath", found_by, *map(str, files)], scratch)
    if not (classes / _PACKAGE / "RunTests.class").exists():
        raise BenchError(f"the tests do not compile:\n{result}")
    java = ["java", "-cp", path, f"-Dsuites.port={side.port}"]
    result = _run([*java, f"{_PACKAGE.replace('/', '.')}.RunTests", *CLASSES], scratch)
    print("\n".join(line for line in result.splitlines() if line.startswith("WHY ")), flush=True)
    return outcomes.of_spec_lines(result)


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.stdout.decode("utf-8", "replace")
