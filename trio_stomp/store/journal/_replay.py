"""Rebuilds the journal's state from its files."""

from collections.abc import Callable, Sequence

from attrs import define, field

from trio_stomp.store._port import PlaceState
from trio_stomp.store._records import SMALL, DropPlace, charged_to, stored_cost
from trio_stomp.store.disk import Files, Quarantine
from trio_stomp.store.journal._ending import Ending, find_ending
from trio_stomp.store.journal._extents import Extent, extent_of
from trio_stomp.store.journal._index import Index, Key
from trio_stomp.store.journal._reader import Content
from trio_stomp.store.journal._scan import DAMAGED, TORN, scan
from trio_stomp.store.journal._segment import Segment, missing_between, read_header
from trio_stomp.store.journal._tally import Tally, stretches
from trio_stomp.store.journal.format import (
    ATOMIC,
    COMMIT,
    COPY,
    PUT,
    SEGMENT_HEADER_BYTES,
    Found,
    Run,
    SegmentHeader,
    bad_ids,
    decode_commit,
    decode_run,
    decode_small,
    nested_in,
)
from trio_stomp.store.streams import NO_JOURNAL, JournalState

MAX_DAMAGE_LINES = 1000


@define(eq=False)
class Replay:
    """Reads all segments, oldest first, and builds the index.

    Args:
      keeps_transient: The store is running: keep transient messages, and do not look for an
        incomplete batch at the end, because all segments are synced.
    """

    _files: Files
    _quarantine: Quarantine
    keeps_transient: bool = False
    index: Index = field(factory=Index)
    commit: int = 0
    damage: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)
    ending: Ending = field(factory=lambda: Ending(0))
    """The end of the newest segment."""
    tally: Tally = field(factory=Tally)
    """The cost of messages by charged user."""

    def run(self, segments: Sequence[Segment], report: Callable[[int], None]) -> None:
        """Replay segments, and set each ``end`` to the end of its valid part.

        Args:
          segments: The segments, oldest first.
          report: Called with the bytes of each segment.

        Raises:
          OSError: the disk failed.
          StoreError: a file is not part of this journal.
        """
        self.damage += missing_between(segments)
        for segment in segments:
            handle = self._files.open(segment.path)
            try:
                segment.end = self._files.size(handle)
                self._segment(handle, segment, is_last=segment is segments[-1])
            finally:
                self._files.close(handle)
            report(segment.end)
        self.index.coalesce()

    def journal_state(self, segments: Sequence[Segment]) -> JournalState:
        """Return the journal's state for the recovery of streams."""
        ending = self.ending
        if not segments or not ending.is_checked:
            return NO_JOURNAL
        return JournalState(self.commit, not ending.is_closed, ending.is_closed)

    def _segment(self, handle: int, segment: Segment, is_last: bool) -> None:
        header = read_header(self._files, handle, segment)
        if header is not None:
            self.commit = max(self.commit, header.commit)
            self.index.next_id = max(self.index.next_id, header.next_id)
        elif segment.end > SEGMENT_HEADER_BYTES or not is_last:
            self._report(handle, segment, 0, SEGMENT_HEADER_BYTES, "damaged header")
        else:
            # Creating it was interrupted.
            segment.end = 0
        if is_last and not self.keeps_transient:
            self._end(handle, segment, header)
        start, end = SEGMENT_HEADER_BYTES, segment.end
        for found in scan(self._files, handle, segment.marker, start, end):
            self._take(handle, segment, found)

    def _end(self, handle: int, segment: Segment, header: SegmentHeader | None) -> None:
        """Exclude an incomplete batch at the end of the newest segment."""
        size = segment.end
        ending = find_ending(self._files, handle, segment.marker, header, size)
        self.ending, segment.end = ending, min(ending.end, size)
        if ending.is_doubtful:
            what = "an incomplete commit was cut off"
            place = handle, segment.path, ending.end, size - ending.end
            self.notes.append(self._quarantine.keep(*place, what))

    def _take(self, handle: int, segment: Segment, found: Found) -> None:
        size = found.end - found.offset
        if found.kind in (DAMAGED, TORN):
            self._report(handle, segment, found.offset, size, "no valid record")
        elif found.kind == COMMIT:
            commit = decode_commit(found.front)
            self.commit = max(self.commit, commit.number)
            self.index.next_id = max(self.index.next_id, commit.next_id)
        elif found.kind == ATOMIC:
            if found.is_whole():
                for inner in nested_in(found):
                    self._apply(segment, inner, found)
            else:
                self._report(handle, segment, found.offset, size, "damaged transaction")
        elif bad := self._apply(segment, found, found):
            self._report(handle, segment, found.offset, size, f"{bad} damaged messages")

    def _apply(self, segment: Segment, found: Found, outer: Found) -> int:
        """Apply a record to the index, and return how many of its messages are damaged."""
        if found.kind not in (PUT, COPY):
            small = decode_small(found.kind, found.front)
            self.index.apply(small, segment.number)
            if isinstance(small, DropPlace):
                self.tally.drop(small.place)
            return 0
        run = decode_run(found)
        fresh = self._put(segment, run, found, outer)
        if found.is_whole():
            return 0
        bad = bad_ids(run, found)
        # Messages that are live by another record are undamaged there.
        self.index.finish(bad.intersection(fresh))
        return len(bad)

    def _put(self, segment: Segment, run: Run, found: Found, outer: Found) -> Sequence[int]:
        """Apply a run to the index, and return the ids that became live by it."""
        index, ids, bodies = self.index, run.ids, found.bodies_end - found.bodies_at
        index.next_id = max(index.next_id, ids[-1] + 1)
        if run.transient and not self.keeps_transient:
            return ()
        if found.kind == COPY:
            # If copying was interrupted, the original still exists and takes precedence.
            pairs = zip(ids, run.lengths(), strict=True)
            fresh = [pair for pair in pairs if pair[0] not in index.live]
            ids, bodies = [id for id, _ in fresh], sum(length for _, length in fresh)
            if fresh and index.overlaps((run.place, run.level), ids):
                # Only the original is damaged: its neighbours' extent leaves no room for the copy.
                return ()
        if ids:
            place = segment.number, outer.offset, outer.end
            own = found.end - found.offset
            extent = extent_of(ids, *place, bodies, own=own, is_copy=found.kind == COPY)
            if run.place.startswith(SMALL):
                kept = run.bodies(found)
                if len(ids) < len(kept):
                    by_id = dict(zip(run.ids, kept, strict=True))
                    kept = [by_id[id] for id in ids]
                index.keep_small(run, ids, kept)
            index.put(run.place, run.level, ids, extent, expires_ms=run.expires_ms)
            if (line := charged_to(run.head)) and not self.keeps_transient:
                sizes = dict(zip(run.ids, run.lengths(), strict=True))
                for stretch in stretches(ids):
                    size = sum(sizes[id] for id in stretch)
                    cost = stored_cost(len(run.head), len(stretch), size)
                    self.tally.add((run.place, run.level), stretch, cost, line)
        if run.deliveries:
            index.set_deliveries(run.ids, run.deliveries)
        return ids

    def _report(self, handle: int, segment: Segment, offset: int, size: int, what: str) -> None:
        line = self._quarantine.set_aside(handle, segment.path, offset, size, what)
        if len(self.damage) < MAX_DAMAGE_LINES:
            self.damage.append(line)


