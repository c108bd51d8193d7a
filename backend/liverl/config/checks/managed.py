"""Rules between configuration keys, for every run. Each names the keys it reads, and is skipped if one of them has a
wrong value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from liverl.config import conditions as when
from liverl.config.carrier import CARRIER_OF, LOOP_OF, carrier
from liverl.config.checks import agent, critic, experts, harbor, notify, verl
from liverl.config.checks.mending import patch_of
from liverl.config.checks.ruleset import SAFE_NAME, Finding, RuleSet
from liverl.config.consumers import why_inert
from liverl.config.dump import looks_secret
from liverl.config.end_time import EXPECTED, end_seconds
from liverl.config.errors import Problem
from liverl.config.layers import Setting
from liverl.config.schema import Path, RunConfig, schema_key, value_of
from liverl.config.sizing import BUILTIN, bare_key, is_smoke
from liverl.config.trainer_mode import OF_ROLLOUTS, fully_async
from liverl.engines import ENGINES
from liverl.engines.adapter.argv import keys_of
from liverl.engines.tool_formats import AUTO
from liverl.model import MIRRORED
from liverl.util.decode import decode_loose_json
from liverl.util.nearest import did_you_mean
from liverl.util.plural import quantity

_OWN = "LIVERL_"
_PACKAGED = ("default", "trainer", "profile")
# A name, an IPv4 address, or an IPv6 address without brackets.
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|(?=.*:.*:)[0-9A-Fa-f:.]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?|\*")

_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")  # at most 15 characters in Linux

RULES = RuleSet()
_rule = RULES.rule


@_rule("network.interface")
def _interface(c: RunConfig) -> Iterator[Finding]:
    name = c.network.interface
    if name and _INTERFACE.fullmatch(name) is None:
        words = "not the name of a network interface (gloo takes no list)"
        yield Finding("network.interface", words, f"{name!r:.60}", "one name, such as eth0")


@_rule("batch.end_time")
def _batch_end(c: RunConfig) -> Iterator[Finding]:
    try:
        if c.batch.end_time:
            end_seconds(c.batch.end_time)
    except ValueError:
        yield Finding("batch.end_time", "not the end of a job", f"{c.batch.end_time!r:.60}", EXPECTED)


def check(config: RunConfig, settings: dict[Path, Setting], bad: set[str]) -> list[Problem]:
    """A problem for every broken rule, located at the key to change, where the user or the profile set it. A default is
    not to blame where the user, or else the profile, set another key of the rule. Where the value is not the user's,
    the keys of the rule that the user set are named. A number that mends it is named if one was found by trying.

    ``bad``: the keys and sections whose value was refused; rules that read them are skipped.
    """
    problems = [] if mirrored(config, _MODES[0]) else list(_two_modes(config, settings))
    for keys, rule in _every_rule():
        if any(key in bad for key in keys):
            continue
        for finding in rule(config):
            if mirrored(config, finding.key):
                continue
            blamed = _setting(settings, finding.key)
            if _of_the_script(config, finding.key, blamed):
                continue
            beside = _chosen(settings, keys) if blamed is not None and blamed.layer in _PACKAGED else {}
            if blamed is None or blamed.layer == "default":
                chosen = [s for key in keys if (s := _setting(settings, key)) is not None]
                blamed = next((s for s in chosen if s.layer not in _PACKAGED), blamed)
                if blamed is None or blamed.layer == "default":
                    blamed = next((s for s in chosen if s.layer != "default"), blamed)
            assert blamed is not None, finding.key
            problems.append(
                Problem(
                    blamed.where,
                    finding.key,
                    finding.message,
                    finding.found,
                    finding.allowed,
                    finding.hint,
                    patch_of(config, finding, faults),
                    beside,
                )
            )
    return problems


_MODES = ("verl.trainer_mode", "verl.rollout_mode")


def _two_modes(config: RunConfig, settings: dict[Path, Setting]) -> Iterator[Problem]:
    """Both keys for the trainer's mode are given, and say different things."""
    newer, older = (_exactly(settings, key) for key in _MODES)
    mode = config.verl.trainer_mode
    if newer is None or older is None or mode is None:
        return
    means = OF_ROLLOUTS[config.verl.rollout_mode]
    if (means == "sync") != (mode == "sync"):
        words = f"verl.rollout_mode {config.verl.rollout_mode} ({older.where.exact}) means {means}"
        hint = "remove verl.rollout_mode: verl.trainer_mode already decides it"
        yield Problem(newer.where, _MODES[0], words, mode, f"{means}, or null", hint)


