"""The streams of a cluster on JetStream, and the checks before a node uses them."""

import re
from collections.abc import Iterator, Mapping

import trio
from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.cluster._jetstream_log import MARGIN_BYTES, JetStreamLog
from trio_stomp.nats import (
    JetStream,
    JetStreamError,
    NatsClient,
    NatsError,
    NoResponders,
    NotFound,
    StreamInfo,
)
from trio_stomp.store import StoreUnavailable

OLDEST = (2, 12)
"""The oldest version of the engine whose expected sequences and syncs are reliable enough."""
FORMAT = (1, 0)
"""Major and minor version of what nodes store and say to each other.

A newer minor version only adds what older nodes may ignore; other majors do not understand it.
"""
RETRY_S = 0.2
_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_NODE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHER_CONFIG = 10058
_CLUSTER, _FORMAT = "trio_stomp.cluster", "trio_stomp.format"
_LAYOUT = "trio_stomp.layout"
"""Keys in the metadata of the streams."""


@frozen
class Layout:
    """The distribution of destinations over a cluster's partitions, fixed when it is made.

    Args:
      partitions: The number of partitions.
      colocate: Groups of patterns whose destinations lie together.
    """

    partitions: int = 1
    colocate: str = ""

    def __str__(self) -> str:
        return f"{self.partitions} {self.colocate}" if self.partitions > 1 else ""

    @classmethod
    def of(cls, stream: StreamInfo) -> "Layout":
        """Return the layout of the cluster that has a stream."""
        text = _metadata(stream).get(_LAYOUT, "1")
        partitions, _, colocate = str(text).partition(" ")
        return cls(int(partitions), colocate)


ONE = Layout()
"""A cluster without partitions."""


@frozen
class ClusterNames:
    """The names of the streams and subjects of a cluster's partition on JetStream.

    Args:
      cluster: The name of the cluster, of at most 32 letters, digits, dashes and underscores.
      partition: The partition, from 0.

    Raises:
      OptionError: The name of the cluster is invalid.
    """

    cluster: str
    partition: int = 0

    def __attrs_post_init__(self) -> None:
        if not _NAME.fullmatch(self.cluster):
            raise OptionError(
                f"cluster_name is {self.cluster[:40]!r}, but must be 1 to 32 letters, digits, "
                "dashes and underscores"
            )

    def __str__(self) -> str:
        return f"partition {self.partition} of the cluster" if self.partition else "the cluster"

    @property
    def log(self) -> str:
        """Return the stream of the log."""
        return f"{self.cluster}_log_{self.partition:02}"

    @property
    def log_subject(self) -> bytes:
        """Return the subject of the log."""
        return f"{self.cluster}.log.{self.partition:02}".encode()

    @property
    def snapshots(self) -> str:
        """Return the stream of snapshots."""
        return f"{self.cluster}_snap_{self.partition:02}"

    @property
    def snapshot_subject(self) -> bytes:
        """Return the subject of snapshots."""
        return f"{self.cluster}.snap.{self.partition:02}".encode()

    @property
    def leases(self) -> str:
        """Return the stream of the leases."""
        return f"{self.cluster}_leases"

    @property
    def lease_subject(self) -> bytes:
        """Return the subject of the lease of the log."""
        return f"{self.cluster}.lease.{self.partition:02}".encode()

    @property
    def nodes(self) -> bytes:
        """Return the subject on which all nodes answer for the partition."""
        return f"{self.cluster}.nodes{self._suffix}".encode()

    @property
    def events(self) -> bytes:
        """Return the subject of events that the routers of nodes report."""
        return f"{self.cluster}.events".encode()

    def node(self, node: str) -> bytes:
        """Return the subject on which one node answers for the partition.

        Raises:
          OptionError: ``node`` is not a valid id of a node.
        """
        if not _NODE.fullmatch(node):
            raise OptionError(
                f"node is {node[:80]!r}, but must be 1 to 64 letters, digits, dashes and "
                "underscores"
            )
        return f"{self.cluster}.node.{node}{self._suffix}".encode()

    @property
    def _suffix(self) -> str:
        return f".{self.partition:02}" if self.partition else ""


async def open_engine(
    client: NatsClient, names: ClusterNames, replicas: int, patience_s: float, layout: Layout = ONE
) -> JetStream:
    """Return JetStream with the streams of a cluster, which are created if they are missing.

    Args:
      client: A running client.
      names: The streams' names.
      replicas: The number of servers that have each stream.
      patience_s: How long servers may take to become ready.
      layout: The partitions.

    Raises:
      OptionError: The servers cannot be used as they are; the text says what to change.
      StoreUnavailable: They did not answer in time.
    """
    jetstream, problem = JetStream(client), "no server of NATS accepts a connection"
    with trio.move_on_after(patience_s):
        while True:
            await client.wait_until_connected()
            try:
                _check_version(client.info)
                for config in _streams(names, replicas, layout):
                    await _open_stream(jetstream, config)
            except NoResponders:
                problem = "JetStream is off: start the servers with -js or jetstream {}"
            except NatsError as error:
                problem = str(error)
            else:
                return jetstream
            await trio.sleep(RETRY_S)
    raise StoreUnavailable(f"the engine of the cluster is not ready: {problem}")


