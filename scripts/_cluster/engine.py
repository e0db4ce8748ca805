"""An engine in memory: the parts of NATS and JetStream that nodes use, with their faults.

One object stands for all servers. It never loses what it confirmed. Source: the NATS documentation,
"Client Protocol" and "JetStream wire API Reference".
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import trio
from attrs import define, evolve, field

from _cluster.network import ENDED, Network
from _cluster.streams import Consumer, Pull, Stored, Stream
from trio_stomp.nats import parse_headers

MAX_PAYLOAD = 4096
"""Small, so that large appends have several entries."""
SYNC_S = 0.001, 0.004
"""The time that a majority takes to write a message to disk."""
SERVERS = ("s0", "s1", "s2")
_INFO = {"server_id": "sim", "version": "2.12.0", "headers": True, "max_payload": MAX_PAYLOAD}
_API = b"$JS.API."
NOBODY = b"NATS/1.0 503\r\n\r\n"
"""No server could answer."""

Say = Callable[[bytes], None]


@define(eq=False)
class Session:
    """A client's connection to a server.

    Args:
      say: Sends bytes to the client.
      subjects: The subjects, by the number of the subscription.
    """

    host: str
    say: Say
    subjects: dict[bytes, bytes] = field(factory=dict)
    _rest: bytes = b""
    is_open: bool = True

    def frames(self, data: bytes) -> Iterator[tuple[list[bytes], bytes, bytes]]:
        """Yield the words, the header block and the payload of each complete operation."""
        self._rest += data
        while b"\r\n" in self._rest:
            line, _, rest = self._rest.partition(b"\r\n")
            words = line.split(b" ")
            head = size = 0
            if words[0] in (b"PUB", b"HPUB"):
                size = int(words[-1])
                head = int(words[-2]) if words[0] == b"HPUB" else 0
                if len(rest) < size + 2:
                    return
                self._rest = rest[size + 2 :]
            else:
                self._rest = rest
            yield words, rest[:head], rest[head:size]

    def message(
        self,
        to: bytes,
        payload: bytes,
        *,
        subject: bytes = b"",
        reply: bytes = b"",
        headers: bytes = b"",
    ) -> bool:
        """Send a message if there is a subscription for ``to``, and return whether.

        Args:
          to: The subject of the subscription.
          payload: The content.
          subject: The subject shown in the message; b"" = ``to``.
          reply: The subject for answers.
          headers: The block of headers.
        """
        for sid, wanted in self.subjects.items():
            if wanted == to or (wanted.endswith(b"*") and to.startswith(wanted[:-1])):
                size = b"%d" % (len(headers) + len(payload))
                words = [b"HMSG" if headers else b"MSG", subject or to, sid]
                words += [reply] if reply else []
                words += [b"%d" % len(headers), size] if headers else [size]
                self.say(b"%b\r\n%b%b\r\n" % (b" ".join(words), headers, payload))
                return True
        return False


@define(eq=False)
class Troubles:
    """The present faults of the engine.

    Args:
      outage: ``""``, or the fate of requests to JetStream: ``silent``, ``absent`` (servers report
        that there is no leader) or ``unready``.
      full: Whether nothing can be stored.
      flaky: The share of requests that fail.
      lag_s: The delay of consumers.
      down: The stopped servers.
      ignores_expected: A planted fault: streams store a message whatever sequence it expects.
    """

    outage: str = ""
    full: bool = False
    flaky: float = 0.0
    lag_s: float = 0.0
    down: set[str] = field(factory=set)
    ignores_expected: bool = False

    def end(self) -> None:
        """End all of it."""
        self.outage, self.full, self.flaky, self.lag_s = "", False, 0.0, 0.0
        self.down.clear()

    @property
    def are_none(self) -> bool:
        """Return whether the engine works."""
        return not (self.outage or self.full or self.flaky or self.lag_s or self.down)


@define(eq=False)
class Engine:
    """Implements ``Server`` for all servers of a cluster.

    Args:
      counts: The number of failed requests by kind.
    """

    network: Network
    chance: random.Random
    troubles: Troubles = field(factory=Troubles)
    streams: dict[str, Stream] = field(factory=dict)
    counts: dict[str, int] = field(factory=dict)
    _sessions: dict[Session, None] = field(factory=dict)
    _consumers: dict[bytes, Consumer] = field(factory=dict)

    # --- connections ------------------------------------------------------------------------------

    def accepts(self, host: str) -> bool:
        """Implement ``Server.accepts``."""
        return host not in self.troubles.down

    def open(self, host: str, say: Say) -> Say:
        """Implement ``Server.open``."""
        session = Session(host, say)
        self._sessions[session] = None
        say(b"INFO %b\r\n" % json.dumps(_INFO).encode())
        return partial(self._feed, session)

    def _feed(self, session: Session, data: bytes) -> None:
        if data == ENDED:
            session.is_open = False
            self._sessions.pop(session, None)
            for name in [name for name, each in self._consumers.items() if each.session is session]:
                del self._consumers[name]
            return
        for words, headers, payload in session.frames(data):
            operation = words[0]
            if operation == b"SUB":
                session.subjects[words[-1]] = words[1]
            elif operation == b"UNSUB":
                session.subjects.pop(words[1], None)
            elif operation == b"PING":
                session.say(b"PONG\r\n")
            elif operation in (b"PUB", b"HPUB"):
                has_reply = len(words) == (4 if operation == b"PUB" else 5)
                reply = words[2] if has_reply else b""
                self.publish(session, words[1], reply, headers, payload=payload)

    def drop(self, host: str) -> None:
        """End the connections to a server, and the consumers that it has."""
        for session in [each for each in self._sessions if each.host == host]:
            session.say(ENDED)
        for name in [name for name in self._consumers if self.chance.random() < 1 / len(SERVERS)]:
            del self._consumers[name]

    def publish(
        self, session: Session, subject: bytes, reply: bytes, headers: bytes, *, payload: bytes
    ) -> None:
        """Process a published message."""
        if subject.startswith(_API):
            self._request(session, subject[len(_API) :].decode(), reply, payload)
            return
        for stream in self.streams.values():
            if subject in stream.subjects:
                self._publish_to(stream, session, subject, reply, headers, payload=payload)
                return
        if not self.tell(subject, reply, payload) and reply:
            session.message(reply, b"", headers=NOBODY)

    def tell(self, subject: bytes, reply: bytes, payload: bytes) -> bool:
        """Deliver a message to the subscribers of its subject. Return whether there are any."""
        found = [each.message(subject, payload, reply=reply) for each in list(self._sessions)]
        return any(found)

    # --- streams ----------------------------------------------------------------------------------

    def _publish_to(
        self,
        stream: Stream,
        session: Session,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        *,
        payload: bytes,
    ) -> None:
        message = Stored(0, payload, 0.0, subject)
        fields = parse_headers(headers).fields if headers else {}
        store = partial(self._store, stream, session, reply, fields, message=message)
        troubles, chance = self.troubles, self.chance
        if troubles.outage:
            if chance.random() < 0.3:
                self._count("stored late")
                self.network.at(chance.uniform(0.1, 6), partial(store, is_answered=False))
            else:
                self._refuse(session, reply)
        elif troubles.flaky and chance.random() < troubles.flaky:
            kind = chance.choice(["lost", "answer lost", "late", "stored late"])
            self._count(kind)
            if kind == "answer lost":
                store(is_answered=False)
            elif kind == "late":
                self.network.at(chance.uniform(0.1, 4), store)
            elif kind == "stored late":
                self.network.at(chance.uniform(0.1, 6), partial(store, is_answered=False))
        else:
            store()

    def _count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def _store(
        self,
        stream: Stream,
        session: Session,
        reply: bytes,
        fields: Mapping[bytes, bytes],
        *,
        message: Stored,
        is_answered: bool = True,
    ) -> None:
        answer: dict[str, object]
        is_fit = self.troubles.ignores_expected or stream.expects(fields, message.subject)
        if not is_fit:
            text = f"wrong last sequence: {stream.last}"
            answer = {"error": {"code": 400, "err_code": 10071, "description": text}}
        elif self.troubles.full and stream.keeps_all:
            text = "maximum bytes exceeded"
            answer = {"error": {"code": 503, "err_code": 10077, "description": text}}
        else:
            answer = {"stream": stream.name, "seq": stream.last + 1}
            stream.add(evolve(message, sequence=stream.last + 1, at=trio.current_time()))
            for consumer in list(self._consumers.values()):
                if consumer.stream is stream:
                    self._pump(consumer)
        if is_answered:
            self._answer_later(session, reply, answer)

    def _answer_later(self, session: Session, reply: bytes, answer: Mapping[str, object]) -> None:
        self.network.at(self.chance.uniform(*SYNC_S), self._answer, session, reply, answer)

    def _answer(self, session: Session, reply: bytes, answer: Mapping[str, object]) -> None:
        if self.troubles.outage:
            self._count("answer lost")
        else:
            session.message(reply, json.dumps(answer).encode())

    def _refuse(self, session: Session, reply: bytes) -> None:
        """Answer a request while JetStream cannot be used, or not at all."""
        outage = self.troubles.outage
        if outage == "absent":
            session.message(reply, b"", headers=NOBODY)
        elif outage == "unready":
            text = "JetStream system temporarily unavailable"
            error = {"code": 503, "err_code": 10008, "description": text}
            session.message(reply, json.dumps({"error": error}).encode())

    # --- requests ---------------------------------------------------------------------------------

    def _request(self, session: Session, method: str, reply: bytes, payload: bytes) -> None:
        order = json.loads(payload) if payload else {}
        kind, _, name = method.rpartition(".")
        troubles = self.troubles
        if kind.startswith("CONSUMER.MSG.NEXT."):
            self._ask(session, name.encode(), reply, order)
        elif troubles.outage:
            self._refuse(session, reply)
        elif troubles.flaky and self.chance.random() < troubles.flaky:
            self._count("lost")
        elif kind == "STREAM.CREATE":
            subjects = [each.encode() for each in order["subjects"]]
            keeps_all = "max_msgs_per_subject" not in order
            stream = Stream(name, subjects, keeps_all=keeps_all, config=order)
            self._answer_later(session, reply, self.streams.setdefault(name, stream).info())
        elif kind.startswith("CONSUMER.CREATE."):
            stream = self.streams[kind.rpartition(".")[2]]
            config, key = order["config"], name.encode()
            subject = config.get("filter_subject", "").encode()
            self._consumers[key] = Consumer(key, session, stream, config["opt_start_seq"], subject)
            self._answer_later(session, reply, {"name": name})
        elif name not in self.streams:
            error = {"code": 404, "err_code": 10059, "description": "stream not found"}
            self._answer_later(session, reply, {"error": error})
        elif kind == "STREAM.PURGE":
            purged = self.streams[name].purge(order["seq"])
            self._answer_later(session, reply, {"success": True, "purged": purged})
        elif kind == "STREAM.MSG.GET":
            self._answer_later(session, reply, self.streams[name].message(order))
        else:
            assert kind == "STREAM.INFO", method
            self._answer_later(session, reply, self.streams[name].info())

    def _ask(self, session: Session, name: bytes, reply: bytes, order: Mapping[str, int]) -> None:
        consumer = self._consumers.get(name)
        if consumer is None:
            session.message(reply, b"", headers=NOBODY)
            return
        pull = Pull(session, reply, order["batch"], order["idle_heartbeat"] / 1e9)
        consumer.pulls.append(pull)
        self.network.at(order["expires"] / 1e9, self._expire, consumer, pull)
        self.network.at(pull.beat_s, self._beat, consumer, pull)
        self._pump(consumer)

    def _pump(self, consumer: Consumer) -> None:
        """Deliver the messages that a consumer's clients requested."""
        troubles = self.troubles
        if troubles.outage:
            self.network.at(0.2, self._pump, consumer)
        elif troubles.lag_s:
            lag_s = self.chance.uniform(0, troubles.lag_s)
            self.network.at(lag_s, self._deliver, consumer)
        else:
            self._deliver(consumer)

    def _deliver(self, consumer: Consumer) -> None:
        if consumer.name not in self._consumers:
            return
        for pull, position, message in consumer.due():
            if self.troubles.flaky and self.chance.random() < self.troubles.flaky / 4:
                self._count("delivery lost")
            else:
                wanted = pull.session.message(
                    pull.reply, message.payload, subject=message.subject, reply=position
                )
                if not wanted:
                    self._consumers.pop(consumer.name, None)
                    return

    def _beat(self, consumer: Consumer, pull: Pull) -> None:
        if pull not in consumer.pulls or consumer.name not in self._consumers:
            return
        if pull is consumer.pulls[0] and not self.troubles.outage:
            pull.session.message(pull.reply, b"", headers=b"NATS/1.0 100 Idle Heartbeat\r\n\r\n")
        self.network.at(pull.beat_s, self._beat, consumer, pull)

    def _expire(self, consumer: Consumer, pull: Pull) -> None:
        if pull in consumer.pulls:
            consumer.pulls.remove(pull)
            status = b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: %d\r\n" % pull.left
            headers = status + b"Nats-Pending-Bytes: 0\r\n\r\n"
            pull.session.message(pull.reply, b"", headers=headers)