def other_modes(given: Mapping[Path, Setting]) -> tuple[str, ...]:
    """The key for the trainer's mode that ``given`` does not have, where it gives the other one, which says all of it;
    none where it gives both or neither."""
    keys = [key for key in _MODES if (s := _exactly(given, key)) is not None and s.value is not None]
    return tuple(key for key in _MODES if key not in keys) if keys else ()


def with_rollout_mode(config: RunConfig, settings: dict[Path, Setting]) -> RunConfig:
    """The configuration with the ``verl.rollout_mode`` that ``verl.trainer_mode`` means, where no user gave one, so
    that both agree wherever the configuration is written."""
    mode, older = config.verl.trainer_mode, _exactly(settings, _MODES[1])
    if mode is None or (older is not None and older.layer not in _PACKAGED):
        return config
    rollouts = "hybrid" if mode == "sync" else "standalone"
    return replace(config, verl=replace(config.verl, rollout_mode=rollouts))


def _every_rule() -> Iterator[tuple[tuple[str, ...], Callable[[RunConfig], Iterator[Finding]]]]:
    return iter(
        (*RULES, *verl.RULES, *experts.RULES, *critic.RULES, *agent.RULES, *harbor.RULES, *notify.RULES)
    )


def faults(config: RunConfig) -> Iterator[Finding]:
    """What every rule finds in a configuration, wherever its values come from."""
    for _, rule in _every_rule():
        yield from rule(config)


def _chosen(settings: dict[Path, Setting], keys: Sequence[str]) -> dict[str, str]:
    """Which of the keys the user set, and where."""
    found = {key: _exactly(settings, key) for key in keys}
    return {
        key: str(setting.where)
        for key, setting in found.items()
        if setting is not None and setting.layer not in _PACKAGED
    }


def _exactly(settings: Mapping[Path, Setting], key: str) -> Setting | None:
    """Where ``key`` itself was set; None if at most a section around it was."""
    return settings.get(tuple(key.split(".")))


def mirrored(config: RunConfig, key: str) -> bool:
    """Whether ``key`` only repeats what a launch script sets by itself. Its value has no effect in the run, so a wrong
    one must not keep it from starting."""
    try:
        return why_inert(config, schema_key(key)) == MIRRORED
    except KeyError:
        return False


def _of_the_script(config: RunConfig, key: str, setting: Setting | None) -> bool:
    """Whether ``key`` describes a model that only the user's launch script knows: its value is a default, and the
    script does not get it."""
    packaged = setting is None or setting.layer in _PACKAGED
    return when.command(config) and key.startswith("model.") and packaged


def _setting(settings: dict[Path, Setting], key: str) -> Setting | None:
    """The setting of ``key``; else the first one among its nested keys, or else in its section.

    Names that the user chooses may contain dots (``trainer.overrides``, ``environments``).
    """
    path = key.split(".")
    for depth in range(len(path), 0, -1):
        for other, setting in settings.items():
            if _parts(other)[:depth] == path[:depth]:
                return setting
    return None


def _parts(path: Path) -> list[str]:
    return ".".join(bare_key(part) for part in path).split(".")


@_rule("run.topology", "run.engine", "trainer.kind")
def _combination(c: RunConfig) -> Iterator[Finding]:
    allowed = ENGINES[c.run.engine].trainers.get(c.run.topology)
    if allowed is None:
        fits = [engine for engine in ENGINES.values() if c.run.topology in engine.trainers]
        starts = " or ".join(engine.title for engine in fits)
        words = f"in topology {c.run.topology}, verl starts the replicas, and it supports only {starts}"
        if c.run.topology == "managed":
            words = f"{ENGINES[c.run.engine].title} is not supported with topology managed"
        yield Finding("run.engine", words, c.run.engine, ", ".join(engine.name for engine in fits))
    elif c.trainer.kind not in allowed:
        words = f"not supported with topology {c.run.topology} and engine {c.run.engine}"
        hint = ""
        if c.run.topology == "managed" and c.trainer.kind in ("verl", "command"):
            hint = "set run.topology: verl and run.engine: vllm to use this trainer"
        yield Finding("trainer.kind", words, c.trainer.kind, ", ".join(allowed), hint)


