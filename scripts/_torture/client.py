"""A client: one connection after another, each with its acts, its pauses, and its end."""

import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from _torture.acts import PLAIN, QUEUES, Actor, Mix
from _torture.link import Link, LinkError
from _torture.model import World
from _torture.session import Session, Wrong

QUIET_S = 1.2
"""A pause from here on is called quiet."""
LONGEST_S = 4.0
STEP_S = 0.2
SLOW_S = 1.5
"""Maximum time of slow reading, followed by catching up. A client that falls behind permanently is
disconnected by the broker, and rightly so."""
ACTS = (5, 30)
POLITE, NARROW = 0.5, 0.2
"""Shares of the connections."""


@dataclass
class Stage:
    """The common parameters of all clients.

    Args:
      patience_s: Time within which the broker must answer.
      mix: The kinds of messages and subscriptions.
      restarts: Whether the broker is ended and started again.
    """

    world: World
    port: int
    context: ssl.SSLContext
    patience_s: float
    stop: threading.Event
    mix: Mix = PLAIN
    restarts: bool = False


class Client(threading.Thread):
    """One client."""

    def __init__(self, stage: Stage, name: str, transport: str, seed: str) -> None:
        super().__init__(daemon=True)
        self.stage = stage
        self.label = name
        self.transport = transport
        self.dice = Random(seed)
        self._lives = 0
        self.session: Session
        self.link: Link
        self.actor: Actor

    def run(self) -> None:
        """Run until told to stop."""
        while not self.stage.stop.is_set():
            if not self.stage.world.is_down:
                self.live()
            time.sleep(self.dice.random() * 0.2)

    def live(self) -> None:
        """Run one connection."""
        self._lives += 1
        who = f"{self.label}.{self._lives} {self.transport}"
        self.session = Session(self.stage.world, who)
        try:
            self._converse()
        except Wrong:
            pass  # it has been noted
        except LinkError as error:
            self._broke(error)
        except Exception as error:
            self.session.wrong("client", repr(error))
        finally:
            if hasattr(self, "link"):
                self.link.close()
            self.session.end()
            self.stage.world.add("connections")

    def _broke(self, error: LinkError) -> None:
        kind = error.kind
        if self.session.error:
            return  # the reason has been recorded
        if kind in ("ended", "silence") and self.transport in ("tls", "wss"):
            kind = "tls"
        self.session.wrong(kind, str(error))

    def _converse(self) -> None:
        stage, dice = self.stage, self.dice
        is_polite = dice.random() < POLITE
        is_narrow = dice.random() < NARROW
        self.link = Link(
            stage.port, self.transport, stage.context, dice, stage.patience_s, is_narrow=is_narrow
        )
        takes_auto = is_polite and not stage.restarts
        self.actor = Actor(self.session, self.link, dice, takes_auto=takes_auto, mix=stage.mix)
        self.actor.connect()
        self._wait("silence", "CONNECTED", lambda: self.session.is_connected)
        if stage.world.is_down or stage.world.boot != self.session.boot:
            raise LinkError("ended", "the broker was started again")
        self.play()
        stage.world.orphans.append(self.actor.own)
        self._end(is_polite=is_polite)

    def play(self) -> None:
        """Do random actions and pause between them."""
        dice = self.dice
        is_after_quiet = False
        for _ in range(dice.randint(*ACTS)):
            if self.stage.stop.is_set():
                break
            self.actor.act(is_after_quiet=is_after_quiet)
            pause_s = _pause_s(dice)
            is_after_quiet = pause_s >= QUIET_S
            # Sometimes it does not read during the pause, either.
            if dice.random() < 0.15:
                time.sleep(pause_s)
                pause_s = 0.0
            if dice.random() < 0.1:
                self.link.slow_s = dice.random() * SLOW_S
            self.listen(pause_s)
        self.stage.world.add("frames", self.actor.sent)

    def listen(self, seconds: float) -> None:
        """Receive for ``seconds``, and check that expected frames have arrived."""
        until = time.monotonic() + seconds
        while True:
            reported_at = self._hear(min(until - time.monotonic(), STEP_S))
            now = time.monotonic()
            if reported_at:
                continue
            if self.link.is_at_end or self.link.close_code:
                raise LinkError("ended", f"the broker left; its Close says {self.link.close_code}")
            oldest = self.session.oldest()
            if oldest is not None and now - oldest > self.stage.patience_s:
                raise LinkError("silence", f"no RECEIPT for {now - oldest:.1f} s")
            if now >= until:
                return

    def _hear(self, wait_s: float) -> bool:
        replies = self.link.hear(wait_s)
        now = time.monotonic()
        for reply in replies:
            self.session.hear(reply, now)
        return bool(replies)

    def _wait(self, kind: str, what: str, is_there: Callable[[], bool]) -> None:
        until = time.monotonic() + self.stage.patience_s
        while not is_there():
            # After the end of the stream nothing more can arrive.
            if not self._hear(STEP_S) and (self.link.is_at_end or time.monotonic() > until):
                if is_there():
                    return
                left = "the broker left" if self.link.is_at_end else "the broker is there"
                raise LinkError(kind, f"no {what} in {self.stage.patience_s:g} s; {left}")

    # The end.

    def _end(self, *, is_polite: bool) -> None:
        dice = self.dice
        if dice.random() < 0.6:
            self.listen(dice.uniform(QUIET_S, LONGEST_S))
        self._leave(is_polite=is_polite)

    def _leave(self, *, is_polite: bool) -> None:
        dice = self.dice
        if is_polite or self.stage.stop.is_set():
            self.disconnect()
            return
        ways: list[Callable[[], None]] = [self._reset, self._half_close, self._break_rules]
        if self.link.is_websocket:
            ways += [self._close, self._close, self._break_websocket]
        dice.choice(ways)()

    def disconnect(self) -> None:
        """Send DISCONNECT, and wait for its RECEIPT and the end."""
        self.session.note("> DISCONNECT", time.monotonic())
        self.actor.disconnect()
        self._wait("silence", "RECEIPT", lambda: not self.session.pending)
        self._wait("close", "end behind DISCONNECT", lambda: self.link.is_at_end)

    def _reset(self) -> None:
        if self.dice.random() < 0.5:
            self.link.say([b"SEND\ndestination:" + QUEUES[0].encode() + b"\n\nin the mid"])
        self.link.reset()

    def _half_close(self) -> None:
        self.session.note("> (half close)", time.monotonic())
        self.link.half_close()
        self._wait("close", "end behind a half close", lambda: self.link.is_at_end)

    def _break_rules(self) -> None:
        self.session.note("> (no command)", time.monotonic())
        self.session.expects_error = True
        self.link.say([b"NONE\n\n\0"])
        self._wait("close", "ERROR", lambda: bool(self.session.error))
        self._wait("close", "end behind an ERROR", lambda: self.link.is_at_end)

    def _close(self) -> None:
        self.session.note("> (Close)", time.monotonic())
        self.link.say_close()
        # A refusal may have crossed it, whose Close has another code.
        link, session = self.link, self.session
        self._wait("close", "Close", lambda: link.close_code == 1000 or session.is_refused)
        session.expect_nothing("the Close")
        self._wait("close", "end behind the Close", lambda: self.link.is_at_end)

    def _break_websocket(self) -> None:
        self.session.note("> (what RFC 6455 forbids)", time.monotonic())
        self.session.expects_error = True
        code = self.link.break_rules()
        self._wait("close", f"Close {code}", lambda: self.link.close_code == code)


def _pause_s(dice: Random) -> float:
    way = dice.random()
    if way < 0.55:
        return dice.random() * 0.1
    if way < 0.8:
        return dice.random() * QUIET_S
    return dice.uniform(QUIET_S, LONGEST_S)
