"""The short form of the crash harness: some kills under load, with the real broker."""

import json
import sys
from pathlib import Path

import pytest
from _crash.ledger import Group, Ledger

from tests.support.scripts import run_script

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs SIGKILL, flock")


@pytest.mark.parametrize(("store", "seed"), [("journal", 3), ("sqlite", 4)])
def test_nothing_with_a_receipt_is_lost(store: str, seed: int, tmp_path: Path) -> None:
    if store == "sqlite":
        pytest.importorskip("sqlalchemy", reason="pip install 'trio-stomp[sql]'")
    result = run_script(
        "crash",
        *("--kills", "3", "--life", "0.6", "--seed", str(seed), "--store", store),
        *("--keep", str(tmp_path)),
    )
    assert result.stdout, result.stderr
    summary = json.loads(result.stdout)
    assert summary["first_violations"] == []
    assert result.returncode == 0
    assert summary["kills"] == 3
    assert summary["looks"] > 0
    assert summary["receipted"] > 0
    assert summary["deliveries"] >= summary["receipted"] - summary["auto_lost_on_their_way"]


class TestTheLedger:
    """The judge itself: each kind of violation is found."""

    @pytest.fixture
    def ledger(self):
        ledger = Ledger(lazy_s=1.0, life=1)
        for name in ("a", "hop", "hop2"):
            ledger.track(name)
        ledger.track("auto", is_sure=False)
        return ledger

    def send(self, ledger, name: str, count: int) -> None:
        for _ in range(count):
            number = ledger.tracks[name].new()
            ledger.tracks[name].receipted[number] = 1

    def found(self, ledger) -> str:
        ledger.judge()
        return " | ".join(ledger.violations)

    def test_all_is_well(self, ledger) -> None:
        self.send(ledger, "a", 2)
        ledger.deliver("a", 0, is_marked=False)
        ledger.life = 2
        ledger.deliver("a", 0, is_marked=True)
        ledger.deliver("a", 1, is_marked=False)
        assert ledger.is_drained()
        assert self.found(ledger) == ""
        assert (ledger.duplicates, ledger.unmarked) == (1, 0)

    def test_a_loss(self, ledger) -> None:
        self.send(ledger, "a", 1)
        assert not ledger.is_drained()
        assert "a 0 had a RECEIPT, but is lost" in self.found(ledger)

    def test_a_message_after_the_receipt_of_its_ack(self, ledger) -> None:
        self.send(ledger, "a", 1)
        ledger.deliver("a", 0, is_marked=False)
        ledger.tracks["a"].acked[0] = 1
        ledger.life = 2
        ledger.deliver("a", 0, is_marked=True)
        assert "a 0 arrived after the RECEIPT of its ACK" in self.found(ledger)

    def test_a_message_twice_without_a_kill(self, ledger) -> None:
        self.send(ledger, "a", 1)
        ledger.deliver("a", 0, is_marked=False)
        ledger.deliver("a", 0, is_marked=False)
        assert "a 0 arrived twice" in self.found(ledger)

    def test_a_message_that_was_never_sent(self, ledger) -> None:
        ledger.deliver("a", 0, is_marked=False)
        assert "never sent" in self.found(ledger)

    @pytest.mark.parametrize(
        ("held", "text"),
        [
            ([0, 1, 2], ""),
            ([0, 1, 2, 3], ""),  # whose RECEIPT did not arrive
            ([0, 2], "a 1 had a RECEIPT, but is not in the store"),
            ([0, 2, 1], "a is in the store twice, or out of order"),
            ([0, 1, 1, 2], "a is in the store twice, or out of order"),
        ],
    )
    def test_unconsumed_messages_are_in_the_store(self, ledger, held: list[int], text: str) -> None:
        self.send(ledger, "a", 3)
        ledger.tracks["a"].new()
        ledger.look("a", held)
        assert " | ".join(ledger.violations).removeprefix("life 1: ") == text

    def test_auto_may_lose_at_a_kill_alone(self, ledger) -> None:
        self.send(ledger, "auto", 5)
        ledger.deliver("auto", 0, is_marked=False)
        ledger.life = 2
        ledger.deliver("auto", 2, is_marked=False)
        ledger.deliver("auto", 4, is_marked=False)
        assert self.found(ledger) == "life 2: auto 3 had a RECEIPT, but is lost"
        assert ledger.auto_lost == 1

    def test_auto_may_lose_the_last_at_the_last_kill(self, ledger) -> None:
        self.send(ledger, "auto", 3)
        ledger.deliver("auto", 0, is_marked=False)
        ledger.life = 2
        assert self.found(ledger) == ""
        assert ledger.auto_lost == 2

    def test_auto_may_not_lose_the_last_after_the_last_kill(self, ledger) -> None:
        self.send(ledger, "auto", 3)
        ledger.deliver("auto", 0, is_marked=False)
        ledger.life = 2
        ledger.deliver("auto", 1, is_marked=False)
        assert self.found(ledger) == "life 2: auto 2 had a RECEIPT, but is lost"

    def test_auto_may_lose_nothing_before_the_first_kill(self, ledger) -> None:
        self.send(ledger, "auto", 3)
        ledger.deliver("auto", 1, is_marked=False)
        found = self.found(ledger).split(" | ")
        assert [each.split()[3] for each in found] == ["0", "2"]
        assert ledger.auto_lost == 0

    @pytest.mark.parametrize(
        ("state", "came", "text"),
        [
            ("committed", 0, "a transaction had a RECEIPT, but is lost"),
            ("committed", 1, "1 of 2 of a transaction came"),
            ("committing", 1, "1 of 2 of a transaction came"),
            ("aborted", 2, "2 of a transaction aborted came"),
            ("open", 1, "1 of a transaction open came"),
            ("committed", 2, ""),
            ("committing", 0, ""),
            ("open", 0, ""),
        ],
    )
    def test_transactions_are_all_or_nothing(
        self, ledger, state: str, came: int, text: str
    ) -> None:
        for _ in range(2):
            ledger.tracks["a"].new()
        ledger.tracks["a"].groups.append(Group(0, 2, state))
        for number in range(came):
            ledger.deliver("a", number, is_marked=False)
        assert self.found(ledger).removeprefix("life 1: a: ") == text

    def test_a_message_that_was_moved_twice(self, ledger) -> None:
        self.send(ledger, "hop", 1)
        ledger.deliver("hop", 0, is_marked=False)
        for number in range(2):
            ledger.tracks["hop2"].new()
            ledger.tracks["hop2"].groups.append(Group(number, 1, "committing", 0))
            ledger.deliver("hop2", number, is_marked=False)
        assert self.found(ledger) == "life 1: hop 0 was moved 2 times"
