"""Messages are chosen by each given condition: headers, body, time, id."""

from collections.abc import Callable

import pytest

from tests.support.core import Bench
from tests.support.durable_fakes import DurableBench
from tests.support.managing import drive, into
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.managing import Choice

Q = "/queue/q"


@pytest.fixture(params=["memory", "store"])
def filled(request: pytest.FixtureRequest) -> Bench:
    """Return a queue of five messages sent a second apart, in memory or in the store only."""
    core = DurableBench() if request.param == "store" else Bench()
    for number in range(5):
        kind = "even" if number % 2 == 0 else "odd"
        core.actor().sends(Q, f"body {number}", kind=kind, persistent="true")
        core.turn()
        core.now += 1
    return core.restarts() if isinstance(core, DurableBench) else core


def shown(core: Bench, choice: Choice) -> tuple[list[str], list[str]]:
    """Return the last letters of the bodies, and the ids, of the messages chosen."""
    found: list[tuple[str, str]] = []
    manager = core.broker.manager
    operation = manager.look(
        choice, into(found, lambda message: (message.body.decode()[-1], manager.id_of(message)))
    )
    drive(core, operation)
    assert operation.done == len(found)
    return [body for body, _ in found], [name for _, name in found]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda start, ids: Choice(Q, body=b"dy 3"), "3"),
        (lambda start, ids: Choice(Q, "kind = 'even'", body=b"body"), "024"),
        (lambda start, ids: Choice(Q, since_ms=start + 3000), "34"),
        (lambda start, ids: Choice(Q, until_ms=start + 1000), "0"),
        (lambda start, ids: Choice(Q, since_ms=start + 1000, until_ms=start + 3000), "12"),
        (lambda start, ids: Choice(Q, ids={ids[1], ids[4]}), "14"),
        (lambda start, ids: Choice(Q, "kind = 'odd'", ids={ids[1], ids[4]}), "1"),
        (lambda start, ids: Choice(Q, ids={"nonsense", "b7-", "b7-99"}), ""),
        (lambda start, ids: Choice(Q, origins={"/queue/a"}), ""),
    ],
)
def test_each_condition_is_met(
    filled: Bench, make: Callable[[int, list[str]], Choice], expected: str
) -> None:
    start = filled.broker.wall.ms(filled.now - 5)
    bodies, ids = shown(filled, Choice(Q))
    assert "".join(bodies) == "01234"
    assert "".join(shown(filled, make(start, ids))[0]) == expected


def test_a_search_by_id_ends_with_the_last_of_them(filled: Bench) -> None:
    _, ids = shown(filled, Choice(Q))
    operation = filled.broker.manager.purge(Choice(Q, ids={ids[1]}))
    drive(filled, operation)
    assert (operation.done, operation.seen) == (1, 2)
    assert "".join(shown(filled, Choice(Q))[0]) == "0234"


def test_dead_letters_are_chosen_by_their_origin() -> None:
    core = Bench(book={"/queue/*": DestinationPolicy(dead_letter="/queue/dead")})
    for name in ("/queue/a", "/queue/b"):
        core.actor().sends(name, name[-1])
        reader = core.reader(name, ack="client-individual")
        reader.nacks(reader.reads()[0], requeue=False)
    assert shown(core, Choice("/queue/dead", origins={"/queue/b"}))[0] == ["b"]


def test_large_bodies_are_searched_a_few_in_a_step() -> None:
    core = Bench()
    core.actor().sends(Q, *["12345"] * 4, "last")
    ticks = iter(range(1000))
    core.broker.turns.clock = lambda: next(ticks) / 1000
    assert drive(core, core.broker.manager.purge(Choice(Q, body=b"5"))) == 3
    assert shown(core, Choice(Q))[0] == ["t"]
