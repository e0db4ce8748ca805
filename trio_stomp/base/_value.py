"""``value``: a class that the type checker holds to be frozen, and that is cheap at run time.

A frozen attrs class costs twice the construction time of a plain one. Objects of the hot path
are therefore frozen for mypy, which reports any assignment, and plain for the interpreter.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import frozen as value
else:
    from attrs import define as value

__all__ = ["value"]
