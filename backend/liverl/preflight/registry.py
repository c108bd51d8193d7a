"""The checks of a run before its start: for every topology, engine and kind of trainer, one list.

To add one, write a function in a module of this package and add a line here. The function takes, by the names of its
parameters, what it needs of ``Subject`` (``plan``, ``config``, ``env``, ...), and returns or yields what it finds as
``Check``. It changes nothing, writes nothing, and says ``ok`` only of what it has looked at: what cannot be looked at
is ``skipped``, with the reason. Each runs in a thread of its own and has ``seconds`` for its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NamedTuple

from liverl.config import conditions as when
from liverl.config.schema import RunConfig
from liverl.config.sections.run import HARBOR
from liverl.model import Check

SECONDS = 10.0  # a file system that is asked answers within this, or not at all
PROGRAMS = 75.0  # for a check that asks an interpreter, which has a minute: a cold network disk is slow


class Entry(NamedTuple):
    """A check. ``where``: ``module:function`` of this package; ``when``: whether it applies to a configuration;
    ``host``: it looks at the host on which it runs, not only at the run's files; ``environment``: the Python
    environment in which it looks, so that it is made again once that has been built; ``changes``: what it looks at may
    change while environments are built and replicas start, so that it is made again right before the trainer starts.
    Such a check takes ``ours`` where it would take the run's own processes for those of others. ``enter``: it takes a
    moment, and is made once more when the user has agreed to start: minutes may have passed before the answer.
    ``standing``: what it warns of holds for every run of such a configuration, and nobody can change it for this start,
    or is a choice that may be meant, as in a short trial: it is shown, and nothing is asked because of it."""

    id: str
    where: str
    when: Callable[[RunConfig], bool] = when.always
    host: bool = False
    environment: str = ""
    seconds: float = SECONDS
    changes: bool = False
    enter: bool = False
    standing: bool = False

    @property
    def function(self) -> Callable[..., Any]:
        """The function. Modules are imported only for checks that apply."""
        module, _, name = self.where.partition(":")
        function: Callable[..., Any] = getattr(import_module(f"liverl.preflight.{module}"), name)
        return function


def own_verl(c: RunConfig) -> bool:
    """Whether the run starts verl's trainer, with all that is checked of it."""
    return not when.managed(c) and when.verl_trainer(c)


