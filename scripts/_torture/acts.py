"""Actions of a client: random valid frames, each recorded in its session before it is sent."""

import time
from dataclasses import dataclass
from functools import partial
from random import Random

from _torture.link import Link
from _torture.model import ABORTED, Place
from _torture.session import Session
from _torture.subscriptions import Effect, Sub, mark_acked, mark_sure
from _torture.wire import cut

QUEUES = tuple(f"/queue/torture.{n}" for n in range(6))
TOPICS = tuple(f"/topic/torture.{n}" for n in range(8))
MAX_SUBS = 4
MAX_BODY = 600
LARGE_BYTES = (40_000, 200_000, 250_000)
PREFETCH = (1, 5, 50)
DEEP = tuple(f"/queue/torture.deep.{n}" for n in range(3))
"""Queues of many messages, some in groups, from which most consumers select."""
DEEP_RUN = (20, 80)
SORTS = "abcdefgh"
GROUPS = 5


@dataclass(frozen=True)
class Mix:
    """The kinds of messages and subscriptions, as shares from 0 to 1.

    Args:
      saved: Durable messages.
      grouped: Messages of a group, in deep queues.
      selective: Consumers with a selector; in deep queues twice as many.
      deep: The weight of sending to deep queues, beside other acts.
      bulk: The weight of transactions with large durable messages for one queue.
    """

    saved: float = 0.0
    grouped: float = 0.0
    selective: float = 0.0
    deep: float = 0.0
    bulk: float = 0.0


PLAIN = Mix()
MIXED = Mix(saved=0.5, grouped=0.3, selective=0.35, deep=4, bulk=1)