@_rule("trainer.kind", "trainer.command")
def _command(c: RunConfig) -> Iterator[Finding]:
    if c.trainer.kind == "command" and not c.trainer.command:
        yield Finding(
            "trainer.command",
            "trainer.kind command requires trainer.command",
            "nothing",
            "a list: [bash, train.sh]",
        )


@_rule("trainer.kind", "trainer.env")
def _script_env(c: RunConfig) -> Iterator[Finding]:
    if not when.command(c):
        return
    for name in c.trainer.env:
        key = f"trainer.env.{name}"
        if not _VARIABLE.fullmatch(name):
            yield Finding(key, "not the name of an environment variable", f"'{name}'")
        elif name.startswith(_OWN):
            yield Finding(key, f"variables that begin with {_OWN} are liverl-tui's own", f"'{name}'")
        elif looks_secret(name):
            words = "looks like a secret, and would be saved with the run"
            hint = "export it in the shell: a launch script inherits all variables"
            yield Finding(key, words, "a value (not shown)", hint=hint)


@_rule("run.topology", "run.engine", "trainer.kind", "model.model_path")
def _model(c: RunConfig) -> Iterator[Finding]:
    if when.command(c):
        return  # the script serves it, by whatever means
    path = c.model.model_path
    builtin = path.removeprefix(BUILTIN) if path.startswith(BUILTIN) else None
    engine = ENGINES[c.run.engine]
    policies = ", ".join(BUILTIN + name for name in engine.policies)
    local = path.startswith(("/", "./", "../", "~/"))  # a model directory that the embedded engine wrote
    if engine.policies and builtin not in engine.policies and not local:
        hint = did_you_mean(builtin or path, engine.policies)
        yield Finding(
            "model.model_path",
            f"{engine.title} can only serve its own policies",
            f"'{path}'",
            f"{policies}, or the path of a model directory written by the embedded engine",
            hint or "to serve a checkpoint, set run.engine: vllm (--profile vllm-managed or liverl-gen1)",
        )
    elif c.run.topology == "managed" and is_smoke(c):
        yield Finding(
            "model.model_path",
            "only topology verl can create the smoke model, because it requires verl's environment",
            f"'{path}'",
            "the directory created by `liverl-tui make-smoke DIR`: DIR/model",
        )
    elif not engine.policies and builtin is not None:
        yield Finding(
            "model.model_path",
            f"{engine.title} cannot serve a built-in policy",
            f"'{path}'",
            "a checkpoint directory or a model id",
        )


@_rule("run.engine", "model.tool_parser")
def _parser(c: RunConfig) -> Iterator[Finding]:
    engine = ENGINES[c.run.engine]
    if c.model.tool_parser not in (AUTO, *engine.tool_parsers):
        hint = did_you_mean(c.model.tool_parser, engine.tool_parsers)
        yield Finding(
            "model.tool_parser",
            f"unknown parser for {engine.title}",
            f"'{c.model.tool_parser}'",
            ", ".join((*engine.tool_parsers, AUTO)),
            hint,
        )


@_rule("model.served_model_name")
def _served(c: RunConfig) -> Iterator[Finding]:
    name = c.model.served_model_name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}", name):
        allowed = "letters, digits and . _ - / : (the name is used in URLs, labels and aliases)"
        yield Finding("model.served_model_name", "invalid name", f"'{c.model.served_model_name}'", allowed)
    elif name.startswith("os.environ/"):
        words = "LiteLLM would replace it by the value of an environment variable"
        yield Finding(
            "model.served_model_name", words, f"'{name}'", "a name that does not begin with os.environ/"
        )


