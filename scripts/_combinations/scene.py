"""A scene: the connections of a scenario and the model of its queues, which judges each step."""

import time
from dataclasses import dataclass

from _crash.link import Reply

from _combinations.model import DELAYED, HELD, SCHEDULED, WAITING, Copy, Model, Queue, Sub
from _combinations.policy import Policy
from _combinations.wire import PATIENCE_S, Finding, Wires


@dataclass(frozen=True)
class Step:
    """A step. What it means beside its verb depends on that; numbers choose among what there is."""

    verb: str
    link: int = 0
    to: int = 0
    count: int = 1
    saved: bool = False
    priority: str = ""
    sort: str = ""
    group: str = ""
    ttl: str = ""
    id: str = ""
    delay: str = ""
    ack: str = "client-individual"
    prefetch: int = 100
    level: int = 0
    exclusive: bool = False
    pick: int = 0
    how: str = "ack"
    inner: "tuple[Step, ...]" = ()


class Scene:
    """The connections of a scenario, and the model of its queues.

    Args:
      name: Begins the names of its queues.
      store: What the RECEIPT of a durable message says, or "" without a store.
    """

    def __init__(self, name: str, policies: dict[str, Policy], port: int, store: str) -> None:
        self.name, self.store, self.port = name, store, port
        self.model, self.wires = Model(), Wires(port)
        self.names = [each for each in policies if each.startswith("/queue/")]
        self.topic = next(each for each in policies if each.startswith("/topic/"))
        for each, policy in policies.items():
            self.model.queues[each] = Queue(each, policy)
        self.topic_policy = self.model.queues.pop(self.topic).policy
        self.bindings = {"d": "", "e": "a"}
        """The names of durable subscriptions, and their selectors."""
        self.subs: dict[tuple[int, str], Sub] = {}
        self.blocked: dict[str, tuple[Queue, Copy]] = {}
        """Messages of SENDs that wait for room, by receipt."""
        self.is_over = False
        """It was refused for lack of memory, and nothing more is known."""
        self.log: list[str] = []
        self.sent = self.next_sub = 0

    # Running.

    def begin(self) -> None:
        """Begin a step: hear what time has done, and let it be certain first."""
        self.model.pass_time()
        while self.model.unsure():
            time.sleep(0.05)
            self.model.pass_time()
        if self.model.has_timed():
            self.settle()
        self.model.began = self.model.now

    def settle(self) -> None:
        """Wait until all that is due has come, and nothing else has.

        Raises:
          Finding: it does not come, or something else has.
        """
        deadline = time.monotonic() + PATIENCE_S
        pause_s = 0.0
        if self.is_over:
            return
        receipts: dict[str, Reply] = {}
        while True:
            receipts |= self.wires.listen()
            self.model.pass_time()
            self.explain()  # which makes room
            for receipt in [each for each in receipts if not self.blocked[each][0].is_full()]:
                del receipts[receipt]
                self._enters(receipt)
            why = self.explain() or self._owed()
            for receipt in receipts:
                copy = self.blocked[receipt][1]
                why = why or f"RECEIPT of {copy.body}, which waited, though there is no room"
            if not why:
                self.model.quiet = self.model.now
                return
            if time.monotonic() > deadline:
                raise Finding(f"after {PATIENCE_S:g} s: {why}")
            time.sleep(pause_s)
            pause_s = 0.01

    def _enters(self, receipt: str) -> None:
        """A message that waited for room has its RECEIPT."""
        queue, copy = self.blocked.pop(receipt)
        link = next(link for link, each in self.wires.waits.items() if each == receipt)
        del self.wires.waits[link]
        copy.at = (self.model.tick(),) * 2
        self.model.admit(queue, copy)

    def _owed(self) -> str:
        for queue, copy in self.blocked.values():
            if not queue.is_full():
                return f"the SEND of {copy.body} to {queue.name} waits, though there is room"
        owed = (queue.owed(self.model.now) for queue in self.model.queues.values())
        return next(filter(None, owed), "")

    def explain(self) -> str:
        """Judge the deliveries that were heard. Return why the first one is wrong, or ""."""
        why = ""
        while True:
            is_going, why = False, ""
            for (link, id), replies in self.wires.heard.items():
                while replies:
                    reason = self._judge(self.subs[link, id], replies[0])
                    if reason:
                        text = f"{body_of(replies[0])} was delivered to {id} of connection {link}"
                        why = why or f"{text} ({replies[0].headers['destination']}): {reason}"
                        break
                    is_going = True
                    replies.popleft()
            if not is_going:
                return why

    def _judge(self, sub: Sub, reply: Reply) -> str:
        name = reply.headers["destination"]
        queue = self.model.queue(sub.pattern if "|" in sub.pattern else name)
        return self.model.deliver(sub, queue, body_of(reply), reply.headers)

    def left(self, link: int, only: Sub | None = None, *, is_lost: bool = False) -> None:
        """A subscription or a connection has ended."""
        self.model.now = time.monotonic()
        if why := self.explain():
            self.wires.overhear()  # others may have got what comes before
            why = self.explain()
        leaving = [sub for sub in self.subs.values() if sub.link == link and only in (None, sub)]
        if why and any(self.wires.heard.get((link, sub.id)) for sub in leaving):
            raise Finding(why)
        for sub in leaving:
            del self.subs[link, sub.id]
            self.model.leave(sub, is_lost=is_lost)

    # Between phases.

    def differs(self, depths: dict[str, tuple[int, int]]) -> str:
        """Return how the depths that the broker tells differ from the model, or ""."""
        self.model.pass_time()
        now = self.model.now
        if self.is_over:
            return ""
        for queue in list(self.model.queues.values()):
            key = queue.name if not queue.is_binding else self.name + queue.name
            depth, unacked = depths.get(key, (0, 0))
            waiting = [copy for copy in queue.copies if copy.state in (WAITING, DELAYED)]
            sure = sum(not copy.may_be_over(now) and not copy.is_ghost for copy in waiting)
            most = len(waiting) + sum(
                c.state == SCHEDULED and c.may_be_due(now) for c in queue.copies
            )
            most += sum(
                copy.body in queue.fates or self.model.dead_of(other) is queue
                for other in list(self.model.queues.values())
                for copy in other.copies
                if copy.may_be_over(now) and other is not queue
            )
            if not sure <= depth <= most or unacked != len(queue.held):
                bodies = [f"{copy.body} {copy.state}" for copy in queue.copies]
                text = f"the broker says {depth} waiting, {unacked} unacknowledged in {queue.name}"
                return f"{text}; the model: {sure} to {most}, {len(queue.held)}: {bodies}"
        return ""

    def copies(self) -> list[Copy]:
        """Return the messages of all queues."""
        return [copy for queue in self.model.queues.values() for copy in queue.copies]

    def resolve(self, depths: dict[str, tuple[int, int]]) -> None:
        """Learn from the depths of queues what has survived a restart."""
        for queue in self.model.queues.values():
            ghosts = [copy for copy in queue.copies if copy.is_ghost]
            if ghosts and any(each.is_unsure(self.model.now) for each in self.copies()):
                self.is_over = True  # others may come there, or not yet
            elif ghosts:
                found = depths.get(queue.name, (0, 0))[0] + len(ghosts) - queue.count
                for copy in ghosts if found in (0, len(ghosts)) else ():
                    copy.is_ghost = False
                    if not found:
                        queue.gone(copy, "not durable, before a restart")
                self.is_over |= 0 < found < len(ghosts)

    def ended(self) -> None:
        """Hear the rest of all connections of a broker that has ended."""
        for link in list(self.wires.links):
            self.wires.listen_to_end(link)
        self.blocked.clear()
        self.model.now = time.monotonic()
        if not self.is_over and (why := self.explain()):
            self._pass_on(why)
        self.subs.clear()
        self.wires.heard.clear()

    def _pass_on(self, why: str) -> None:
        """Judge deliveries of what other consumers held, whose connections ended before, and of
        what came behind."""
        for (link, id), replies in self.wires.heard.items():
            for reply in replies:
                sub = self.subs[link, id]
                queue = self.model.queue(
                    sub.pattern if "|" in sub.pattern else reply.headers["destination"]
                )
                copies = [copy for copy in queue.copies if copy.body == body_of(reply)]
                found = [copy for copy in copies if copy.state in (HELD, WAITING)]
                if not found:
                    raise Finding(why)
                found[0].deliveries = found[0].deliveries[0], found[0].deliveries[1] + 1
                if sub.ack == "auto":
                    queue.gone(found[0], "delivered with ack:auto")
                found[0].state = HELD

    def restarted(self) -> None:
        """The broker has started again."""
        self.model.restart(has_store=bool(self.store))


def body_of(reply: Reply) -> str:
    """Return what tells a message from others."""
    return reply.body.partition(" ")[0]
