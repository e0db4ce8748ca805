"""stompserver's storage flags, ``-q -s -w -c``, and its configuration file, as our options."""

import argparse
import os
import shlex
from collections.abc import Iterator
from itertools import groupby

from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.config import RubyFile, build, hint, options, toml

STORAGE = ".stompserver"
DBM_FILE = "queues.db"
ACTIVERECORD_FILE = "stompserver_development"

PASSWD, ETC = ".passwd", "etc"

MEMORY, FILE, DBM, ACTIVERECORD = "memory", "file", "dbm", "activerecord"
TYPES = (MEMORY, FILE, DBM, ACTIVERECORD)


@frozen
class Storage:
    """The storage that the flags choose.

    Args:
      values: Options by name; our own options override them.
      directory: The directory to create for the database; "" = none.
    """

    values: dict[str, object]
    directory: str = ""

    def flag(self, name: str) -> str:
        """Return the flag that an option's value came from."""
        return {"checkpoint_s": "--checkpoint", "passwd_file": "--auth"}.get(name, "--queuetype")


FLAGS = (
    (
        "-a --auth",
        f"only who is in {PASSWD} of the working directory, or of {ETC} there, may log in: "
        "the same as --passwd-file with that",
    ),
    (
        f"-q --queuetype {{{','.join(TYPES)}}}",
        "memory = nothing is stored (stompserver's default); file = a journal in the storage "
        "directory; dbm = an SQLite database there; activerecord = the database of "
        "--store-url, or SQLite there; all but memory store every message to a queue",
    ),
    ("-s --storage DIR", f"storage directory; without it, {STORAGE} in the working directory"),
    (
        "-w --working-dir --working_dir DIR",
        "base of a relative storage directory; without it, the current directory",
    ),
    ("-c --checkpoint SECONDS", "the same as --checkpoint-s"),
)
"""The flags as in a help, and their meaning."""


def read_flags(given: argparse.Namespace) -> Storage:
    """Translate the flags, considering our own options in the same namespace.

    Raises:
      OptionError: the queue type is not one of stompserver's, or the seconds are not a number.
    """
    values: dict[str, object] = {}
    if "checkpoint" in given:
        values["checkpoint_s"] = _seconds(given.checkpoint)
    if "auth" in given and "passwd_file" not in given:
        values["passwd_file"] = _passwd_file(getattr(given, "working_dir", ""), ETC)
    kind = getattr(given, "queuetype", MEMORY)
    check_kind(kind)
    if kind == MEMORY:
        return Storage(values)
    values["persistent"] = "always"
    theirs = store_of(kind, _directory(given))
    ours = {name: getattr(given, name) for name in theirs.values if name in given}
    # Our own location options imply the kind of store.
    other = "store_url" if kind == FILE else "data_dir"
    if other in given or ours.get("store", theirs.values["store"]) != theirs.values["store"]:
        return Storage(values)
    directory = "" if "store_url" in given else theirs.directory
    return Storage({**values, **theirs.values}, directory)


def check_kind(kind: str) -> None:
    """Refuse a type of queue that stompserver does not have.

    Raises:
      OptionError: names the nearest type and all others.
    """
    if kind not in TYPES:
        raise OptionError(
            f"unknown queuetype {kind!r}{hint(kind, TYPES)} (known: {', '.join(TYPES)})"
        )


def store_of(kind: str, directory: str) -> Storage:
    """Return the store for a queue type other than memory.

    Args:
      kind: The queue type of stompserver.
      directory: The directory of its files.
    """
    if kind == FILE:
        return Storage({"store": "journal", "data_dir": directory})
    name = DBM_FILE if kind == DBM else ACTIVERECORD_FILE
    url = f"sqlite:///{os.path.join(directory, name)}"
    return Storage({"store": "sql", "store_url": url}, directory)


def _directory(given: argparse.Namespace) -> str:
    """Return the storage directory, absolute if the working directory is given."""
    return os.path.join(getattr(given, "working_dir", ""), getattr(given, "storage", STORAGE))


def _passwd_file(working_dir: str, etc: str) -> str:
    """Return the users file where stompserver's code looks for it, else where its manual says."""
    paths = [os.path.join(working_dir, etc, PASSWD), os.path.join(working_dir, PASSWD)]
    return next((each for each in paths if os.path.exists(each)), paths[0])


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise OptionError(f"checkpoint is {text!r}, but must be a number") from None


# The file.