def summarize(
    index: Index, read: Callable[[Key, Extent], Content], tally: Tally | None = None
) -> dict[Key, PlaceState]:
    """Return the state of each place's levels.

    Args:
      index: The index after replay.
      read: Reads an extent. Called only for extents in which some messages are live.
      tally: The cost of messages by charged user; None = omit it.
    """
    states, small = {}, index.small.ids()
    for key, extents in index.places.items():
        count, size, first = 0, 0, 0
        is_kept = index.small.holds(key)
        if is_kept and (runs := index.small.runs(key)):
            count, first = sum(len(run.ids) for run in runs), runs[0].ids[0]
            size = sum(sum(map(len, run.bodies)) for run in runs)
        for extent in () if is_kept else extents:
            living = index.live.count_of(extent.ids)
            if living == len(extent.ids):
                more, more_bytes, head = extent.count, extent.bodies, extent.first
            elif living > small.count_of(extent.ids):
                more, more_bytes, head = _summarize(index, read(key, extent))
            else:
                continue
            first = first if count else head
            count += more
            size += more_bytes
        if count:
            charged = tally.living(key, index.live) if tally is not None else {}
            states[key] = PlaceState(count, size, first, charged, index.expires.get(key, 0))
    return states


def _summarize(index: Index, content: Content) -> tuple[int, int, int]:
    found = [
        (id, length)
        for chunk in content.chunks
        for id, length in zip(chunk.run.ids, chunk.run.lengths(), strict=True)
        if id in index.live
    ]
    return len(found), sum(length for _, length in found), found[0][0] if found else 0
