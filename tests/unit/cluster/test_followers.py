"""The choice of followers."""

from trio_stomp.cluster import Followers

NODES = [f"n{number}" for number in range(6)]


def standbys(*nodes: str) -> dict[str, str]:
    return dict.fromkeys(nodes, "standby")


def chosen(
    partition: int, *, count: int = 2, owner: str = "", nodes: list[str] = NODES
) -> set[str]:
    """Return the followers that a new owner chooses first."""
    followers = Followers(partition, count)
    return set(followers.choose((), standbys(*nodes), 0, owner=owner))


def test_all_follow_where_nodes_are_few_and_only_some_where_they_are_many() -> None:
    assert chosen(0, owner="n0", nodes=NODES[:3]) == {"n1", "n2"}
    assert len(chosen(0, owner="n0")) == 2


def test_followers_of_many_partitions_are_spread_and_a_lost_node_moves_only_its_own() -> None:
    before = [chosen(partition) for partition in range(60)]
    counts = [sum(name in each for each in before) for name in NODES]
    assert min(counts) > 8
    after = [chosen(partition, nodes=NODES[1:]) for partition in range(60)]
    for old, new in zip(before, after, strict=True):
        assert old - new == old & {"n0"}


def test_a_silent_follower_is_replaced_late_and_a_draining_one_early() -> None:
    followers = Followers(0, 1)
    (first,) = followers.choose((), standbys(*NODES), 0, owner="")
    others = standbys(*(each for each in NODES if each != first))
    assert followers.choose([first], others, 9, owner="") == (first,)
    (second,) = followers.choose([first], others, 11, owner="")
    assert second != first
    drained = {**standbys(*NODES), first: "draining"}
    assert followers.choose([first], drained, 12, owner="") == (second,)


def test_a_silent_follower_stays_if_nobody_can_replace_it() -> None:
    assert Followers(0, 2).choose(["a", "b"], standbys("b", "c"), 99, owner="c") == ("a", "b")


def test_former_followers_stay_until_all_new_ones_have_the_state() -> None:
    followers = Followers(0, 1)
    (first,) = followers.choose((), standbys(*NODES), 0, owner="")
    former = next(each for each in NODES if each != first)
    for role in ("watching", "reading"):
        roles = {**standbys(*NODES), first: role}
        assert set(followers.choose([former], roles, 1, owner="")) == {first, former}
    assert followers.choose([first, former], standbys(*NODES), 2, owner="") == (first,)


def test_an_heir_follows_beside_the_others() -> None:
    followers = Followers(0, 1)
    (first,) = followers.choose((), standbys(*NODES), 0, owner="")
    heir = next(each for each in NODES if each != first)
    assert set(followers.choose([first], standbys(*NODES), 1, owner="", heir=heir)) == {first, heir}
    assert followers.choose([first], standbys(*NODES), 1, owner="", heir="nobody") == (first,)
