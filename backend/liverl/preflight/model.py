"""The model that a run serves: whether it is there, and whether it can be split over the GPUs of a replica."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from liverl.config import conditions as when
from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.config.sizing import BUILTIN
from liverl.embedded import modeldir as embedded
from liverl.engines import ENGINES
from liverl.model import Check, Evidence
from liverl.plan.spec import Plan
from liverl.preflight import hub
from liverl.preflight.modeldir import Heads, heads_of, read_heads
from liverl.preflight.nearby import nearby
from liverl.preflight.subject import variables_of

NAME = "model"
HEADS = "model-heads"  # the id of the check of tensor parallelism, and of sequence parallelism:
SEQUENCE = "model-sequence"
_KEY = "model.model_path"
_MISTRAL = "params.json"  # of a model in Mistral's own form
_OVERRIDE = "actor_rollout_ref.model.path"  # of verl, whose own spelling wins
_ENGINE = "model_engine"  # verl's own choice; without one it is FSDP
_TENSOR = "actor_rollout_ref.rollout.tensor_model_parallel_size"
_FOLDER = "set {key} to the folder with config.json and the weights of the model"


class Named(NamedTuple):
    """What the configuration names as the model, and the key that does."""

    key: str
    name: str


def named(config: RunConfig) -> Named:
    """The model that is served, or trained by verl."""
    override = sizing.override(config, _OVERRIDE) if when.verl_trainer(config) else None
    if override is not None:
        return Named(f"trainer.overrides.{_OVERRIDE}", str(override))
    return Named(_KEY, sizing.model_path(config))


def reader_env(plan: Plan, env: Mapping[str, str]) -> dict[str, str]:
    """The variables of the service that reads the model."""
    spec = plan.replica_template or next((s for s in plan.services if s.ends_run), None)
    return variables_of(spec, env) if spec is not None else dict(env)


def folder_of(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Path | None:
    """The directory with the model's files: the configured folder, or the hub's cache; None if neither is on this
    host.

    Raises:
        OSError: the cache cannot be read.
    """
    name = named(config).name
    if os.path.isabs(name):
        return Path(name) if os.path.isdir(name) else None
    return hub.cached(name, reader_env(plan, env)) if hub.is_id(name) else None


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Iterator[Check]:
    """The model of a run that serves one."""
    key, name = named(config)
    if when.managed(config) and not ENGINES[config.run.engine].gpus:
        yield _embedded(key, name)
    elif "://" in name:
        yield Check(NAME, "skipped", f"{name}: not on this host; it is read at the start of the run")
    elif os.path.isabs(name):
        yield from _folder(config, key, Path(name))
    else:
        yield from _id(plan, config, env, key, name)


def _embedded(key: str, name: str) -> Check:
    """A model of the embedded engine: packaged, or a folder that it has written."""
    try:
        folder = embedded.find(name)
        embedded.read_config(folder)
        embedded.read_weights(folder)
    except (OSError, ValueError) as error:
        if not name.startswith(BUILTIN) and not os.path.isdir(name):
            return _missing(key, Path(name), f"there is no directory {name}")
        if isinstance(error, PermissionError):
            return _unreadable(f"cannot read {error.filename}: {error.strerror}")
        return Check(NAME, "fail", f"{name}: {error}", fix=_FOLDER.format(key=key))
    return Check(NAME, "ok", f"{name}: packaged" if name.startswith(BUILTIN) else name)


def will_be_made(config: RunConfig) -> bool:
    """Whether the run itself makes the model, and has not yet."""
    name = named(config).name
    return sizing.is_smoke(config) and name == sizing.model_path(config) and not os.path.lexists(name)


def _folder(config: RunConfig, key: str, folder: Path) -> Iterator[Check]:
    file = folder / "config.json"
    if will_be_made(config):
        yield Check(NAME, "skipped", f"{folder} will be created at the start of the run")
        return
    if when.managed(config):  # of vLLM, which reads other forms, too
        if folder.suffix == ".gguf" and os.path.isfile(folder):
            yield Check(NAME, "skipped", f"{folder} is there; what it holds was not looked at")
            return
        if not os.path.lexists(file) and os.path.isfile(folder / _MISTRAL):
            file = folder / _MISTRAL
    yield from _file(config, key, folder, file, str(folder))


def _file(config: RunConfig, key: str, folder: Path, file: Path, where: str) -> Iterator[Check]:
    """What the config.json of a model in ``folder`` says."""
    try:
        heads = read_heads(file)
    except PermissionError as error:
        yield _unreadable(f"cannot read {file}: {error.strerror}")
    except OSError as error:
        yield _missing(key, folder, f"cannot read {file}: {os.strerror(error.errno or 0)}")
    except ValueError as error:
        fix = "copy or download the model again"
        yield Check(NAME, "fail", f"cannot parse {file}: {error}", fix=fix)
    else:
        yield from _split(config, where, heads, str(file))


def _unreadable(text: str) -> Check:
    """That this user may not read what is there."""
    return Check(NAME, "fail", text, fix="make the folder and its files readable for this user")


def _missing(key: str, folder: Path, text: str) -> Check:
    """That a model's folder, or its config.json, is not there, with the folder that may be meant."""
    if os.path.exists(folder):
        return Check(NAME, "fail", text, fix=_FOLDER.format(key=key))
    words, near = nearby(str(folder))
    fix = "; ".join(filter(None, (words, _FOLDER.format(key=key))))
    patch = {key: near} if near is not None and key == _KEY else {}
    return Check(NAME, "fail", text, fix=fix, patch=patch, guess=bool(patch))