@_rule("run.engine", "model.model_path", "vllm.dtype")
def _options(c: RunConfig) -> Iterator[Finding]:
    for key in sorted(keys_of(ENGINES[c.run.engine].argv)):
        value = value_of(c, key)
        if isinstance(value, str) and value.startswith("-"):
            words = f"{ENGINES[c.run.engine].title} would read it as an option of its command line"
            yield Finding(key, words, f"'{value}'", "text that does not begin with -")


@_rule(
    "training.train_batch_size",
    "training.train_prompt_mini_batch_size",
    "trainer.kind",
    "verl.trainer_mode",
    "verl.rollout_mode",
)
def _mini_batch(c: RunConfig) -> Iterator[Finding]:
    batch, mini = c.training.train_batch_size, c.training.train_prompt_mini_batch_size
    if batch % mini and not fully_async(c):
        near = max(n for n in range(1, min(mini, batch) + 1) if batch % n == 0) if batch <= 100_000 else 1
        words = f"must divide training.train_batch_size ({batch})"
        yield Finding("training.train_prompt_mini_batch_size", words, str(mini), f"for example {near}")


@_rule("run.topology", "run.replicas", "run.engine", "vllm.gen_tp", "infrastructure.ngpus_per_node")
def _managed_gpus(c: RunConfig) -> Iterator[Finding]:
    key = ENGINES[c.run.engine].gpus
    each = int(value_of(c, key)) if key else 0
    need, have = c.run.replicas * each, c.infrastructure.ngpus_per_node
    if c.run.topology == "managed" and need > have:
        needs = "needs" if c.run.replicas == 1 else "need"
        wanted = f"{quantity(c.run.replicas, 'replica')} of {quantity(each, 'GPU')} ({key})"
        words = f"{wanted} {needs} {quantity(need, 'GPU')}"
        fits = have // each
        allowed = f"at most {quantity(fits, 'replica')}" if fits else f"{key} of at most {have}"
        yield Finding("run.replicas", words, f"infrastructure.ngpus_per_node: {have}", allowed)


@_rule("run.topology", "run.engine", "infrastructure.nnodes")
def _one_host(c: RunConfig) -> Iterator[Finding]:
    if when.managed(c) and ENGINES[c.run.engine].gpus and c.infrastructure.nnodes > 1:
        words = "run.topology managed starts all replicas on this host and cannot use other hosts"
        hint = (
            "start one run on each host with proxy.host 0.0.0.0, and one HTTP proxy of your own in front of them; or "
            "set run.topology to verl or in_process, so that verl places the replicas"
        )
        yield Finding("infrastructure.nnodes", words, str(c.infrastructure.nnodes), "1", hint)


@_rule("run.topology", "training.max_prompt_length", "training.max_response_length", "vllm.max_model_length")
def _window(c: RunConfig) -> Iterator[Finding]:
    total = c.training.max_prompt_length + c.training.max_response_length
    if c.run.topology != "managed" and total > c.vllm.max_model_length:
        words = f"training.max_prompt_length + training.max_response_length is {total} tokens"
        yield Finding("vllm.max_model_length", words, str(c.vllm.max_model_length), f"at least {total}")


@_rule("trainer.kind", "training.total_steps")
def _steps(c: RunConfig) -> Iterator[Finding]:
    if c.trainer.kind == "embedded" and c.training.total_steps is None:
        yield Finding(
            "training.total_steps",
            "the embedded trainer requires a number of steps",
            "null",
            "a whole number >= 1",
        )


@_rule("algorithm.clip_ratio_low")
def _clip(c: RunConfig) -> Iterator[Finding]:
    if c.algorithm.clip_ratio_low >= 1:
        yield Finding(
            "algorithm.clip_ratio_low", "wrong value", f"{c.algorithm.clip_ratio_low:g}", "a number < 1"
        )


@_rule("trainer.kind", "algorithm.temperature")
def _temperature(c: RunConfig) -> Iterator[Finding]:
    if c.trainer.kind in ("embedded", "verl") and c.algorithm.temperature == 0:
        words = "with temperature 0 all answers to a prompt are identical, so there is no learning signal"
        yield Finding("algorithm.temperature", words, "0", "a number > 0")


