"""Rules between configuration keys for topology verl, and for Python environments."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterator

from liverl.config import conditions as when
from liverl.config.attention import planned_sp_size
from liverl.config.checks.ruleset import SAFE_NAME, Finding, RuleSet
from liverl.config.schema import RunConfig
from liverl.config.sections.run import HARBOR, SELF, names_a_folder
from liverl.config.sections.value_types import FALSE, TRUE
from liverl.config.sizing import (
    FULLY_ASYNC_CPUS,
    LEAST_PORTS,
    SizeError,
    cpus_needed,
    cpus_per_host,
    expected_replicas,
    generating_gpus,
    replica_gpus,
    trainer_gpus,
    worker_ports,
)
from liverl.config.trainer_mode import by_nodes, fully_async, step_prompts, taken_at_once, trainer_mode
from liverl.util.listing import listing
from liverl.util.loopback import is_loopback
from liverl.util.multiples import nearest_multiples
from liverl.util.nearest import did_you_mean
from liverl.util.plural import quantity

PER_REPLICA = 16  # verl.fully_async.concurrent_samples_per_replica of default.yaml, which is verl's

RULES = RuleSet()
_rule = RULES.rule

_WORLD = (
    "run.topology",
    "infrastructure.nnodes",
    "infrastructure.ngpus_per_node",
    "verl.rollout_mode",
    "verl.rollout_gpus",
    "verl.trainer_mode",
    "verl.train_nodes",
    "verl.rollout_nodes",
    "vllm.gen_tp",
    "trainer.overrides",
)
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_USERINFO = re.compile(r"://[^/@]*@")
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_PASSWORD_REFERENCE = re.compile(rf"://[^/@:]*:(?:{_REFERENCE.pattern})+@")


def _verl(c: RunConfig) -> bool:
    """Whether verl starts the replicas, and the run starts verl."""
    return c.run.topology != "managed" and c.trainer.kind == "verl"


def _sized(c: RunConfig) -> bool:
    """Whether the size of the run can be computed; if not, ``_numbers`` or ``_pool`` reports why."""
    try:
        cpus_needed(c), expected_replicas(c)
    except SizeError:
        return False
    return c.run.topology != "managed" and not any(_pool(c)) and not any(_nodes(c))


def _divisors(number: int) -> str:
    """``1, 2 or 4``: over what GPUs can be divided."""
    return listing([str(n) for n in range(1, number + 1) if number % n == 0], "or")


@_rule(*_WORLD)
def _numbers(c: RunConfig) -> Iterator[Finding]:
    try:
        cpus_needed(c), expected_replicas(c)
    except SizeError as error:
        words = "this override determines the size of the run"
        yield Finding(f"trainer.overrides.{error.key}", words, f"{error.value!r:.80}", "a whole number")


@_rule(*_WORLD)
def _pool(c: RunConfig) -> Iterator[Finding]:
    if c.run.topology == "managed":
        return
    have, pool = c.infrastructure.ngpus_per_node, c.verl.rollout_gpus
    if any(_nodes(c)):
        return
    if by_nodes(c):
        if pool:
            words = "must be 0 with verl.rollout_nodes: whole hosts generate or train"
            yield Finding("verl.rollout_gpus", words, str(pool), "0")
    elif trainer_mode(c) == "sync" and pool:
        words = f"in {_mode(c)}, all GPUs alternate between generating and training"
        yield Finding("verl.rollout_gpus", words, str(pool), "0")
    elif trainer_mode(c) != "sync" and not 0 < pool < have:
        words = f"in {_mode(c)}, the {have} GPUs of each host are split between rollouts and trainer"
        most = "1" if have == 2 else f"1 to {have - 1}"
        allowed = most if have > 1 else "at least 2 GPUs (infrastructure.ngpus_per_node)"
        hint = (
            "or split the hosts: verl.train_nodes and verl.rollout_nodes"
            if c.infrastructure.nnodes > 1
            else ""
        )
        yield Finding("verl.rollout_gpus", words, str(pool), allowed, hint)


def _mode(c: RunConfig) -> str:
    """The key that decides the trainer's mode, with its value."""
    if c.verl.trainer_mode is not None:
        return f"verl.trainer_mode {c.verl.trainer_mode}"
    return f"verl.rollout_mode {c.verl.rollout_mode}"


