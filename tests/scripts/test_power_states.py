"""The states that power-cut tests start from: the same for a seed, and worth looking at."""

from pathlib import Path

from _oracle.power import STREAMS, State, broken_promises, states, write_state


def test_a_seed_yields_the_same_promises() -> None:
    """Only the files' markers are by chance."""
    first, second = list(states(3, 20)), list(states(3, 20))
    assert len(first) == 20
    assert [(s.queues, s.maybe, s.streams, s.units) for s in first] == [
        (s.queues, s.maybe, s.streams, s.units) for s in second
    ]


def test_states_are_of_all_kinds() -> None:
    found = list(states(1, 200))
    assert any(state.units for state in found)
    assert any(
        unit.streamed["/topic/s"] for s in found for unit in s.units if "/topic/s" in unit.streamed
    )
    assert any(len(state.contents) > 8 for state in found)
    assert any(path.endswith(".packed") for state in found for path in state.contents)


def kept_by(state: State) -> tuple[dict[str, list[bytes]], dict[str, list[bytes]]]:
    """Return all confirmed messages, and none in progress."""
    going = {body for unit in state.units for each in unit.done.values() for body in each}
    queues = {
        queue: [b for b in bodies if b in state.queues[queue] or b in going]
        for queue, bodies in state.order.items()
    }
    return queues, {topic: list(bodies) for topic, bodies in state.streams.items()}


def test_the_judge_finds_each_kind_of_violation() -> None:
    state = next(
        s
        for s in states(1, 200)
        if any(map(any, (u.put.values() for u in s.units)))
        and len(s.queues["/queue/a"]) > 2
        and s.streams["/topic/s"]
    )
    queues, streams = kept_by(state)
    assert broken_promises(state, queues, streams) == []
    lost = {**queues, "/queue/a": queues["/queue/a"][1:]}
    assert "lost" in broken_promises(state, lost, streams)[0]
    turned = {**queues, "/queue/a": queues["/queue/a"][::-1]}
    assert " not " in broken_promises(state, turned, streams)[0]
    shorter = {**streams, "/topic/s": streams["/topic/s"][:-1]}
    assert "lost some" in broken_promises(state, queues, shorter)[0]
    longer = {**streams, "/topic/s": [*streams["/topic/s"], b"?"]}
    assert "at the end" in broken_promises(state, queues, longer)[0]


def test_a_state_is_written_as_files(tmp_path: Path) -> None:
    (state,) = states(1, 1)
    write_state(str(tmp_path), state)
    for path, data in state.contents.items():
        assert (tmp_path / path).read_bytes() == data
    assert STREAMS
