"""Free pages go back to the system when the process has grown, and only then."""

import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from trio_stomp.cli.process import Allocator
from trio_stomp.cli.process._allocator import (
    _M_ARENA_MAX,
    GROWTH_BYTES,
    INTERVAL_S,
    resident_bytes,
)

GLIBC = platform.libc_ver()[0] == "glibc"
START = 100 * 1024 * 1024


async def at_once(call: Callable[[int], object], argument: int) -> None:
    """Call without a thread, during which a mock clock would jump."""
    call(argument)


async def test_a_process_that_grows_gives_pages_back(autojump_clock) -> None:
    size, freed = START, list[float]()

    def trim(_: int) -> int:
        nonlocal size
        freed.append(size)
        size = START
        return 1

    async def grow() -> None:
        nonlocal size
        for step in (GROWTH_BYTES - 1, 1, 0, GROWTH_BYTES):
            size += step
            await trio.sleep(INTERVAL_S)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Allocator(None, trim).return_free_pages, lambda: size, at_once)
        await trio.sleep(INTERVAL_S / 2)  # so that each look falls between two changes
        await grow()
        nursery.cancel_scope.cancel()
    assert freed == [START + GROWTH_BYTES, START + GROWTH_BYTES]


async def test_retained_memory_is_not_trimmed_again(autojump_clock) -> None:
    size, calls = START, 0

    def trim(_: int) -> int:
        nonlocal calls
        calls += 1  # all that was allocated is in use
        return 0

    with trio.move_on_after(INTERVAL_S * 10.5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Allocator(None, trim).return_free_pages, lambda: size, at_once)
            await trio.sleep(INTERVAL_S / 2)
            size += 10 * GROWTH_BYTES
            await trio.sleep_forever()
    assert calls == 1


async def test_unsupported_return_of_pages_does_not_wait() -> None:
    await Allocator(None, None).return_free_pages()


async def test_the_c_library_is_asked_where_it_is_glibc() -> None:
    allocator = Allocator.of_process()
    assert (allocator.trim is not None) == GLIBC
    assert (allocator.set_option is not None) == GLIBC
    if allocator.trim is not None:
        assert allocator.trim(0) in (0, 1)


@pytest.mark.parametrize("missing", ["mallopt", "malloc_trim"])
async def test_a_function_that_is_missing_is_switched_off_and_logged_once(
    missing: str, caplog: pytest.LogCaptureFixture, autojump_clock
) -> None:
    calls: list[tuple[int, ...]] = []

    def call(*arguments: int) -> int:
        calls.append(arguments)
        return 1

    library = SimpleNamespace(mallopt=call, malloc_trim=call)
    delattr(library, missing)
    with caplog.at_level("INFO", "trio_stomp"):
        allocator = Allocator.of_process(library)
        assert allocator.keep_free_memory({}) == (missing != "mallopt")
        with trio.move_on_after(INTERVAL_S * 1.5):
            sizes = iter((START, START + GROWTH_BYTES, START))
            await allocator.return_free_pages(lambda: next(sizes), at_once)
    assert [len(each) for each in calls] == ([1] if missing == "mallopt" else [2, 2, 2, 2])
    (line,) = caplog.messages
    assert line == f"the C library has no {missing}: its allocator keeps its defaults"


FAULTS = """
import resource
from trio_stomp.cli.process import Allocator

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        bodies = [bytes(300_000) for _ in range(4)]
        del bodies
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert Allocator.of_process().keep_free_memory({})
faults()
print(faults())
"""


@pytest.mark.skipif(not GLIBC, reason="another C library has other options")
def test_memory_of_a_large_message_is_reused() -> None:
    """In a process of its own: it is for ever. As glibc comes, these are 10,000 faults."""
    command = [sys.executable, "-c", FAULTS]
    printed = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    assert int(printed.stdout) < 1000


@pytest.mark.parametrize("name", ["GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_"])
def test_operators_settings_of_the_allocator_stay(name: str) -> None:
    assert not Allocator.of_process().keep_free_memory({name: "1"})


def test_operators_number_of_heaps_stays() -> None:
    changed: list[int] = []

    def change(option: int, _: int) -> int:
        changed.append(option)
        return 1

    assert Allocator(change, None).keep_free_memory({})
    assert Allocator(change, None).keep_free_memory({"MALLOC_ARENA_MAX": "4"})
    assert changed.count(_M_ARENA_MAX) == 1


@pytest.mark.parametrize("text", ["", "1", "1 x 3"])
def test_a_system_that_does_not_tell_its_sizes(tmp_path: Path, text: str) -> None:
    (tmp_path / "statm").write_text(text)
    assert resident_bytes(tmp_path / "statm") == 0
    assert resident_bytes(tmp_path / "none") == 0


def test_pages_are_counted_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "statm").write_text("20 3 2 1 0 5 0\n")
    assert resident_bytes(tmp_path / "statm") % 3 == 0
    assert resident_bytes(tmp_path / "statm") >= 3 * 4096