def open_log(jetstream: JetStream, stream: str, subject: bytes) -> JetStreamLog:
    """Return a stream as a log. A server must be connected."""
    largest = jetstream.client.info.get("max_payload")
    max_bytes = (largest if isinstance(largest, int) else 1 << 20) - MARGIN_BYTES
    return JetStreamLog(jetstream, stream, subject, max_bytes)


def _check_version(info: Mapping[str, object]) -> None:
    words = str(info.get("version", "")).split(".")
    version = tuple(int(word) for word in words[:2] if word.isdecimal())
    if version < OLDEST:
        raise OptionError(
            f"the server of NATS has version {info.get('version')}, but a cluster needs "
            f"{OLDEST[0]}.{OLDEST[1]} or newer, which stores nothing for a former owner"
        )


def _streams(names: ClusterNames, replicas: int, layout: Layout) -> Iterator[dict[str, object]]:
    metadata = {_CLUSTER: names.cluster, _FORMAT: ".".join(map(str, FORMAT))}
    if str(layout):
        metadata[_LAYOUT] = str(layout)
    usual = {"storage": "file", "num_replicas": replicas, "discard": "new", "metadata": metadata}
    parts = [ClusterNames(names.cluster, number) for number in range(layout.partitions)]
    for part in parts:
        yield {**usual, "name": part.log, "subjects": [part.log_subject.decode()]}
        yield {**usual, "name": part.snapshots, "subjects": [part.snapshot_subject.decode()]}
    subjects = [part.lease_subject.decode() for part in parts]
    leases = {**usual, "name": names.leases, "subjects": subjects}
    yield {**leases, "max_msgs_per_subject": 1, "discard": "old"}


async def _open_stream(jetstream: JetStream, config: Mapping[str, object]) -> None:
    """Create a stream, or check it if it exists.

    Raises:
      OptionError: It belongs to another application or version, or has other replicas.
      NatsError: The servers are not ready.
    """
    name = str(config["name"])
    try:
        found = await jetstream.stream(name)
    except NotFound:
        try:
            await jetstream.create_stream(config)
        except JetStreamError as error:
            if error.err_code == _OTHER_CONFIG:
                raise  # another node was faster
            if jetstream.client.is_connected and error.code != 503:
                raise _cannot_place(name, config, error) from error
            raise
    else:
        _check_stream(found, config)


def _cannot_place(
    name: str, config: Mapping[str, object], error: JetStreamError
) -> OptionError | JetStreamError:
    replicas = config["num_replicas"]
    if replicas == 1:
        return error
    return OptionError(
        f"JetStream does not create {name} with {replicas} replicas: {error.description}. "
        f"Connect {replicas} servers of NATS to a cluster, or set cluster_replicas to 1 if the "
        "loss of one server may be the loss of all messages"
    )


def belongs_to(stream: StreamInfo, names: ClusterNames) -> bool:
    """Return whether a stream belongs to a cluster."""
    return _metadata(stream).get(_CLUSTER) == names.cluster


def _metadata(stream: StreamInfo) -> Mapping[str, object]:
    found = stream.config.get("metadata")
    return found if isinstance(found, dict) else {}


def _check_stream(found: StreamInfo, config: Mapping[str, object]) -> None:
    name, wanted, metadata = config["name"], config["metadata"], _metadata(found)
    assert isinstance(wanted, dict)
    if metadata.get(_CLUSTER) != wanted[_CLUSTER]:
        raise OptionError(
            f"the stream {name} is of another application or cluster: choose another "
            "cluster_name, or delete the stream if it is not needed"
        )
    major = str(metadata.get(_FORMAT)).partition(".")[0]
    if major != str(FORMAT[0]):
        raise OptionError(
            f"the stream {name} has format {metadata.get(_FORMAT)}, but this version of trio_stomp "
            f"reads and writes format {FORMAT[0]}: install the version of the other nodes here"
        )
    layout = Layout.of(found)
    if str(layout) != wanted.get(_LAYOUT, ""):
        raise OptionError(
            f"the cluster was made with cluster_partitions = {layout.partitions} and "
            f"cluster_colocate = {layout.colocate!r}, which cannot change: set them so, or choose "
            "another cluster_name"
        )
    if found.config.get("num_replicas") != config["num_replicas"]:
        raise OptionError(
            f"the stream {name} has {found.config.get('num_replicas')} replicas, but "
            f"cluster_replicas is {config['num_replicas']}: set it to that number, or change both "
            "streams of the cluster with: nats stream edit"
        )
