"""``/metrics`` of a node of a cluster with partitions: of its clients, and of what it owns.

Prometheus asks each node, and adds up: so each figure is that of one node. Figures of a partition
have the label ``partition``; those of the node's own part have not.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from attrs import define, field
from prometheus_client import Metric

from trio_stomp.base import LOOKS, Pieces
from trio_stomp.web._metrics import BrokerCollector, Counted, Families

if TYPE_CHECKING:
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server

PARTITION = "partition"

Owned = Callable[[], "Mapping[int, tuple[Server, Figures]]"]
"""Returns the brokers of the partitions that a node owns at the moment, by partition."""


@define(eq=False, repr=False)
class NodeCollector:
    """Collects the metrics of a node. Implements ``Collector``.

    Args:
      router: Collects those of its router.
      owned: Returns the brokers of its partitions.
    """

    router: BrokerCollector
    owned: Owned
    _collectors: dict[int, BrokerCollector] = field(factory=dict)
    """Those of the partitions: each keeps what it has reported by name."""

    def collecting(self) -> Pieces[Families]:
        """Implement ``Collector.collecting``."""
        counted: dict[int, Counted] = {}
        collectors = self._collectors = dict(self._owned())
        for number, each in collectors.items():
            counted[number] = yield from each.counting()
        present = yield from self.router.figures.counting()
        return self._together(
            [
                (None, self.router.of_process(present)),
                (None, self.router.of_rooms()),
                *(
                    (number, each.of_messages(counted[number]))
                    for number, each in collectors.items()
                ),
            ]
        )

    def _owned(self) -> Iterator[tuple[int, BrokerCollector]]:
        for number, (server, figures) in self.owned().items():
            found = self._collectors.get(number)
            if found is None or found.server is not server:
                found = BrokerCollector(server, figures, self.router.limit)
            yield number, found

    def _together(self, parts: "list[tuple[int | None, Families]]") -> Families:
        """Yield each metric once, with the samples of all parts."""
        found: dict[str, Metric] = {}
        for number, families in parts:
            for each in families:
                if each is not None:
                    if number is not None:
                        yield from _label(each, f"{number}")
                    known = found.setdefault(each.name, each)
                    if known is not each:
                        known.samples += each.samples
                yield None
        yield from found.values()


def _label(metric: Metric, partition: str) -> Iterator[None]:
    """Give all samples of a metric the label of a partition."""
    samples = metric.samples
    for number, sample in enumerate(samples):
        samples[number] = sample._replace(labels={PARTITION: partition, **sample.labels})
        if number % LOOKS == LOOKS - 1:
            yield
