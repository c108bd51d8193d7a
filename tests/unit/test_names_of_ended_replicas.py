"""The names of replicas of verl's that have ended, which have no address any more."""

from __future__ import annotations

from pathlib import Path

import msgspec
from kit.screens import replica, snapshot

from liverl.model import Event, ReplicaSet
from liverl.observe.trials.replica_names import replica_name
from liverl.offline.timeline_shown import names_of
from liverl.verl.discovery.assess import Rank
from liverl.verl.discovery.rank_events import changes

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


def test_the_timeline_of_an_ended_run_has_the_names_of_its_replicas(tmp_path: Path) -> None:
    """Every other screen said vllm_server_0_0, and the timeline 10.0.0.1:39371."""
    told(tmp_path, OLD, 1)
    told(tmp_path, NEW, 2)
    ended = replica(0, "stopped", name="vllm_server_0_0", address=None, kind="verl")
    names = names_of(tmp_path, snapshot(replicas=ReplicaSet(1, 0, 0, (ended,))))
    assert [replica_name(f"{one}/v1", names) for one in (OLD, NEW)] == ["vllm_server_0_0"] * 2
    assert replica_name("http://10.0.0.9:1/v1", names) == "10.0.0.9:1", "of another address nothing is known"
