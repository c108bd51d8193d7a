"""Which things of a Docker daemon are a run's: by its label, else by exact names. Never by the beginning of a name."""

from __future__ import annotations

from typing import Any

import pytest

from liverl.agents.harbor.owned import Entry
from liverl.sandboxes.docker import Kind, Thing
from liverl.sandboxes.whose import Place, owned, place_of, trials_of, without_worker

RUN, OTHER = "a" * 32, "b" * 32
BEGUN = Entry("begun", "t-1", RUN, "attempt_001", "t-1__env", ("main", "db"), {}, "here", 7, 70)


def thing(kind: Kind, **values: Any) -> Thing:
    return Thing(kind, "id", values.pop("name", "n"), **values)


@pytest.mark.parametrize(
    ("one", "trial"),
    [
        (thing("container", run_id=RUN, trial="t-1", project="t-1__env"), "t-1"),
        (thing("network", run_id=RUN, trial="t-9"), "t-9"),  # whose ledger is lost
        (thing("container", run_id=OTHER, trial="t-1", project="x__env"), None),
        (thing("container", project="t-1__env"), "t-1"),  # a service that got no label
        (thing("volume", project="t-1__env"), "t-1"),
        (thing("container", project="t-1__env2"), None),
        (thing("container", project="t-1__en"), None),
        (thing("container", name="t-1__env-main-1"), None),
        (thing("container"), None),
        (thing("image", name="t-1__env-main"), "t-1"),
        (thing("image", name="t-1__env-db"), "t-1"),
        (thing("image", name="t-1__env-main2"), None),
        (thing("image", name="t-1__env"), None),
        (thing("image", name="docker.io/t-1__env-main"), None),
    ],
)
def test_what_is_a_runs(one: Thing, trial: str | None) -> None:
    found = owned([one], RUN, trials_of([BEGUN], RUN))
    assert [each.trial for each in found] == ([] if trial is None else [trial])


def test_a_project_that_has_another_runs_label_is_not_ours() -> None:
    things = [
        thing("container", run_id=OTHER, project="t-1__env"),
        thing("network", project="t-1__env"),
        thing("image", name="t-1__env-main"),
    ]
    assert owned(things, RUN, trials_of([BEGUN], RUN)) == []


def test_the_image_of_a_separate_verifier_goes_with_its_container() -> None:
    project = "t-1__verifier__x"
    container = thing("container", run_id=RUN, trial="t-1", project=project, service="main")
    image = thing("image", name=f"{project}-main")
    assert [one.kind for one in owned([container, image], RUN, trials_of([BEGUN], RUN))] == [
        "container",
        "image",
    ]


def test_a_copied_ledger_names_nothing() -> None:
    assert trials_of([BEGUN], OTHER).begun == {} and trials_of([BEGUN], OTHER).open == frozenset()


@pytest.mark.parametrize(
    ("daemon", "place"),
    [
        ({}, Place((), "here")),
        ({"DOCKER_HOST": "unix:///x"}, Place((("DOCKER_HOST", "unix:///x"),), "here")),
        ({"DOCKER_HOST": "tcp://h:1"}, Place((("DOCKER_HOST", "tcp://h:1"),), "")),
        ({"DOCKER_CONTEXT": "c"}, Place((("DOCKER_CONTEXT", "c"),), "")),
    ],
)
def test_a_local_daemon_is_found_on_its_host_only(daemon: dict[str, str], place: Place) -> None:
    assert place_of(Entry("begun", "t", daemon=daemon, host="here")) == place


@pytest.mark.parametrize(
    ("more", "ticks", "lost"),
    [
        ((), {7: 70}, False),
        ((), {7: 71}, True),  # another process has its pid
        ((), {7: None}, True),
        ((Entry("lost", "t-1"),), {7: 70}, True),
        ((Entry("over", "t-1"),), {7: None}, False),
        ((Entry("lost", "t-1"), Entry("over", "t-1")), {7: None}, False),
    ],
)
def test_trials_that_nobody_will_end(
    more: tuple[Entry, ...], ticks: dict[int, int | None], lost: bool
) -> None:
    trials = trials_of([BEGUN, *more], RUN)
    assert without_worker(trials, "here", ticks) == ({"t-1"} if lost else set())
    if not more:
        assert without_worker(trials, "elsewhere", ticks) == set()
