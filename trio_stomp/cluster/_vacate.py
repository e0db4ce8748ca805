"""Moves a cluster's streams away from a NATS server that is retired."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import trio
from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.cluster._engine import ClusterNames, belongs_to
from trio_stomp.nats import JetStream, JetStreamError, NatsError, StreamInfo
from trio_stomp.store import StoreUnavailable

LOOK_S = 0.1


async def vacate(
    jetstream: JetStream, names: ClusterNames, server: str, patience_s: float
) -> Mapping[str, Sequence[str]]:
    """Replace a server in the cluster's streams by others, one stream after another.

    Args:
      jetstream: JetStream with the streams.
      names: The names of the cluster.
      server: The name of the server.
      patience_s: Maximum time for each step.

    Returns:
      The servers of each stream, its leader first.

    Raises:
      OptionError: A stream has no other replica, or no other server can take it.
      StoreUnavailable: Replicas are not current in time. Streams that were moved stay moved.
      NatsError: The servers do not answer.

    Checkpoint: always. Cancel: a replica may be on its way to another server.
    """
    found: dict[str, Sequence[str]] = {}
    for stream in await jetstream.streams():
        if belongs_to(stream, names):
            name = str(stream.config["name"])
            found[name] = await _Move(jetstream, name, server, patience_s).run()
    return found


@frozen
class _Move:
    """The move of one stream."""

    jetstream: JetStream
    stream: str
    server: str
    patience_s: float

    async def run(self) -> Sequence[str]:
        state = await self._wait(lambda _: True)  # no replica may be lost meanwhile
        if self.server not in _servers_of(state):
            return _servers_of(state)
        if not state.followers:
            raise OptionError(
                f"{self.server} has the only replica of {self.stream}: give the streams of the "
                "cluster more first, with: nats stream edit --replicas"
            )
        if state.leader == self.server:
            await self.jetstream.step_down(self.stream)  # or the others elect one after seconds
            await self._wait(lambda state: state.leader != self.server)
        await self._remove()
        return _servers_of(await self._wait(lambda state: self.server not in _servers_of(state)))

    async def _remove(self) -> None:
        """Have JetStream choose another server, once it knows one without a replica."""
        problem = ""
        with trio.move_on_after(self.patience_s):
            while True:
                try:
                    return await self.jetstream.remove_peer(self.stream, self.server)
                except JetStreamError as error:
                    problem = str(error)
                await trio.sleep(LOOK_S)
        raise OptionError(
            f"no other server can take {self.stream} ({problem}): start one more server of NATS "
            "first, with a name of its own and routes to the others"
        )

    async def _wait(self, is_done: Callable[[StreamInfo], bool]) -> StreamInfo:
        """Return the state of the stream once ``is_done`` and all replicas are current."""
        with trio.move_on_after(self.patience_s):
            while True:
                with suppress(NatsError):  # it has no leader at the moment
                    state = await self.jetstream.stream(self.stream)
                    if _is_complete(state) and is_done(state):
                        return state
                await trio.sleep(LOOK_S)
        raise StoreUnavailable(
            f"not all replicas of {self.stream} are current after {self.patience_s:g} s: change "
            "nothing else until they are, then try again"
        )


def _servers_of(stream: StreamInfo) -> Sequence[str]:
    """Return the servers with replicas of a stream, its leader first."""
    return [name for name in (stream.leader, *stream.followers) if name]


def _is_complete(stream: StreamInfo) -> bool:
    """Return whether a stream has a leader and the configured number of current replicas."""
    are_all = len(_servers_of(stream)) == stream.config.get("num_replicas")
    return bool(stream.leader) and are_all and all(stream.followers.values())
