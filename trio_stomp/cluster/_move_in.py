"""Moves the content of a single broker into a new cluster."""

import secrets
from functools import partial

import trio

from trio_stomp.base import OptionError
from trio_stomp.broker import check_none
from trio_stomp.cluster._engine import ClusterNames, open_log
from trio_stomp.cluster._entries import end_entry, epoch_entry
from trio_stomp.cluster._snapshot import without_ours, write_state
from trio_stomp.nats import JetStream
from trio_stomp.store import StaleSequence
from trio_stomp.store.tools import View


async def move_in(
    jetstream: JetStream, names: ClusterNames, view: View, *, is_only: bool = True
) -> dict[str, int]:
    """Copy the content of a store into a cluster that no node has used.

    The log begins after an entry that only the snapshot covers. So each node finds that its state
    does not reach the log, and begins with the snapshot; without a complete one it waits.

    Args:
      jetstream: JetStream with the streams of the cluster.
      names: The names of the streams.
      view: A view of the store, not recovered yet. No broker uses the store.
      is_only: The cluster has no other partitions.

    Returns:
      The numbers of messages, streams and settings.

    Raises:
      OptionError: The cluster was used before.
      StoreError: The store cannot be read or has messages for other partitions, or the streams
        cannot be written to.
      NatsError: The servers of NATS do not answer.

    Checkpoint: always. Cancel: the cluster is not usable; delete its streams.
    """
    await check_unused(jetstream, names)
    log = open_log(jetstream, names.log, names.log_subject)
    snapshots = open_log(jetstream, names.snapshots, names.snapshot_subject)
    try:
        # It may be the copy of a node of another cluster.
        recovered = without_ours(await trio.to_thread.run_sync(view.recover, _ignore))
        if is_only:
            check_none(recovered.places)
        writer = secrets.randbits(63) + 1
        try:
            covered = await trio.to_thread.run_sync(log.publish, epoch_entry(writer), 0)
            await trio.to_thread.run_sync(log.publish, end_entry(writer), covered)
        except StaleSequence:
            raise _used(names) from None
        await jetstream.purge(names.log, covered + 1)
        write = partial(write_state, view, recovered, snapshots, sequence=covered, last=0)
        await trio.to_thread.run_sync(write)
    finally:
        log.close()
        snapshots.close()
    return {
        "messages": sum(place.count for place in recovered.places.values()),
        "streams": len(recovered.streams),
        "settings": len(recovered.settings),
    }


async def check_unused(jetstream: JetStream, names: ClusterNames) -> None:
    """Check that no node has used a partition.

    Raises:
      OptionError: One has.
      NatsError: The servers of NATS do not answer.
    """
    if (await jetstream.stream(names.log)).last:
        raise _used(names)


def _used(names: ClusterNames) -> OptionError:
    return OptionError(
        f"the cluster {names.cluster} has been used: move a store into a new one (option"
        " cluster_name), or delete the streams of this one if they are not needed"
    )


def _ignore(_done: int, _total: int) -> None:
    """Ignore progress."""
