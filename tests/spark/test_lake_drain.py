"""The reader without Java, against a copy of the broker's streams."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the extra tables is not installed")

from tests.support.lake import offsets
from tests.support.stream_server import StreamServer, event
from trio_stomp.spark import Layout, StreamAddress, StreamAway, StreamClient, StreamError
from trio_stomp.spark.lake import Drain, LakeError, Store, open_store

USERS = "/stream/topic/a"

Row = dict[str, Any]


@pytest.fixture
def server() -> Iterator[StreamServer]:
    with StreamServer() as server:
        yield server


def fill(server: StreamServer, count: int) -> None:
    for number in range(count):
        server.append("DIAG/event/subscribe", event("subscribe", number=number))


def drain(server: StreamServer, root: Path, stream: str = "/stream/DIAG") -> Drain:
    """Read what is there, as a new process does."""
    address = StreamAddress(server.url, stream, retry_s=5)
    reading = Drain(StreamClient(address), open_store(root))
    reading.run()
    return reading


def gaps(store: Store) -> list[tuple[Any, ...]]:
    table = store.dataset("_gap")
    rows = [] if table is None else table.to_table().to_pylist()
    return sorted((row["prev_epoch"], row["lo"], row["hi"], row["reason"]) for row in rows)


def test_a_second_run_continues_where_the_first_ended(server: StreamServer, tmp_path: Path) -> None:
    assert drain(server, tmp_path).writer.totals.messages == 0
    fill(server, 20)
    first = drain(server, tmp_path)
    assert first.writer.totals.messages == 20
    fill(server, 5)
    first.run()
    assert first.writer.totals.messages == 25
    fill(server, 5)
    assert drain(server, tmp_path).writer.totals.messages == 5
    assert drain(server, tmp_path).writer.totals.messages == 0
    assert offsets(open_store(tmp_path), "event") == list(range(30))


def test_a_gap_is_one_row(server: StreamServer, tmp_path: Path) -> None:
    fill(server, 10)
    server.trim(2)
    drain(server, tmp_path)
    assert gaps(open_store(tmp_path)) == [], "nobody had asked for these"
    before = server.log.epoch
    fill(server, 10)
    server.trim(15)
    drain(server, tmp_path)
    # All is lost that came since, which shows when something follows.
    fill(server, 5)
    server.trim(25)
    drain(server, tmp_path)
    fill(server, 1)
    drain(server, tmp_path)
    server.new_epoch()
    fill(server, 3)
    for _ in range(2):
        drain(server, tmp_path)
    store = open_store(tmp_path)
    assert gaps(store) == [
        (before, 10, 15, "retention"),
        (before, 20, 25, "retention"),
        (before, 26, 26, "epoch"),
    ]
    assert offsets(store, "event") == sorted([*range(2, 10), *range(15, 20), 25, *range(3)])


def test_a_kill_after_the_row_of_a_lost_epoch_adds_no_second_row(
    server: StreamServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server, 4)
    drain(server, tmp_path)
    server.new_epoch()
    fill(server, 3)
    with monkeypatch.context() as patch:
        patch.setattr(Drain, "_rows", lambda *_: iter(()))
        drain(server, tmp_path)
    assert len(gaps(open_store(tmp_path))) == 1
    drain(server, tmp_path)
    store = open_store(tmp_path)
    assert len(gaps(store)) == 1
    assert offsets(store, "event") == [0, 0, 1, 1, 2, 2, 3]


def test_what_was_read_before_the_broker_went_away_is_kept(
    server: StreamServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server, 9)
    reading = Drain(StreamClient(StreamAddress(server.url, retry_s=5)), open_store(tmp_path))
    whole = reading._rows

    def cut(bounds: Any, lo: int) -> Iterator[Any]:
        yield next(iter(whole(bounds._replace(next=lo + 4), lo)))
        raise StreamAway("closed the connection")

    monkeypatch.setattr(reading, "_rows", cut)
    for end in (4, 8):
        with pytest.raises(StreamAway):
            reading.run()
        assert offsets(open_store(tmp_path), "event") == list(range(end))


def test_a_refusal_names_the_stream(server: StreamServer, tmp_path: Path) -> None:
    with pytest.raises(StreamError, match="no stream /stream/other"):
        drain(server, tmp_path, "/stream/other")


@pytest.fixture
def users() -> Iterator[StreamServer]:
    with StreamServer(stream=USERS) as server:
        yield server


def keep(server: StreamServer, root: Path, layout: Layout | None = None) -> list[Row]:
    """Read a user's stream as a new process does, and return the rows of its table."""
    address = StreamAddress(server.url, USERS, retry_s=5)
    Drain(StreamClient(address), open_store(root), table="prices", layout=layout).run()
    found = open_store(root).dataset("prices")
    return [] if found is None else found.to_table().sort_by("offset").to_pylist()


def test_messages_of_users_have_headers_and_a_column_for_each_json_field(
    users: StreamServer, tmp_path: Path
) -> None:
    layout = Layout.of("json", "sku STRING, price DECIMAL(9, 2), sizes ARRAY<DOUBLE>")
    body = b'{"sku":"a","price":"1.25","sizes":[1]}'
    users.append("/topic/a", body, {"x-gap-until": "9", "k": "v"})
    users.append("/topic/a", b"no JSON")
    good, wrong = keep(users, tmp_path, layout)
    assert (good["sku"], str(good["price"]), good["sizes"]) == ("a", "1.25", [1.0])
    # A sender cannot say that messages are lost.
    assert (good["destination"], good["headers"]) == ("/topic/a", [("k", "v")])
    assert (wrong["sku"], wrong["_corrupt_record"]) == (None, "no JSON")
    users.append("/topic/a", b"")
    with pytest.raises(LakeError, match=r"a column price of decimal.*, not string: name another"):
        keep(users, tmp_path, Layout.of("json", "price STRING"))


def test_a_gap_in_a_users_stream_is_one_row(
    users: StreamServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keep(users, tmp_path) == []
    for number in range(20):
        users.append("/topic/a", b"\xff%d" % number)
        if number == 4:
            keep(users, tmp_path)
    users.trim(20)
    with monkeypatch.context() as patch:  # they go while they are read
        real = StreamClient.bounds
        patch.setattr(
            StreamClient, "bounds", lambda client: real(client)._replace(first=5, next=20)
        )
        keep(users, tmp_path)
        (*messages, gap) = keep(users, tmp_path)
    assert [row["body"] for row in messages] == [b"\xff%d" % number for number in range(5)]
    assert (gap["offset"], gap["body"], gap["destination"]) == (5, None, USERS)
    assert gap["headers"] == [("x-gap", "retention"), ("x-gap-until", "20")]
    users.append("/topic/a", b"")
    assert [row["offset"] for row in keep(users, tmp_path)] == [*range(6), 20]
    users.new_epoch()
    users.append("/topic/a", b"")
    keep(users, tmp_path)
    rows = keep(users, tmp_path)
    assert [row["offset"] for row in rows] == [0, *range(6), 20, 21]
    assert dict(rows[-1]["headers"]) == {"x-gap": "epoch", "x-gap-until": "21"}


@pytest.mark.parametrize("table", ["queue", "raw", "progress", "a/b", ""])
def test_a_table_of_messages_cannot_have_the_name_of_another(tmp_path: Path, table: str) -> None:
    address = StreamAddress("stomp://127.0.0.1:1", USERS)
    with pytest.raises(LakeError, match="cannot be called"):
        Drain(StreamClient(address), open_store(tmp_path), table=table)
