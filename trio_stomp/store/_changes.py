"""The net effect of several turns, in the order in which a database applies it."""

from collections import Counter
from collections.abc import Iterable, Sequence

from attrs import define, field

from trio_stomp.store._records import (
    Append,
    Atomic,
    Begin,
    Delivered,
    Done,
    DropPlace,
    DropStream,
    Forget,
    Keep,
    Put,
    Simple,
    Trim,
    Turn,
)

StreamRecord = Begin | Append | Trim | DropStream


@define(eq=False)
class Changes:
    """The net change of turns that are committed together.

    Apply it in this order: drop places, delete finished messages, add deliveries, insert messages.
    A message that is stored and finished within these turns does not appear.

    Args:
      dropped: Places. Messages stored in them afterwards are in ``puts``.
      done: Ids of finished messages that are not in ``puts``.
      delivered: Additional deliveries by id, for all messages.
      puts: The Put and the body of each new message, by id.
      settings: Text by key; None = removed.
      streams: Records of streams, in order.
      next_id: Greater than every id that was ever in ``puts``.
    """

    dropped: set[str] = field(factory=set)
    done: set[int] = field(factory=set)
    delivered: Counter[int] = field(factory=Counter)
    puts: dict[int, tuple[Put, bytes]] = field(factory=dict)
    settings: dict[str, str | None] = field(factory=dict)
    streams: list[StreamRecord] = field(factory=list)
    next_id: int = 1

    def add(self, record: Simple) -> None:
        """Add a record that follows all records added before."""
        match record:
            case Put():
                self._put(record)
            case Done(ids):
                self._finish(ids)
            case Delivered(ids):
                self.delivered.update(ids)
            case DropPlace(place):
                self.dropped.add(place)
                self._finish([id for id, (put, _) in self.puts.items() if put.place == place])
            case Keep(key, text):
                self.settings[key] = text
            case Forget(key):
                self.settings[key] = None
            case _:
                self.streams.append(record)

    def _put(self, put: Put) -> None:
        for id, body in enumerate(put.bodies, put.first):
            self.puts[id] = put, body
            # Deliveries counted before the message was stored are void.
            self.delivered.pop(id, None)
        self.next_id = max(self.next_id, put.first + len(put.bodies))

    def _finish(self, ids: Iterable[int]) -> None:
        for id in ids:
            self.delivered.pop(id, None)
            if self.puts.pop(id, None) is None:
                self.done.add(id)


def changes_of(turns: Sequence[Turn]) -> Changes:
    """Return the net change of the turns."""
    changes = Changes()
    for turn in turns:
        for record in turn.records:
            for part in record.records if isinstance(record, Atomic) else (record,):
                changes.add(part)
    return changes
