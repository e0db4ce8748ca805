"""``value``: a class decorator for objects that are frozen for the type checker only.

Constructing a frozen attrs class takes twice the time. So objects of the hot path are frozen for
mypy, which reports assignments, and plain at run time.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import frozen as value
else:
    from attrs import define as value

__all__ = ["value"]