def _id(plan: Plan, config: RunConfig, env: Mapping[str, str], key: str, name: str) -> Iterator[Check]:
    if not hub.is_id(name):
        fix = f"write an absolute path, or one that begins with ./ or ~/, in {key}"
        patch = {key: os.path.abspath(name)} if os.path.isdir(name) and key == _KEY else {}
        yield Check(NAME, "fail", f"{name} is neither a path nor the id of a model", fix=fix, patch=patch)
        return
    variables = reader_env(plan, env)
    cached = hub.cached(name, variables)
    if cached is not None:
        yield from _file(config, key, cached, cached / "config.json", f"{name} in {cached}")
        return
    place = hub.cache_directory(variables)
    forbids = hub.offline(variables)
    if forbids:
        fix = f"download it where there is internet, or set {key} to its folder; {forbids} forbids downloads"
        yield Check(NAME, "fail", f"{name} is not in {place}, and {forbids} is set", fix=fix)
        return
    other = hub.elsewhere(variables)
    if other:
        yield Check(
            NAME, "skipped", f"{name} is not in {place}; {other} is set, and ModelScope was not asked"
        )
        return
    answer = hub.ask(name, variables)
    if answer.status == "ok":
        try:
            heads = heads_of(answer.config)
        except ValueError:
            words = f"whether the hub has {name} is not known: what it answers is no config.json"
            yield Check(NAME, "skipped", words)
        else:
            yield from _split(config, f"{name}: {answer.text}; it is downloaded at the start", heads, name)
        return
    fixes = [answer.fix]
    if answer.fix and "HF_TOKEN" in env and "HF_TOKEN" not in variables:
        fixes.insert(
            0, "HF_TOKEN is set here, but the replicas do not inherit it: add it to supervise.pass_env"
        )
    folder = os.path.abspath(name) if os.path.isdir(name) and key == _KEY else ""
    if folder:
        fixes.insert(0, f"to use the folder {folder}, write its whole path: services do not start here")
    text = answer.text
    if answer.status == "skipped":
        text = f"{name} is a model id that is not in {place}: {text}"
    patch = {key: folder} if folder else {}
    fix = "; ".join(filter(None, fixes))
    yield Check(NAME, answer.status, text, fix=fix, patch=patch, guess=bool(patch))


def tensor_parallel(config: RunConfig) -> tuple[str, int]:
    """The key that decides over how many GPUs each replica is split, and the number."""
    override: Any = sizing.override(config, _TENSOR) if when.verl_trainer(config) else None
    if override is None:
        return "vllm.gen_tp", config.vllm.gen_tp
    return f"trainer.overrides.{_TENSOR}", int(str(override))


