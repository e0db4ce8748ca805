"""The states of a queued message change in one room, by few functions (docs/design.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trio_stomp

PACKAGE = Path(trio_stomp.__file__).parent
ROOM = "broker/queues/"
WAYS = {
    # What lets messages in, and who asks for it.
    "admit": {"broker/sending/_to_queue.py", "broker/topics/_bindings.py"},
    "admit_dead": {"broker/_assembly.py"},  # for dead letters of ``QueueBook``
    "hand_on": {"broker/topics/_bindings.py"},
    # How they enter: in memory, or where the store has them.
    "put_all": {f"{ROOM}_queues.py", f"{ROOM}_overflow.py", f"{ROOM}_storage.py"},
    "put_paged": {f"{ROOM}_storage.py"},
    # What lets go of them.
    "part_with": {f"{ROOM}_queue.py", "broker/topics/_bindings.py"},
    "_release_run": {f"{ROOM}_queue.py"},
}
"""The modules that call a method, by its name."""
CHANGES = {
    "extend": "_queue.py",
    "give_back": "_queue.py _hand_out.py",
    "pop": "_queue.py",
    "take": "_queue.py _hand_out.py",
    "take_next": "_hand_out.py",
    "page_out": "_queue.py",
    "restore": "_storage.py",
    "loaded": "_queue.py",
    "remove_paged": "_windows.py",
    "forget_paged": "_queue.py",
    "forget_all_paged": "_queue.py",
}
"""The methods that change ``Queue.waiting``, and the modules of the room that call them."""
COUNTS = ("arriving", "delayed", "unacked")
"""Counters of states. A reader of a stream, which is no queue, has the last one, too."""


def calls() -> Iterator[tuple[str, str, str]]:
    """Yield the module, the object and the method of each call of a method."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = ast.unparse(node.func.value)
                yield file.relative_to(PACKAGE).as_posix(), of, node.func.attr


CALLS = list(calls())


@pytest.mark.parametrize("method", WAYS)
def test_messages_enter_and_leave_queues_by_few_functions(method: str) -> None:
    # Users and rules admit, too.
    own = "overflow" if method.startswith("admit") else ""
    found = {
        module
        for module, of, called in CALLS
        if called == method and of.removesuffix("()").endswith(own)
    }
    assert found == WAYS[method]


@pytest.mark.parametrize("method", CHANGES)
def test_what_waits_changes_in_the_room_of_queues_alone(method: str) -> None:
    found = {
        module
        for module, of, called in CALLS
        if called == method and of.endswith("waiting")
        if module.startswith(ROOM) or of.endswith("queue.waiting")
    }
    assert found == {ROOM + each for each in CHANGES[method].split()}


def test_states_are_counted_in_the_room_of_queues() -> None:
    found = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute)
        if node.target.attr in COUNTS
    }
    assert found - {"broker/streams/_stream_reader.py"} == {
        *(f"{ROOM}{each}.py" for each in ("_acknowledger", "_hand_out", "_queue")),
    }
