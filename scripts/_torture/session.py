"""The expectations of one connection: its RECEIPTs in order, its MESSAGEs, and no other frames.

It uses no socket and no clock: the client reports the frames that it sends and receives, with their
  times.
"""

from collections import deque
from functools import partial

from _crash.link import Reply

from _torture.model import ABORTED, BOOT, Lane, Place, World
from _torture.subscriptions import Effect, SentFrame, Sub, delivery_of, last_unseen, mark_acked

HISTORY = 40
OF_ORDER = ("unknown-ack", "unknown-subscription", "unknown-transaction", "duplicate-subscription")
"""Codes of an ERROR to frames that are right in the order in which they were sent."""


class Wrong(Exception):
    """A violation after which the connection is not used. It has been recorded."""


class Session:
    """One connection's history."""

    def __init__(self, world: World, who: str, *, is_secret: bool = False) -> None:
        self.world = world
        self.who = who
        self.is_secret = is_secret
        self.boot = world.boot
        self.is_connected = False
        self.expects_error = False
        self.error = ""
        self.subs: dict[str, Sub] = {}
        self.pending: deque[SentFrame] = deque()
        self.lanes: dict[str, Lane] = {}
        self._history: deque[str] = deque(maxlen=HISTORY)

    def wrong(self, kind: str, text: str) -> Wrong:
        """Record a violation, and return the exception for it.

        The end of the broker excuses how a connection ends, but no delivery.
        """
        if self.boot == self.world.boot or kind in ("double", "transaction"):
            self.world.wrong(kind, self.who, text, self._history)
        return Wrong(text)

    def note(self, text: str, now: float) -> None:
        """Add a line to the history."""
        self._history.append(f"  {now:10.3f} {text}")

    # Sent frames.

    def send(self, line: str, now: float, receipt: str = "", effect: Effect | None = None) -> None:
        """Record a frame before it is sent. ``line`` is its text in the history."""
        self.note(f"> {line}" + (f" receipt {receipt}" if receipt else ""), now)
        self.pending.append(SentFrame(receipt, now, effect))

    def number(
        self, destination: str, *, in_transaction: bool = False, is_saved: bool = False
    ) -> Place:
        """Return a new message to a destination."""
        name = f"{self.who.split()[0]}>{destination}>{'x' if in_transaction else 'p'}"
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = self.world.lane(name, destination, self.boot)
        return Place(lane, lane.new(is_saved=is_saved))

    def sub(self, sub: Sub) -> Effect:
        """Record a SUBSCRIBE before it is sent. Return the effect of its RECEIPT."""
        self.subs[sub.id] = sub
        if sub.is_browser and sub.is_own:
            for lane in self.lanes.values():
                if lane.destination == sub.destination and (last := last_unseen(lane)) >= 0:
                    sub.owed[lane.name] = last
        return partial(self._subscribed, sub)

    def _subscribed(self, sub: Sub) -> None:
        sub.is_there = True
        if sub.is_topic:
            sub.born = len(self.world.lanes)
            sub.base = {lane.name: len(lane.state) for lane in self.world.live(sub.destination)}

    def unsub(self, sub: Sub) -> Effect:
        """Record an UNSUBSCRIBE before it is sent. Return the effect of its RECEIPT."""
        sub.is_leaving = True
        sub.unacked.clear()
        sub.owed.clear()  # a browser that leaves early has not seen everything
        if sub.is_topic and sub.is_there:
            for lane in self.world.live(sub.destination):
                first, last = sub.first(lane), lane.last_sure()
                if first is not None and last >= first:
                    sub.owed[lane.name] = last
        return partial(self._unsubscribed, sub)

    def _unsubscribed(self, sub: Sub) -> None:
        del self.subs[sub.id]
        self._settle(sub)

    def _settle(self, sub: Sub) -> None:
        for name, number in sub.owed.items():
            if sub.last.get(name, -1) < number:
                raise self.wrong("lost", f"{name} {number} did not come to subscription {sub.id}")

    # Received frames.

    def hear(self, reply: Reply, now: float) -> None:
        """Check a received frame.

        Raises:
          Wrong: one that may not come.
        """
        headers = reply.headers
        name = headers.get("receipt-id") or headers.get("subscription") or headers.get("code", "")
        self.note(f"< {reply.command} {name} {reply.body[:40].partition(' x')[0]}", now)
        if reply.command == "RECEIPT":
            self._receipt(headers["receipt-id"])
        elif reply.command == "MESSAGE":
            self._message(reply)
        elif reply.command == "CONNECTED" and not self.is_connected:
            self.is_connected = True
        elif reply.command == "ERROR":
            self._error(reply)
        else:
            raise self.wrong("error", f"an unexpected {reply.command} arrived")

    def _receipt(self, receipt: str) -> None:
        """Process a RECEIPT, which confirms all frames before it, too."""
        while self.pending:
            result = self.pending.popleft()
            if result.receipt and result.receipt != receipt:
                raise self.wrong("order", f"RECEIPT {receipt} arrived before {result.receipt}")
            if result.effect is not None:
                result.effect()
            if result.receipt:
                self.world.add("RECEIPTs")
                return
        raise self.wrong("order", f"RECEIPT {receipt} arrived, but was not requested")

    def _error(self, reply: Reply) -> None:
        code = reply.headers.get("code", "?")
        self.error = code
        if self.is_refused:
            self.world.add("refused")
            return
        if not self.expects_error:
            kind = "order" if code in OF_ORDER else "error"
            raise self.wrong(kind, f"ERROR {code}: {reply.headers.get('message', '')}")
        self.expect_nothing("the ERROR")

    @property
    def is_refused(self) -> bool:
        """Return whether the broker has ended the connection because it is full."""
        return self.error in self.world.refusals

    def expect_nothing(self, what: str) -> None:
        """Check that all earlier frames were answered, before a frame that ends the connection.

        After a refusal, the frames behind the refused one are not answered.

        Raises:
          Wrong: it is not.
        """
        if self.is_refused:
            return
        left = [reported.receipt for reported in self.pending if reported.receipt]
        if left:
            raise self.wrong("order", f"{what} arrived before RECEIPT {left[0]}")

    def _message(self, reply: Reply) -> None:
        sub = self.subs.get(reply.headers["subscription"])
        if sub is None:
            raise self.wrong("order", "a MESSAGE arrived for an unknown subscription")
        if not sub.is_there:
            raise self.wrong("order", "a MESSAGE arrived before the RECEIPT of its SUBSCRIBE")
        if sub.is_browser and reply.headers.get("browser") == "end":
            self._settle(sub)
            return
        place = self.world.place(reply.body, delivery_of(reply), self.boot)
        if place is None or not sub.reaches(place.lane.destination):
            raise self.wrong("error", f"this was never sent there: {reply.body[:80]}")
        if sub.is_topic:
            self._from_topic(sub, place)
        elif sub.is_browser:
            self._in_order(sub, place)
        else:
            if sub.is_own and place.delivery % BOOT == 1:
                self._in_order(sub, place)
            found = self.world.deliver(place)
            if found is not None:
                raise self.wrong(*found)
            self._to_acknowledge(sub, reply, place)

    def _to_acknowledge(self, sub: Sub, reply: Reply, place: Place) -> None:
        if sub.ack == "auto":
            mark_acked([place])
        elif not sub.is_leaving:
            sub.unacked[reply.headers["ack"]] = place

    def _in_order(self, sub: Sub, place: Place) -> None:
        lane, number, _ = place
        before = sub.last.get(lane.name, -1)
        if number <= before:
            raise self.wrong("order", f"{lane.name} {number} arrived after {before}")
        if lane.state[number] == ABORTED:
            raise self.wrong("transaction", f"{lane.name} {number} arrived, but was aborted")
        sub.last[lane.name] = number

    def _from_topic(self, sub: Sub, place: Place) -> None:
        lane, number, _ = place
        before = sub.last.get(lane.name)
        first = sub.first(lane) if before is None else before + 1
        if first is None:
            first = number
        self._in_order(sub, place)
        missing = [n for n in range(first, number) if lane.state[n] != ABORTED]
        if missing:
            raise self.wrong("lost", f"{lane.name} {missing[0]} is missing before {number}")
        self.world.add("from topics")

    def oldest(self) -> float | None:
        """Return when the oldest frame without its RECEIPT was sent, or None."""
        return next((reported.at for reported in self.pending if reported.receipt), None)

    def end(self) -> None:
        """End the session, in whatever way the connection ended."""
        self.world.retire(self.lanes.values())