def _split(config: RunConfig, where: str, heads: Heads, source: str) -> Iterator[Check]:
    """Whether a model with these heads can be split as configured. ``where``: the model, for people."""
    yield from _tensor(config, where, heads, source)
    if when.verl_trainer(config) and config.training.sp_size > 1 and heads.attention is not None:
        yield from _sequence(config, heads, source)


def _sequence(config: RunConfig, heads: Heads, source: str) -> Iterator[Check]:
    """Whether verl's trainer can split the sequences of such a model."""
    size, name = config.training.sp_size, "sequence parallel"
    if sizing.override(config, _ENGINE) is not None:
        yield Check(
            name, "skipped", f"what {_ENGINE} of trainer.overrides asks of heads is not known", SEQUENCE
        )
        return
    problem = heads.sequence_problem(size)
    if not problem:
        yield Check(
            name, "ok", f"training.sp_size {size} divides {heads.attention} attention heads", SEQUENCE
        )
        return
    gpus = sizing.trainer_gpus(config)
    fitting = [n for n in range(1, gpus + 1) if gpus % n == 0 and not heads.sequence_problem(n)]
    below = max(n for n in fitting if n <= size)
    yield Check(
        name,
        "fail",
        f"training.sp_size is {size}, but {problem}",
        SEQUENCE,
        (Evidence(f"{source}: {arithmetic(heads, size)}"),),
        f"set training.sp_size to {' or '.join(map(str, fitting))}",
        {"training.sp_size": str(below)},
        guess=len(fitting) > 1,
    )


def _tensor(config: RunConfig, where: str, heads: Heads, source: str) -> Iterator[Check]:
    key, tensor = tensor_parallel(config)
    problem = heads.problem(tensor)
    if not problem and heads.attention is None:
        yield Check(NAME, "ok", f"{where}: its config.json can be read")
        words = f"its config.json names no number of heads: whether {tensor} divides them is not known"
        yield Check(NAME, "skipped", f"{key} is {tensor}; {words}", HEADS)
        return
    if not problem:
        known = heads.key_value or "unknown"
        yield Check(NAME, "ok", f"{where}: {known} key-value heads, {key} {tensor}")
        if heads.key_value is None:
            words = f"{source} names no number of key-value heads: whether {tensor} divides them is not known"
            yield Check(NAME, "skipped", words, HEADS)
        return
    fitting = [size for size in heads.divisors() if fits(config, size)]
    below = [size for size in fitting if size <= tensor]
    chosen = str(max(below) if below else min(fitting)) if fitting else ""
    patch = {key: chosen} if chosen and key == "vllm.gen_tp" else {}
    yield Check(
        NAME,
        # vLLM serves such a model; what fails is a kernel of some versions.
        "warn" if when.managed(config) and heads.replicated(tensor) else "fail",
        f"{key} is {tensor}, but {problem}",
        HEADS,
        (Evidence(f"{source}: {arithmetic(heads, tensor)}"),),
        f"set {key} to {' or '.join(map(str, fitting))}" if fitting else f"{key} 1 would divide them",
        patch,
        guess=len(fitting) > 1,
    )


def arithmetic(heads: Heads, tensor: int) -> str:
    """``32 attention heads = 10 x 3 + 2, 4 key-value heads = 1 x 3 + 1``."""
    numbers = (("attention", heads.attention), ("key-value", heads.key_value))
    return ", ".join(
        f"{number} {kind} heads = {number // tensor} x {tensor}"
        + (f" + {number % tensor}" if number % tensor else "")
        for kind, number in numbers
        if number is not None
    )


def fits(config: RunConfig, size: int) -> bool:
    """Whether the GPUs of the run can be divided into replicas of ``size`` GPUs."""
    if when.managed(config):
        return size * config.run.replicas <= config.infrastructure.ngpus_per_node
    try:
        each = sizing.replica_gpus(config) // max(1, tensor_parallel(config)[1]) * size
        return each > 0 and sizing.generating_gpus(config) % each == 0
    except sizing.SizeError:
        return False
