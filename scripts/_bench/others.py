"""RabbitMQ and ActiveMQ as packaged by Debian, each as a child process.

Each has its own directory, ports, node name and port mapper, so it does not affect an instance of
the system. All listen on loopback only.
"""

import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import NamedTuple

from _bench.process import BenchError

LOGIN = "tester"
PASSCODE = "secret"

INSTALL = "scripts/install_other_brokers.sh"
"""Installs both with apt-get."""

# Only a broken broker takes this long.
START_S = 120
STOP_S = 60

# Outside Linux's range of ephemeral ports, so that no other process gets one by chance.
PORTS = range(20_000, 32_768)

# Not /usr/sbin/rabbitmq-server, which goes to the system's directories and writes its log there.
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
ACTIVEMQ = Path("/usr/share/activemq")


class NotInstalledError(BenchError):
    """A broker is not installed: its name, and the package that installs it."""

    def __init__(self, name: str, package: str) -> None:
        super().__init__(f"{name} is not installed; {INSTALL} or apt-get install {package} does it")


class OtherBroker(NamedTuple):
    """A running broker. ``LOGIN`` with ``PASSCODE`` has all rights.

    Args:
      web_port: The port of STOMP over WebSocket, at ``/ws``; 0 = none.
      pid: The id of its first process, which may have descendants.
    """

    name: str
    port: int
    web_port: int
    pid: int


@contextmanager
def rabbitmq(
    login: str = LOGIN, passcode: str = PASSCODE, *, anonymous: bool = False
) -> Iterator[OtherBroker]:
    """Run RabbitMQ with rabbitmq_stomp and rabbitmq_web_stomp.

    Args:
      login: The user with all rights.
      passcode: The passcode of that user.
      anonymous: Clients that do not log in are that user.

    Raises:
      NotInstalledError: it is not there.
      BenchError: it did not start.
    """
    epmd = shutil.which("epmd")
    if not RABBITMQ.exists() or epmd is None:
        raise NotInstalledError("rabbitmq", "rabbitmq-server")
    user = _account("rabbitmq")
    mapper_port, node_port, port, web_port = _free_ports(4)
    with _directory(user) as home, ExitStack() as children:
        environment = _rabbitmq_environment(home, mapper_port, node_port)
        conf = _rabbitmq_conf(port, web_port, login, passcode)
        if anonymous:
            conf += f"stomp.default_user = {login}\nstomp.default_pass = {passcode}\n"
        _write(home / "rabbitmq.conf", conf)
        _write(home / "plugins", "[rabbitmq_stomp,rabbitmq_web_stomp].\n")
        # Our own: a node would start one that outlives it.
        mapper = [epmd, "-port", str(mapper_port), "-address", "127.0.0.1"]
        children.enter_context(_running(mapper, home, user, environment))
        node = children.enter_context(_running([str(RABBITMQ)], home, user, environment))
        node.wait_for(r"Server startup complete; 2 plugins started")
        _knock(port)
        _knock(web_port)
        yield OtherBroker("rabbitmq", port, web_port, node.pid)


@contextmanager
def rabbitmq_cluster(
    count: int, login: str = LOGIN, passcode: str = PASSCODE
) -> Iterator[list[OtherBroker]]:
    """Run nodes of RabbitMQ as one cluster, each as ``rabbitmq`` does.

    Raises:
      NotInstalledError: it is not there.
      BenchError: it did not start.
    """
    epmd = shutil.which("epmd")
    if not RABBITMQ.exists() or epmd is None:
        raise NotInstalledError("rabbitmq", "rabbitmq-server")
    user = _account("rabbitmq")
    mapper_port, *ports = _free_ports(1 + 3 * count)
    with ExitStack() as children:
        homes = [children.enter_context(_directory(user)) for _ in range(count)]
        mapper = [epmd, "-port", str(mapper_port), "-address", "127.0.0.1"]
        children.enter_context(_running(mapper, homes[0], user, {}))
        told = [_rabbitmq_environment(home, mapper_port, ports.pop()) for home in homes]
        names = [each["RABBITMQ_NODENAME"] for each in told]
        found: list[OtherBroker] = []
        for home, environment, name in zip(homes, told, names, strict=True):
            port, web_port = ports.pop(), ports.pop()
            conf = _rabbitmq_conf(port, web_port, login, passcode)
            conf += "cluster_formation.peer_discovery_backend = classic_config\n"
            conf += "".join(
                f"cluster_formation.classic_config.nodes.{number} = {each}\n"
                for number, each in enumerate(names, 1)
            )
            _write(home / "rabbitmq.conf", conf)
            _write(home / "plugins", "[rabbitmq_stomp].\n")
            more = {"RABBITMQ_ERLANG_COOKIE": "bench"}
            node = children.enter_context(_running([str(RABBITMQ)], home, user, environment | more))
            node.wait_for(r"Server startup complete; 1 plugins started")
            _knock(port)
            found.append(OtherBroker(name, port, 0, node.pid))
        yield found


