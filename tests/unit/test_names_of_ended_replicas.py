"""The names of replicas of verl's that have ended, which have no address any more."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from kit.screens import replica, snapshot, trial

from liverl.model import Event, ReplicaSet
from liverl.observe.trials.replica_names import replica_name
from liverl.offline.replica_names import names_of
from liverl.offline.trials import TrialShown
from liverl.verl.discovery.assess import Rank
from liverl.verl.discovery.rank_events import changes
from liverl_tui.cli.trials_table import shown_lines
from liverl_tui.widgets.base.trial_words import replica_names as of_lists

OLD, NEW = "http://10.0.0.1:39371", "http://10.0.0.1:44391"


def told(run_dir: Path, address: str, seq: int) -> None:
    """What the backend writes when the replica is there."""
    rank = Rank(0, "vllm_server_0_0", "missing", "", 0.0)
    texts = [
        text
        for text, _ in changes(rank, msgspec.structs.replace(rank, stage="addressed", address=address), 9.0)
    ]
    assert any(address in text for text in texts)
    with (run_dir / "events.jsonl").open("ab") as file:
        for text in texts:
            file.write(
                msgspec.json.encode(Event(seq, 1.0, "discovery", text, service="vllm_server_0_0")) + b"\n"
            )


@pytest.mark.parametrize(
    ("state", "address", "generation"),
    [("stopped", None, 1), ("stopped", None, 2), ("ready", NEW, 2)],
    ids=["ended", "ended again", "started again"],
)
def test_trials_have_the_names_of_replicas_that_have_ended(
    tmp_path: Path, state: str, address: str | None, generation: int
) -> None:
    """Lists, the trial itself and the events said vllm_server_0_0 or 10.0.0.1:39371, as the case was."""
    told(tmp_path, OLD, 1)
    told(tmp_path, NEW, 2)
    one = replica(0, state, name="vllm_server_0_0", address=address, kind="verl", generation=generation)
    seen = snapshot(replicas=ReplicaSet(1, 0, 0, (one,)), run_dir=str(tmp_path))
    for names in (names_of(seen), of_lists(seen)):
        assert [replica_name(f"{one}/v1", names) for one in (OLD, NEW)] == ["vllm_server_0_0"] * 2
        assert replica_name("http://10.0.0.9:1/v1", names) == "10.0.0.9:1", (
            "of another address nothing is known"
        )
    (head,) = (trial(1, replica=f"{OLD}/v1"),)
    shown = TrialShown("r", str(tmp_path), head, "", "", "", (), ())
    lines = shown_lines(shown, 0.0, names_of(seen))
    assert "replica:    vllm_server_0_0" in lines


def test_no_events_are_read_for_replicas_with_addresses(tmp_path: Path) -> None:
    told(tmp_path, OLD, 1)
    one = replica(0, "ready", name="vllm_server_0_0", address=NEW, kind="verl")
    seen = snapshot(replicas=ReplicaSet(1, 1, 1, (one,)), run_dir=str(tmp_path))
    assert OLD not in names_of(seen) and names_of(None) == {}
