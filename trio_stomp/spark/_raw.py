"""The contents of ``raw``, read from the footers of its files without Spark."""

import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from attrs import frozen

logger = logging.getLogger("trio_stomp.spark")

# The depth is fixed, as a crash may leave ``_temporary`` directories further down.
GLOB = "q=*/batch=*/*.parquet"


@frozen
class RawFile:
    """One file of messages.

    Args:
      first: The earliest time at which the broker stored one of its messages; None = unknown.
      last: The latest.
      changed: When it was written, in Unix time.
    """

    path: Path
    rows: int
    first: datetime | None
    last: datetime | None
    changed: float

    @property
    def query(self) -> str:
        """The streaming query that wrote the file."""
        return self.path.parent.parent.name.removeprefix("q=")

    @property
    def batch(self) -> int:
        """The batch of that query."""
        return int(self.path.parent.name.removeprefix("batch="))

    @property
    def days(self) -> Iterator[date]:
        """The days that its messages may belong to."""
        if self.first is not None and self.last is not None:
            first, last = self.first.date(), self.last.date()
            for days in range((last - first).days + 1):
                yield first + timedelta(days)

    @property
    def newest(self) -> datetime:
        """The time of its newest message, or if unknown that of the file."""
        return self.last or datetime.fromtimestamp(self.changed, UTC)


def local_root(root: Path | str) -> Path:
    """Return the directory of all files. It must be on a file system, which may be shared.

    Raises:
      ValueError: the root is a URI.
    """
    text = str(root).removeprefix("file://")
    if "://" in text:
        raise ValueError(f"{root}: the tables need a directory that all machines have mounted")
    return Path(text)


def raw_files(root: Path) -> list[RawFile]:
    """Return all files of messages, in order. Incomplete files are reported and left out."""
    found = []
    for path in sorted((root / "raw").glob(GLOB)):
        try:
            found.append(_raw_file(path))
        except (pa.ArrowInvalid, FileNotFoundError) as error:
            # An uncommitted batch will be written again with the same rows.
            logger.warning("left out: %s: %s", path, error)
    return found


def _raw_file(path: Path) -> RawFile:
    changed = path.stat().st_mtime
    metadata = pq.read_metadata(path)
    index = metadata.schema.to_arrow_schema().get_field_index("stored_at")
    moments: list[datetime] = []
    # A file of an older sidecar has no such column. It is of no day, so nothing touches it by day.
    for group in range(metadata.num_row_groups if index >= 0 else 0):
        statistics = metadata.row_group(group).column(index).statistics
        if statistics is None or not statistics.has_min_max:
            moments = _moments(path)
            break
        moments += [statistics.min, statistics.max]
    moments = [moment.astimezone(UTC) for moment in moments]
    first, last = min(moments, default=None), max(moments, default=None)
    return RawFile(path, metadata.num_rows, first, last, changed)


def _moments(path: Path) -> list[datetime]:
    """Return the first and last time from the rows, as old writers leave no statistics of times."""
    column = pq.read_table(path, columns=["stored_at"]).column("stored_at")
    column = column.cast(pa.timestamp("us", "UTC"))
    ends = pyarrow.compute.min_max(column).as_py()
    return [end for end in (ends["min"], ends["max"]) if end is not None]


def committed(checkpoint: Path) -> tuple[str, int] | None:
    """Return the query of a checkpoint, as in ``raw/q=…``, and its last committed batch."""
    metadata = checkpoint / "metadata"
    batches = [int(file.name) for file in checkpoint.glob("commits/*") if file.name.isdigit()]
    if not batches or not metadata.is_file():
        return None
    query = json.loads(metadata.read_text(encoding="utf-8"))["id"]
    return str(query), max(batches)


def batches(files: Iterable[RawFile]) -> dict[str, list[RawFile]]:
    """Return the files of each batch, by its path below ``raw``, if all of its files are there."""
    found: dict[Path, list[RawFile]] = {}
    for file in files:
        found.setdefault(file.path.parent, []).append(file)
    return {
        f"{path.parent.name}/{path.name}": known
        for path, known in found.items()
        if len(known) == len(list(path.glob("*.parquet")))
    }


def remove_batch(files: Sequence[RawFile]) -> None:
    """Remove a batch."""
    shutil.rmtree(files[0].path.parent)
