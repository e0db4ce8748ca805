"""The partitions of destinations, requests and ids."""

import pytest

from trio_stomp.base import OptionError, ProtocolError
from trio_stomp.cluster.routing import Placement, mark

THREE = Placement(3)
ALL = (0, 1, 2)


@pytest.mark.parametrize(
    ("name", "partition"), [("/queue/a", 0), ("/queue/b", 2), ("/topic/a", 0), ("prices", 2)]
)
def test_the_partition_of_a_name_never_changes(name: str, partition: int) -> None:
    """Nodes of other versions, and messages in the logs, depend on it."""
    assert THREE.of(name) == partition


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("/queue/orders", "/queue/DLQ.orders"),
        ("/topic/prices", "/queue/DLQ.topic/prices"),
        ("#jobs", "/queue/DLQ.jobs"),
        ("/topic/prices", "/stream/topic/prices"),
        ("prices", "/stream/prices"),
    ],
)
def test_names_derived_by_the_broker_are_in_the_same_partition(name: str, other: str) -> None:
    many = Placement(64)
    assert many.of(name) == many.of(other)


def test_destinations_of_a_group_are_in_one_partition() -> None:
    placement = Placement(64, "/queue/in.>, /topic/out; /queue/bills")
    names = ("/queue/in.eu", "/queue/in", "/topic/out", "/queue/DLQ.in.us", "/stream/topic/out")
    assert len({placement.of(name) for name in names}) == 1
    assert placement.of("/queue/bills") == Placement(64).of("/queue/bills")
    assert placement.of("/queue/other") == Placement(64).of("/queue/other")


def test_an_invalid_pattern_is_refused() -> None:
    with pytest.raises(OptionError, match="cluster_colocate: destination:a"):
        Placement(3, "/queue/a*b.c")


@pytest.mark.parametrize("name", ["/queue/>", "/topic/*", "DIAG/event/>", "/temp-queue/replies"])
def test_patterns_and_session_names_are_in_all_partitions(name: str) -> None:
    assert THREE.sources(name, "native") == ALL


@pytest.mark.parametrize("name", ["DIAG/queues", "/queue/monitor", "/stream/DIAG"])
def test_figures_are_in_the_first_partition_or_the_chosen_one(name: str) -> None:
    assert THREE.sources(name, "native") == (0,)
    assert THREE.sources(name, "native", (("x-partition", "2"),)) == (2,)


def test_requests_go_to_all_partitions_or_one() -> None:
    assert THREE.targets("DIAG/explain", ()) == ALL
    assert THREE.targets("DIAG/explain", (("x-partition", "1"),)) == (1,)
    assert THREE.targets("DIAG/mine", ()) == (THREE.of("DIAG/mine"),)


@pytest.mark.parametrize("text", ["3", "-1", "x"])
def test_an_invalid_partition_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="has those from 0 to 2"):
        THREE.sources("DIAG/event/>", "native", (("x-partition", text),))


def test_a_temporary_name_has_the_mark_of_its_partition() -> None:
    assert THREE.of(f"/reply-queue/{mark(2)}17-secret.x") == 2
    assert THREE.of(f"/reply-topic/{mark(1)}17-secret.x") == 1
    assert THREE.of("/reply-queue/9_of-another-cluster") == 0


@pytest.mark.parametrize(
    ("text", "partition", "is_marked"),
    [("2_b.1-7", 2, True), ("3_b.1-7", 0, False), ("b.1-7", 0, False), ("0_b", 0, True)],
)
def test_an_id_begins_with_the_mark_of_its_partition(
    text: str, partition: int, is_marked: bool
) -> None:
    assert (THREE.marked(text), THREE.is_marked(text)) == (partition, is_marked)