@_rule(*_WORLD, "trainer.kind")
def _nodes(c: RunConfig) -> Iterator[Finding]:
    """Hosts that only train or only generate."""
    train, rollout, all_nodes = c.verl.train_nodes, c.verl.rollout_nodes, c.infrastructure.nnodes
    if c.run.topology == "managed" or (train is None and not rollout):
        return
    if train is None or rollout is None:
        absent, given = (
            ("train_nodes", "rollout_nodes") if train is None else ("rollout_nodes", "train_nodes")
        )
        number = train if rollout is None else rollout
        words = f"must be set together with verl.{given} ({number}): train_nodes + rollout_nodes must equal "
        words += f"infrastructure.nnodes ({all_nodes})"
        left = all_nodes - (number or 0)
        allowed = f"infrastructure.nnodes of at least {(number or 0) + 1}, or verl.{given} null"
        if left > 0 or (rollout is None and not left):
            allowed = str(left)
        yield Finding(f"verl.{absent}", words, "null", allowed)
    elif train + rollout != all_nodes:
        words = (
            f"verl.train_nodes {train} + verl.rollout_nodes {rollout} = {train + rollout}, but "
            f"infrastructure.nnodes is {all_nodes}"
        )
        allowed = f"infrastructure.nnodes {train + rollout}"
        allowed = f"{all_nodes - train}, or {allowed}" if all_nodes > train else allowed
        yield Finding("verl.rollout_nodes", words, str(rollout), allowed)
    elif (
        rollout
        and trainer_mode(c) == "sync"
        and (c.trainer.kind == "verl" or c.verl.trainer_mode is not None)
    ):
        words = "verl.rollout_nodes needs an asynchronous trainer"
        yield Finding("verl.rollout_nodes", f"{words}; this is {_mode(c)}", str(rollout), "", _APART)


_APART = (
    "set verl.trainer_mode to separate_async or fully_async, or leave verl.train_nodes and rollout_nodes null"
)


@_rule(
    *_WORLD,
    "trainer.kind",
    "verl.calculate_log_probs",
    "verl.fully_async.concurrent_samples_per_replica",
    "verl.fully_async.max_concurrent_samples",
    "verl.fully_async.total_rollout_steps",
    "verl.fully_async.require_batches",
    "verl.fully_async.trigger_parameter_sync_step",
    "training.train_prompt_mini_batch_size",
)
def _fully_async(c: RunConfig) -> Iterator[Finding]:
    """What verl asserts in ``FullyAsyncRollouter``, and what would train nothing there."""
    if not when.fully_async(c):
        return
    settings = c.verl.fully_async
    if not c.verl.calculate_log_probs:
        words = "the fully asynchronous trainer trains with the log-probabilities of the rollouts"
        yield Finding("verl.calculate_log_probs", words, "false", "true")
    given, most = settings.concurrent_samples_per_replica, settings.max_concurrent_samples
    if most is not None and given != PER_REPLICA:
        words = f"conflicts with concurrent_samples_per_replica {given}: set only one of the two"
        hint = "max_concurrent_samples counts the prompts of all replicas together"
        yield Finding("verl.fully_async.max_concurrent_samples", words, str(most), "null", hint)
    elif most is not None and _sized(c) and most < expected_replicas(c):
        words = (
            f"too small: each of the {quantity(expected_replicas(c), 'replica')} needs at least one prompt"
        )
        yield Finding(
            "verl.fully_async.max_concurrent_samples", words, str(most), f"at least {expected_replicas(c)}"
        )
    prompts = settings.total_rollout_steps
    if prompts is not None and prompts < step_prompts(c):
        words = (
            f"fewer prompts than one version of the parameters takes ({step_prompts(c)}: "
            "training.train_prompt_mini_batch_size x require_batches x trigger_parameter_sync_step), so that verl "
            "would train nothing and exit with 0"
        )
        yield Finding(
            "verl.fully_async.total_rollout_steps", words, str(prompts), f"at least {step_prompts(c)}"
        )


@_rule(*_WORLD)
def _tensor_parallel(c: RunConfig) -> Iterator[Finding]:
    if _sized(c) and (replica_gpus(c) < 1 or generating_gpus(c) % replica_gpus(c)):
        words, allowed = (
            f"must divide the GPUs of the run ({generating_gpus(c)})",
            _divisors(generating_gpus(c)),
        )
        if replica_gpus(c) != c.vllm.gen_tp:
            words += f"; trainer.overrides gives each replica {quantity(replica_gpus(c), 'GPU')}"
            allowed = ""  # that key is not the only one
        yield Finding("vllm.gen_tp", words, str(c.vllm.gen_tp), allowed)


