"""JetStream's interface: streams, publishing with an expected sequence, and reading a message.

Source: the NATS documentation, "JetStream wire API Reference", and ADR-1, ADR-37.
"""

import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence

from attrs import define, frozen

from trio_stomp.base import value
from trio_stomp.nats._client import NatsClient
from trio_stomp.nats._errors import JetStreamError, NotFound, WrongLastSequence
from trio_stomp.nats.codec import NatsProtocolError, encode_headers, parse_object

WRONG_LAST_SEQUENCE = {10071, 10164}
"""Errors of a publication whose expected sequence is stale."""
NOT_FOUND = {10014, 10037, 10059}
"""Errors of a request for a consumer, message or stream that does not exist."""
_PLAIN_ANSWER = re.compile(rb'\{"stream":"[^"\\]*", ?"seq":(\d{1,19})\}').fullmatch
"""The usual answer to a publication. Parsing it as JSON takes four times as long."""


@value
class Published:
    """JetStream has stored a message.

    Args:
      sequence: The message's sequence in its stream.
      is_duplicate: A message with the same id was stored before; this one was not.
    """

    sequence: int
    is_duplicate: bool


@frozen
class StreamInfo:
    """A stream and its state.

    Args:
      config: The server's config of it.
      first: The sequence of the first message; ``last + 1`` if there is none.
      last: The greatest sequence ever used.
      messages: Number of stored messages.
      size: Size of the stored messages, in bytes.
      leader: The name of its leading server; "" = none, or no cluster.
      followers: The names of its other servers, and whether each is current.
    """

    config: Mapping[str, object]
    first: int
    last: int
    messages: int
    size: int
    leader: str
    followers: Mapping[str, bool]


