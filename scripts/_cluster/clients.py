"""Clients of a simulated cluster: they resend messages without a receipt, and acknowledge."""

import random
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import trio
from attrs import define

from _cluster.desk import LOST, PLACES, STORED, Request, Term
from _cluster.nodes import Fleet

PRODUCERS, CONSUMERS = 3, 2
PAUSE_S = 0.02, 0.2
RETRY_S = 0.05
PATIENCE_S = 2.0
"""The time that a client waits for an answer before it reconnects."""
LARGE_BYTES = 6000
"""Messages of this size take several entries of the log."""
BACKLOG = 150
"""Producers wait while this many messages are in the cluster."""


@define(eq=False)
class Clients:
    """All clients of a run.

    Args:
      running: Producers that have not ended.
    """

    fleet: Fleet
    chance: random.Random
    running: int = PRODUCERS
    _must_stop: bool = False
    _streamed: int = 0

    def all(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """Yield the task of each client."""
        for number in range(PRODUCERS):
            yield partial(self._produce, f"p{number}")
        for _ in range(CONSUMERS):
            yield self._consume

    def stop(self) -> None:
        """Have producers end once all their messages have RECEIPTs."""
        self._must_stop = True

    def _term(self) -> Term | None:
        """Return the owner to which some node relays a new client, or None."""
        machine = self.chance.choice(self.fleet.machines)
        if machine.life is None or machine.life.node is None or machine.life.is_paused:
            return None
        contact = machine.life.node.gate.owner
        for other in self.fleet.machines:
            life = other.life
            if contact is not None and other.name == contact.node and life is not None:
                return life.term if life.term is not None and life.term.is_open else None
        return None

    async def _ask(self, request: Request, term: Term | None) -> bool:
        """Send a request. Return whether it was answered as stored."""
        if term is None:
            await trio.sleep(RETRY_S)
            return False
        term.submit(request)
        with trio.move_on_after(PATIENCE_S):
            await request.answered.wait()
        request.reply(LOST)
        return request.answer == STORED

    async def _produce(self, name: str) -> None:
        """Send messages, one request after another."""
        ledger, chance = self.fleet.ledger, self.chance
        count = 0
        while not self._must_stop:
            await trio.sleep(chance.uniform(*PAUSE_S))
            if len(ledger.stored) - len(ledger.ended) > BACKLOG:
                continue
            wanted = self._request(name, count)
            count += len(wanted.bodies)
            ledger.sent.update(wanted.bodies)
            while not await self._ask(wanted, self._term()):
                wanted = Request(
                    wanted.bodies,
                    wanted.place,
                    streamed=wanted.streamed,
                    keeps=wanted.keeps,
                    is_whole=wanted.is_whole,
                )
        self.running -= 1

    def _request(self, name: str, count: int) -> Request:
        """Return a request with new messages."""
        chance = self.chance
        size = LARGE_BYTES if chance.random() < 0.05 else chance.randrange(100)
        many = chance.choice((1, 1, 1, 3))
        bodies = [b"%b-%d %b" % (name.encode(), count + n, b"x" * size) for n in range(many)]
        streamed: list[bytes] = []
        if chance.random() < 0.2:
            self._streamed += 1
            streamed = [b"s%d" % self._streamed]
        return Request(
            bodies,
            chance.choice(PLACES),
            streamed=streamed,
            keeps=chance.random() < 0.1,
            is_whole=chance.random() < 0.2,
        )

    async def _consume(self) -> None:
        """Take messages and acknowledge them."""
        chance = self.chance
        while not self._must_stop:
            await trio.sleep(chance.uniform(*PAUSE_S))
            term = self._term()
            got = Request(takes=chance.randint(1, 6))
            if not await self._ask(got, term) or term is None:
                continue
            ids = list(got.taken)
            if not ids:
                continue
            await trio.sleep(chance.uniform(*PAUSE_S))
            if chance.random() < 0.2:
                term.give_back(ids)
                continue
            done = ids[: chance.randint(1, len(ids))]
            self.fleet.ledger.ending.update(done)
            await self._ask(Request(ends=done), term)
            term.give_back(ids)
