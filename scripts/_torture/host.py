"""The broker to torture: a process on one port and one store, which is ended and started again."""

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from _crash.ports import free_port
from _proof.watched import ProofError, Watched, watched_broker

from _torture.model import World

SHOWN = 4000
"""Characters of the log that are shown."""


class Host:
    """Runs the broker of a checkout, each time with a log of its own.

    Args:
      options: The broker's options, except its port.
      work: The directory for its logs.
      tree: The checkout.
    """

    def __init__(self, options: Sequence[str], work: Path, tree: Path, world: World) -> None:
        self.port = free_port()
        self._options = (*options, "--port", f"{self.port}")
        self._work = work
        self._tree = tree
        self._world = world
        self._starts = 0
        self._process = ExitStack()
        self._watched: Watched

    def start(self) -> None:
        """Start the broker.

        Raises:
          ProofError: It did not start.
        """
        self._starts += 1
        log = self._work / f"broker-{self._starts}.log"
        running = watched_broker(self._options, log, tree=self._tree)
        self._watched = self._process.enter_context(running)
        self._world.is_down = False

    def look(self) -> bool:
        """Return whether its log is as expected. Record lines that are not as violations."""
        bad = self._watched.bad_lines()
        if bad:
            text = f"{len(bad)} lines in {self._watched.log}: {bad[0][:SHOWN]}"
            self._world.wrong("log", "broker", text)
        return not bad

    def end(self, *, is_kill: bool = False) -> None:
        """End the broker, by SIGKILL or in order, and look at its log.

        Raises:
          ProofError: It did not end in order, as told.
        """
        self._world.begin_down()
        if is_kill:
            os.kill(self._watched.pid, signal.SIGKILL)
        with contextlib.suppress(*((ProofError,) if is_kill else ())):
            self._process.close()
        self.look()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the broker within the context."""
        with self._process:
            self.start()
            yield
            self.end()