@define(eq=False, repr=False)
class JetStream:
    """JetStream, over a client.

    Args:
      prefix: The prefix of all subjects of the API; another than the default selects a domain.
    """

    client: NatsClient
    prefix: bytes = b"$JS.API"

    async def call(
        self, method: str, order: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Send a request to the API and return its answer.

        Args:
          method: The subject without the prefix, such as ``STREAM.INFO.LOG_00``.
          order: The content; None = empty.

        Raises:
          NotFound: The stream, consumer or message does not exist.
          JetStreamError: The server refused it for another reason.
          NatsError: See ``NatsClient.request``.
        """
        subject = b"%b.%b" % (self.prefix, method.encode())
        payload = b"" if order is None else json.dumps(order).encode()
        return checked((await self.client.request(subject, payload)).payload)

    async def stream(self, name: str) -> StreamInfo:
        """Return a stream's state. Raises as ``call``."""
        return _stream_info(await self.call(f"STREAM.INFO.{name}"))

    async def streams(self) -> list[StreamInfo]:
        """Return all streams, with their states. Raises as ``call``."""
        found: list[StreamInfo] = []
        while True:
            answer = await self.call("STREAM.LIST", {"offset": len(found)})
            page = answer.get("streams") or ()
            assert isinstance(page, Sequence)
            found += map(_stream_info, page)
            if not page or len(found) >= _number(answer, "total"):
                return found

    async def step_down(self, name: str) -> None:
        """Have the leader of a stream leave its place to another server. Raises as ``call``."""
        await self.call(f"STREAM.LEADER.STEPDOWN.{name}")

    async def remove_peer(self, name: str, server: str) -> None:
        """Replace a server of a stream by another that does not have it.

        Raises:
          JetStreamError: There is no such server, or no other one.
          NatsError: As ``call``.
        """
        await self.call(f"STREAM.PEER.REMOVE.{name}", {"peer": server})

    async def create_stream(self, config: Mapping[str, object]) -> StreamInfo:
        """Create a stream with ``config["name"]``, or return the existing one with this config.

        Raises:
          JetStreamError: the existing stream has another config.
          NatsError: As ``call``.
        """
        return _stream_info(await self.call(f"STREAM.CREATE.{config['name']}", config))

    async def update_stream(self, config: Mapping[str, object]) -> StreamInfo:
        """Change a stream's config. Raises as ``call``."""
        return _stream_info(await self.call(f"STREAM.UPDATE.{config['name']}", config))

    async def delete_stream(self, name: str) -> None:
        """Delete a stream with its messages. Raises as ``call``."""
        await self.call(f"STREAM.DELETE.{name}")

    async def purge(self, name: str, below: int) -> int:
        """Delete a stream's messages with sequences less than ``below``; return their number.

        Raises as ``call``.
        """
        answer = await self.call(f"STREAM.PURGE.{name}", {"seq": below})
        return _number(answer, "purged")

    async def message(self, stream: str, **which: object) -> tuple[int, bytes]:
        """Return the sequence and payload of a message from the stream's leader.

        Args:
          stream: The stream.
          which: ``seq=`` a sequence, or ``last_by_subj=`` a subject.

        Raises as ``call``.
        """
        answer = (await self.call(f"STREAM.MSG.GET.{stream}", which)).get("message")
        if not isinstance(answer, dict):
            raise NatsProtocolError("a message of JetStream without content")
        return _number(answer, "seq"), b64decode(str(answer.get("data", "")))

    async def publish(
        self, subject: bytes, payload: bytes, *, headers: Mapping[bytes, bytes]
    ) -> Published:
        """Publish to a stream, and wait until it is stored.

        Raises:
          WrongLastSequence: The expected sequence is stale. Nothing was stored.
          JetStreamError: The server refused it for another reason. Nothing was stored.
          NatsError: See ``NatsClient.request``; it may have been stored.
        """
        block = encode_headers(headers) if headers else b""
        payload = (await self.client.request(subject, payload, headers=block)).payload
        plain = _PLAIN_ANSWER(payload)
        if plain is not None:
            return Published(int(plain[1]), False)
        fields = checked(payload)
        return Published(_number(fields, "seq"), fields.get("duplicate") is True)


def expecting(sequence: int, *, of_subject: bool = False) -> dict[bytes, bytes]:
    """Return headers for a message that is stored only after ``sequence``.

    Args:
      sequence: The last sequence of the stream; 0 = it never had a message.
      of_subject: Compare with the last message of the same subject instead; 0 = there is none.
    """
    name = b"Nats-Expected-Last-Subject-Sequence" if of_subject else b"Nats-Expected-Last-Sequence"
    return {name: b"%d" % sequence}


def checked(payload: bytes) -> dict[str, object]:
    """Return the fields of an answer of JetStream.

    Raises:
      NotFound: the stream, consumer or message does not exist.
      WrongLastSequence: the expected sequence is stale.
      JetStreamError: the server refused the request for another reason.
      NatsProtocolError: it is not an answer of JetStream.
    """
    fields = parse_object(payload)
    error = fields.get("error")
    if not isinstance(error, dict):
        return fields
    code, err_code = _number(error, "code"), error.get("err_code", 0)
    kind = JetStreamError
    if err_code in WRONG_LAST_SEQUENCE:
        kind = WrongLastSequence
    elif err_code in NOT_FOUND:
        kind = NotFound
    raise kind(code, int(err_code), str(error.get("description", "")))


def _number(fields: Mapping[str, object], name: str) -> int:
    found = fields.get(name)
    if not isinstance(found, int):
        raise NatsProtocolError(f"an answer of JetStream without {name}: {str(fields)[:80]}")
    return found


def _stream_info(fields: Mapping[str, object]) -> StreamInfo:
    config, state, cluster = fields.get("config"), fields.get("state"), fields.get("cluster")
    if not isinstance(config, dict) or not isinstance(state, dict):
        raise NatsProtocolError("a stream of JetStream without config or state")
    cluster = cluster if isinstance(cluster, dict) else {}
    replicas: Sequence[dict[str, object]] = cluster.get("replicas") or ()
    return StreamInfo(
        config=config,
        first=_number(state, "first_seq"),
        last=_number(state, "last_seq"),
        messages=_number(state, "messages"),
        size=_number(state, "bytes"),
        leader=str(cluster.get("leader", "")),
        followers={str(each["name"]): each.get("current") is True for each in replicas},
    )
