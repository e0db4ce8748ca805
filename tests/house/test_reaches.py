"""Diagnostics and pages ask the broker for its figures, and do not access its parts."""

import ast
from collections.abc import Iterator
from inspect import isfunction
from pathlib import Path

from trio_stomp.broker import Broker

PACKAGE = Path(__file__).parents[2] / "trio_stomp"
TOLD_BY = ("diag", "web")
METHODS = {
    name
    for kind in Broker.__mro__
    for name, member in vars(kind).items()
    if isfunction(member) and not name.startswith("_")
}


def reaches(tree: ast.AST) -> Iterator[str]:
    """Yield each use of a broker that is no call of a public method."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and ast.unparse(node.value).split(".")[-1] == "broker"
            and (node.attr not in METHODS or id(node) not in called)
        ):
            yield f"{node.lineno}: broker.{node.attr}"


def test_diagnostics_and_pages_call_the_broker_and_look_at_no_part_of_it() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{reach}"
        for floor in TOLD_BY
        for file in sorted((PACKAGE / floor).rglob("*.py"))
        for reach in reaches(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(["", *found])


def test_a_look_at_a_part_of_the_broker_is_found() -> None:
    text = "broker.statistics().stale\nserver.broker.stale.size\nheld = broker.queues"
    assert set(reaches(ast.parse(text))) == {"2: broker.stale", "3: broker.queues"}
