"""Lists in pages: the part of a list, its order, and the filter by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from attrs import define

from trio_stomp.base import RECORDS, Pieces, first_by_name, greatest
from trio_stomp.broker import glob_matches
from trio_stomp.web._pieces import chosen
from trio_stomp.web._query import Answer, Query, Record, as_list
from trio_stomp.web.declared import Number, Parameter

T = TypeVar("T")

OFFSET = Number("offset", "how many to skip first", most=10_000_000)
LIMIT = Number("limit", "the most to list", default=100, least=1, most=1_000)
NAME = Parameter("name", "a part of the name; with * or ?, a pattern of the whole name")
BY_NAME = "name"
"""The order by name. All others are by a figure, greatest first."""

Key = Callable[[T], float]
Describe = Callable[[T], Record]


@define(eq=False, repr=False)
class Window:
    """The requested part of a list."""

    offset: int
    limit: int

    @classmethod
    def of(cls, query: Query, limit: Number = LIMIT) -> "Window":
        """Parse ``offset`` and ``limit``.

        Args:
          query: The query.
          limit: The declaration of ``limit``.
        """
        return cls(query.number(OFFSET), query.number(limit))

    def cut(self, things: Sequence[T]) -> Sequence[T]:
        """Return the requested part of ``things``."""
        return things[self.offset : self.offset + self.limit]

    def greatest(self, things: Sequence[T], key: "Key[T] | None") -> Pieces[Sequence[T]]:
        """Return the requested part of ``things``, greatest first, or unsorted without ``key``."""
        if key is None:
            return self.cut(things)
        return (yield from greatest(things, key, self.offset + self.limit))[self.offset :]

    def first(self, things: Sequence[T], name: Callable[[T], str]) -> Pieces[Sequence[T]]:
        """Return the requested part of ``things`` in the order of their names."""
        return (yield from first_by_name(things, name, self.offset + self.limit))[self.offset :]

    def record(self, total: int, count: int) -> dict[str, object]:
        """Return the fields that describe the part."""
        return {"total": total, "offset": self.offset, "limit": self.limit, "count": count}


@define(eq=False, repr=False)
class Listing(Generic[T]):
    """A list of items with names.

    Args:
      title: The name of the list.
      names: Returns the names of an item. The list is sorted by the first one.
      describe: Returns the record of an item.
      orders: The figures to sort by, by the name of the order; None = the order of the list.
    """

    title: str
    names: Callable[[T], Sequence[str]]
    describe: Describe[T]
    orders: "Mapping[str, Key[T] | None]"

    def page(self, query: Query, things: Sequence[T], order: str, record: Record) -> Pieces[Answer]:
        """Return the requested part of ``things``, filtered by ``name`` and sorted.

        Args:
          query: The query.
          things: All items.
          order: One of ``orders``, or ``BY_NAME``.
          record: The fields of the answer before the list.
        """
        window = Window.of(query)
        things = yield from named(query.text(NAME), things, self.names)
        if order == BY_NAME:
            part = yield from window.first(things, lambda each: self.names(each)[0])
        else:
            part = yield from window.greatest(things, self.orders[order])
        fields = {**record, **window.record(len(things), len(part)), "sort": order}
        return (yield from as_list(fields, self.title, part, self.describe))


def named(
    wanted: str, things: Sequence[T], names: Callable[[T], Sequence[str]]
) -> Pieces[Sequence[T]]:
    """Return the items with a name that matches.

    Args:
      wanted: A part of the name, or a pattern of the whole name; "" = all.
      things: The items.
      names: Returns the names of an item.
    """
    if not wanted:
        return things
    if "*" in wanted or "?" in wanted:
        return (
            yield from chosen(
                things,
                lambda each: any(glob_matches(wanted, name) for name in names(each)),
                RECORDS,
            )
        )
    return (yield from chosen(things, lambda each: any(wanted in name for name in names(each))))