@_rule(*_WORLD, "training.sp_size", "trainer.kind", "verl.device", "environments", "environment.venv_path")
def _sequence_parallel(c: RunConfig) -> Iterator[Finding]:
    if _sized(c) and trainer_gpus(c) % planned_sp_size(c):
        words = f"must divide the GPUs of the trainer ({trainer_gpus(c)})"
        yield Finding("training.sp_size", words, str(c.training.sp_size), _divisors(trainer_gpus(c)))


@_rule(
    *_WORLD,
    "training.train_batch_size",
    "training.train_prompt_mini_batch_size",
    "verl.fully_async.require_batches",
    "training.n_resp_per_prompt",
    "trainer.kind",
)
def _batch_over_gpus(c: RunConfig) -> Iterator[Finding]:
    trials = c.training.train_batch_size * c.training.n_resp_per_prompt
    if fully_async(c):
        yield from _batch_at_once(c)
    elif c.trainer.kind == "verl" and _sized(c) and trainer_gpus(c) > 0 and trials % trainer_gpus(c):
        words = f"trials per step ({trials}) must be a multiple of the trainer's GPUs ({trainer_gpus(c)})"
        step = trainer_gpus(c) // math.gcd(trainer_gpus(c), c.training.n_resp_per_prompt)
        allowed = " or ".join(map(str, nearest_multiples(c.training.train_batch_size, step)))
        yield Finding("training.train_batch_size", words, str(c.training.train_batch_size), allowed)


def _batch_at_once(c: RunConfig) -> Iterator[Finding]:
    """The same for what the fully asynchronous trainer takes from its queue."""
    gpus, each = trainer_gpus(c) if _sized(c) else 0, c.training.n_resp_per_prompt
    trials = taken_at_once(c) * each
    if gpus > 0 and trials % gpus:
        words = (
            f"the trials that the trainer takes at once ({trials}) must be a multiple of its GPUs ({gpus})"
        )
        step = gpus // math.gcd(gpus, each * c.verl.fully_async.require_batches)
        mini = c.training.train_prompt_mini_batch_size
        allowed = " or ".join(map(str, nearest_multiples(mini, step)))
        yield Finding("training.train_prompt_mini_batch_size", words, str(mini), allowed)


@_rule(*_WORLD, "trainer.kind", "ray.address", "ray.num_cpus", "verl.device")
def _cpus(c: RunConfig) -> Iterator[Finding]:
    given = c.ray.num_cpus
    if given is None or not _verl(c) or c.ray.address or not _sized(c):
        return
    if given < cpus_per_host(c):
        words = "too few: verl would wait forever without a message"
        if fully_async(c):
            words = f"too few: verl's asynchronous actors alone take {FULLY_ASYNC_CPUS}, and it would wait forever"
        if c.infrastructure.nnodes > 1:
            words = "too few on each host: verl would wait forever without a message"
        hint = (
            "leave it null to use the number that verl needs; Ray only counts CPUs and does not check "
            "that they exist"
        )
        yield Finding("ray.num_cpus", words, str(given), f"at least {cpus_per_host(c)}", hint)


@_rule(*_WORLD, "trainer.kind", "verl.device")
def _cpu_replicas(c: RunConfig) -> Iterator[Finding]:
    if (
        _verl(c)
        and c.verl.device == "cpu"
        and _sized(c)
        and replica_gpus(c) > 1
        and not generating_gpus(c) % replica_gpus(c)
    ):
        words = "with verl.device cpu each replica is one process"
        yield Finding("vllm.gen_tp", words, str(c.vllm.gen_tp), "1")


_PORTS = ("infrastructure.ray_port", "infrastructure.ray_dashboard_port", "infrastructure.litellm_port")
_REACH = ("run.topology", "trainer.kind", "verl.agent_loop", "proxy.trials_through", "infrastructure.nnodes")


