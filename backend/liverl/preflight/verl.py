"""Checks for topology verl: problems that verl and Ray would report minutes after their start, or never."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from liverl.config import conditions as when
from liverl.config import sizing
from liverl.config.carrier import agent_loop
from liverl.config.schema import RunConfig
from liverl.config.sections.verl import OUR_LOOPS
from liverl.config.trainer_mode import generates_apart
from liverl.engines.tool_formats import VERL_FORMATS as FORMATS
from liverl.environments import BuildError, resolve
from liverl.model import Check
from liverl.plan.harbor import tasks_directory
from liverl.plan.spec import Plan
from liverl.plan.verl_overrides import FSDP
from liverl.preflight import agents, data_rows, harbor
from liverl.preflight.data_rows import Answer
from liverl.preflight.interpreter import UNBUILT, interpreter
from liverl.preflight.nearby import nearby
from liverl.procs.asking import ask_program
from liverl.util.decode import decode_loose_json
from liverl.util.parquet_footer import MAGIC, read_footer
from liverl.util.paths import default_cache_dir
from liverl.util.plural import quantity
from liverl.util.regular_file import open_binary

# What `main_ppo` imports; TransferQueue and cachetools are not among the packages that verl itself requires.
MODULES = ("transfer_queue", "cachetools", "tensordict", "ray", "hydra", "verl")
_DISTRIBUTIONS = ("verl", "ray", "torch", "vllm", "TransferQueue", "transformers")
_ROWS_SECONDS = 40.0  # to read rows, of all files together
_IMPORT_SECONDS = 60.0  # a cold network disk is slow
VAL = "data.val_index"
NEVER = "training.test_freq is not above 0, and training.val_before_train is false"
NO_VALIDATION = f"no validation runs: {NEVER}"
UNREAD = f"no row was read: {UNBUILT}"
# verl/utils/tracking.py; verl rejects an unknown one only when all engines are up.
LOGGERS = (
    "wandb",
    "mlflow",
    "swanlab",
    "vemlp_wandb",
    "tensorboard",
    "console",
    "clearml",
    "trackio",
    "file",
    "rl_insight",
)
_ASK = """
import importlib.util, importlib.metadata, json, sys
modules, names = json.loads(sys.argv[1])
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({
    "missing": [m for m in modules if importlib.util.find_spec(m) is None],
    "versions": {n: version(n) for n in names},
}))
"""


def environment(plan: Plan, config: RunConfig) -> Check:
    """Whether verl's environment has what the trainer imports. Its modules are located, not loaded: verl's own
    import takes 10 to 30 s."""
    name = "environment verl"
    spec = next((e for e in plan.environments if e.name == "verl"), None)
    if spec is None:
        return Check(name, "skipped", "the run has no environment verl")
    try:
        place = resolve(spec, default_cache_dir())
    except BuildError as error:
        return Check(name, "fail", error.text)
    if not place.published:
        if place.kind == "built":
            return Check(name, "skipped", "will be built at the start of the run, and looked at then")
        return Check(name, "fail", f"{place.python} does not exist")
    return imports(place.python, config)


# What verl's NCCL checkpoint engine imports (verl/checkpoint_engine/).
NCCL_WEIGHTS = "cupy"
LEAST_REPLAY = (0, 22)  # vLLM that tells its routes (verl/workers/rollout/vllm_rollout/vllm_async_server.py)


def source(config: RunConfig) -> Iterator[Check]:
    """The checkout of verl in ``verl.source``; nothing without one."""
    folder = config.verl.source
    if not folder:
        return
    if Path(folder, "verl", "__init__.py").is_file():
        yield Check("verl.source", "ok", f"verl is imported from {folder}")
        return
    words, near = nearby(folder) if not os.path.isdir(folder) else ("", None)
    if not os.path.exists(folder):
        text = f"{folder} does not exist"
    else:
        text = f"{folder} is not a checkout of verl: it has no verl/__init__.py"
    fix = (
        words
        or 'set verl.source to the folder that contains verl/__init__.py, or to "" for the installed verl'
    )
    patch = {"verl.source": near} if near else {}
    yield Check("verl.source", "fail", text, fix=fix, patch=patch, guess=bool(near))


def imports(python: Path, config: RunConfig) -> Check:
    """Which of the modules that the trainer imports ``python`` has, with versions."""
    name = "environment verl"
    try:
        words = json.dumps([(*MODULES, *_further(config)), _DISTRIBUTIONS])
        process = ask_program([str(python), "-c", _ASK, words], _IMPORT_SECONDS)
        process.check_returncode()
        answer = decode_loose_json(process.stdout)
        missing, versions = answer["missing"], answer["versions"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        return Check(name, "fail", f"cannot check {python}: {error}")
    if fault := _lacks(config, python, missing, versions):
        return Check(name, "fail", fault)
    if missing:
        hint = "; a plain `pip install verl` does not install TransferQueue and cachetools"
        return Check(name, "fail", f"missing modules in {python}: {', '.join(missing)}{hint}")
    installed = ", ".join(f"{n} {v}" for n, v in versions.items() if v)
    if not str(versions.get("verl") or "").startswith("0.9."):
        return Check(name, "warn", f"{installed}; liverl's overrides are written for verl 0.9")
    return Check(name, "ok", installed)


def _further(config: RunConfig) -> list[str]:
    """Modules that only some trainers import."""
    engine = config.training.engine  # but for fsdp its package has its name
    nccl = generates_apart(config) and config.verl.device == "cuda"
    return [*([engine] if engine != FSDP else []), *([NCCL_WEIGHTS] if nccl else [])]


def _lacks(
    config: RunConfig, python: Path, missing: Sequence[str], versions: Mapping[str, str | None]
) -> str:
    """What the chosen trainer needs and ``python`` has not; empty if there is nothing."""
    training = config.training
    if training.engine in missing:
        return (
            f"training.engine is {training.engine}, and {python} cannot import {training.engine}: verl does "
            "not require that package, so install it there, or set training.engine to fsdp"
        )
    if NCCL_WEIGHTS in missing:
        return (
            f"{python} cannot import {NCCL_WEIGHTS}, with which verl sends weights to replicas on GPUs of their own "
            "(verl.trainer_mode, verl.rollout_mode): install cupy-cuda12x or cupy-cuda13x, matching the CUDA version "
            "of its torch"
        )
    vllm = version_numbers(versions.get("vllm") or "")
    if training.router_replay == "R3" and vllm and vllm[:2] < LEAST_REPLAY:
        return (
            f"training.router_replay R3 needs vLLM 0.22 or later, and {python} has {versions['vllm']}: upgrade it, or "
            "set training.router_replay to disabled"
        )
    return ""


def version_numbers(text: str) -> tuple[int, ...]:
    """``0.22.1rc1`` as (0, 22, 1); empty without a number."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def data(plan: Plan, config: RunConfig) -> Iterator[Check]:
    """The data, and the user's agents and reward. verl's environment is asked about them if it exists."""
    files = list(data_files(config))
    there = {check.name for check in files if check.status == "ok"}
    names = {
        key: name for key, name in sizing.data_paths(config).items() if key in there and "://" not in name
    }
    python, answer, modules = interpreter(plan), None, agents.modules(config)
    if python is not None and (names or modules):
        prompts = data_rows.prompts_of(config)
        prompts = replace(prompts, seconds=min(prompts.seconds, _ROWS_SECONDS / max(1, len(names))))
        try:
            answer = data_rows.ask(python, names, modules, config.agent.path, prompts)
        except ValueError as error:
            yield Check("data rows", "warn", f"no row was read: {python} cannot be asked: {error}")
    elif names:
        yield Check("data rows", "skipped", UNREAD)
    read = {c.name: c for c in data_rows.checks(config, answer, names)} if answer is not None else {}
    for check in files:
        found = read.get(check.name) or _unread(config, check, names.get(check.name, ""))
        yield _validated(config, _with_tasks(config, answer, found, names))
    yield from _untold(config)
    yield from agents.checks(config, answer)


