"""Plans of earlier versions: what they name is found in this one."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from kit.older_runs import VERSIONS, Restored
from msgspec.structs import replace

import liverl
from liverl.config import load_config, resolved
from liverl.daemon.service_detail import filed_detail
from liverl.plan import make_plan, moved
from liverl.plan.moved import MODULES, SCRIPTS, read_plan, with_present_names
from liverl.plan.spec import FileSpec, Plan, RayPlan, ServiceSpec

PACKAGE = Path(liverl.__file__).parent
ELSEWHERE = "/of/an/earlier/version/liverl"  # where the version was installed that made the plan
RECORDED = [path for version in VERSIONS for path in sorted(version.rglob("plan*.json"))]


def recorded(path: Path) -> bytes:
    return path.read_text().replace("<package>", ELSEWHERE).encode()


def services(plan: Plan) -> list[ServiceSpec]:
    return [*plan.services, *([plan.replica_template] if plan.replica_template else [])]


def texts(plan: Plan) -> Iterator[str]:
    """All that a plan can name a module or a script in."""
    for spec in services(plan):
        yield from (*spec.argv, *spec.env.values(), *(file.text for file in spec.files))
    yield from plan.ray.child_env.values() if plan.ray is not None else ()


def modules(plan: Plan) -> set[str]:
    """The modules of ours that a plan names. A name with a capital is that of a class in one."""
    found = {name for text in texts(plan) for name in re.findall(r"(?<![\w./])liverl(?:\.\w+)+", text)}
    return {re.sub(r"\.[A-Z].*", "", name) for name in found}


def exists(module: str) -> bool:
    """Whether there is a file of it: a folder of compiled remains can be imported, too."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # a package that it would be in
        return False
    return spec is not None and spec.origin is not None


def test_the_recorded_plans_name_modules_and_scripts_of_ours() -> None:
    plans = [read_plan(recorded(path)) for path in RECORDED]
    # The engine, the trainer, and for verl: its agent loop, the plugins cpu and standalone, the maker of the smoke run.
    assert len({name for plan in plans for name in modules(plan)}) == 6
    assert sum(text.endswith("/proxy/runtime/runner.py") for plan in plans for text in texts(plan)) == 2


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.relative_to(path.parents[2])))
def test_whatever_a_recorded_plan_names_is_found(path: Path) -> None:
    plan = read_plan(recorded(path))
    for name in sorted(modules(plan)):
        spec = importlib.util.find_spec(name)
        assert spec is not None, (
            f"{path} names {name}, which is no module: add its new name to plan.moved.MODULES"
        )
    for text in texts(plan):
        assert ELSEWHERE not in text, "this version may be installed at another place"
        for script in re.findall(rf"{re.escape(str(PACKAGE))}/[\w/]+\.py", text):
            assert Path(script).is_file(), (
                f"{path} names {script}, which is not there: see plan.moved.SCRIPTS"
            )


def test_what_has_moved_is_found_where_the_table_says() -> None:
    for then, now in MODULES.items():
        assert exists(f"liverl.{now}"), f"MODULES: there is no liverl.{now}"
        assert not exists(f"liverl.{then}"), f"MODULES: liverl.{then} is there, and new plans may name it"
    for script in SCRIPTS.values():
        assert (PACKAGE / script).is_file(), f"SCRIPTS: there is no {PACKAGE / script}"


@pytest.mark.parametrize("profile", [None, "cpu-verl", "h200-smoke", "liverl-gen1"])
def test_a_plan_of_this_version_stays_as_it_is(profile: str | None) -> None:
    env = {"HOME": "/home/user"}
    sets = ["data.train_index=/d/t.parquet"] if profile == "liverl-gen1" else []
    loaded = load_config(profile=profile, sets=sets, env=env)
    config = resolved(loaded.config, env=env, cwd=Path("/w"), now=0.0)
    plan = make_plan(replace(loaded, config=config), Path("/runs/p/n"))
    assert read_plan(msgspec.json.encode(plan)) == plan


def test_moved_names_are_replaced_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved, "MODULES", {"old": "new.place", "old.part": "elsewhere"})
    spec = ServiceSpec(
        name="a",
        kind="task",
        argv=("{python:self}", "-m", "liverl.old", "x=liverl.old.part.Class", "+env=liverl.older"),
        env={"IMPORTED": "liverl.old.part,my.liverl.old,liverl.oldest,/x/liverl.old"},
        files=(
            FileSpec("f", "[g]\nliverl.old = 'liverl.old.inner'"),
            FileSpec("x/other/__init__.py", "pass"),
        ),
    )
    (found,) = services(with_present_names(a_plan(spec)))
    assert found.argv == spec.argv[:2] + ("liverl.new.place", "x=liverl.elsewhere.Class", "+env=liverl.older")
    assert found.env == {"IMPORTED": "liverl.elsewhere,my.liverl.old,liverl.oldest,/x/liverl.old"}
    assert [file.text for file in found.files] == ["[g]\nliverl.new.place = 'liverl.new.place.inner'", "pass"]
    assert with_present_names(a_plan(template=spec)).replica_template == found
    ray = RayPlan("ours", "", "", "", "", "", 1, 1.0, 1.0, 1.0, child_env={"A": "liverl.old"})
    found_ray = with_present_names(replace(a_plan(), ray=ray)).ray
    assert found_ray is not None and found_ray.child_env == {"A": "liverl.new.place"}


def test_a_script_of_another_installation_becomes_that_of_this_one() -> None:
    spec = ServiceSpec(
        name="a",
        kind="task",
        argv=(f"{ELSEWHERE}/proxy/runtime/runner.py", "/mine/proxy/runtime/runner.py"),
        files=(FileSpec("trainer/path/liverl/__init__.py", f"__path__ = ['{ELSEWHERE}']\n"),),
    )
    (found,) = services(with_present_names(a_plan(spec)))
    assert found.argv == (str(PACKAGE / "proxy/runtime/runner.py"), "/mine/proxy/runtime/runner.py")
    assert found.files == (replace(spec.files[0], text=f"__path__ = [{str(PACKAGE)!r}]\n"),)


def test_a_service_is_shown_as_it_would_be_started_now(tmp_path: Path) -> None:
    for version in VERSIONS:
        run = Restored(version / "done", tmp_path / version.name, package=ELSEWHERE).write()
        detail = filed_detail(run.run_dir, "proxy")
        assert detail is not None
        assert detail.argv[-1] == str(PACKAGE / "proxy/runtime/runner.py")


def a_plan(*specs: ServiceSpec, template: ServiceSpec | None = None) -> Plan:
    return Plan("p/r", "/runs/p/r", "managed", (), specs, template, 0)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", json.dumps({"run": 1}).encode()])
def test_what_is_no_plan_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_plan(data)
