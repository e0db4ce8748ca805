"""The codec and the hot core, compiled by mypyc.

Run as a program, ``python -m _compiled.build``, it compiles the tree in the current directory in
place: the library beside each module of ``MODULES`` then takes precedence over it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _compiled.plain_classes import expand

MODULES = (
    "trio_stomp/base/_memory.py",
    "trio_stomp/frames/_cost.py",
    "trio_stomp/frames/_decoder.py",
    "trio_stomp/frames/_encoder.py",
    "trio_stomp/frames/_frame.py",
    "trio_stomp/frames/_headers.py",
    "trio_stomp/transport/websocket/_websocket_frames.py",
    "trio_stomp/nats/codec/_protocol.py",
    "trio_stomp/protocol/_server_session.py",
    "trio_stomp/broker/queues/_acknowledger.py",
    "trio_stomp/broker/_broker.py",
    "trio_stomp/broker/delivery/_event_history.py",
    "trio_stomp/broker/delivery/_history_events.py",
    "trio_stomp/broker/queues/_consumer.py",
    "trio_stomp/broker/delivery/_delivery.py",
    "trio_stomp/broker/routing/_fanout.py",
    "trio_stomp/broker/queues/_groups.py",
    "trio_stomp/broker/queues/_hand_out.py",
    "trio_stomp/broker/delivery/_histogram.py",
    "trio_stomp/broker/queues/_message.py",
    "trio_stomp/broker/queues/_scan_positions.py",
    "trio_stomp/broker/sending/_publisher.py",
    "trio_stomp/broker/sending/_to_queue.py",
    "trio_stomp/broker/sending/_to_topic.py",
    "trio_stomp/broker/queues/_queue.py",
    "trio_stomp/broker/queues/_queues.py",
    "trio_stomp/broker/_receipts.py",
    "trio_stomp/broker/queues/_waiting.py",
    "trio_stomp/broker/routing/_destinations.py",
    "trio_stomp/broker/delivery/_subscription.py",
    "trio_stomp/broker/routing/_recipients.py",
    "trio_stomp/server/_dispatcher.py",
    "trio_stomp/server/io/_inbox.py",
    "trio_stomp/server/io/_items.py",
    "trio_stomp/server/io/_outbox.py",
)
"""The modules that each message passes through and that use each other's classes. A call between
compiled modules costs a tenth of one through the interpreter."""

SUBCLASSED = frozenset({"FrameDecoder"})
"""Compiled classes of which code that is not compiled, or a test, has subclasses."""

NEEDS = ("mypy>=1.18", "setuptools>=65")
"""The packages needed for compiling, besides a C compiler and the project's dependencies."""

PROGRAM = "trio_stomp"
"""One library for all of them, ``trio_stomp__mypyc``, so that they call each other directly."""

SHIPPED = "3"
"""Level of optimization of the C compiler, for installing and measuring."""

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "node_modules", "*.so")


def compile_copy(source: Path, target: Path, level: str = SHIPPED) -> list[Path]:
    """Copy a tree and compile it there. Return the paths of the libraries, relative to ``target``.

    Args:
      target: Must not exist.
      level: The C compiler's level of optimization, "0" to "3".

    Raises:
      subprocess.CalledProcessError: compiling failed; the compiler has printed the reason.
    """
    shutil.copytree(source, target, ignore=LEFT_OUT)
    scripts = str(Path(__file__).resolve().parent.parent)
    # In front, because the builder of wheels has its own packages on that path.
    path = os.pathsep.join(filter(None, (scripts, os.environ.get("PYTHONPATH"))))
    command = (sys.executable, "-m", "_compiled.build", level)
    subprocess.run(command, cwd=target, env={**os.environ, "PYTHONPATH": path}, check=True)
    shutil.rmtree(target / "build")
    return sorted(path.relative_to(target) for path in target.rglob("*.so"))


@contextmanager
def plain_sources() -> Iterator[None]:
    """Replace the modules' attrs classes by plain ones while the block runs."""
    sources = {name: Path(name).read_text(encoding="utf-8") for name in MODULES}
    try:
        for name, source in sources.items():
            Path(name).write_text(expand(source, SUBCLASSED), encoding="utf-8")
        yield
    finally:
        for name, source in sources.items():
            Path(name).write_text(source, encoding="utf-8")


def compile_here(level: str = SHIPPED) -> None:
    """Compile the tree in the current directory in place."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    checks = ("--config-file=", "--explicit-package-bases", "--follow-imports=silent")
    with plain_sources():
        extensions = mypycify(
            [*checks, "--ignore-missing-imports", *MODULES],
            group_name=PROGRAM,
            opt_level=level,
            debug_level="0",
        )
    command = build_ext(Distribution({"name": PROGRAM, "ext_modules": extensions}))
    command.inplace = True
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    compile_here(*sys.argv[1:])