def _untold(config: RunConfig) -> Iterator[Check]:
    """Files of ``trainer.overrides`` that only Hydra can tell; and several training files that stand in for those of
    the validation."""
    train, validated = sizing.train_files(config), sizing.val_files(config)
    stands_in = not sizing.names_val_files(config)
    if train is None:
        yield Check(sizing.TRAIN_FILES, "skipped", _not_read(config, sizing.TRAIN_FILES))
    if validated is None and not stands_in:
        yield Check(sizing.VAL_FILES, "skipped", _not_read(config, sizing.VAL_FILES))
    if stands_in and (validated is None or len(validated) > 1):
        yield _of_training(config, f"those of {sizing.TRAIN_FILES}")


def _not_read(config: RunConfig, key: str) -> str:
    return f"{sizing.override(config, key)}: no path or list of paths, so that no file was looked at"


def _unread(config: RunConfig, check: Check, name: str) -> Check:
    """The check of a file whose rows nobody has read: its columns stand in its footer, and more is not called good."""
    if check.status != "ok" or not name:
        return check
    try:
        with open_binary(name) as file:
            footer = read_footer(file)
    except (OSError, ValueError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        return Check(check.name, "fail", f"{name} cannot be read: {why}")
    fault = data_rows.columns_fault(config, footer.rows, footer.columns)
    if fault:
        return Check(check.name, "fail", f"{name}: {fault}", fix=data_rows.ROWS)
    words = f"{name}: is there, with {quantity(footer.rows, 'row')}, none of which was read"
    return Check(check.name, "skipped", words)


def _validated(config: RunConfig, check: Check) -> Check:
    """The check of the validation's rows, with what becomes of them."""
    if check.name.partition("[")[0] not in (VAL, sizing.VAL_FILES) or check.status == "fail":
        return check
    if not sizing.names_val_files(config) and sizing.names_train_files(config):
        return _of_training(config, check.text, check)
    if not validates(config) and sizing.names_val_files(config):
        return replace(check, text=f"{check.text}; {NO_VALIDATION}")
    return check


def _of_training(config: RunConfig, rows: str, check: Check | None = None) -> Check:
    """The check of a validation on the training's rows. ``check``: of these."""
    words = f"{VAL} is not set, so that verl gets the training rows in its place ({rows})"
    if not validates(config):
        text = f"{words}; {NO_VALIDATION}"
        return replace(check, text=text) if check is not None else Check(VAL, "skipped", text)
    fix = f"set {VAL} to other rows, or training.test_freq: -1 and training.val_before_train: false"
    return Check(VAL, "warn", f"{words}: a validation on rows that are trained on says little", fix=fix)


class Validation(msgspec.Struct, frozen=True):
    """When verl validates. ``every``: steps, 0 for never between steps; ``before``: before the first one."""

    every: int
    before: bool


def validation(config: RunConfig) -> Validation:
    """As the keys and ``trainer.overrides`` say."""
    every = sizing.override(config, "trainer.test_freq")
    before = sizing.override(config, "trainer.val_before_train")
    frequency = str(config.training.test_freq if every is None else every).strip()
    first = config.training.val_before_train if before is None else str(before).strip().lower() == "true"
    number = int(frequency) if re.fullmatch(r"[0-9]{1,9}", frequency, re.ASCII) else 0
    return Validation(number, bool(first))


def validates(config: RunConfig) -> bool:
    """Whether verl validates at all."""
    when_ = validation(config)
    return when_.before or when_.every > 0


def _with_tasks(config: RunConfig, answer: Answer | None, check: Check, names: Mapping[str, str]) -> Check:
    """The check of a data file, after the directories of the tasks of Harbor's that its rows name."""
    base = tasks_directory(config)
    if answer is None or not when.harbor(config) or check.status == "fail" or check.name not in names:
        return check
    for task in data_rows.harbor_tasks(config, answer.files[check.name]):
        why = harbor.task_fault(Path(base, task.path), config.harbor_agent.verifier_enabled)
        if why:
            name = names[check.name]
            return Check(
                check.name, "fail", f"{name}: row {task.row}: extra_info.task_path {task.path}: {why}"
            )
    return check


def data_files(config: RunConfig) -> Iterator[Check]:
    """The parquet files; a run without them fails when its data is loaded."""
    if sizing.is_smoke(config) and not (sizing.names_train_files(config) or sizing.names_val_files(config)):
        folder = sizing.smoke_directory(config)
        made = Path(folder, "val.parquet").is_file()
        yield Check(
            "data",
            "ok" if made else "skipped",
            f"{folder}: " + ("exists" if made else "will be created at the start of the run"),
        )
        return
    for key, name in sizing.data_paths(config).items():
        found = parquet(key, name)
        of_training = key == VAL and not config.data.val_index  # verl wants a file: it gets that one
        if of_training or key not in (sizing.TRAIN_INDEX, VAL):  # no key that a patch could set
            found = replace(found, patch={}, guess=False)
        yield found


def parquet(key: str, name: str) -> Check:
    """One parquet file, by its first bytes."""
    if not name:
        return Check(key, "fail", f"no parquet file is configured; set {key}")
    if "://" in name:
        return Check(key, "skipped", f"{name}: read by verl")
    try:
        with open_binary(name) as file:
            magic = file.read(4)
    except OSError as error:
        words, near = ("", None) if os.path.lexists(name) else nearby(name)
        patch = {key: near} if near is not None else {}
        text = f"cannot read {name}: {os.strerror(error.errno or 0)}"
        return Check(key, "fail", text, fix=words, patch=patch, guess=bool(patch))
    if magic != MAGIC:
        return Check(key, "fail", f"{name} is not a parquet file", fix=_converted(name, magic))
    return Check(key, "ok", name)


_CONVERT = (
    "import sys, pyarrow.json as j, pyarrow.parquet as p; "
    "p.write_table(j.read_json(sys.argv[1]), sys.argv[2])"
)


def _converted(name: str, start: bytes) -> str:
    """What makes a Parquet file of a file that is none. ``start``: its first bytes."""
    if not start.lstrip().startswith((b"{", b"[")):
        return data_rows.ROWS
    base = os.path.splitext(name)[0]
    made = f"{base}.parquet"
    if made == name:  # JSON under the name of a Parquet file: it is not to be written over while it is read
        made = f"{base}.converted.parquet"
    command = shlex.join(["python", "-c", _CONVERT, name, made])
    return f"if it has one JSON object a line, convert it with a Python that has pyarrow: {command}"


def loggers(config: RunConfig) -> Check:
    """The names in ``trainer.logger`` of the overrides against those that verl supports."""
    given = sizing.override(config, "trainer.logger")
    if given is None:
        wandb = ", wandb" if when.logs_to_wandb(config) else ""
        return Check("loggers", "ok", f"console, file{wandb}")
    names = given if isinstance(given, list) else re.findall(r"[A-Za-z_][A-Za-z0-9_-]*", str(given))
    unknown = [str(name) for name in names if name not in LOGGERS]
    if unknown:
        return Check(
            "loggers",
            "fail",
            f"unknown loggers for verl: {', '.join(unknown)}; supported: {', '.join(LOGGERS)}",
        )
    if "file" not in names:
        return Check(
            "loggers",
            "warn",
            "without the logger 'file', liverl reads each step's metrics from the console log",
        )
    return Check("loggers", "ok", ", ".join(str(name) for name in names))


def tool_parser(config: RunConfig) -> Check:
    """``model.tool_parser`` is used for vLLM and for verl, which supports fewer formats."""
    parser = config.model.tool_parser
    if parser in FORMATS:
        words = f"{parser} (verl: {FORMATS[parser]}); whether the model writes this format was not looked at"
        return Check("tool parser", "ok", words)
    words = f"verl has no tool parser for {parser!r}; supported: {', '.join(FORMATS)}"
    in_verl = config.run.topology == "in_process" or agent_loop(config) not in OUR_LOOPS
    if config.verl.device == "cpu" or in_verl:
        return Check("tool parser", "fail", words)
    return Check("tool parser", "ok", f"{parser}: vLLM parses the tool calls ({words})")