@_rule(
    "trainer.kind",
    "proxy.request_timeout",
    "harbor_agent.max_timeout_sec",
    "harbor_agent.override_timeout_sec",
)
def _timeouts(c: RunConfig) -> Iterator[Finding]:
    trial = c.harbor_agent.trial_timeout
    given = c.proxy.request_timeout
    if c.trainer.kind != "none" and given < trial:
        words = "the proxy would end requests of trials that may still run"
        expected = f"at least the time of a trial (harbor_agent), {trial:g} s"
        yield Finding("proxy.request_timeout", words, f"{given:g} s", expected)


@_rule("run.topology", "trainer.kind", "proxy.trials_through")
def _trials_through(c: RunConfig) -> Iterator[Finding]:
    if c.trainer.kind == "command" and c.proxy.trials_through == "sessions":
        words = "your launch script starts what carries the trials"
        yield Finding("proxy.trials_through", words, "sessions", "auto")
    elif c.run.topology == "in_process" and c.proxy.trials_through == "litellm":
        words = "in run.topology in_process verl's agent-loop workers host sessions, and there is no LiteLLM"
        yield Finding(
            "proxy.trials_through", words, "litellm", "auto or sessions", "LiteLLM: run.topology verl"
        )


@_rule("run.topology", "trainer.kind", "proxy.trials_through", "verl.agent_loop")
def _agent_loop(c: RunConfig) -> Iterator[Finding]:
    through = CARRIER_OF.get(c.verl.agent_loop)
    if not when.verl_trainer(c) or through in (None, carrier(c)):
        return
    because = (
        f"proxy.trials_through is {c.proxy.trials_through}"
        if c.run.topology != "in_process"
        else "run.topology is in_process"
    )
    words = f"this agent loop needs proxy.trials_through {through}, but {because}"
    yield Finding("verl.agent_loop", words, c.verl.agent_loop, f"auto or {LOOP_OF[carrier(c)]}")


# What of a run listens on a port that its configuration names, on whatever address: key, name, and when it does.
_LISTENERS: tuple[tuple[str, str, Callable[[RunConfig], bool]], ...] = (
    ("infrastructure.litellm_port", "LiteLLM", when.our_proxy),
    ("infrastructure.ray_port", "Ray", when.our_head),
    ("infrastructure.ray_dashboard_port", "Ray's dashboard", when.our_head),
    ("session_proxy.port", "sessions", when.session_service),
    ("observe.metrics_port", "what Prometheus reads", when.serves_metrics),
)


@_rule(
    "run.topology",
    "trainer.kind",
    "ray.address",
    "proxy.trials_through",
    "proxy.host",
    *(key for key, _, _ in _LISTENERS),
)
def _same_ports(c: RunConfig) -> Iterator[Finding]:
    taken: dict[int, tuple[str, str]] = {}
    for key, name, listens in _LISTENERS:
        port = int(value_of(c, key)) if listens(c) else 0
        if port and port in taken:
            before, other_name = taken[port]
            if all(one.startswith("infrastructure.") for one in (key, before)):
                continue  # ``verl`` compares those, also for launch scripts
            words = f"{name} and {other_name} cannot listen on the same port"
            other = "another port" if key == "observe.metrics_port" else "another port, or 0 for any free one"
            yield Finding(key, words, str(port), other)
        elif port:
            taken[port] = key, name


@_rule(
    "run.topology",
    "trainer.kind",
    "proxy.trials_through",
    "session_proxy.rewrite",
    "algorithm.temperature",
)
def _recompute(c: RunConfig) -> Iterator[Finding]:
    if c.session_proxy.rewrite != "recompute" or not (when.our_sessions(c) and when.embedded_or_verl(c)):
        return
    if c.algorithm.temperature != 1:
        words = (
            "engines give the log-probabilities of a prompt at temperature 1, those of a reply at "
            f"algorithm.temperature, which is {c.algorithm.temperature:g}"
        )
        hint = "recompute: algorithm.temperature 1"
        yield Finding("session_proxy.rewrite", words, "recompute", "split or mask", hint)


