"""Free pages go back to the system when the process has grown, and only then."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from trio_stomp.cli.process._free_pages import (
    GROWTH_BYTES,
    INTERVAL_S,
    keep_free_pages,
    resident_bytes,
    return_free_pages,
    trimmer,
)

START = 100 * 1024 * 1024


async def test_a_process_that_grows_gives_pages_back(autojump_clock: MockClock) -> None:
    size, freed = START, list[float]()

    async def trim() -> None:
        nonlocal size
        freed.append(size)
        size = START

    async def grow() -> None:
        nonlocal size
        for step in (GROWTH_BYTES - 1, 1, 0, GROWTH_BYTES):
            size += step
            await trio.sleep(INTERVAL_S)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(return_free_pages, trim, lambda: size)
        await trio.sleep(INTERVAL_S / 2)  # so that each look falls between two changes
        await grow()
        nursery.cancel_scope.cancel()
    assert freed == [START + GROWTH_BYTES, START + GROWTH_BYTES]


async def test_what_stays_is_not_given_back_again(autojump_clock: MockClock) -> None:
    size, calls = START, 0

    async def trim() -> None:
        nonlocal calls
        calls += 1  # all that was allocated is in use

    with trio.move_on_after(INTERVAL_S * 10.5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(return_free_pages, trim, lambda: size)
            await trio.sleep(INTERVAL_S / 2)
            size += 10 * GROWTH_BYTES
            await trio.sleep_forever()
    assert calls == 1


async def test_where_it_cannot_be_done_nothing_waits() -> None:
    await return_free_pages(None)


async def test_the_c_library_is_asked_where_it_is_glibc() -> None:
    trim = trimmer()
    assert (trim is not None) == (platform.libc_ver()[0] == "glibc")
    if trim is not None:
        assert await trim() in (0, 1)


GLIBC = platform.libc_ver()[0] == "glibc"
FAULTS = """
import resource
from trio_stomp.cli.process._free_pages import keep_free_pages

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        bodies = [bytes(300_000) for _ in range(4)]
        del bodies
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert keep_free_pages({})
faults()
print(faults())
"""


@pytest.mark.skipif(not GLIBC, reason="another C library has other options")
def test_what_a_large_message_leaves_is_there_for_the_next() -> None:
    """In a process of its own: it is for ever. As glibc comes, these are 10,000 faults."""
    command = [sys.executable, "-c", FAULTS]
    told = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    assert int(told.stdout) < 1000


@pytest.mark.parametrize("name", ["GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_"])
def test_what_the_operator_tunes_stays(name: str) -> None:
    assert not keep_free_pages({name: "1"})


@pytest.mark.parametrize("text", ["", "1", "1 x 3"])
def test_a_system_that_does_not_tell_its_sizes(tmp_path: Path, text: str) -> None:
    (tmp_path / "statm").write_text(text)
    assert resident_bytes(tmp_path / "statm") == 0
    assert resident_bytes(tmp_path / "none") == 0


def test_pages_are_counted_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "statm").write_text("20 3 2 1 0 5 0\n")
    assert resident_bytes(tmp_path / "statm") % 3 == 0
    assert resident_bytes(tmp_path / "statm") >= 3 * 4096
