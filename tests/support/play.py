"""Scripts of clients, a broker and its operator: a step is a line, as in tests/pairs.

    paging 10                                       queues keep 10 messages in memory
    policy max_messages=2 overflow=drop-oldest      for /queue/q; the first word may name another
    A subscribe prefetch-count=1                    /queue/q, ack=client-individual
    send 1 2 3 priority=9 -> stored=memory          client S, to=/queue/q, persistent:true
    A gets 2 priority=9
    A takes 2 3                                     gets and acknowledges
    restart

A word in capitals is a client, which connects at its first step. Words with ``=`` are headers,
fields or parameters. ``1..9`` are nine bodies. Behind ``->`` is what the answer says, or
``error CODE``. ``?x`` remembers a value, ``{x}`` is it, and ``-`` means that there is none.
"""

import json
import re
import shlex
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trio
from attrs import define, evolve, field

from tests.support.fakes import Client, Received
from tests.support.management import Interface
from tests.support.served import Served, served_with
from tests.support.small_queues import keep_few
from trio_stomp.broker import DestinationPolicy

Q = "/queue/q"
SOON_S = 8.0
"""Time within which a number that a step waits for must come."""
STILL_S = 0.03
"""Time in which a broker does what it does behind the last answer."""
AT_ONCE = 20
"""Messages that are sent without waiting."""
CLIENT = re.compile(r"[A-Z]\d?")
RANGE = re.compile(r"(\d+)\.\.(\d+)")


@define
class Step:
    """A line of a script.

    Args:
      who: The client; "" = the broker or its operator.
      words: What is named, without a ``=``.
      wanted: What the answer must say.
    """

    who: str
    verb: str
    words: list[str]
    named: dict[str, str]
    wanted: dict[str, str]


def steps_of(script: str) -> Iterator[list[str]]:
    """Yield the words of each line."""
    for line in script.strip().splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def stores_of(script: str) -> tuple[str, ...]:
    """Return the stores that a script runs over."""
    for words in steps_of(script):
        if words[0] == "over":
            return tuple(words[1:])
        if words[0] in ("restart", "kill"):
            return ("journal", "sqlite")
    return ("memory",)


