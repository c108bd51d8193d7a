"""The check of a replica's token routes: what passes, what is refused for good, and in which words."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from kit.fake_vllm import TEXT, VERSIONS, environment
from kit.plans import plan_of, service
from kit.plans import replica as replica_of
from kit.token_replica import TokenReplica
from msgspec.structs import replace

from liverl.engines.vllm import SCALE_OUT
from liverl.environments.declared import CannotTell, declares
from liverl.plan.spec import Probe, RayPlan, StopStage
from liverl.sessions.routes import DERENDER, GENERATE, RENDER, RouteProblem, check_routes
from liverl.supervise.services import state_machine
from liverl.supervise.services.probes import Http, Refusal, Target, check
from liverl.verl.discovery.assess import Rank, RankVerdict, Stage
from liverl.verl.replicas import ENDING_S, VerlReplicas

DISABLED = (403, {"error": {"message": f"{TEXT}.", "code": 403}})
ABSENT = (404, {"detail": "Not Found"})


async def checked(replica: TokenReplica, *, sample: bool) -> RouteProblem | None:
    url = await replica.start()
    try:
        async with aiohttp.ClientSession() as http:

            async def post(path: str, body: Any) -> tuple[int, str]:
                async with http.post(url + path, json=body) as response:
                    return response.status, await response.text()

            return await check_routes(post, "m", sample=sample)
    finally:
        await replica.stop()


def replica(**refusals: tuple[int, Any]) -> TokenReplica:
    """One whose routes answer otherwise: render, generate, derender."""
    scripted = TokenReplica(lambda prompt, turn: "word")
    paths = {"render": RENDER, "generate": GENERATE, "derender": DERENDER}
    scripted.refusals = {paths[name]: answer for name, answer in refusals.items()}
    return scripted


@pytest.mark.parametrize("sample", [True, False])
async def test_a_replica_with_the_routes_passes(sample: bool) -> None:
    scripted = replica()
    assert await checked(scripted, sample=sample) is None
    assert len(scripted.replies) == sample, "one that may be asleep is not asked to sample"
    assert [len(ids) for ids in scripted.replies] == [1] * sample
    assert len(scripted.parsed) == 1


@pytest.mark.parametrize("sample", [True, False])
@pytest.mark.parametrize("name", ["render", "generate", "derender"])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            DISABLED,
            f"answered 403: {TEXT}; the trials go through sessions (proxy.trials_through), which need",
        ),
        (
            ABSENT,
            "answered 404: Not Found; the trials go through sessions (proxy.trials_through), which need",
        ),
    ],
)
async def test_each_route_is_needed(name: str, answer: Any, words: str, sample: bool) -> None:
    problem = await checked(replica(**{name: answer}), sample=sample)
    assert problem is not None and problem.final
    assert problem.route.endswith(name) and problem.words.startswith(f"POST {problem.route} {words}")
    assert "enable_scale_out" in problem.words and problem.words.endswith("proxy.trials_through to litellm")
    assert ("before 0.24" in problem.words) is (answer is ABSENT)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
async def test_a_replica_that_asks_to_come_later_is_not_refused(status: int) -> None:
    problem = await checked(replica(render=(status, {"detail": "busy"})), sample=True)
    assert problem is not None and not problem.final
    assert problem.words == f"POST {RENDER} answered {status}: busy"


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("render", {"tokens": [1]}, "missing required field `token_ids`"),
        ("render", {"token_ids": []}, "no token_ids"),
        ("generate", {"choices": []}, "not one token_id with its log-probability"),
        ("generate", {"choices": [{"token_ids": [1], "logprobs": None}]}, "Expected `object`, got `null`"),
        ("generate", {"choices": [{"token_ids": [1], "logprobs": {"content": []}}]}, "not one token_id"),
        ("derender", {"choices": []}, "no choices"),
    ],
)
async def test_an_answer_that_sessions_cannot_read_is_refused(name: str, body: Any, words: str) -> None:
    problem = await checked(replica(**{name: (200, body)}), sample=True)
    assert problem is not None and problem.final and words in problem.words


async def test_a_generate_route_that_takes_anything_is_none() -> None:
    problem = await checked(replica(generate=(200, {})), sample=False)
    assert problem is not None and problem.route == GENERATE and problem.status == 200


# --- the readiness check of our own replicas ----------------------------------------------------------------


@pytest.mark.parametrize(("answer", "final"), [(DISABLED, True), ((500, {"detail": "x"}), False)])
async def test_the_readiness_check_tells_refusals_from_waiting(
    tmp_path: Path, answer: tuple[int, Any], final: bool
) -> None:
    scripted = replica(generate=answer)
    scripted.refusals["/v1/chat/completions"] = (200, {"choices": [{}]})
    port = int((await scripted.start()).rpartition(":")[2])
    target = Target("127.0.0.1", {"http": port}, tmp_path / "log", 0, tmp_path, 1, 1)
    http = Http(partial(check_routes, sample=True))
    try:
        plain = Probe("completion", port="http", model="m")
        assert await check(plain, target, http) is None
        problem = await check(replace(plain, token_routes=True), target, http)
        assert problem is not None and GENERATE in problem and isinstance(problem, Refusal) is final
    finally:
        await http.close()
        await scripted.stop()


RULES = state_machine.RestartRules(stop=(StopStage("TERM", "leader", 1.0), StopStage("KILL", "tree", 1.0)))


def fed(*events: state_machine.Input, state: str = "starting") -> state_machine.MachineState:
    machine = state_machine.MachineState(state=state, generation=1, leader_gone=False)  # type: ignore[arg-type]
    for event in events:
        machine, _ = state_machine.step(machine, event, 1.0, RULES)
    return machine


def test_a_refused_start_ends_without_another_one() -> None:
    refused = state_machine.StartupRefused(1, "no such route")
    assert (fed(refused).state, fed(refused).why) == ("stopping", "no such route")
    gone = state_machine.LeaderExited(1, state_machine.Exit(signal=15)), state_machine.TreeEmpty(1)
    ended = fed(refused, *gone)
    assert (ended.state, ended.why, ended.refused) == ("failed", "no such route", True)
    assert not fed(refused).refused and not fed(*gone).refused
    assert fed(refused, *gone, state_machine.Start()).state == "waiting"
    assert fed(refused, state_machine.Stop(), *gone).state == "stopped"
    assert fed(refused, state="ready").state == "ready", "a replica that serves is not ended by it"
    assert fed(state_machine.StartupRefused(2, "x")).state == "starting"


# --- verl's replicas ------------------------------------------------------------------------------------------


class Discovery:
    """Stands for the discovery in Ray: one replica, healthy under an address."""

    verdict = None
    load = None

    def __init__(self, address: str) -> None:
        self.ranks = [Rank(0, "replica-0", "healthy", "", 0.0, address=address, generation=1)]

    def expect(self, expectation: Any) -> None:
        pass

    async def look(self, printed: Any) -> float:
        return 1.0


def verl_replicas(folder: Path, address: str, model: str) -> tuple[VerlReplicas, list[tuple[Any, ...]]]:
    said: list[tuple[Any, ...]] = []
    log = folder / "trainer.log"
    log.write_text("")
    process = SimpleNamespace(generation=1, started_at=0.0, log=log)
    trainer = SimpleNamespace(state="ready", current=SimpleNamespace(process=process))
    supervisor: Any = SimpleNamespace(
        http=Http(), run_dir=folder, attempt_dir=folder, now=lambda: 5.0, slots={"trainer": trainer}, gpus=(),
        stopping=False, kick=lambda: None, say=lambda *words: said.append(words),
    )  # fmt: skip
    ray = RayPlan("ours", "", "", "", "", "", 1, 1.0, 1.0, 1.0)
    replicas = VerlReplicas(supervisor, ray, "", model)
    replicas._discovery = Discovery(address)  # type: ignore[assignment]
    return replicas, said


async def test_a_replica_of_verl_serves_once_its_routes_were_seen_without_sampling(tmp_path: Path) -> None:
    scripted = replica(render=(503, {"detail": "loading"}))
    replicas, said = verl_replicas(tmp_path, await scripted.start(), "m")
    try:
        assert not replicas.endpoints()[0].serving
        await replicas.look()
        (endpoint,) = replicas.endpoints()
        assert (endpoint.state, endpoint.why) == ("starting", f"POST {RENDER} answered 503: loading")
        scripted.refusals.clear()
        await replicas.look()
        assert replicas.endpoints()[0].state == "ready" and replicas.serving() == 1
        rendered = scripted.rendered
        await replicas.look()
        assert replicas.endpoints()[0].state == "ready"
        assert scripted.rendered == rendered > 0, "it is checked once"
        assert replicas.cause is None and not said and not scripted.replies
    finally:
        await replicas._supervisor.http.close()
        await scripted.stop()


OWNER_DIED = "DEAD: The actor is dead because its owner has died. Owner Id: 8b01"


@pytest.mark.parametrize(
    ("finishing", "gone_at", "stage", "reason", "cause"),
    [
        (True, 0.0, "dead", "", ""),  # verl ends its replicas, and itself a while later
        (True, 0.0, "lost", "", ""),
        (True, 1.0 - ENDING_S, "dead", "", "replica vllm_server_0_0 is DEAD"),  # it hangs at its end
        (True, 0.0, "pending", "", "replica vllm_server_0_0 is DEAD"),
        (False, 0.0, "dead", "", "replica vllm_server_0_0 is DEAD"),
        # Its owner is the trainer, whose log says why: a driver takes more than 15 s to exit on a busy host.
        (False, 0.0, "dead", OWNER_DIED, ""),
        (False, 0.0, "dead", "DEAD: because its job has finished", ""),
        (
            False,
            1.0 - ENDING_S,
            "dead",
            OWNER_DIED,
            "verl's replicas ended with the process that had made them",
        ),
    ],
)
async def test_a_replica_that_goes_behind_the_last_step_is_no_failure(
    tmp_path: Path, finishing: bool, gone_at: float, stage: Stage, reason: str, cause: str
) -> None:
    scripted = replica()
    replicas, _ = verl_replicas(tmp_path, await scripted.start(), "m")
    replicas.finishing = lambda: finishing
    ends: Any = replicas._discovery
    ends.ranks = [Rank(0, "replica-0", stage, "", gone_at, generation=1)]
    ends.verdict = RankVerdict(0, stage, f"vllm_server_0_0 is DEAD {reason}")
    try:
        await replicas.look()
        told = replicas.cause
        assert (told.text if told is not None else "").startswith(cause) and (told is not None) == bool(cause)
        assert told is None or told.id != "ray-owner-died", "that is a consequence"
    finally:
        await replicas._supervisor.http.close()
        await scripted.stop()


@pytest.mark.parametrize(
    ("trainer", "stage", "why", "state"),
    [
        ("ready", "healthy", "healthy", "ready"),
        ("stopping", "healthy", "healthy", "ready"),
        ("stopped", "healthy", "healthy", "stopped"),
        ("ready", "addressed", "slow", "degraded"),
        ("failed", "addressed", "slow", "stopped"),
        ("backing_off", "alive", "alive", "stopped"),
        ("preparing", "healthy", "healthy", "stopped"),
        ("ready", "dead", OWNER_DIED, "stopped"),
        ("stopped", "dead", OWNER_DIED, "stopped"),
        ("ready", "dead", "DEAD: killed by the OOM killer", "failed"),
        ("stopped", "dead", "DEAD: killed by the OOM killer", "failed"),
        ("stopped", "missing", "missing", "waiting"),
    ],
)
async def test_replicas_that_end_with_their_trainer_have_not_failed(
    tmp_path: Path, trainer: str, stage: str, why: str, state: str
) -> None:
    replicas, _ = verl_replicas(tmp_path, "http://127.0.0.1:9", "")
    try:
        await replicas.look()
        rank = Rank(0, "vllm_server_0_0", stage, why, 1.0, "ALIVE", 4, None, "http://127.0.0.1:9", 1)  # type: ignore[arg-type]
        replicas._discovery.ranks = (rank,)  # type: ignore[misc]
        replicas._supervisor.slots["trainer"].state = trainer  # type: ignore[misc]
        (endpoint,) = replicas.endpoints()
        assert endpoint.state == state
        ended = state == "stopped"
        waits = "waits for verl to start it: Ray has no actor of this name yet"
        assert endpoint.why == ("exited with the trainer" if ended else waits if stage == "missing" else why)
        assert endpoint.address == (None if ended else "http://127.0.0.1:9")
        if stage == "healthy":  # of a cluster that the user named, which goes on
            replicas._ray = replace(replicas._ray, earlier=True)
            assert replicas.endpoints()[0].state == "ready"
            replicas._ray = replace(replicas._ray, earlier=False)
        # another process of the trainer: these are not its replicas
        replicas._supervisor.slots["trainer"].state = "starting"  # type: ignore[misc]
        replicas._supervisor.slots["trainer"].current.process.generation = 2  # type: ignore[misc, union-attr]
        assert replicas.endpoints()[0].state in ("stopped", "failed", "waiting")
    finally:
        await replicas._supervisor.http.close()


async def test_a_replica_of_verl_without_the_routes_fails_the_run(tmp_path: Path) -> None:
    scripted = replica(generate=DISABLED)
    replicas, said = verl_replicas(tmp_path, await scripted.start(), "m")
    try:
        await replicas.look()
        await replicas.look()
        (endpoint,) = replicas.endpoints()
        assert endpoint.state == "failed" and f"POST {GENERATE} answered 403: {TEXT};" in endpoint.why
        assert replicas.cause is not None
        assert (replicas.cause.service, replicas.cause.text) == ("replica-0", endpoint.why)
        ((kind, text, level, name),) = said
        assert (kind, level, name) == ("routes_refused", "error", "replica-0") and endpoint.why in text
    finally:
        await replicas._supervisor.http.close()
        await scripted.stop()


async def test_a_replica_of_verl_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    scripted = replica()
    url = await scripted.start()
    await scripted.stop()
    replicas, _ = verl_replicas(tmp_path, url, "m")
    await replicas.look()
    (endpoint,) = replicas.endpoints()
    assert endpoint.state == "starting" and "its token routes cannot be checked" in endpoint.why
    assert replicas.cause is None
    await replicas._supervisor.http.close()


async def test_without_sessions_a_replica_of_verl_is_not_asked(tmp_path: Path) -> None:
    replicas, _ = verl_replicas(tmp_path, "http://127.0.0.1:1", "")
    assert replicas.endpoints()[0].state == "ready"
    await replicas.look()
    assert replicas.endpoints()[0].state == "ready" and replicas.cause is None
    await replicas._supervisor.http.close()


# --- the option ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_option_is_found_in_the_installed_package(tmp_path: Path, version: str) -> None:
    python = environment(tmp_path / "env", version) / "bin" / "python"
    assert declares(python, SCALE_OUT) is VERSIONS[version][0]


def test_an_option_with_a_longer_name_is_another_one(tmp_path: Path) -> None:
    place = environment(tmp_path / "env", "0.24")
    (options,) = place.rglob("cli_args.py")
    options.write_text("class FrontendArgs:\n    enable_scale_out_disaggregation: bool = False\n")
    assert not declares(place / "bin" / "python", SCALE_OUT)


def test_an_environment_that_cannot_be_asked_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    with pytest.raises(CannotTell, match=f"cannot ask {re.escape(str(python))} for the options of vllm"):
        declares(python, SCALE_OUT)
    python.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(CannotTell, match="vllm: it is broken"):
        declares(python, SCALE_OUT)


THROUGH = "proxy.trials_through=sessions"


def test_the_plan_asks_for_the_routes_only_where_the_trials_go_through_sessions() -> None:
    for profile, options in (("vllm-managed", (SCALE_OUT,)), ("embedded", ())):
        spec, plain = replica_of(plan_of(THROUGH, profile=profile)), replica_of(plan_of(profile=profile))
        assert spec.probes.startup.token_routes and not plain.probes.startup.token_routes
        assert spec.optional_arguments == options and plain.optional_arguments == ()
        assert spec.argv == plain.argv
    assert plan_of(THROUGH, profile="embedded").needs_token_routes
    assert not plan_of(profile="embedded").needs_token_routes


OVERRIDE = "actor_rollout_ref.rollout.engine_kwargs.vllm.enable_scale_out"


@pytest.mark.parametrize(
    ("profile", "sets", "words"),
    [
        ("liverl-gen1", (), (f"+{OVERRIDE}=True",)),
        ("liverl-gen1", ("proxy.trials_through=litellm",), None),
        ("liverl-gen1", ("run.topology=in_process",), None),  # sessions ask verl's own client there
        ("liverl-gen1", (f'trainer.overrides={{"+{OVERRIDE}": false}}',), None),
        ("liverl-gen1", (f'trainer.overrides={{"~{OVERRIDE}": null}}',), None),
        ("cpu-verl", (), None),  # its replicas are ours
    ],
)
def test_the_override_that_opens_the_routes_of_verls_vllm(
    profile: str, sets: tuple[str, ...], words: tuple[str, ...] | None
) -> None:
    plan = plan_of(*sets, profile=profile)
    given = service(plan, "trainer").optional_arguments
    assert given == (() if words is None else (replace(SCALE_OUT, words=words),))
    http = not any(setting.startswith(("proxy.", "run.topology")) for setting in sets)
    assert plan.needs_token_routes is http