@_rule(*_REACH, "proxy.host", "proxy.advertise")
def _loops_reach(c: RunConfig) -> Iterator[Finding]:
    """With several hosts, agent loops run on all of them: what they get has to lead to the right host from each."""
    if not _verl(c) or c.infrastructure.nnodes == 1 or not when.our_loop(c):
        return
    others = c.infrastructure.nnodes - 1
    hosts = f"the agent loops of the other {'host' if others == 1 else f'{others} hosts'}"
    if when.in_workers(c):
        if c.proxy.advertise:
            words = f"each of the {c.infrastructure.nnodes} hosts has sessions of its own, and one address leads to one"
            hint = "each host then gives its own address in Ray's cluster"
            yield Finding("proxy.advertise", words, f"'{c.proxy.advertise}'", '""', hint)
    elif when.session_service(c):
        words = f"the service that opens the sessions listens on a socket of this host, which {hosts} cannot reach"
        hint = "or run.topology in_process: the sessions are then in the agent loops, on every host"
        yield Finding("proxy.trials_through", words, c.proxy.trials_through, "litellm", hint)
    elif c.proxy.host == when.AUTO_HOST or is_loopback(c.proxy.host):
        words = f"{hosts} would look for the proxy on themselves"
        if c.proxy.host == when.AUTO_HOST:
            words = f"auto listens on 127.0.0.1, and {words}"
        yield Finding(
            "proxy.host", words, c.proxy.host, "0.0.0.0, or an address of this host that they reach"
        )


@_rule("run.topology", "trainer.kind", "ray.address", "infrastructure.nnodes", "infrastructure.node0_ip")
def _head(c: RunConfig) -> Iterator[Finding]:
    if not _verl(c) or c.infrastructure.nnodes == 1 or c.ray.address or not c.infrastructure.node0_ip:
        return
    try:
        address = ipaddress.ip_address(c.infrastructure.node0_ip)
    except ValueError:
        address = None
    if address is None or address.is_loopback or address.is_unspecified:
        words = "the Ray head listens there, and the other hosts connect to it"
        allowed = 'an IP address of this host, or "" for the one on its default route'
        yield Finding("infrastructure.node0_ip", words, f"'{c.infrastructure.node0_ip}'", allowed)


@_rule("run.topology", "trainer.kind", "ray.address", "infrastructure.nnodes", "ray.worker_ports", *_PORTS)
def _worker_ports(c: RunConfig) -> Iterator[Finding]:
    if not when.joined_hosts(c):
        return
    key, found = "ray.worker_ports", f"'{c.ray.worker_ports}'"
    try:
        numbers = worker_ports(c.ray.worker_ports)
    except ValueError:
        allowed = f"FIRST-LAST, such as 20000-20999: at least {LEAST_PORTS} ports between 1024 and 65535"
        yield Finding(key, "no such range of ports", found, allowed)
        return
    for name in _PORTS:
        section, _, field = name.partition(".")
        port: int = getattr(getattr(c, section), field)
        if port in numbers:
            yield Finding(key, f"contains {name} ({port})", found, "a range without it")


@_rule("run.topology", "trainer.kind", "ray.address", "ray.dashboard_address")
def _addresses(c: RunConfig) -> Iterator[Finding]:
    if not _verl(c):
        return
    for name, text in (("address", c.ray.address), ("dashboard_address", c.ray.dashboard_address)):
        match = _ADDRESS.fullmatch(text)
        if text and (match is None or not 0 < int(match[2]) < 65536):
            yield Finding(f"ray.{name}", "invalid address", f"'{text}'", "host:port, without http://")


@_rule(
    *_WORLD,
    "verl.faults.late_replica.index",
    "verl.faults.late_replica.seconds",
    "verl.faults.pending_replica",
)
def _faults(c: RunConfig) -> Iterator[Finding]:
    if not _sized(c):
        return
    faults, count = c.verl.faults, expected_replicas(c)
    ranks = {
        "late_replica.index": faults.late_replica.index if faults.late_replica.seconds else None,
        "pending_replica": faults.pending_replica,
        "mute_replica": faults.mute_replica,
        "dead_replica": faults.dead_replica,
    }
    for name, rank in ranks.items():
        if rank is not None and rank >= count:
            yield Finding(f"verl.faults.{name}", "no such replica", str(rank), f"0 to {count - 1}")


