"""stompserver's flags for what survives: ``-q -s -w -c``, in our options' names."""

import argparse
import os

from attrs import frozen

from trio_stomp._errors import OptionError
from trio_stomp.config import hint

STORAGE = ".stompserver"
DBM_FILE = "queues.db"
ACTIVERECORD_FILE = "stompserver_development"

PASSWD, ETC = ".passwd", "etc"

MEMORY, FILE, DBM, ACTIVERECORD = "memory", "file", "dbm", "activerecord"
TYPES = (MEMORY, FILE, DBM, ACTIVERECORD)


@frozen
class Storage:
    """What the flags come to.

    Args:
      values: Options by name; ours, where they are told too, win.
      directory: To be made, if that is where the database is to be; "" = none.
    """

    values: dict[str, object]
    directory: str = ""

    def flag(self, name: str) -> str:
        """The flag that an option's value comes from."""
        return {"checkpoint_s": "--checkpoint", "passwd_file": "--auth"}.get(name, "--queuetype")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags; what is not given stays out of the namespace."""
    section = parser.add_argument_group(
        "stompserver's flags", "what survives, in stompserver's words; the options above win"
    )
    flags = (
        (
            ("-q", "--queuetype"),
            "queuetype",
            "{" + ",".join(TYPES) + "}",
            "memory = nothing survives (that is stompserver's default); file = a journal in the "
            "storage directory; dbm = an SQLite database there; activerecord = the database of "
            "--store-url, or SQLite there; all but memory store whatever comes to a queue",
        ),
        (
            ("-s", "--storage"),
            "storage",
            "DIR",
            f"storage directory, by itself {STORAGE} in the working directory",
        ),
        (
            ("-w", "--working-dir", "--working_dir"),
            "working_dir",
            "DIR",
            "where a relative storage directory is, by itself the current directory",
        ),
        (("-c", "--checkpoint"), "checkpoint", "SECONDS", "the same as --checkpoint-s"),
    )
    section.add_argument(
        "-a",
        "--auth",
        action="store_true",
        default=argparse.SUPPRESS,
        help=f"only who is in {PASSWD} of the working directory, or of {ETC} there, may log in: "
        "the same as --passwd-file with that",
    )
    for names, dest, metavar, text in flags:
        section.add_argument(
            *names, dest=dest, metavar=metavar, default=argparse.SUPPRESS, help=text
        )


def read_flags(given: argparse.Namespace) -> Storage:
    """Return what the flags come to, beside our own options in the same namespace.

    Raises:
      OptionError: the type of queue is none of stompserver's, or the seconds are no number.
    """
    values: dict[str, object] = {}
    if "checkpoint" in given:
        values["checkpoint_s"] = _seconds(given.checkpoint)
    if "auth" in given and "passwd_file" not in given:
        values["passwd_file"] = _passwd_file(getattr(given, "working_dir", ""))
    kind = getattr(given, "queuetype", MEMORY)
    check_kind(kind)
    if kind == MEMORY:
        return Storage(values)
    values["persistent"] = "always"
    theirs = store_of(kind, _directory(given))
    ours = {name: getattr(given, name) for name in theirs.values if name in given}
    # Whoever says where it is to be in our words has said which kind it is, too.
    other = "store_url" if kind == FILE else "data_dir"
    if other in given or ours.get("store", theirs.values["store"]) != theirs.values["store"]:
        return Storage(values)
    directory = "" if "store_url" in given else theirs.directory
    return Storage({**values, **theirs.values}, directory)


def check_kind(kind: str) -> None:
    """Refuse a type of queue that stompserver does not have.

    Raises:
      OptionError: naming the nearest, and all.
    """
    if kind not in TYPES:
        raise OptionError(
            f"unknown queuetype {kind!r}{hint(kind, TYPES)} (known: {', '.join(TYPES)})"
        )


def store_of(kind: str, directory: str) -> Storage:
    """The store that stands in for a type of queue, but for memory.

    Args:
      directory: Where its files are.
    """
    if kind == FILE:
        return Storage({"store": "journal", "data_dir": directory})
    name = DBM_FILE if kind == DBM else ACTIVERECORD_FILE
    url = f"sqlite:///{os.path.join(directory, name)}"
    return Storage({"store": "sql", "store_url": url}, directory)


def _directory(given: argparse.Namespace) -> str:
    """The storage directory; absolute where the working directory is told."""
    return os.path.join(getattr(given, "working_dir", ""), getattr(given, "storage", STORAGE))


def _passwd_file(working_dir: str) -> str:
    """Where stompserver's code looks for users, then where its manual says that it does."""
    places = [os.path.join(working_dir, ETC, PASSWD), os.path.join(working_dir, PASSWD)]
    return next((each for each in places if os.path.exists(each)), places[0])


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise OptionError(f"checkpoint is {text!r}, but must be a number") from None
