"""The JSON of a snapshot is flat, inside a replica nests its engine; both directions go by the structs' fields."""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.screens import replica, snapshot

from liverl.control.messages import ProtocolMismatch, decode_incoming, encode_line
from liverl.model import EngineFacts, Evidence, ReplicaSet, ReplicaStatus, Symptom, published_facts
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import decode_snapshot, encode_snapshot, plain_snapshot

RECORDED = Path(__file__).parents[1] / "data" / "recordings" / "h200_run" / "snapshots.jsonl"
COMPAT = Path(__file__).parents[1] / "data" / "compat"
FACTS = EngineFacts.__struct_fields__
# The fields of a replica in `status --json` and snapshot.json: scripts read them.
PUBLISHED = {
    *("name", "state", "address", "listed", "generation", "restarts", "gpus", "policy_version", "running"),
    *("waiting", "kv_cache_usage", "generation_tokens_total", "prompt_tokens_total", "tokens_per_s"),
    *("prefix_cache_hit_rate", "request_success_total", "since", "stage", "progress", "kind", "idle_for"),
    *(
        "leaving",
        "why",
        "pid",
        "activity",
        "activity_since",
        "policy_changed",
        "node",
        "tool_calls_total",
        "max_concurrency",
    ),
    *("answers", "seconds_per_answer", "seconds_per_token"),
}


def value_of(kind: Any) -> st.SearchStrategy[Any]:
    kinds = {part for arg in typing.get_args(kind) or (kind,) for part in (arg, *typing.get_args(arg))}
    known = {str: st.text(max_size=5), int: st.integers(0, 9), float: st.floats(0, 1e6)}
    return st.one_of(st.none(), *(strategy for own, strategy in known.items() if own in kinds))


