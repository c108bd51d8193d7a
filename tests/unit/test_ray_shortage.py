"""What waits in a Ray cluster for resources: Ray's recorded answer, the sentence, and the alert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.live_logs import Followed
from kit.screens import snapshot

from liverl.causes.verdict.ray_shortage import RayLoad, shortage
from liverl.diagnose.catalogue.live_logs import logged
from liverl.diagnose.catalogue.ray_waits import actor_waits, group_waits
from liverl.diagnose.catalogue.rules import RULES
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import Symptom
from liverl.verl.discovery.ray_rest import parse_load

RECORDED = Path(__file__).parents[1] / "data/recordings/ray_rest/cluster_status.json"
# Of 7 CPUs two are held, while a placement group asks for 6 CPUs and 2 GPUs, and an actor for 6 CPUs.
REPORT = json.loads(RECORDED.read_text())["data"]["clusterStatus"]["loadMetricsReport"]
LOAD = parse_load(REPORT)


def test_the_recorded_load() -> None:
    assert (LOAD.used["CPU"], LOAD.total["CPU"], LOAD.total["GPU"]) == (2, 7, 2)
    assert LOAD.pending == ({"CPU": 6, "GPU": 2}, {"CPU": 6})


def test_it_is_told_what_is_asked_and_what_is_free() -> None:
    found = shortage(LOAD)
    assert found is not None
    assert found.title == "An actor waits for 6 CPUs and 2 GPUs, and Ray has 5 of 7 CPUs free"
    assert "at least 8 CPUs (ray start --num-cpus, ray.num_cpus)" in found.fix
    assert found.evidence[0].text == (
        "Ray's cluster status: 2 of 7 CPUs, 0 of 2 GPUs in use; pending: 6 CPUs and 2 GPUs; 6 CPUs"
    )


@pytest.mark.parametrize(
    ("used", "asked", "short"),
    [(2, 5, False), (2, 5.5, True), (2, 6, True), (7, 1, True), (0, 7, False)],
)
def test_what_fits_is_just_being_placed(used: float, asked: float, short: bool) -> None:
    load = RayLoad({"CPU": used}, {"CPU": 7}, ({"CPU": asked},))
    assert (shortage(load) is not None) == short


def test_the_request_that_does_not_fit_is_named() -> None:
    found = shortage(RayLoad({}, {"CPU": 7}, ({"CPU": 1}, {"accelerator": 1, "CPU": 2})))
    assert found is not None
    assert found.title == "An actor waits for 2 CPUs and 1 accelerator, and Ray has 0 of 0 accelerator free"
    assert "ray start --resources" in found.fix


@pytest.mark.parametrize(
    "report", [{}, {"usage": [], "pgDemand": {}}, {"pgDemand": [[1]], "resourceDemand": [[None, 1]]}]
)
def test_another_form_is_no_load(report: dict[str, object]) -> None:
    assert shortage(parse_load(report)) is None


AUTOSCALER = (
    "(autoscaler +26s) Error: No available node types can fulfill resource request defaultdict(<class 'float'>, "
    "{'CPU': 6.0, 'GPU': 2.0}). Add suitable node types to this cluster to resolve this issue."
)


def window(load: RayLoad | None, **fields: Any) -> Window:
    return Window(snapshot(**fields), None, RunContext(ray_load=load))


def test_an_alert_lasts_as_long_as_something_waits() -> None:
    (found,) = group_waits(window(LOAD))
    assert isinstance(found, Symptom) and found.severity == "critical"
    assert found.title.startswith("An actor waits for 6 CPUs") and found.evidence
    for other in (
        window(None),
        window(RayLoad(LOAD.used, LOAD.total)),
        window(LOAD, state="stopping"),
    ):
        assert [*group_waits(other), *actor_waits(other)] == []


def test_an_actor_that_waits_for_the_cpu_of_its_creation_is_given_more_time() -> None:
    """At a healthy start the creation of an actor takes ten seconds and more, in which others wait for its CPU."""
    full = {"CPU": 7.0}
    one, group = {"CPU": 1.0}, {"CPU": 3.0, "GPU": 1.0}
    alone = window(RayLoad(full, full, (one,)))
    assert (len(list(group_waits(alone))), len(list(actor_waits(alone)))) == (0, 1)
    both = window(RayLoad(full, {**full, "GPU": 2.0}, (one, group)))
    assert (len(list(group_waits(both))), len(list(actor_waits(both)))) == (1, 0), "the larger one is told"
    first = {rule.look: rule.hold for rule in RULES}
    assert first[group_waits] < 10 < first[actor_waits]


def test_the_autoscaler_says_the_same_only_if_ray_does_not(tmp_path: Path) -> None:
    run = Followed(tmp_path)
    run.write("trainer", "Total training steps: 4")
    run.look()
    run.write("trainer", AUTOSCALER)
    run.look()
    logs = run.look(10.0)

    def told(load: RayLoad | None) -> list[str]:
        context = RunContext(live_logs=logs, ray_load=load)
        return [found.id for found in logged(Window(run.snapshot(), None, context))]

    assert told(None) == ["log:ray-no-node-type:trainer"]
    assert told(LOAD) == []


def test_what_no_process_holds_is_all_free() -> None:
    found = shortage(RayLoad({}, {"CPU": 4.0}, ({"CPU": 6.0},)))
    assert found is not None
    assert found.title == "An actor waits for 6 CPUs, and Ray has 4 of 4 CPUs free"
    assert found.cause.startswith("0 of 4 CPUs of the cluster are in use.")