@contextmanager
def activemq(
    login: str = LOGIN,
    passcode: str = PASSCODE,
    *,
    persistent: bool = False,
    anonymous: bool = False,
    port: int = 0,
) -> Iterator[OtherBroker]:
    """Run ActiveMQ. Debian's has no WebSocket transport.

    Args:
      login: The user with all rights.
      passcode: The passcode of that user.
      persistent: Whether it keeps messages in KahaDB, its default, or in memory.
      anonymous: Clients that do not log in may do everything too.
      port: The port of the listener; 0 = any free port.

    Raises:
      NotInstalledError: it is not there.
      BenchError: it did not start.
    """
    java = shutil.which("java")
    jar = ACTIVEMQ / "bin" / "activemq.jar"
    if java is None or not jar.exists():
        raise NotInstalledError("activemq", "activemq")
    user = _account("activemq")
    with _directory(user) as home:
        reported = _activemq_xml(
            login, passcode, persistent=persistent, anonymous=anonymous, port=port
        )
        _write(home / "activemq.xml", reported)
        _write(home / "log4j.properties", _LOG4J)
        properties = {
            "java.io.tmpdir": home,
            "activemq.home": ACTIVEMQ,
            "activemq.base": home,
            "activemq.conf": home,
            "activemq.data": home / "data",
            "log4j.configuration": f"file:{home}/log4j.properties",
        }
        options = [f"-D{name}={text}" for name, text in properties.items()]
        start = ["start", f"xbean:file:{home}/activemq.xml"]
        command = [java, "-Xmx512m", *options, "-jar", str(jar), *start]
        with _running(command, home, user, {}) as child:
            listening = child.wait_for(r"Listening for connections at: stomp://[^:]+:(\d+)")
            child.wait_for(r"Apache ActiveMQ \S+ \(.*\) started")
            bound = int(listening[1])
            _knock(bound)
            yield OtherBroker("activemq", bound, 0, child.pid)


# --- a child process ----------------------------------------------------------------------------


class _Child:
    """A broker's process with its own process group, so that its children can be killed with it."""

    def __init__(
        self,
        command: list[str],
        home: Path,
        user: pwd.struct_passwd | None,
        more: Mapping[str, str],
    ) -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
        self.name = Path(command[0]).name
        self.tail: deque[str] = deque(maxlen=60)
        self._lines: Queue[str | None] = Queue()
        # It gets a signal if its parent is killed.
        bound = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        self._process = subprocess.Popen(
            [*bound, *command],
            cwd=home,
            env={**environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
        )
        # A thread always reads, so that the pipe is never full.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.tail.append(line)
            self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the match of the first line of output that matches.

        Raises:
          BenchError: none came.
        """
        try:
            while (line := self._lines.get(timeout=START_S)) is not None:
                if found := re.search(pattern, line):
                    return found
        except Empty:
            pass
        raise BenchError(f"{self.name} did not say {pattern!r}, but:\n{''.join(self.tail)}")

    def stop(self) -> None:
        """Stop the process in order, and kill it after a minute."""
        process = self._process
        try:
            process.terminate()
            process.wait(STOP_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_S)
            self._reader.join(STOP_S)
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def _running(
    command: list[str], home: Path, user: pwd.struct_passwd | None, more: Mapping[str, str]
) -> Iterator[_Child]:
    child = _Child(command, home, user, more)
    try:
        yield child
    finally:
        child.stop()


def _account(name: str) -> pwd.struct_passwd | None:
    """Return the account to run as if this process is root: a broker needs no such rights."""
    if os.geteuid() != 0:
        return None
    return pwd.getpwnam(name)


@contextmanager
def _directory(user: pwd.struct_passwd | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="broker-") as name:
        if user is not None:
            os.chown(name, user.pw_uid, user.pw_gid)
        yield Path(name)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)  # its directory is open to the broker alone


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.Random().sample(PORTS, len(PORTS)):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise BenchError("no port is free")


def _knock(port: int) -> None:
    """Check that the port is being listened on."""
    with socket.create_connection(("127.0.0.1", port), timeout=START_S):
        pass


# --- how each is configured -------------------------------------------------------------------


def _rabbitmq_environment(home: Path, mapper_port: int, node_port: int) -> dict[str, str]:
    # Two nodes at the same time need different names, even with different port mappers.
    return {
        "RABBITMQ_NODENAME": f"other{node_port}@localhost",
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(home / "no-env.conf"),
        "RABBITMQ_DIST_PORT": str(node_port),
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"
            # Its schedulers must not spin while idle.
            " +sbwt none +sbwtdcpu none +sbwtdio none"
        ),
    }


def _rabbitmq_conf(port: int, web_port: int, login: str, passcode: str) -> str:
    # ws_frame: its default, text, would have it send bodies as text that is none.
    return f"""\
listeners.tcp = none
stomp.listeners.tcp.1 = 127.0.0.1:{port}
web_stomp.tcp.ip = 127.0.0.1
web_stomp.tcp.port = {web_port}
web_stomp.ws_frame = binary
default_user = {login}
default_pass = {passcode}
loopback_users = none
disk_free_limit.absolute = 1MB
log.file = false
log.console = true
log.console.level = info
"""


def _activemq_xml(
    login: str, passcode: str, *, persistent: bool, anonymous: bool, port: int
) -> str:
    return f"""\
<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans.xsd
    http://activemq.apache.org/schema/core
    http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="other" useJmx="false"
    persistent="{str(persistent).lower()}" advisorySupport="false">
    <plugins>
      <simpleAuthenticationPlugin anonymousAccessAllowed="{str(anonymous).lower()}"
        anonymousGroup="users">
        <users>
          <authenticationUser username="{login}" password="{passcode}" groups="users"/>
        </users>
      </simpleAuthenticationPlugin>
    </plugins>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{port}"/>
    </transportConnectors>
  </broker>
</beans>
"""


_LOG4J = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%5p | %m%n
"""