def engines() -> st.SearchStrategy[EngineFacts]:
    """What goes over the socket; the rest stays in the backend."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(EngineFacts)}
    fields = {name: value_of(kinds[name]) for name in published_facts()}
    return st.builds(EngineFacts, **fields)


@given(st.lists(engines(), max_size=3))
def test_what_is_written_is_read_back(known: list[EngineFacts]) -> None:
    items = tuple(msgspec.structs.replace(replica(i), engine=facts) for i, facts in enumerate(known))
    shown = snapshot(replicas=ReplicaSet(4, 1, 1, items))
    assert decode_snapshot(encode_snapshot(shown)) == shown
    assert json.loads(json.dumps(plain_snapshot(shown))) == json.loads(encode_snapshot(shown))


def test_a_replica_is_flat_in_json() -> None:
    (item,) = json.loads(encode_snapshot(snapshot(replicas=ReplicaSet(1, 1, 1, (replica(0),)))))["replicas"][
        "items"
    ]
    assert item.keys() == PUBLISHED
    assert (item["running"], item["policy_version"], item["name"]) == (3.0, 7, "r0")


def test_no_fact_is_called_like_a_field_of_the_replica() -> None:
    assert not {*FACTS} & {*ReplicaStatus.__struct_fields__}


def test_what_an_older_version_wrote_is_read(tmp_path: Path) -> None:
    """Flat, and without the facts that are newer than it."""
    old = [json.loads(line) for line in RECORDED.read_bytes().splitlines()]
    assert len(old) == 3
    for told, line in zip(old, RECORDED.read_bytes().splitlines(), strict=True):
        RunDir(tmp_path).snapshot.write_bytes(line)
        shown = RunDir(tmp_path).read_snapshot()
        assert shown is not None and len(shown.replicas.items) == len(told["replicas"]["items"]) > 0
        for item, fields in zip(shown.replicas.items, told["replicas"]["items"], strict=True):
            assert "kv_blocks" not in fields and item.engine.kv_blocks is None
            flat = {name: getattr(item.engine if name in FACTS else item, name) for name in fields}
            assert json.loads(json.dumps(flat)) == fields


def test_evidence_of_an_older_version_is_read_from_its_text(tmp_path: Path) -> None:
    failed = COMPAT / "2026-11-21" / "failed" / "snapshot.json"
    RunDir(tmp_path).snapshot.write_bytes(failed.read_bytes())
    shown = RunDir(tmp_path).read_snapshot()
    assert shown is not None and [s.evidence for s in shown.symptoms] == [
        (
            Evidence("ValueError: the toy cannot go on", "attempt_001/logs/task.1.log", 213),
            Evidence("task: exit 1"),
        )
    ]
    assert decode_snapshot(encode_snapshot(shown)) == shown


@pytest.mark.parametrize(
    ("line", "evidence"),
    [
        ("attempt_002/logs/my.a.1.log", Evidence("", "attempt_002/logs/my.a.1.log")),
        ("attempt_002/logs/a.1.log at byte 0: x\ny: z", Evidence("x\ny: z", "attempt_002/logs/a.1.log", 0)),
        ("attempt_002/logs/a.1.log at byte -1: x", None),
        ("see attempt_002/logs/a.1.log", None),
        ("attempt_002/logs/a.1.log is missing", None),
        ("trials/step_0007/sort-1: reward 0", None),
        ("", None),
    ],
)
def test_a_line_of_evidence_of_an_older_version(line: str, evidence: Evidence | None) -> None:
    plain = plain_snapshot(snapshot(symptoms=(Symptom("a", "info", "t", "c", "f"),)))
    plain["symptoms"][0]["evidence"] = [line]
    (symptom,) = decode_snapshot(json.dumps(plain).encode()).symptoms
    assert symptom.evidence == (evidence or Evidence(line),)


def test_evidence_is_written_without_what_is_unknown() -> None:
    known = (Evidence("x", "a.log", 7, 0.5), Evidence("y"))
    shown = snapshot(symptoms=(Symptom("a", "info", "t", "c", "f", known, since=1.0, patch={"a.b": "1"}),))
    written = json.loads(encode_snapshot(shown))["symptoms"][0]["evidence"]
    assert written == [{"text": "x", "log": "a.log", "offset": 7, "value": 0.5}, {"text": "y"}]
    assert decode_snapshot(encode_snapshot(shown)) == shown


def test_a_snapshot_on_the_socket_is_flat_and_read_back() -> None:
    shown = snapshot(replicas=ReplicaSet(1, 1, 1, (replica(0),)))
    line = encode_line({"snapshot": msgspec.Raw(encode_snapshot(shown))})
    assert decode_incoming(line).snapshot == shown
    assert decode_incoming(b'{"id": 1, "ok": {}}').snapshot is None
    with pytest.raises(ProtocolMismatch):
        decode_incoming(b'{"snapshot": {"seq": "one"}}')


@pytest.mark.parametrize(
    "damage",
    [
        lambda plain: plain["replicas"]["items"][0].update(running="many"),
        lambda plain: plain["replicas"]["items"][0].pop("name"),
        lambda plain: plain.pop("run"),
    ],
)
def test_what_is_no_snapshot_is_refused(damage: types.FunctionType) -> None:
    plain = plain_snapshot(snapshot(replicas=ReplicaSet(1, 1, 1, (replica(0),))))
    damage(plain)
    with pytest.raises(msgspec.ValidationError):
        decode_snapshot(json.dumps(plain).encode())


def test_what_lasts_when_nobody_asks_the_engine() -> None:
    values = {field.name: 1 for field in msgspec.structs.fields(EngineFacts)}
    left = EngineFacts(**values).lasting()  # type: ignore[arg-type]
    gone = {name for name in FACTS if getattr(left, name) is None}
    assert gone == {
        *("running", "waiting", "kv_cache_usage", "tokens_per_s", "prefix_cache_hit_rate"),
        *("answers", "seconds_per_answer", "seconds_per_token"),
        *("sleep_state", "updates_in_flight", "sleeps_in_flight", "policy_version"),
    }


def test_an_empty_list_of_replicas_may_be_missing() -> None:
    plain = plain_snapshot(snapshot())
    del plain["replicas"]
    assert decode_snapshot(json.dumps(plain).encode()).replicas == ReplicaSet()
