"""The plan as it is printed: for people a page, for `up` a few lines, for programs JSON without secrets."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from kit.golden import PROFILES
from kit.plans import plan_of
from msgspec.structs import replace

from liverl.model import Inert
from liverl.plan.render import plan_brief, plan_json, plan_text
from liverl.plan.spec import (
    Dependency,
    EnvironmentSpec,
    FileSpec,
    Plan,
    PortSpec,
    Probe,
    Probes,
    RayPlan,
    RestartPolicy,
    ServiceSpec,
    StopStage,
)

SERVICE = ServiceSpec(
    name="toy",
    kind="task",
    argv=("/bin/echo", "two words", "$x"),
    env={"B": "2", "A": "1"},
    depends_on=(Dependency("ready", "ray"), Dependency("all_ready", "replica", 0)),
    ports=(PortSpec("http", 80), PortSpec("any"), PortSpec("kept", 81, "0.0.0.0", held=True)),
    probes=Probes(
        Probe("log_line", pattern="go"), 12.5, ready=Probe("http"), live=Probe("http", path="/l", failures=6)
    ),
    restart=RestartPolicy("on_failure", 1.5, 60.0, 0.2, 300.0, 5, 60.0),
    stop=(StopStage("INT", "leader", 2.5), StopStage("KILL", "tree", 5.0)),
    drain=(StopStage("USR1", "leader", 99.0),),
    gpus=2,
    files=(FileSpec("a/b", "text"),),
    ends_run=True,
)
WHOLE = """\
toy  (task)
  command   /bin/echo 'two words' '$x'
  env       A=1 B=2
  port      http: 127.0.0.1:80
  port      any: 127.0.0.1:any free port, chosen at each start
  port      kept: 0.0.0.0:81, the run holds the listening socket
  gpus      2
  after     ray: ready
  after     replica: all ready (0)
  ready     a line in its log matches 'go', within 12.5 s
  alive     GET /l returns 200, 6 failures cause a restart
  restart   on failure, immediately, then with delays from 1.5 s, doubled up to 60 s; more than 5 in 300 s: gives up
  stop      INT leader 2.5 s, KILL tree 5 s
  replaced  USR1 leader 99 s
  file      a/b (4 bytes)
  the run ends when this service exits
"""
BARE = """\
toy  (task)
  command   a
  ready     the process exists, within 2700 s
  restart   never
  stop      TERM leader 10 s, TERM tree 5 s, KILL tree 5 s
"""


def of(*services: ServiceSpec, **fields: Any) -> Plan:
    empty = Plan("p/n", "/r/p/n", "managed", (), services, None, expected_replicas=1)
    return replace(empty, **fields)


HEAD = """\
run        p/n
directory  /r/p/n
topology   managed: 1 replica
"""


def test_a_service_with_everything() -> None:
    assert plan_text(of(SERVICE)) == f"{HEAD}\n{WHOLE}"


def test_a_service_with_nothing() -> None:
    bare = ServiceSpec("toy", "task", ("a",), restart=RestartPolicy(mode="never"))
    assert plan_text(of(bare)) == f"{HEAD}\n{BARE}"


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (Probe("http", path="/v"), "GET /v returns 200"),
        (Probe("completion"), "a test completion succeeds"),
        (Probe("log_line", pattern="a b"), "a line in its log matches 'a b'"),
        (Probe("status_file", path="f", pattern="up"), "f has state 'up'"),
        (Probe("process"), "the process exists"),
    ],
)
def test_each_probe_in_words(probe: Probe, words: str) -> None:
    page = plan_text(of(ServiceSpec("toy", "task", ("a",), probes=Probes(probe))))
    assert f"  ready     {words}, within 2700 s\n" in page


def test_the_head_counts_replicas_and_steps_and_names_environments() -> None:
    environments = (
        EnvironmentSpec("a", ("x==1", "y"), None),
        EnvironmentSpec("b", ("z",), "/venv"),
    )
    lines = plan_text(of(total_steps=7, expected_replicas=3, environments=environments)).splitlines()
    assert lines[2:5] == [
        "topology   managed: 3 replicas, 7 steps",
        "env        a: x==1 y",
        "env        b: /venv",
    ]


def test_one_of_a_kind_is_not_many() -> None:
    assert "managed: 1 replica, 1 step\n" in plan_text(of(total_steps=1))


def test_the_replicas_come_first_and_are_counted() -> None:
    replica = ServiceSpec("replica-{index}", "replica", ("a",))
    page = plan_text(of(SERVICE, replica_template=replica, expected_replicas=4)).splitlines()
    assert [line for line in page if line.endswith((")", "))")) and not line.startswith(" ")] == [
        "replica-{index} x 4  (replica)",
        "toy  (task)",
    ]


def test_keys_without_effect_are_grouped_by_reason_and_those_that_were_set_stand_alone() -> None:
    inert = (
        *(Inert("a.b", "no pods"), Inert("a.c", "no pods"), Inert("d", "no Ray")),
        Inert("e.f", "no pods", 3, "c.yaml:7"),
    )
    expected = """
