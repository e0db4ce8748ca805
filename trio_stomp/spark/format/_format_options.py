"""The options of the source and the sink ``stomp``, parsed from the texts of a plan."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from trio_stomp.spark._address import DIAG, LOGIN_ENV, PASSCODE_ENV, StreamAddress, StreamError
from trio_stomp.spark._messages import BODIES

SECRETS = {"login", "user", "username", "passcode", "password"}

CONNECTION = {
    "url": "stomp://127.0.0.1:61613",
    "timeout_s": "30",
    "retry_s": "60",
    "ca_file": "",
    "credentials_file": "",
    "login_env": LOGIN_ENV,
    "passcode_env": PASSCODE_ENV,
}
"""The options of source and sink. Spark shows values in plans and logs, so none is a secret."""

SOURCE = CONNECTION | {
    "stream": DIAG,
    "body": "binary",
    "startingOffsets": "earliest",
    "startingTimestamp": "",
    "endingOffsets": "latest",
    "endingTimestamp": "",
    "maxOffsetsPerTrigger": "200000",
    "maxBytesPerTrigger": "0",
    "failOnDataLoss": "true",
    "partitions": "1",
    "broker_id": "",
}

SINK = CONNECTION | {"destination": "", "persistent": "true"}

OF_SPARK = {"checkpointlocation", "queryname"}
"""Options of Spark's own that it passes on to a sink."""


class Position(NamedTuple):
    """A position in a stream: ``earliest``, ``latest``, an ``offset``, or a ``timestamp`` in ms."""

    name: str
    value: int = 0

    @classmethod
    def of(cls, values: Mapping[str, str], edge: str) -> "Position":
        """Parse the options ``startingOffsets`` and ``startingTimestamp``, or ``ending…``.

        Raises:
          StreamError: the values are wrong.
        """
        offsets, timestamp = f"{edge}Offsets", f"{edge}Timestamp"
        text, time = values[offsets], values[timestamp]
        if time and text != SOURCE[offsets]:
            raise StreamError(f"{offsets}={text} and {timestamp}={time}: give one of them")
        if time:
            return cls("timestamp", milliseconds(time, timestamp))
        if text in ("earliest", "latest"):
            return cls(text)
        if not (text.isascii() and text.isdigit()):
            raise StreamError(f"{offsets}={text} should be earliest, latest, or a number")
        return cls("offset", int(text))


class SourceOptions(NamedTuple):
    """All options of the source, checked.

    Args:
      body: One of ``BODIES``.
      starting: The start of a new query or a batch.
      ending: The end of a batch.
      max_offsets: The limit of one micro-batch.
      max_bytes: The approximate size of one micro-batch; 0 = no limit.
      is_strict: Whether lost messages are an error, instead of a row.
      partitions: The number of connections that share the reading of one micro-batch.
      broker_id: The id for gap rows of statistics, and for messages without one.
    """

    stream_address: StreamAddress
    body: str
    starting: Position
    ending: Position
    max_offsets: int
    max_bytes: int
    is_strict: bool
    partitions: int
    broker_id: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Parse options, whose names are case-insensitive.

        Raises:
          StreamError: an option is unknown, or its value is wrong.
        """
        values = complete(options, SOURCE)
        body = values["body"]
        if body not in BODIES:
            raise StreamError(f"body={body} should be one of {', '.join(BODIES)}")
        return cls(
            stream_address=address_of(values),
            body=body,
            starting=Position.of(values, "starting"),
            ending=Position.of(values, "ending"),
            max_offsets=int(number_of(values, "maxOffsetsPerTrigger", least=1)),
            max_bytes=int(number_of(values, "maxBytesPerTrigger", least=0)),
            is_strict=flag_of(values, "failOnDataLoss"),
            partitions=int(number_of(values, "partitions", least=1)),
            broker_id=values["broker_id"],
        )


class SinkOptions(NamedTuple):
    """All options of the sink, checked.

    Args:
      destination: For rows without one; "" = none.
      is_persistent: Whether the broker is to store the messages.
    """

    address: StreamAddress
    destination: str
    is_persistent: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SinkOptions":
        """Parse options, whose names are case-insensitive.

        Raises:
          StreamError: an option is unknown, or its value is wrong.
        """
        ours = {name: text for name, text in options.items() if name.lower() not in OF_SPARK}
        values = complete(ours, SINK)
        return cls(address_of(values), values["destination"], flag_of(values, "persistent"))


def complete(options: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the values of all options.

    Raises:
      StreamError: an option is unknown.
    """
    names = {name.lower(): name for name in defaults}
    values = dict(defaults)
    for given, value in options.items():
        name = given.lower()
        if name in SECRETS:
            raise StreamError(
                f"{name} cannot be an option, as plans and logs show those: name a"
                f" credentials_file, or set {LOGIN_ENV} and {PASSCODE_ENV}"
            )
        if name not in names:
            raise StreamError(f"unknown option {given}; there are: {', '.join(defaults)}")
        values[names[name]] = value
    return values


def address_of(values: Mapping[str, str]) -> StreamAddress:
    """Return the address of a broker.

    Raises:
      StreamError: the URL or a time is wrong.
    """
    found = StreamAddress(
        values["url"],
        values.get("stream", DIAG),
        ca_file=values["ca_file"],
        credentials_file=values["credentials_file"],
        login_env=values["login_env"],
        passcode_env=values["passcode_env"],
        timeout_s=number_of(values, "timeout_s", least=0.001),
        retry_s=number_of(values, "retry_s", least=0.001),
    )
    found.address()
    return found


def number_of(values: Mapping[str, str], name: str, *, least: float) -> float:
    """Return the value of an option as a number of at least ``least``.

    Raises:
      StreamError: it is none.
    """
    try:
        number = float(values[name])
    except ValueError:
        number = least - 1
    if not least <= number < 1e15:
        raise StreamError(f"{name}={values[name]} should be a number of at least {least:g}")
    return number


def flag_of(values: Mapping[str, str], name: str) -> bool:
    """Return the value of an option as a truth value.

    Raises:
      StreamError: it is none.
    """
    text = values[name].lower()
    if text not in ("true", "false"):
        raise StreamError(f"{name}={values[name]} should be true or false")
    return text == "true"


def milliseconds(text: str, name: str) -> int:
    """Return a time in milliseconds since 1970, given as such or in ISO 8601 (UTC by default).

    Raises:
      StreamError: it has another form.
    """
    if text.isascii() and text.isdigit() and len(text) < 15:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise StreamError(
            f"{name}={text} should be in milliseconds since 1970, or like 2026-03-09T12:00:00Z"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