@_rule("verl.wandb_proxy")
def _wandb_proxy(c: RunConfig) -> Iterator[Finding]:
    if "@" in c.verl.wandb_proxy:
        words = "verl receives the proxy URL on its command line, which other users can read"
        hint = "set a proxy with a password in the environment variable HTTPS_PROXY"
        yield Finding("verl.wandb_proxy", words, "a URL that contains a user name", "http://host:port", hint)


@_rule(
    "run.topology",
    "trainer.kind",
    "ray.address",
    "infrastructure.litellm_port",
    "infrastructure.ray_port",
    "infrastructure.ray_dashboard_port",
)
def _ports(c: RunConfig) -> Iterator[Finding]:
    if c.run.topology == "managed":
        return
    for name in ("ray_port", "ray_dashboard_port", "litellm_port"):
        if c.trainer.kind == "command" and getattr(c.infrastructure, name) == 0:
            words = "0 (any free port) works only for services that the run starts, not for those of a launch script"
            yield Finding(f"infrastructure.{name}", words, "0", "the port that the launch script uses")
    if c.ray.address:
        return
    name_of: dict[int, str] = {}  # port -> the key that uses it
    for name in ("ray_port", "ray_dashboard_port", "litellm_port"):
        port: int = getattr(c.infrastructure, name)
        if port and port in name_of:
            words = f"the same port as infrastructure.{name_of[port]}"
            yield Finding(f"infrastructure.{name}", words, str(port))
        name_of[port] = name


@_rule("environments")
def _environments(c: RunConfig) -> Iterator[Finding]:
    for name, entry in c.environments.items():
        if not SAFE_NAME.fullmatch(name):
            yield Finding(f"environments.{name}.python", "invalid environment name", f"'{name}'")
        elif not entry.requirements and not entry.venv_path and name != HARBOR:
            words = "an environment requires venv_path or requirements"
            yield Finding(f"environments.{name}.requirements", words, "neither")
        elif name == "proxy" and entry.venv_path == SELF:
            words = (
                "LiteLLM cannot share an environment with liverl-tui: they require different versions of rich"
            )
            allowed = (
                "null (LiteLLM is installed into a separate environment), or the folder of an "
                "environment with LiteLLM"
            )
            yield Finding(f"environments.{name}.venv_path", words, SELF, allowed)
        copies = entry.local_copy
        if copies.lower() not in (*TRUE, *FALSE) and not names_a_folder(copies):
            words = "neither a yes or no nor a folder"
            allowed = "true, false, or a folder on a disk of this host: /DIR, ~/DIR or ./DIR"
            hint = did_you_mean(copies, ("true", "false"))
            yield Finding(f"environments.{name}.local_copy", words, f"'{copies}'", allowed, hint)
        elif entry.venv_path == SELF and copies.lower() not in FALSE:
            words = "our own environment is not copied"
            yield Finding(f"environments.{name}.local_copy", words, copies, "false")
        addresses = {
            "index_url": (entry.index_url,),
            "find_links": entry.find_links,
            "first.index_url": (entry.first.index_url,),
        }
        for key, texts in addresses.items():
            if any(holds_secret(text) for text in texts):
                words = "a URL that contains a password, which would be saved with the run"
                allowed = (
                    "${NAME} in place of the password (an environment variable, read when the "
                    "environment is built)"
                )
                hint = "or remove the password: uv and pip read ~/.netrc"
                yield Finding(f"environments.{name}.{key}", words, "a value (not shown)", allowed, hint)
        packages = {"requirements": entry.requirements, "first.requirements": entry.first.requirements}
        for key, texts in packages.items():
            if any(holds_secret(text.replace("://git@", "://")) for text in texts):
                words = "a URL that contains a password, which other users could read on the installer's command line"
                allowed = "a URL without a password: uv, pip and git read ~/.netrc"
                yield Finding(f"environments.{name}.{key}", words, "a value (not shown)", allowed)


def holds_secret(address: str) -> bool:
    """Whether a package index's address contains a password or token in plain text; ``${NAME}`` is none.

    A user name counts as a token unless its password is given by references only, as in ``user:${NAME}@``.
    """
    plain = _REFERENCE.sub("", address)
    _, at, _ = plain.partition("://")
    user = _USERINFO.search(plain)
    name, _, password = user[0].removeprefix("://").removesuffix("@").partition(":") if user else ("", "", "")
    secret = bool(password.strip(":/")) or (bool(name) and not _PASSWORD_REFERENCE.search(address))
    return bool(at) and (secret or "?" in plain)