CHECKS: tuple[Entry, ...] = (
    Entry("ports", "ports:port_checks", host=True, changes=True, enter=True),
    Entry("batch-end", "batch_end:checks", host=True, seconds=30.0),
    Entry("room", "room:checks", standing=True),
    Entry("unguarded-ports", "host:unguarded_ports", standing=True),
    Entry("storage", "storage:checks", host=True),
    Entry("run-directory", "host:run_directory", host=True, changes=True),
    Entry("open-files", "host:open_files", host=True),
    Entry("replicas", "host:replicas", host=True),
    Entry("trials", "host:trials", host=True),
    Entry("notify", "host:notifications"),
    Entry("metrics", "metrics:checks", when.serves_metrics, host=True),
    Entry("rules", "rules:checks"),
    Entry("gpus", "gpus:checks", host=True, changes=True),
    Entry("ray-cluster", "ray:cluster", when.our_ray, host=True, seconds=30.0),
    Entry("head-address", "head_address:here", when.joined_hosts, host=True),
    Entry("network-interface", "network:interface", when.verl_or_command, host=True),
    Entry("ray-cpus", "ray:cpus_here", when.our_head, host=True),
    Entry("process-limit", "ray:processes", when.our_head, host=True),
    Entry("ray-directory", "ray:directory", when.our_head, host=True, changes=True),
    Entry("object-store", "ray:object_store", when.our_head, host=True),
    Entry("environments", "pythons:checks", seconds=PROGRAMS),
    Entry("environment-verl", "verl:environment", own_verl, environment="verl", seconds=PROGRAMS),
    Entry("verl-source", "verl:source", own_verl),
    Entry("environment-disks", "disks:checks", host=True),
    Entry("module-origins", "origins:origins", seconds=PROGRAMS),
    Entry("versions", "origins:versions", own_verl, environment="verl", seconds=PROGRAMS),
    Entry("flash-attn", "flash_attention:checks", own_verl, environment="verl", seconds=PROGRAMS),
    Entry("own-rows", "own_rows:checks", when.embedded_trainer),
    Entry("data", "verl:data", own_verl, environment="verl", seconds=PROGRAMS),
    Entry("verl-keys", "override_keys:checks", own_verl, environment="verl", seconds=PROGRAMS),
    Entry("liverl-variables", "liverl_habits:variables"),
    Entry("harbor-described", "liverl_habits:harbor_described", own_verl),
    Entry("time-outs", "timeouts:checks", when.harbor),
    Entry("faq-keys", "faq_keys:checks", own_verl),
    Entry("checkpoint", "checkpoint:of_run", own_verl),
    Entry("harbor", "harbor:checks", when.harbor, environment=HARBOR, seconds=PROGRAMS),
    Entry("sandbox-address", "sandbox_address:checks", when.harbor, host=True, seconds=15.0),
    Entry("docker", "docker_daemon:checks", when.compose_sandboxes, host=True, seconds=45.0, changes=True),
    Entry("sandbox-agent", "sandbox_agent:checks", when.harbor),
    Entry("sandbox-reach", "sandbox_reach:checks", when.harbor, host=True, seconds=PROGRAMS, changes=True),
    Entry("cluster-pods", "cluster_pods:checks", when.pods, host=True, seconds=40.0),
    Entry("model", "model:checks", when.not_command, seconds=15.0),
    Entry("experts", "experts:checks", seconds=15.0),
    Entry("model-weights", "weights:checks", when.not_command, seconds=30.0),
    Entry("model-files", "model_files:of_files", when.not_command),
    Entry("memory", "memory:checks", when.not_command, seconds=30.0),
    Entry("loggers", "verl:loggers", own_verl),
    Entry("wandb-key", "wandb:checks", when.logs_to_wandb),
    Entry("tool-parser", "tool_parser:checks", seconds=20.0),
    Entry("parsers-vllm", "installed_parsers:of_vllm", when.managed, environment="vllm", seconds=PROGRAMS),
    Entry("parsers-verl", "installed_parsers:of_verl", own_verl, environment="verl", seconds=PROGRAMS),
    Entry("learning-rate", "learning_rate:checks", own_verl),
    Entry("lora", "lora:checks", own_verl),
    Entry("batches", "batches:batches", own_verl),
    Entry("micro-batches", "micro_batches:checks", own_verl),
    Entry("launch-script", "launch_script:checks", when.command),
    Entry("script-syntax", "script_syntax:checks", when.command),
    Entry("script-paths", "script_paths:checks", when.command),
    Entry("script-ports", "ports:script_ports", when.command, host=True, changes=True, enter=True),
    Entry("cluster", "cluster:checks", when.command, host=True, seconds=25.0),
    Entry("liverl-config", "liverl_repo:config_file", when.command, host=True),
    Entry("pins", "repository:pins", when.command, host=True),
    Entry("upstream-files", "liverl_repo:upstream", when.command, host=True, seconds=30.0),
    Entry("script-folders", "liverl_repo:folders", when.command, host=True),
    Entry("script-heads", "liverl_repo:heads", when.command, host=True),
    Entry("script-docker", "script_docker:checks", when.command, host=True, seconds=PROGRAMS),
    Entry("dashboard", "liverl_repo:dashboard", when.command, host=True),
    Entry("script-modules", "repository:modules", when.command, host=True, seconds=PROGRAMS),
    Entry("job-running", "repository:jobs", when.command, host=True),
    Entry("residue", "repository:residue", when.command, host=True),
    Entry("checkpoint-room", "checkpoint_room:room", when.verl_or_command, host=True, changes=True),
)
OF_HOST = frozenset(entry.id for entry in CHECKS if entry.host)  # ids of those that look at this host
ON_ENTER = tuple(entry for entry in CHECKS if entry.enter)


def asks(checks: Iterable[Check]) -> bool:
    """Whether somebody should look at what was found before the run starts: a check failed, or warns of what is not
    always so."""
    standing = {entry.id for entry in CHECKS if entry.standing}
    return any(
        check.status == "fail" or (check.status == "warn" and check.id not in standing) for check in checks
    )
