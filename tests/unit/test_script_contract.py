"""What the code says that scripts may rely on is what ``tests/data/contract.json`` says; ``kit.contract`` explains it.
The outputs of a real run are held against it in ``tests/process/test_script_contract_run.py``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit import contract
from kit.contract import ON_PURPOSE, differences, fields, introspected, problems, stored

from liverl.config import load_config, resolved
from liverl.embedded.trainer.history import MetricsFiles
from liverl.observe.history import FILE, OLDER
from liverl.plan import make_plan
from liverl.plan.render import plan_json
from liverl.rundir.layout import RunDir


@pytest.mark.parametrize("part", ["schema", "protocol", "commands", "outputs"])
def test_the_code_says_what_the_contract_says(part: str) -> None:
    now, then = introspected()[part], stored()[part]
    if part == "outputs":
        then = {name: shape for name, shape in then.items() if name in now}
    assert now == then, "\n".join([ON_PURPOSE, *differences(now, then, part)])


def test_the_files_of_a_run_directory() -> None:
    run = RunDir(Path("/run"))
    names = [name for name, found in vars(RunDir).items() if isinstance(found, property) and name != "name"]
    paths = {str(getattr(run, name).relative_to("/run")) for name in names}
    paths |= {str(run.logs(1).relative_to("/run")).replace("001", "NNN"), FILE, OLDER}
    known = {part for path in stored()["files"] for part in (path, *map(str, Path(path).parents))}
    assert paths - known == set(), ON_PURPOSE
    tops = {path.partition("/")[0] for path in paths}
    others = {"exits", "keeper.log", "keeper.sock"}  # of the keeper, which is a script of its own
    assert {path.partition("/")[0] for path in stored()["files"]} - tops == others, ON_PURPOSE


def test_the_exit_codes() -> None:
    """Their meanings may be worded otherwise."""
    assert introspected()["exit_codes"].keys() == stored()["exit_codes"].keys(), ON_PURPOSE


def test_a_line_of_the_trainers_metrics(tmp_path: Path) -> None:
    (tmp_path / "attempt_001").mkdir()
    metrics = MetricsFiles(tmp_path, tmp_path / "attempt_001")
    metrics.append(1, {"critic/score/mean": 0.5, "actor/grad_norm": math.nan, "training/global_step": 1})
    for path in (tmp_path / "metrics.jsonl", tmp_path / "attempt_001" / "metrics.jsonl"):
        (line,) = path.read_text().splitlines()
        assert list(problems(json.loads(line), contract.output("metrics.jsonl"))) == [], ON_PURPOSE


@pytest.mark.parametrize("profile", [None, "cpu-verl", "h200-smoke"])
def test_a_plan_as_it_is_printed(profile: str | None) -> None:
    env = {"HOME": "/home/user"}
    loaded = load_config(profile=profile, sets=["run.name=n"], env=env)
    config = resolved(loaded.config, env=env, cwd=Path("/w"), now=0.0)
    plan = make_plan(msgspec.structs.replace(loaded, config=config), Path("/runs/p/n"))
    assert list(problems(json.loads(plan_json(plan)), contract.output("plan --json"))) == [], ON_PURPOSE


# --- what the comparison sees -------------------------------------------------------------------------


class Inner(msgspec.Struct, omit_defaults=True):
    x: int
    y: float | None = None


class Outer(msgspec.Struct):
    name: str
    kind: str | None
    inner: Inner
    many: tuple[Inner, ...] = ()
    by_name: dict[str, float] = {}


SHAPE = {
    "": "object",
    "name": "text",
    "kind": "null|text",
    "inner": "object",
    "inner.x": "int",
    "inner.y?": "null|number",
    "many": "array",
    "many[]": "object",
    "many[].x": "int",
    "many[].y?": "null|number",
    "by_name": "map",
    "by_name{}": "number",
}
GOOD = {"name": "a", "kind": None, "inner": {"x": 1}, "many": [{"x": 1, "y": 2.0}], "by_name": {"b": 1}}


def test_the_shape_of_a_type() -> None:
    found = dict(fields(Outer))
    assert found.keys() == SHAPE.keys()
    assert {path: set(word.split("|")) for path, word in found.items()} == {
        path: set(word.split("|")) for path, word in SHAPE.items()
    }


def test_a_value_of_the_shape_has_no_problems() -> None:
    assert list(problems(GOOD, SHAPE)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": 1}, "name is 1, not text"),
        ({"name": None}, "name is null, not text"),
        ({"kind": True}, "kind is true, not null|text"),
        ({"inner": {}}, "inner.x is missing"),
        ({"inner": {"x": 1.5}}, "inner.x is 1.5, not int"),
        ({"inner": {"x": 1, "z": 2}}, "inner.z is not in the contract"),
        ({"inner": None}, "inner is null, not object"),
        ({"many": [{"x": 1}, {"y": 1}]}, "many[].x is missing"),
        ({"many": {}}, "many is {}, not array"),
        ({"by_name": {"b": "1"}}, 'by_name{} is "1", not number'),
        ({"more": 1}, "more is not in the contract"),
    ],
)
def test_whatever_is_not_of_the_shape_is_named(change: dict[str, Any], problem: str) -> None:
    assert list(problems(GOOD | change, SHAPE)) == [problem]


def test_a_field_that_is_gone_is_named() -> None:
    assert list(problems({k: v for k, v in GOOD.items() if k != "many"}, SHAPE)) == ["many is missing"]


def test_differences_are_named_by_their_place() -> None:
    assert list(differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 2, "d": 3}}, "p")) == [
        "p / a / b: 2 has become 1",
        "p / a / c: new (2)",
        "p / a / d: gone (it was 3)",
    ]
