"""New rules apply to many connected clients in pieces, and to their new frames immediately. A
thread reads and compares the rules of a reload."""

import signal
import threading
from collections.abc import AsyncIterator

import pytest
import trio

from tests.support.core import Actor
from tests.support.fakes import TCP, open_dial
from tests.support.share_fakes import MOST, Clocked
from tests.support.startup import composition, use_settings
from trio_stomp import ServerHandle, Settings
from trio_stomp.base import Identity
from trio_stomp.broker import AccessRules, Action, DestinationPolicy, Rule
from trio_stomp.cli.commands._serve import _obey

MANY = 500


def allowing(*patterns: str) -> AccessRules:
    return AccessRules((Rule(True, frozenset(Action), patterns, ("anonymous",)),))


ALL = allowing("**")
SOME = allowing("/topic/a", "/topic/t*")


def crowd(desk: Clocked, *names: str) -> list[Actor]:
    """Return a core with MANY subscribers, and rules in force."""
    desk.broker.use_rules(ALL, lambda _: True, desk.now)
    actors = [desk.actor() for _ in range(MANY)]
    for actor in actors:
        for name in names:
            actor.subscribes(name, name)
    desk.settles()
    desk.pieces.clear()
    return actors


def refused(actors: list[Actor]) -> list[str | None]:
    frames = [frame for each in actors for frame in each.writes()]
    return [frame.get("code") for frame in frames if frame.command == "ERROR"]


def test_many_are_judged_in_pieces(desk: Clocked):
    crowd_here = crowd(desk, "/topic/a", "/topic/b", "/topic/c")
    late, other = crowd_here[-1], crowd_here[-2]
    desk.broker.use_rules(SOME, lambda _: True, desk.now)
    desk.turn()
    first = refused(crowd_here)
    assert 0 < len(first) < MANY / 2
    late.sends("/topic/b", "x")
    assert late.error().get("code") == "not-authorized", "what is sent is judged by the new rules"
    other.sends("/topic/a", "y")
    newcomer = desk.reader("/topic/t1")
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert set(first + refused(crowd_here)) == {"not-authorized"}
    assert all(each.client.is_refused for each in crowd_here)
    assert not newcomer.client.is_refused
    assert not desk.broker.authorizer.unjudged


def test_client_of_a_removed_user_is_disconnected_at_its_next_frame(desk: Clocked):
    here = crowd(desk, "/topic/a")
    desk.broker.use_rules(ALL, lambda _: False, desk.now)
    assert not here[-1].client.is_refused
    here[-1].sends("/topic/a", "x")
    assert here[-1].error().get("code") == "authentication-failed"
    assert desk.broker.destinations.open("/topic/a").enqueued == 0
    desk.settles()
    assert all(each.client.is_refused for each in here)


def test_each_change_of_rules_checks_earlier_clients(desk: Clocked):
    here = crowd(desk, "/topic/a")
    asked: list[Identity] = []

    def is_known(identity: Identity) -> bool:
        asked.append(identity)
        return True

    desk.broker.use_rules(ALL, is_known, desk.now)
    assert len(asked) < MANY
    desk.broker.use_rules(SOME, lambda _: True, desk.now)
    assert len(asked) == MANY
    desk.settles()
    assert not any(each.client.is_refused for each in here)
    assert {id(each.client.rights) for each in here} == {id(SOME.rights(here[0].client.identity))}


# --- reading and comparing --------------------------------------------------------------------


async def test_changed_rules_are_found_by_a_thread_and_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    places: list[threading.Thread] = []
    for name in ("adopt", "policy_book"):

        def noted(*given: object, _done: object = getattr(composition, name)) -> object:
            places.append(threading.current_thread())
            assert callable(_done)
            return _done(*given)

        monkeypatch.setattr(composition, name, noted)
    async with open_dial(TCP) as dial:
        await dial.start()
        places.clear()
        caplog.set_level("INFO")
        policies = {f"/queue/{n}": DestinationPolicy(max_messages=n + 1) for n in range(120)}
        settings = dial.security.settings
        new = Settings(destinations=tuple(policies.items()))
        access = await dial.security.read(settings)
        await use_settings(settings, dial.security, dial.server, new, access)
        await dial.connect()
        assert len(places) == 2
        assert threading.main_thread() not in places
        assert len([each for each in caplog.messages if each.startswith("[destinations.")]) == 120
        assert dial.server.broker.queues.policies.policy_for("/queue/7").max_messages == 8


async def test_files_are_read_again_by_a_thread() -> None:
    places: list[threading.Thread] = []
    stopping = trio.Event()

    async def signals() -> AsyncIterator[int]:
        yield signal.SIGHUP
        yield signal.SIGTERM
        stopping.set()
        await trio.sleep_forever()

    def reread() -> Settings:
        places.append(threading.current_thread())
        return Settings()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_obey, signals(), ServerHandle(()), trio.CancelScope(), reread)
        await stopping.wait()
        nursery.cancel_scope.cancel()
    assert places
    assert threading.main_thread() not in places