inert here (4 keys; 1 of them set by you)
  e.f: inert here: no pods  [c.yaml:7]
  no pods:
    a.b, a.c
  no Ray:
    d
warning: mind
"""
    assert plan_text(of(inert=inert, warnings=("mind",))) == HEAD + expected
    short = plan_text(of(inert=inert), every_key=False).splitlines()
    assert short[-2:] == [
        "  e.f: inert here: no pods  [c.yaml:7]",
        "  3 keys that you did not set: liverl-tui plan --all lists them with reasons",
    ]
    assert plan_text(of(inert=inert[:0]), every_key=False) == HEAD


def test_long_lists_of_keys_are_wrapped() -> None:
    keys = [f"section.key{n}" for n in range(40)]
    page = plan_text(of(inert=tuple(Inert(key, "no pods") for key in keys))).splitlines()
    lines = page[page.index("  no pods:") + 1 :]
    assert ", ".join(line.strip().rstrip(",") for line in lines) == ", ".join(keys)
    assert all(line.startswith("    section.") and len(line) <= 110 for line in lines)
    assert 3 < len(lines) < 8


@pytest.mark.parametrize(("width", "lines"), [(110, 1), (111, 2)])
def test_a_line_of_keys_is_at_most_110_columns_wide(width: int, lines: int) -> None:
    keys = ("a" * 50, "b" * (width - 4 - 50 - 2))  # the indentation, the first key and ", "
    page = plan_text(of(inert=tuple(Inert(key, "no pods") for key in keys))).splitlines()
    assert len(page[page.index("  no pods:") + 1 :]) == lines


def test_without_such_keys_nothing_is_said_of_them() -> None:
    assert plan_text(of()) == HEAD


# --- what starting takes ------------------------------------------------------------------------------------


def test_what_starting_takes() -> None:
    one, two = ServiceSpec("replica-{index}", "replica", ("a",), gpus=1), replace(SERVICE, gpus=1, name="x")
    plan = of(SERVICE, two, ServiceSpec("y", "task", ("a",)), replica_template=one, expected_replicas=3)
    assert plan_brief(replace(plan, warnings=("mind",))).splitlines()[3:] == [
        "starts     3 replicas: 3 GPUs",
        "starts     toy: 2 GPUs, http 127.0.0.1:80, kept 0.0.0.0:81",
        "starts     x: 1 GPU, http 127.0.0.1:80, kept 0.0.0.0:81",
        "starts     y",
        "warning: mind",
    ]
    alone = plan_brief(replace(plan, expected_replicas=1)).splitlines()[3]
    assert alone == "starts     1 replica: 1 GPU"
    many = plan_brief(replace(plan, replica_template=replace(one, gpus=4))).splitlines()[3]
    assert many == "starts     3 replicas: 12 GPUs"


@pytest.mark.parametrize(
    ("owner", "address", "said"), [("foreign", "h:1", True), ("foreign", "", False), ("ours", "h:1", False)]
)
def test_a_cluster_that_is_used_and_not_started_is_named(owner: Any, address: str, said: bool) -> None:
    ray = RayPlan(owner, address, "d", "", "", "", 1, 1.0, 1.0, 1.0)
    page = plan_brief(of(ray=ray))
    assert ("uses       the existing Ray cluster h:1\n" in page) == said
    assert page.count("\n") == 3 + said


# --- JSON and secrets -----------------------------------------------------------------------------------------

_ENV = {
    "MY_API_KEY": "s3cr3t",
    "a_token": "s3cr3t",
    "CLIENT_SECRET": "s3cr3t",
    "Password": "s3cr3t",
    "AWS_CREDENTIALS": "s3cr3t",
    "RAY_AUTH_TOKEN_PATH": "/t",
    "KEY_FILE": "/k",
    "PLAIN": "shown",
}
_SHOWN = {name: "***" if value == "s3cr3t" else value for name, value in _ENV.items()}


def test_no_variable_with_a_secrets_name_is_shown_and_places_of_secrets_are() -> None:
    spec = ServiceSpec("toy", "task", ("a",), env=_ENV)
    plan = of(spec, replica_template=replace(spec, name="replica-{index}"))
    shown = json.loads(plan_json(plan))
    assert shown["services"][0]["env"] == shown["replica_template"]["env"] == _SHOWN
    for text in (plan_json(plan), plan_text(plan), plan_brief(plan)):
        assert "s3cr3t" not in text
    assert "RAY_AUTH_TOKEN_PATH=/t" in plan_text(plan)
    assert plan.services[0].env == _ENV, "the plan that is started keeps them"


@pytest.mark.parametrize("profile", PROFILES)
def test_json_is_the_plan_indented(profile: str) -> None:
    plan = plan_of(profile=profile)
    text = plan_json(plan)
    assert json.loads(text) == {
        **json.loads(msgspec.json.encode(plan)),
        "inert_set_by_user": 0,
        "checks": [],
        "withheld": {},
    }
    assert text.startswith('{\n  "run": "p/n",\n')
    assert json.loads(plan_json(of()))["replica_template"] is None
