"""Tables, compaction and small files in S3, as moto's server plays it."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date

import pytest

pytest.importorskip("deltalake", reason="the extra tables is not installed")
pytest.importorskip("moto", reason="moto, which plays S3, is not installed")

import boto3
from _crash.ports import free_port

from tests.support.diag_bodies import message
from tests.support.lake import offsets, write
from trio_stomp.spark.lake import (
    LakeError,
    Place,
    compact,
    days_of,
    in_spark,
    open_store,
)

# As slow to start as Spark, and as little needed by most changes.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

PATIENCE_S = 60


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URI of an empty bucket."""
    port = free_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                assert server.poll() is None
                time.sleep(0.05)
        boto3.client("s3").create_bucket(Bucket="diag-bucket")
        yield "s3://diag-bucket/fleet"
        server.kill()


def test_a_root_in_s3_is_like_a_directory(bucket: str) -> None:
    for wanted in ("delta", "parquet"):
        root = f"s3a{bucket.removeprefix('s3')}/{wanted}"
        for broker, first in (("north", 0), ("south", 1), ("north", 2), ("north", 1)):
            rows = [message("session", n, broker=broker) for n in range(first, first + 3)]
            write(root, rows, wanted)
        store = open_store(root)
        assert offsets(store, "session") == sorted([*range(5), *range(1, 4)])
        assert days_of(store) == [date(2026, 3, 14)]
        assert in_spark(store.files("session")[0]).startswith(f"s3a://diag-bucket/fleet/{wanted}/")
    store = open_store(f"{bucket}/delta")
    store.place.check()
    compact(store)
    assert len(store.files("session")) == 1
    store.place.write("widths.json", b"{}")
    assert store.place.read("widths.json") == b"{}"
    assert store.place.read("none") is None
    with pytest.raises(LakeError, match="no-bucket/x is not writable"):
        Place.of("s3://no-bucket/x").check()
