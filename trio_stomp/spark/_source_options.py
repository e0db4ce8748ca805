"""The options of the source ``stomp``, parsed from the texts of a plan."""

from collections.abc import Mapping
from typing import NamedTuple

from trio_stomp.spark._client import LOGIN_ENV, PASSCODE_ENV, StreamAddress, StreamError

SECRETS = {"login", "user", "username", "passcode", "password"}

DEFAULTS = {
    "url": "stomp://127.0.0.1:61613",
    "stream": "/stream/DIAG",
    "starting": "first",
    "ending": "next",
    "max_rows": "200000",
    "partitions": "1",
    "broker_id": "",
    "timeout_s": "30",
    "retry_s": "60",
    "ca_file": "",
    "credentials_file": "",
    "login_env": LOGIN_ENV,
    "passcode_env": PASSCODE_ENV,
}
"""The names of all options. Spark shows values in plans and logs, so none is a secret."""


class Position(NamedTuple):
    """A position in a stream: ``first``, ``next``, an ``offset``, or a ``timestamp`` in s."""

    name: str
    value: float = 0

    @classmethod
    def of(cls, text: str) -> "Position":
        """Parse ``first``, ``next``, ``offset=N`` or N, ``timestamp=S``.

        Raises:
          StreamError: it has another form.
        """
        if text in ("first", "next"):
            return cls(text)
        name, _, number = text.rpartition("=")
        try:
            if name in ("", "offset"):
                if int(number) < 0:
                    raise ValueError
                return cls("offset", int(number))
            if name == "timestamp":
                return cls(name, float(number))
        except ValueError:
            pass
        raise StreamError(f"{text!r} is none of first, next, offset=N, timestamp=SECONDS")


class SourceOptions(NamedTuple):
    """All options, checked.

    Args:
      starting: The start of a new query or a batch.
      ending: The end of a batch.
      max_rows: The limit of one micro-batch.
      partitions: The number of connections that share the reading of one micro-batch.
      broker_id: The id for gap rows, and for messages without one.
    """

    stream_address: StreamAddress
    starting: Position
    ending: Position
    max_rows: int
    partitions: int
    broker_id: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Parse options, whose names are case-insensitive.

        Raises:
          StreamError: an option is unknown, or its value is wrong.
        """
        given = {name.lower(): value for name, value in options.items()}
        for name in given.keys() - DEFAULTS.keys():
            if name in SECRETS:
                raise StreamError(
                    f"{name} cannot be an option, as plans and logs show those: name a"
                    f" credentials_file, or set {LOGIN_ENV} and {PASSCODE_ENV}"
                )
            raise StreamError(f"unknown option {name}; there are: {', '.join(DEFAULTS)}")
        values = DEFAULTS | given
        stream_address = StreamAddress(
            values["url"],
            stream=values["stream"],
            ca_file=values["ca_file"],
            credentials_file=values["credentials_file"],
            login_env=values["login_env"],
            passcode_env=values["passcode_env"],
            timeout_s=_positive(values, "timeout_s"),
            retry_s=_positive(values, "retry_s"),
        )
        stream_address.address()
        return cls(
            stream_address,
            starting=Position.of(values["starting"]),
            ending=Position.of(values["ending"]),
            max_rows=int(_positive(values, "max_rows")),
            partitions=int(_positive(values, "partitions")),
            broker_id=values["broker_id"],
        )


def _positive(values: Mapping[str, str], name: str) -> float:
    try:
        number = float(values[name])
    except ValueError:
        number = 0
    if number <= 0:
        raise StreamError(f"{name}={values[name]} should be a number above 0")
    return number
