"""The core of a partition, with a store; others have the names that end with ``far``."""

from collections.abc import Callable

from attrs import define, field

from tests.support.durable_fakes import DurableBench
from trio_stomp.broker import Broker, Setup
from trio_stomp.cluster.routing import Forwards, Placement, forwards_of, make_core


def _ends_with_far(name: str) -> bool:
    return name.endswith("far")


@define(eq=False)
class FarPlacement(Placement):
    """Places some destinations in another partition.

    Args:
      is_far: Returns whether it does.
    """

    is_far: Callable[[str], bool] = _ends_with_far

    def lacks(self, _partition: int, name: str) -> bool:
        """As that of others."""
        return self.is_far(name)


@define(eq=False, repr=False)
class PartBench(DurableBench):
    """A bench whose core is that of a partition."""

    placement: Placement = field(factory=lambda: FarPlacement(1))
    number: int = 0

    def assemble(self, setup: Setup) -> Broker:
        """As that of others."""
        return make_core(self.placement, self.number, setup)

    @property
    def forwards(self) -> Forwards:
        """What it keeps for others."""
        found = forwards_of(self.broker)
        assert found is not None
        return found

    def restarts(self) -> "PartBench":
        """As that of others."""
        return PartBench(
            book=self.book,
            policies=self.policies,
            store=self.store,
            now=self.now,
            placement=self.placement,
            number=self.number,
        )