def read_value(text: str) -> object:
    """Return a number, a truth or a list of TOML, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@define(eq=False)
class Peer:
    """A client, what it has received and not looked at yet, and the deliveries that it holds."""

    client: Client
    connected: Received
    ahead: deque[Received] = field(factory=deque)
    held: dict[str, Received] = field(factory=dict)
    count: int = 0

    async def request(
        self, command: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Received:
        """Return the RECEIPT or ERROR of a frame."""
        name = self.next_name()
        await self.client.send(command, {**headers, "receipt": name}, body)
        return await self.answer(name)

    def next_name(self) -> str:
        """Return a new name of a receipt or a subscription."""
        self.count += 1
        return f"n{self.count}"

    async def answer(self, name: str) -> Received:
        """Return the RECEIPT with a name, or an ERROR."""
        while True:
            frame = await self.client.receive()
            if frame.command == "ERROR" or frame.get("receipt-id") == name:
                return frame
            self.ahead.append(frame)

    async def message(self) -> Received:
        """Return the next MESSAGE."""
        frame = self.ahead.popleft() if self.ahead else await self.client.receive()
        assert frame.command == "MESSAGE", frame
        return frame

    async def is_quiet(self, time_s: float) -> bool:
        """Return whether nothing comes, in a time or until another frame is answered."""
        with trio.move_on_after(time_s or STILL_S):
            self.ahead.append(await self.client.receive())
        if not time_s and not self.ahead:
            frame = await self.request("SEND", {"destination": "/topic/nobody"})
            assert frame.command == "RECEIPT", frame
        return not self.ahead


def bodies_of(words: Sequence[str]) -> list[str]:
    """Return the bodies that words name."""
    found: list[str] = []
    for word in words:
        if numbers := RANGE.fullmatch(word):
            found += map(str, range(int(numbers[1]), int(numbers[2]) + 1))
        else:
            found.append(word)
    return found


def text_of(message: Received) -> str:
    """Return the body of a message without what makes it longer."""
    return message.body.decode().rstrip()


@define(eq=False)
class Stage:
    """A broker with a store, its clients and its operator."""

    store: str
    directory: Path
    patch: pytest.MonkeyPatch
    policies: dict[str, DestinationPolicy] = field(factory=dict)
    options: dict[str, object] = field(factory=dict)
    peers: dict[str, Peer] = field(factory=dict)
    known: dict[str, str] = field(factory=dict)
    broker: Served | None = None
    stack: AsyncExitStack = field(factory=AsyncExitStack)

    async def run(self, script: str) -> None:
        """Do each step, and name the one that fails."""
        async with self.stack:
            for number, words in enumerate(steps_of(script), 1):
                step = self.step(words)
                try:
                    await self.do(step)
                except Exception as error:
                    error.add_note(f"step {number}: {shlex.join(words)}")
                    raise

    def step(self, words: list[str]) -> Step:
        """Return what a line means."""
        words = [re.sub(r"\{(\w+)\}", lambda found: self.known[found[1]], word) for word in words]
        wanted: dict[str, str] = {}
        if "->" in words:
            place = words.index("->")
            words, ends = words[:place], words[place + 1 :]
            if ends[0] == "error":
                ends = [f"code={ends[1]}"]
            wanted = dict(end.split("=", 1) for end in ends)  # type: ignore[misc]
        who = words.pop(0) if CLIENT.fullmatch(words[0]) else ""
        verb = words.pop(0)
        if verb in ("send", "post") and not who:
            who = "S"
        named = [word.split("=", 1) for word in words if "=" in word]
        return Step(who, verb, [word for word in words if "=" not in word], dict(named), wanted)  # type: ignore[arg-type]

    async def do(self, step: Step) -> None:
        """Do a step."""
        if step.verb in ("over", "option", "policy", "paging"):
            self.prepare(step)
            return
        if self.broker is None:
            await self.open()
        if step.who and step.who not in self.peers:
            client = await self.served.open()
            headers = step.named if step.verb == "connect" else {}
            self.peers[step.who] = Peer(client, await client.connect("1.2", headers))
        kind = "client" if step.who else "broker"
        act: Callable[[Step], Any] = getattr(self, f"{kind}_{step.verb.replace('-', '_')}")
        await act(step)

    @property
    def served(self) -> Served:
        """Return the broker that runs."""
        assert self.broker is not None
        return self.broker

    def check(self, step: Step, found: Mapping[str, Any] | Received, wanted: Any = None) -> None:
        """Compare fields of an answer, and remember those that are asked for."""
        for name, text in (step.wanted if wanted is None else wanted).items():
            value = found.get(name)
            if text.startswith("?"):
                self.known[text[1:]] = str(value)
            else:
                shown = "-" if value is None else str(value)
                assert shown == text, f"{name} is {shown}, not {text}: {found}"

    # The broker.

    def prepare(self, step: Step) -> None:
        """Set options and policies before the broker starts."""
        values = {name: read_value(text) for name, text in step.named.items()}
        if step.verb == "option":
            self.options |= values
        elif step.verb == "paging":
            keep_few(self.patch, int(step.words[0]))
        elif step.verb == "policy":
            assert self.broker is None, "a policy that changes is a reload"
            self.policies |= dict.fromkeys(step.words or [Q], DestinationPolicy(**values))  # type: ignore[arg-type]

    async def open(self) -> None:
        """Start the broker."""
        place: dict[str, object] = {}
        if self.store == "sqlite":
            place = {"store_url": f"sqlite:///{self.directory}/q.db"}
        elif self.store == "journal":
            place = {"data_dir": str(self.directory / "data")}
        made = served_with(self.policies, {**place, **self.options})
        self.broker = await self.stack.enter_async_context(made)

    async def broker_restart(self, step: Step) -> None:
        """Stop in order, while clients are connected, and start again."""
        self.served.handle.stop()
        for peer in self.peers.values():
            with suppress(trio.BrokenResourceError):
                await peer.client.read_to_end()
        await self.stack.aclose()
        self.peers.clear()
        await self.open()

    async def broker_kill(self, step: Step) -> None:
        """Go on with the files as they are at this moment, whatever the broker does later."""
        files = self.directory
        self.directory = files.with_name(f"{files.name}-killed")
        await trio.to_thread.run_sync(shutil.copytree, files, self.directory)
        await self.broker_restart(step)

    async def broker_reload(self, step: Step) -> None:
        """Change the policy of destinations."""
        values = {name: read_value(text) for name, text in step.named.items()}
        for name in step.words or [Q]:
            old = self.policies.get(name, DestinationPolicy())
            self.policies[name] = evolve(old, **values)  # type: ignore[arg-type]
        await self.served.use(self.policies)

    async def broker_sleep(self, step: Step) -> None:
        """Wait for some milliseconds."""
        await trio.sleep(int(step.words[0]) / 1000)

    async def broker_depth(self, step: Step) -> None:
        """Wait until so many messages are in a queue, those that consumers hold included."""
        count, name = int(step.words[0]), [*step.words, Q][1]

        async def depth() -> int:
            found = (await Interface(self.served).get(f"queues?name={quote(name)}"))["queues"]
            return sum(found[0][key] for key in ("input_depth", "ack_depth")) if found else 0

        await self.comes(depth, count)

    async def broker_lists(self, step: Step) -> None:
        """Wait until a list has so many entries, or its only one has these fields."""
        what, name = step.words[0], step.words[0].replace("-", "_")

        async def look() -> bool:
            found = (await Interface(self.served).get(what))[name]
            if len(step.words) > 1:
                return len(found) == int(step.words[1])
            return all(str(found[0][key]) == text for key, text in step.named.items())

        await self.comes(look, True)

    async def comes(self, look: Callable[[], Any], wanted: object) -> None:
        """Wait until an answer is as it must be."""
        start = trio.current_time()
        while (found := await look()) != wanted:
            assert trio.current_time() < start + SOON_S, f"{found} is not {wanted}"
            await trio.sleep(0.02)

    async def broker_operator(self, step: Step) -> None:
        """Make a request of the management interface."""
        size = int(step.named.pop("size", "0"))
        body = step.named.pop("body", "").ljust(size).encode()
        about = {"queue": Q} if step.words[0] in TO_QUEUE else {}
        values = about | step.named
        query = "&".join(f"{name}={quote(text, safe='')}" for name, text in values.items())
        target = f"{step.words[0]}?{query}"
        with trio.fail_after(SOON_S):
            reply = await Interface(self.served).ask("POST", target, body=body)
        assert reply.status == 200 or "code" in step.wanted, reply.text
        self.check(step, json.loads(reply.body))

    # Clients.

    def lose(self, who: str) -> Peer:
        """Forget a client, whose name may connect again."""
        return self.peers.pop(who)

    def answered(self, step: Step, frame: Received) -> None:
        """Check the answer of a frame."""
        if frame.command == "ERROR":
            assert "code" in step.wanted, frame
            self.lose(step.who)
        self.check(step, frame)

    async def ask(self, step: Step, command: str, headers: Mapping[str, str]) -> None:
        """Send a frame and check its answer."""
        self.answered(step, await self.peers[step.who].request(command, headers))

    async def client_connect(self, step: Step) -> None:
        """Look at the answer of CONNECT, which was sent with the headers of this step."""
        self.check(step, self.peers[step.who].connected)

    async def client_send(self, step: Step) -> None:
        """Send messages, and wait for the answer of the last, or of the last of some."""
        bodies = bodies_of(step.words)
        for start in range(0, len(bodies), AT_ONCE):
            part = bodies[start : start + AT_ONCE]
            await self.client_post(evolve(step, words=part, named=dict(step.named)))
            await self.client_answered(step)
            if step.who not in self.peers:
                return  # refused

    async def client_post(self, step: Step) -> None:
        """Send messages, and do not wait."""
        peer = self.peers[step.who]
        size = int(step.named.pop("size", "0"))
        headers = {"destination": step.named.pop("to", Q), "persistent": "true", **step.named}
        bodies = [text.ljust(size).encode() for text in bodies_of(step.words)]
        await peer.client.publish(headers["destination"], *bodies[:-1], headers=headers)
        headers["receipt"] = peer.next_name()
        await peer.client.send("SEND", headers, bodies[-1])

    async def client_answered(self, step: Step) -> None:
        """Wait for the answer of the last frame."""
        peer = self.peers[step.who]
        self.answered(step, await peer.answer(f"n{peer.count}"))

    async def client_subscribe(self, step: Step) -> None:
        """Subscribe."""
        headers = {"id": "1", "ack": "client-individual", **step.named}
        await self.ask(step, "SUBSCRIBE", {"destination": (step.words or [Q])[0], **headers})

    async def client_unsubscribe(self, step: Step) -> None:
        """End a subscription."""
        await self.ask(step, "UNSUBSCRIBE", {"id": "1", **step.named})

    async def client_gets(self, step: Step) -> None:
        """Receive messages, in this order or behind "any" in another."""
        peer, words = self.peers[step.who], step.words
        texts = bodies_of(words[1:] if words[0] == "any" else words)
        found = []
        for _ in texts:
            message = await peer.message()
            self.check(step, message, step.named)
            peer.held[text_of(message)] = message
            found.append(text_of(message))
        right = sorted(found) == sorted(texts) if words[0] == "any" else found == texts
        assert right, f"got {' '.join(found)}"

    async def client_takes(self, step: Step) -> None:
        """Receive messages, and acknowledge each."""
        any_order, texts = step.words[:1] == ["any"], bodies_of(step.words)
        if any_order:
            await self.client_gets(step)
            texts = texts[1:]
        for text in texts:
            if not any_order:
                await self.client_gets(evolve(step, words=[text]))
            await self.client_ack(evolve(step, words=[text], named={}))

    async def client_ack(self, step: Step) -> None:
        """Acknowledge messages."""
        await self.settle(step, "ACK")

    async def client_nack(self, step: Step) -> None:
        """Refuse messages."""
        await self.settle(step, "NACK")

    async def settle(self, step: Step, command: str) -> None:
        """Answer for messages by their last deliveries."""
        for text in bodies_of(step.words):
            delivery = self.peers[step.who].held[text]
            await self.ask(step, command, {"id": delivery["ack"], **step.named})

    async def client_frame(self, step: Step) -> None:
        """Send any frame."""
        await self.ask(step, step.words[0], step.named)

    async def client_begin(self, step: Step) -> None:
        """Begin a transaction."""
        await self.ask(step, "BEGIN", {"transaction": "t"})

    async def client_commit(self, step: Step) -> None:
        """Commit it."""
        await self.ask(step, "COMMIT", {"transaction": "t"})

    async def client_abort(self, step: Step) -> None:
        """Abort it."""
        await self.ask(step, "ABORT", {"transaction": "t"})

    async def client_browses(self, step: Step) -> None:
        """Show a queue to its end, and compare all that it shows."""
        peer, texts = self.peers[step.who], bodies_of(step.words)
        headers = {"destination": Q, "id": peer.next_name(), "browser": "true", **step.named}
        await self.ask(step, "SUBSCRIBE", headers)
        found = []
        while (message := await peer.message()).get("browser") != "end":
            found.append(text_of(message))
        assert found == texts, f"shows {' '.join(found)}"

    async def client_quiet(self, step: Step) -> None:
        """Make sure that nothing comes, at once or in some milliseconds."""
        peer = self.peers[step.who]
        time_s = int(step.words[0]) / 1000 if step.words else 0.0
        assert await peer.is_quiet(time_s), f"got {peer.ahead}"

    async def client_error(self, step: Step) -> None:
        """Receive an ERROR, behind the messages of before."""
        frame = await self.lose(step.who).client.receive()
        assert frame.get("code") == step.words[0], frame

    async def client_leaves(self, step: Step) -> None:
        """Disconnect in order."""
        peer = self.lose(step.who)
        await peer.request("DISCONNECT", {})
        await peer.client.aclose()

    async def client_dies(self, step: Step) -> None:
        """Lose the connection."""
        self.lose(step.who).client.abort()


TO_QUEUE = ("purge", "move", "redeliver", "create", "delete", "pause", "resume")
"""Requests about a queue."""