_UNIT = "of the systemd unit, see conf/trio-stomp.service"
LEFT_OUT = {
    "daemon": "systemd starts and restarts the service: see conf/trio-stomp.service",
    "pidfile": "systemd tracks the process itself",
    "user": f"say User= {_UNIT}",
    "group": f"say Group= {_UNIT}",
    "logdir": "the log goes to standard error, which systemd stores: journalctl -u trio-stomp",
    "logfile": "as logdir",
    "passwd": "stompserver looked for it in etcdir",
    "debug": "not a setting: start with --debug",
}
USED = ("host", "port", "queue", "storage", "working_dir", "etcdir", "auth", "checkpoint")
_KINDS = {bool: "true or false", int: "a whole number", str: "a text"}


def imported(file: RubyFile) -> str:
    """Return a settings file that is equivalent to a configuration of stompserver.

    Comments name the settings that have no equivalent because systemd handles them.

    Raises:
      OptionError: a value has the wrong type or range; the text names the file and line.
    """
    values, notes = _translated(file)
    build(values, {name: file.location(key) for name, key in _ORIGINS.items() if name in values})
    lines = [
        f"# Settings of trio_stomp, made from stompserver's {toml(file.path)}.",
        "# Check them with: python -m trio_stomp config check FILE",
    ]
    given = (spec for spec in options() if spec.name in values)
    for group, members in groupby(given, key=lambda spec: spec.group):
        lines += ["", f"[{group}]"]
        lines += [f"{spec.name} = {toml(values[spec.name])}" for spec in members]
    remarks = [*notes, *_left_out(file)]
    if remarks:
        lines += ["", "# Not here:", *(f"#   {each}" for each in remarks)]
    return "\n".join(lines) + "\n"


_ORIGINS = {"host": "host", "port": "port", "checkpoint_s": "checkpoint"}


def _translated(file: RubyFile) -> tuple[dict[str, object], list[str]]:
    """Return the options by name, and the remarks."""
    values: dict[str, object] = {}
    notes: list[str] = []
    host, port = _get(file, "host", str, ""), _get(file, "port", int, None)
    if host:
        values["host"] = host
    if port is not None:
        values["port"] = port
    if file.values.get("checkpoint") is not None:
        values["checkpoint_s"] = _number(file, "checkpoint")
    working_dir = str(_get(file, "working_dir", str, ""))
    if _get(file, "auth", bool, False):
        etc = str(_get(file, "etcdir", str, ETC))
        values["passwd_file"] = path = _passwd_file(working_dir, etc)
        notes.append(
            f"The passcodes in {toml(path)} are plain text; to hash them:"
            f" python -m trio_stomp passwd import {shlex.quote(path)} {shlex.quote(path)}"
        )
    kind = str(_get(file, "queue", str, MEMORY))
    if kind not in TYPES:
        notes.append(
            f":queue: {toml(kind)}, which stompserver treated as memory: nothing is stored"
        )
    elif kind != MEMORY:
        directory = os.path.join(working_dir, str(_get(file, "storage", str, STORAGE)))
        values |= {"persistent": "always", **store_of(kind, directory).values}
        notes.append(f"The directory {toml(directory)} must exist before the broker starts.")
        notes.append("Messages stored by stompserver are not imported: drain its queues first.")
    if any(isinstance(each, str) and _is_relative(name, each) for name, each in values.items()):
        notes.append("Relative paths start at the working directory; set WorkingDirectory=")
    return values, notes


def _is_relative(name: str, value: str) -> bool:
    path = value.removeprefix("sqlite:///") if name == "store_url" else value
    return name in ("passwd_file", "data_dir", "store_url") and not os.path.isabs(path)


def _get(file: RubyFile, key: str, kind: type, default: object) -> object:
    """Return a setting in the required type, or the default if it is empty or missing."""
    value = file.values.get(key)
    if value is None:
        return default
    if type(value) is not kind:
        raise OptionError(f"{file.location(key)}: {key} is {value!r}, but must be {_KINDS[kind]}")
    return value


def _number(file: RubyFile, key: str) -> float:
    try:
        return float(str(file.values[key]))
    except ValueError:
        raise OptionError(
            f"{file.location(key)}: {key} is {file.values[key]!r}, but must be a number"
        ) from None


def _left_out(file: RubyFile) -> Iterator[str]:
    settings = (*USED, *LEFT_OUT)
    for key, value in file.values.items():
        if key in USED or value in (None, False):
            continue
        shown = f":{key}: {toml(value)}"
        if key in LEFT_OUT:
            yield f"{shown} - {LEFT_OUT[key]}"
        else:
            yield f"{shown} - stompserver has no such setting{hint(key, settings)}"