@_rule("proxy.advertise")
def _advertise(c: RunConfig) -> Iterator[Finding]:
    if c.proxy.advertise and (not _HOST.fullmatch(c.proxy.advertise) or c.proxy.advertise in when.ANY_HOST):
        words = "agents cannot reach this host"
        allowed = "a host name or an IP address, without http:// or a port"
        yield Finding("proxy.advertise", words, f"'{c.proxy.advertise}'", allowed)


@_rule("supervise.pass_env")
def _pass_env(c: RunConfig) -> Iterator[Finding]:
    for pattern in c.supervise.pass_env:
        if not _PATTERN.fullmatch(pattern):
            words = "not the name of an environment variable"
            yield Finding(
                "supervise.pass_env", words, f"'{pattern}'", "a name, or its beginning followed by *"
            )
        elif pattern.startswith(_OWN):
            words = f"variables that begin with {_OWN} are liverl-tui's own, and are not passed to services"
            yield Finding("supervise.pass_env", words, f"'{pattern}'", "names of other variables")


@_rule("run.name", "experiment.project_name", "experiment.exp_name")
def _names(c: RunConfig) -> Iterator[Finding]:
    allowed = "one path component: letters, digits and . _ -, at most 128, the first a letter or a digit"
    names = {
        "experiment.project_name": c.experiment.project_name,
        "experiment.exp_name": c.experiment.exp_name,
        "run.name": c.run.name,
    }
    for key, name in names.items():
        if name and not SAFE_NAME.fullmatch(name):
            yield Finding(key, "invalid directory name", f"'{name}'", allowed)


@_rule(
    "run.topology", "trainer.kind", "harbor_agent.environment_type", "harbor_agent.environment_import_path"
)
def _harbor(c: RunConfig) -> Iterator[Finding]:
    agent = c.harbor_agent
    if (
        c.run.topology != "managed"
        and agent.environment_type
        and "kubernetes" in (agent.environment_import_path or "")
    ):
        words = "must be null with a Kubernetes class in environment_import_path; Harbor rejects every trial otherwise"
        yield Finding("harbor_agent.environment_type", words, f"'{agent.environment_type}'", "null")


@_rule("harbor_agent.host_path_mounts")
def _mounts(c: RunConfig) -> Iterator[Finding]:
    if when.harbor(c):
        return  # ``checks.harbor`` looks at each of them
    mounts = c.harbor_agent.host_path_mounts
    if isinstance(mounts, str) and mounts:
        try:
            mounts = decode_loose_json(mounts)
        except (ValueError, RecursionError):
            mounts = False
    if mounts not in (None, "") and not isinstance(mounts, list):
        allowed = "null, a list, or a string that contains a JSON list"
        yield Finding(
            "harbor_agent.host_path_mounts",
            "wrong value",
            f"{c.harbor_agent.host_path_mounts!r:.80}",
            allowed,
        )


@_rule("run.replicas", "embedded.faults.late_replica.index", "embedded.faults.late_replica.seconds")
def _late_replica(c: RunConfig) -> Iterator[Finding]:
    late = c.embedded.faults.late_replica
    if late.seconds and late.index >= c.run.replicas:
        allowed = f"0 to {c.run.replicas - 1}"
        yield Finding("embedded.faults.late_replica.index", "no such replica", str(late.index), allowed)


@_rule("run.replicas", "embedded.faults.ignore_sigterm")
def _deaf(c: RunConfig) -> Iterator[Finding]:
    services = ["trainer", *(f"replica-{index}" for index in range(min(c.run.replicas, 1000)))]
    for name in c.embedded.faults.ignore_sigterm:
        if name not in services:
            hint = did_you_mean(name, services)
            yield Finding(
                "embedded.faults.ignore_sigterm",
                "no such service",
                f"'{name}'",
                ", ".join(services[:9]),
                hint,
            )


def secret_overrides(settings: dict[Path, Setting]) -> list[str]:
    """Warnings for overrides whose name suggests that their value is a secret."""
    return [
        f"{setting.where}: {'.'.join(path)} looks like a secret and is not saved; set it in an environment variable"
        for path, setting in settings.items()
        if path[:2] == ("trainer", "overrides") and looks_secret(".".join(path[2:])) and setting.value
    ]