class Actor:
    """The actions of one connection.

    Args:
      takes_auto: Whether it may consume shared queues with ``ack:auto``: it leaves by DISCONNECT,
        and the broker stays.
    """

    def __init__(
        self, session: Session, link: Link, dice: Random, *, takes_auto: bool, mix: Mix = PLAIN
    ) -> None:
        self.session = session
        self.link = link
        self.dice = dice
        self.takes_auto = takes_auto
        self.mix = mix
        self.saved = mix.saved
        """The share of durable messages in this act: each change of kind waits for the disk."""
        self.own = f"/queue/own.{session.who.split()[0]}"
        self.sent = 0
        self._out: list[bytes] = []
        self._receipts = 0
        self._names = 0

    # Frames.

    def flush(self) -> None:
        """Send the collected frames together, one by one, or cut anywhere."""
        frames, self._out = self._out, []
        if not frames:
            return
        self.sent += len(frames)
        way = self.dice.random()
        if way < 0.25:
            self.link.say([b"".join(frames)])
        elif way < 0.7:
            self.link.say(frames)
        else:
            self.link.say(cut(b"".join(frames), self.dice))

    def put(
        self,
        command: str,
        headers: dict[str, str],
        body: str = "",
        effect: Effect | None = None,
        receipt: float = 0.6,
    ) -> None:
        """Collect a frame, sometimes with a receipt."""
        session, asked = self.session, ""
        if self.dice.random() < receipt:
            self._receipts += 1
            asked = headers["receipt"] = f"r{self._receipts}"
        named = headers.get("destination", "") or headers.get("id", "")
        line = f"{command} {named} {headers.get('transaction', '')} {body[:40].partition(' x')[0]}"
        session.send(f"{line} {len(body)} bytes", time.monotonic(), asked, effect)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        self._out.append(f"{command}\n{lines}\n{body}\0".encode())

    def connect(self) -> None:
        """Open the session."""
        self._out.append(b"CONNECT\naccept-version:1.2\nhost:torture\n\n\0")
        self.flush()

    def disconnect(self) -> None:
        """Leave in order."""
        self.put("DISCONNECT", {}, receipt=1)
        self.flush()

    def send(
        self,
        to: str,
        size: int = 0,
        transaction: str = "",
        receipt: float = 0.6,
        saved: float | None = None,
    ) -> Place:
        """SEND one message."""
        is_saved = self.dice.random() < (self.saved if saved is None else saved)
        place = self.session.number(to, in_transaction=bool(transaction), is_saved=is_saved)
        headers = {"destination": to}
        if is_saved:
            headers["persistent"] = "true"
        if self.mix.selective:
            headers["sort"] = self.dice.choice(SORTS)
        if to in DEEP and self.dice.random() < self.mix.grouped:
            headers["JMSXGroupID"] = f"g{self.dice.randrange(GROUPS)}"
        effect: Effect | None = None
        if transaction:
            headers["transaction"] = transaction
        else:
            effect = partial(mark_sure, [place])
        filler = "x" * (size or self.dice.randrange(MAX_BODY))
        self.put("SEND", headers, f"{place.lane.name} {place.number} {filler}", effect, receipt)
        return place

    def subscribe(self, to: str, ack: str, *, is_browser: bool = False, prefetch: int = 0) -> Sub:
        """Send SUBSCRIBE with a receipt, before which no MESSAGE may arrive."""
        self._names += 1
        is_own = to == self.own
        sub = Sub(f"s{self._names}", to, ack, is_own, is_browser)
        headers = {"id": sub.id, "destination": to, "ack": ack}
        if is_browser:
            headers["browser"] = "true"
        if ack != "auto":
            headers["prefetch-count"] = str(prefetch or self.dice.choice(PREFETCH))
            share = 0.0 if prefetch else self.mix.selective * (2 if to in DEEP else 1)
            if self.dice.random() < share:
                headers["selector"] = f"sort = '{self.dice.choice(SORTS)}'"
        self.put("SUBSCRIBE", headers, effect=self.session.sub(sub), receipt=1)
        return sub

    def unsubscribe(self, sub: Sub) -> None:
        """Send UNSUBSCRIBE. Unacknowledged messages return to the queue."""
        self.put("UNSUBSCRIBE", {"id": sub.id}, effect=self.session.unsub(sub), receipt=0.8)

    def acknowledge(
        self, sub: Sub, most: int, transaction: str = "", nack: float = 0.03
    ) -> list[Place]:
        """Send ACK, and rarely NACK, for some messages. Return those that are settled."""
        done: list[Place] = []
        for name in list(sub.unacked)[:most]:
            if name not in sub.unacked:
                continue  # with one before it
            is_nack = self.dice.random() < nack
            places = self._up_to(sub, name)
            headers = {"id": name}
            if transaction:
                headers["transaction"] = transaction
            effect = None if is_nack or transaction else partial(mark_acked, places)
            self.put("NACK" if is_nack else "ACK", headers, effect=effect, receipt=0.5)
            done += [] if is_nack else places
        return done

    def _up_to(self, sub: Sub, name: str) -> list[Place]:
        """Return the messages that an ACK covers: with ``client``, all before it, too."""
        if sub.ack == "client-individual":
            return [sub.unacked.pop(name)]
        names = list(sub.unacked)
        return [sub.unacked.pop(each) for each in names[: names.index(name) + 1]]

    # Acts, each of one or many frames.

    def act(self, *, is_after_quiet: bool) -> None:
        """Do a random action."""
        dice = self.dice
        if self.mix.saved:
            self.saved = dice.choice((0.0, 0.0, 1.0, 1.0, self.mix.saved))
        if is_after_quiet and dice.random() < 0.4:
            self.large()
        elif is_after_quiet and dice.random() < 0.5:
            self.segments()
        else:
            acts = (self.some, self.to_topic, self.begin, self.finish, self.settle, self.transact)
            more = (self.browse, self.segments, self.deepen, self.bulk)
            weights = (6, 3, 3, 3, 6, 3, 1, 3, self.mix.deep, self.mix.bulk)
            dice.choices((*acts, *more), weights)[0]()
        self.flush()

    def some(self) -> None:
        """Send messages to a queue."""
        to = self.own if self.dice.random() < 0.4 else self.dice.choice(QUEUES)
        for _ in range(self.dice.randint(1, 6)):
            self.send(to)

    def deepen(self) -> None:
        """Send many messages to a deep queue."""
        to = self.dice.choice(DEEP)
        for _ in range(self.dice.randint(*DEEP_RUN)):
            self.send(to, receipt=0.05)

    def bulk(self) -> None:
        """Send a transaction of large durable messages for one queue."""
        self._names += 1
        name, to = f"t{self._names}", self.dice.choice((self.own, *QUEUES, *DEEP))
        self.put("BEGIN", {"transaction": name})
        sizes = self.dice.choices(LARGE_BYTES, k=self.dice.randint(2, 4))
        sent = [self.send(to, size, name, saved=1.0) for size in sizes]
        effect = partial(_committed, sent, [])
        self.put("COMMIT", {"transaction": name}, effect=effect, receipt=1)

    def to_topic(self) -> None:
        """Send messages to a topic."""
        to = self.dice.choice(TOPICS)
        for _ in range(self.dice.randint(1, 4)):
            self.send(to)

    def large(self) -> None:
        """Send a large message, usually in one piece."""
        to = self.own if self.dice.random() < 0.3 else self.dice.choice(QUEUES)
        # Others would fill the little memory of a broker with a store.
        saved = 1.0 if self.mix.saved else None
        self.send(to, self.dice.choice(LARGE_BYTES), receipt=1, saved=saved)
        if self.dice.random() < 0.7:
            frames, self._out = self._out, []
            self.sent += len(frames)
            self.link.say([b"".join(frames)])

    def begin(self) -> None:
        """Subscribe to something."""
        subs = [sub for sub in self.session.subs.values() if not sub.is_leaving]
        if len(subs) >= MAX_SUBS:
            return
        to = self.dice.choice((self.own, self.dice.choice(QUEUES), self.dice.choice(TOPICS)))
        if self.mix.deep and self.dice.random() < 0.4:
            to = self.dice.choice(DEEP)
        acks = ["client", "client-individual"]
        if self.takes_auto:
            acks.append("auto")  # else messages in transit at the end could rightly be lost
        if to in TOPICS:
            self.subscribe(to, "auto")
        elif to != self.own or not any(sub.is_own for sub in subs):
            self.subscribe(to, self.dice.choice(acks))

    def finish(self) -> None:
        """Acknowledge some messages, and unsubscribe immediately after that."""
        subs = [sub for sub in self.session.subs.values() if not sub.is_leaving]
        if subs:
            sub = self.dice.choice(subs)
            self.acknowledge(sub, self.dice.randrange(20))
            self.unsubscribe(sub)

    def settle(self) -> None:
        """Acknowledge received messages."""
        for sub in self.session.subs.values():
            if self.dice.random() < 0.8:
                self.acknowledge(sub, self.dice.choice((3, 20, 200)))

    def transact(self) -> None:
        """Send a transaction with SENDs and ACKs, mixed with other frames."""
        self._names += 1
        name = f"t{self._names}"
        self.put("BEGIN", {"transaction": name})
        sent = []
        for _ in range(self.dice.randint(1, 4)):
            to = self.dice.choice((self.own, self.dice.choice(QUEUES), self.dice.choice(TOPICS)))
            sent.append(self.send(to, transaction=name))
            if self.dice.random() < 0.2:
                self.send(self.dice.choice(QUEUES))
        kept = [(sub, dict(sub.unacked)) for sub in self.session.subs.values()]
        done = [each for sub, _ in kept for each in self.acknowledge(sub, 5, name, nack=0)]
        if self.dice.random() < 0.7:
            self.put("COMMIT", {"transaction": name}, effect=partial(_committed, sent, done))
            return
        for place in sent:
            place.lane.state[place.number] = ABORTED
        for sub, unacked in kept:
            sub.unacked = unacked | sub.unacked
        self.put("ABORT", {"transaction": name})

    def browse(self) -> None:
        """Browse a queue. The own queue is browsed only without other consumers."""
        subs = self.session.subs.values()
        if any(sub.is_browser and not sub.is_leaving for sub in subs):
            return
        is_taken = any(sub.is_own and not sub.is_browser for sub in subs)
        own = not is_taken and self.dice.random() < 0.7
        if own:
            for _ in range(self.dice.randint(1, 5)):
                self.send(self.own)
        self.subscribe(self.own if own else self.dice.choice(QUEUES), "auto", is_browser=True)

    def segments(self, most: int = 5, size: int = 0) -> None:
        """Send SUBSCRIBE, SENDs and UNSUBSCRIBE to a topic, each in a separate piece."""
        # Where many are subscribed, this much would be too much for them.
        to = self.own.replace("queue", "topic") if size else self.dice.choice(TOPICS)
        sub = self.subscribe(to, "auto")
        for _ in range(self.dice.randint(2, most)):
            self.send(to, self.dice.randrange(size) if size else 0, receipt=0.9)
        if self.dice.random() < 0.7:
            self.unsubscribe(sub)
        frames, self._out = self._out, []
        self.sent += len(frames)
        self.link.say(frames)


def _committed(sent: list[Place], done: list[Place]) -> None:
    mark_sure(sent)
    mark_acked(done)
