"""Checks of the machine: the run directory's disk, open files, and ports that nobody guards. Also who is told."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.notify.target import problem
from liverl.plan.spec import Plan
from liverl.preflight.batches import largest
from liverl.procs.open_files import service_limit
from liverl.rundir.commands import set_options
from liverl.serving.replica_bounds import Machine, machine, most_replicas, too_many
from liverl.util.http_limits import descriptors_for
from liverl.util.plural import quantity

# A run's directory without checkpoints of large models: logs, trajectories, journal. Less than this and the
# run would stop within minutes.
TRIAL_BYTES = 10 << 10  # of a trial in a trainer: its ids and messages; of a short one, so a lower bound
FREE_BYTES = 64 << 20
UNGUARDED = "unguarded ports"  # the name of the check
# Ports that programs of others open, and that this program can therefore not guard.
_REPLICA_PORTS = (
    "verl's vLLM replicas require no token, and verl opens their ports on the host's network address: whoever reaches "
    "them, another user or a sandbox, can use the model without a key or a record, and call vLLM's administrative "
    "routes"
)
_NO_DIGEST = (
    "vLLM reports no digest of its weights, so a change that is no request to a guarded port is not seen"
)
_TORCH_PORTS = "the ports through which torch's processes find each other, and send tensors, require no token"
_RAY_PORTS = "Ray's ports are protected by Ray's own token only"
_KEEP_OUT = "Use hosts that nobody else uses, or block these ports for others with a firewall"


def replicas(plan: Plan, host: Machine | None = None) -> list[Check]:
    """Whether the machine can carry the replicas that take no GPU; nothing for others. ``host``: None: this one."""
    if plan.replica_template is None or plan.replica_template.gpus:
        return []
    wanted = plan.expected_replicas
    host = host or machine()
    why = too_many(plan, host, wanted)
    if why is None:
        return [Check("replicas", "ok", f"{quantity(wanted, 'replica')} without a GPU")]
    text = f"run.replicas is {wanted}: {why}. If that is what you want: --set supervise.max_replicas={wanted}"
    most = most_replicas(host, plan.settings.max_replicas)
    fits = {"run.replicas": str(most)} if most < wanted else {}
    return [Check("replicas", "fail", text, patch=fits, guess=True)]


def trials(plan: Plan, host: Machine | None = None, config: RunConfig | None = None) -> list[Check]:
    """Whether the trials of one step, which the trainer keeps until its end, fit into the memory."""
    number = plan.trials_per_step
    if number is None:
        return []
    total = (host or machine()).total
    most = total // TRIAL_BYTES
    if number <= most:
        return [Check("trials of a step", "ok", f"{number:,}")]
    text = (
        f"training.train_batch_size x n_resp_per_prompt is {number:,} trials in a step; they would take at least "
        f"{number * TRIAL_BYTES / 1e9:,.0f} GB, and this machine has {total / 1e9:.0f} GB of memory: at most {most:,}"
    )
    patch = {} if config is None else largest(config, most // config.training.n_resp_per_prompt)
    fix = (
        f"take smaller batches: {set_options(patch)}"
        if patch
        else "take smaller batches, or a machine with more memory"
    )
    return [Check("trials of a step", "fail", text, fix=fix, patch=patch, guess=bool(patch))]


def notifications(plan: Plan) -> list[Check]:
    """Whether the notification targets can be used. Never a failure: a run must not depend on it."""
    found = [(target.title, problem(target, os.environ)) for target in plan.notify.targets]
    bad = [f"{who} cannot be used: {why}" for who, why in found if why is not None]
    if bad:
        return [Check("notify", "warn", f"{'; '.join(bad)}. To test it: liverl-tui notify --test")]
    names = ", ".join(who for who, _ in found)
    return (
        [Check("notify", "ok", f"{names}; to send a test message: liverl-tui notify --test")] if found else []
    )


def unguarded_ports(plan: Plan) -> Check:
    """Which ports of the run this program cannot guard: those that vLLM, verl and Ray open by themselves."""
    facts = []
    if not plan.replica_token_file:
        facts.append(_REPLICA_PORTS)
    if plan.topology != "managed" or plan.engine == "vllm":
        facts.append(_TORCH_PORTS)
    if plan.engine == "vllm" and not (plan.topology != "managed" and plan.replica_token_file):
        facts.append(_NO_DIGEST)
    if plan.ray is not None:
        facts.append(_RAY_PORTS)
    if not facts:
        return Check(UNGUARDED, "ok", "each port of the run requires a key")
    return Check(UNGUARDED, "warn", f"{'; '.join(facts)}. {_KEEP_OUT}")


def open_files(plan: Plan, config: RunConfig) -> list[Check]:
    """Whether the proxy can have a connection with each agent and one to a replica for it."""
    if not any(service.kind == "proxy" for service in plan.services):
        return []
    training = config.training
    agents = max(plan.trials_per_step or 0, config.harbor_runtime.num_workers)
    if plan.topology != "managed" and (training.test_freq > 0 or training.val_before_train):
        agents = max(agents, training.val_batch_size)
    limit, needed = service_limit(), descriptors_for(agents)
    if limit < needed:
        return [
            Check(
                "open files",
                "warn",
                f"the hard limit is {limit:,}, and the proxy needs {needed:,} for {agents:,} agents at the same time; "
                "raise it (ulimit -Hn in the shell, LimitNOFILE in systemd) before the run starts",
            )
        ]
    return [Check("open files", "ok", f"{limit:,}; the proxy needs {needed:,} for {agents:,} agents")]


def run_directory(plan: Plan) -> Check:
    """Whether the run's directory can be written, and has room for its first minutes."""
    folder = Path(plan.run_dir)
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK) or os.statvfs(folder).f_flag & os.ST_RDONLY:
        return Check("run directory", "fail", f"{folder} is not writable")
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES:
        return Check(
            "run directory",
            "fail",
            f"{folder} has {free >> 20} MiB free; at least {FREE_BYTES >> 20} MiB are required",
        )
    return Check("run directory", "ok", f"{free >> 30} GiB free")
