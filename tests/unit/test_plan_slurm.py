"""In a Slurm job everything has to have ended within KillWait, or Slurm kills it, the result unwritten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.golden import PROFILES
from kit.plans import plan_of, replica, service

from liverl.plan.slurm import SLURM_BUDGET, fit_stop, within_batch_limits
from liverl.plan.spec import Plan, StopStage

KILL_WAIT = 30.0  # seconds, Slurm's default

# Variables as Slurm 22.05 sets them.
_JOB = {
    "SLURM_JOB_ID": "4",
    "SLURM_JOBID": "4",
    "SLURM_JOB_NODELIST": "n0",
    "SLURM_NNODES": "1",
    "SLURM_NODEID": "0",
    "SLURMD_NODENAME": "n0",
    "SLURM_CPUS_ON_NODE": "64",
    "SLURM_GPUS_ON_NODE": "8",
    "SLURM_JOB_PARTITION": "main",
}
IN_A_JOB = {
    "batch script": {**_JOB, "ENVIRONMENT": "BATCH", "SLURM_SUBMIT_DIR": "/home/u"},
    "salloc shell": {
        "SLURM_JOB_ID": "5",
        "SLURM_JOBID": "5",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NODELIST": "n0",
    },
    "step of srun": {
        **_JOB,
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
    },
    "three nodes": {**_JOB, "SLURM_NNODES": "3", "SLURM_JOB_NODELIST": "n[0-2]"},
    "part of an array": {**_JOB, "SLURM_ARRAY_JOB_ID": "4", "SLURM_ARRAY_TASK_ID": "7"},
    "requeued": {**_JOB, "SLURM_RESTART_COUNT": "1"},
    "without GPUs": {key: value for key, value in _JOB.items() if key != "SLURM_GPUS_ON_NODE"},
}
NOT_IN_A_JOB = {
    "workstation": {},
    "login node": {
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_CLUSTER_NAME": "c",
        "SBATCH_PARTITION": "main",
    },
    "emptied by the user": {**_JOB, "SLURM_JOB_ID": ""},
    "PBS": {"PBS_JOBID": "4.host", "PBS_NODEFILE": "/var/spool/pbs/aux/4"},
    "LSF": {"LSB_JOBID": "4"},
    "Kubernetes": {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
}


def whole_stop(plan: Plan) -> float:
    """Seconds until everything has ended when each stage takes its whole grace, one service after another."""
    specs = [*plan.services, *([plan.replica_template] if plan.replica_template else [])]
    return sum(stage.grace for spec in specs for stage in spec.stop)


@pytest.mark.parametrize("env", IN_A_JOB.values(), ids=IN_A_JOB)
@pytest.mark.parametrize("profile", PROFILES)
def test_in_a_job_everything_ends_within_kill_wait(profile: str, env: dict[str, str]) -> None:
    plan = plan_of(profile=profile)
    limited = within_batch_limits(plan, env)
    assert whole_stop(limited) <= SLURM_BUDGET + 1e-9
    assert SLURM_BUDGET < KILL_WAIT, "the result is written after the last service has ended"
    assert whole_stop(limited) > SLURM_BUDGET / 2, "what Slurm grants is not given away"


@pytest.mark.parametrize("env", NOT_IN_A_JOB.values(), ids=NOT_IN_A_JOB)
@pytest.mark.parametrize("profile", PROFILES)
def test_outside_of_one_the_plan_is_as_it_was(profile: str, env: dict[str, str]) -> None:
    plan = plan_of(profile=profile)
    assert within_batch_limits(plan, env) == plan


def test_the_shares_are_equal_and_the_signals_stay() -> None:
    plan = plan_of("supervise.stop_grace=20", profile="embedded")  # proxy, trainer, and the replicas at once
    limited = within_batch_limits(plan, _JOB)
    for spec in (*limited.services, replica(limited)):
        assert [(s.signal, s.target) for s in spec.stop] == [
            ("TERM", "leader"),
            ("TERM", "tree"),
            ("KILL", "tree"),
        ]
        # 24 s for three, 20 + 5 + 5 each before
        assert [s.grace for s in spec.stop] == pytest.approx([8.0 * 20 / 30, 8.0 * 5 / 30, 8.0 * 5 / 30])


def test_only_stopping_is_changed() -> None:
    plan = plan_of(profile="embedded")
    limited = within_batch_limits(plan, _JOB)
    for before, after in zip(
        (*plan.services, replica(plan)), (*limited.services, replica(limited)), strict=True
    ):
        assert before.stop != after.stop
        same = ("name", "argv", "env", "depends_on", "probes", "restart", "ports", "files", "gpus")
        assert all(getattr(before, field) == getattr(after, field) for field in same)
    assert (plan.settings, plan.warnings, plan.run) == (limited.settings, limited.warnings, limited.run)


def test_a_plan_without_a_template_stays_without() -> None:
    limited = within_batch_limits(plan_of(profile="cpu-verl"), _JOB)
    assert limited.replica_template is None
    assert len(limited.services) == 5
    assert sum(s.grace for s in limited.services[0].stop) == pytest.approx(24.0 / 6)


def test_a_proxy_that_drains_when_the_run_ends_fits_too() -> None:
    """It leaves the first stage, the drain itself, at once: Instance.end_drain."""
    plan = plan_of(profile="vllm-managed")
    before, after = service(plan, "proxy").drain, service(within_batch_limits(plan, _JOB), "proxy").drain
    assert after[0] == before[0], "a swap in a job may take as long as anywhere"
    assert [(s.signal, s.target) for s in after] == [(s.signal, s.target) for s in before]
    assert sum(s.grace for s in before[1:]) == 20.0
    assert sum(s.grace for s in after[1:]) == pytest.approx(12.0)
    assert service(within_batch_limits(plan, _JOB), "proxy").stop == after[1:]
    assert replica(within_batch_limits(plan, _JOB)).drain == ()


stages = st.lists(
    st.builds(
        StopStage,
        signal=st.sampled_from(["INT", "TERM", "KILL"]),
        target=st.sampled_from(["leader", "tree"]),
        grace=st.floats(0.0, 10_000.0),
    ),
    max_size=5,
).map(tuple)


@given(stages, st.floats(0.01, 1000.0))
def test_fitting_shortens_all_alike_and_lengthens_none(given_: tuple[StopStage, ...], budget: float) -> None:
    fitted = fit_stop(given_, budget)
    total = sum(s.grace for s in given_)
    assert sum(s.grace for s in fitted) <= max(min(total, budget), 0.0) * (1 + 1e-9)
    assert [(s.signal, s.target) for s in fitted] == [(s.signal, s.target) for s in given_]
    factor = min(1.0, budget / total) if total else 1.0
    assert [s.grace for s in fitted] == pytest.approx([s.grace * factor for s in given_])


def test_what_fits_exactly_is_left_alone() -> None:
    three = (StopStage("TERM", "leader", 0.1), StopStage("TERM", "tree", 0.2), StopStage("KILL", "tree", 0.4))
    total = sum(s.grace for s in three)
    assert fit_stop(three, total) is three
    assert fit_stop(three, total / 2) is not three
    assert fit_stop((), 1.0) == ()
