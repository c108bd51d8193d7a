"""Export of a checkpoint to a model that engines load: the command of verl's ``model_merger`` for this checkpoint, and
its run. What it writes gets its name only once it is whole."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from liverl.environments import BuildError, resolve
from liverl.model import SCHEMA
from liverl.observe.checkpoint_files import CheckpointFiles, checkpoint_steps, latest_step, read_checkpoint
from liverl.offline.checkpoints import NoCheckpoints, add_export, place_of, plan_of
from liverl.plan.spec import Plan
from liverl.preflight.weights import judged
from liverl.rundir.layout import RunDir
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_loose_json
from liverl.util.modes import make_directory
from liverl.util.paths import default_cache_dir
from liverl.util.regular_file import read_regular
from liverl.util.remove_tree import remove_tree

_UNFINISHED = ".unfinished"
_TAIL = 12  # lines of the merger's output in an error


class CannotExport(Exception):
    """The checkpoint cannot be exported; the message says why, and what to do."""


class ExportReport(msgspec.Struct, frozen=True):
    """What ``checkpoints export --json`` prints. ``command``: what merges the checkpoint, empty where its weights are
    merged already, in ``source``; ``target``: the folder with the model; ``needs``: bytes that the merger reads into
    memory, and of which it writes at most as many; ``done``: whether the model is there now."""

    run: str
    step: int
    format: str
    source: str
    target: str
    command: tuple[str, ...]
    needs: int
    notes: tuple[str, ...]
    done: bool = False
    schema: int = SCHEMA


def plan_export(
    run_dir: Path, step: int | None, target: Path | None, python: Path | None = None
) -> ExportReport:
    """How this checkpoint is exported. ``step``: None = the newest complete one; ``target``: None = ``exports/`` of the
    run; ``python``: None = that of the run's trainer. Nothing is written.

    Raises:
        CannotExport, NoCheckpoints
    """
    found = _chosen(run_dir, step)
    actor = Path(found.path, "actor")
    target = (target or RunDir(run_dir).exports / f"global_step_{found.step}").absolute()
    run = f"{run_dir.parent.name}/{run_dir.name}"
    if found.format == "embedded":
        raise CannotExport(
            f"step {found.step} is of the embedded trainer, whose policy is a table of logits in {actor}/policy.json: "
            "there is no model to export"
        )
    if found.format == "unknown" or found.state == "incomplete":
        raise CannotExport(f"step {found.step} cannot be exported: {found.why}")
    described = actor / "model" / "huggingface" if found.format == "megatron" else actor / "huggingface"
    config = _config(described)
    notes = [found.why] if found.why else []
    if _has_weights(described):
        words = "its weights are merged already: verl saved them with hf_model in save_contents"
        return ExportReport(
            run, found.step, found.format, str(described), str(described), (), 0, (*notes, words)
        )
    if target.exists():
        raise CannotExport(f"{target} exists; name a new folder with --to")
    command = [
        str(_interpreter(run_dir, python)),
        "-m",
        "verl.model_merger",
        "merge",
        "--backend",
        found.format,
        "--local_dir",
        str(actor),
        "--target_dir",
        str(target),
    ]
    if found.format == "megatron" and _tied(config):
        command.append("--tie-word-embedding")
    if "auto_map" in config:
        command.append("--trust-remote-code")
        notes.append("the model has code of its own (auto_map), which is executed")
    needs = _bytes_of_weights(actor, found)
    return ExportReport(
        run, found.step, found.format, str(actor), str(target), tuple(command), needs, tuple(notes)
    )


def _chosen(run_dir: Path, step: int | None) -> CheckpointFiles:
    base = Path(os.path.realpath(place_of(run_dir)))
    try:
        steps = checkpoint_steps(base)
        latest, why_none = latest_step(base)
        if step is not None:
            if step not in steps:
                there = ", ".join(map(str, steps)) or "none"
                raise CannotExport(f"there is no checkpoint of step {step}; there are: {there}")
            return read_checkpoint(step, steps[step], latest, why_none)
        for newest in sorted(steps, reverse=True):
            found = read_checkpoint(newest, steps[newest], latest, why_none)
            if found.state == "complete":
                return found
    except FileNotFoundError:
        raise NoCheckpoints(f"no checkpoint was written yet: there is no {base}") from None
    except OSError as error:
        raise NoCheckpoints(f"{error.filename or base}: {error.strerror or error}") from error
    raise CannotExport(f"no checkpoint in {base} is complete; liverl-tui checkpoints ls says why")


def _interpreter(run_dir: Path, python: Path | None) -> Path:
    if python is not None:
        return _there(python, "name the interpreter that has verl with --python")
    return _python(plan_of(run_dir))


def _python(plan: Plan | None) -> Path:
    """The interpreter of the environment in which the run's trainer has verl."""
    if plan is None:
        raise CannotExport("the run's plan cannot be read; name the interpreter that has verl with --python")
    trainer = next((service for service in plan.services if service.kind == "trainer"), None)
    spec = next((one for one in plan.environments if trainer and one.name == trainer.environment), None)
    if plan.script is not None and trainer is not None and (venv := trainer.env.get("VENV_PATH")):
        return _there(Path(venv, "bin", "python"), f"the launch script's VENV_PATH is {venv}")
    if spec is None:
        raise CannotExport(
            "the run's plan names no environment with verl; name its interpreter with --python"
        )
    try:
        place = resolve(spec, default_cache_dir())
    except BuildError as error:
        raise CannotExport(f"environment {spec.name!r}: {error}") from error
    if place.kind == "own":
        raise CannotExport(
            "the run's trainer has no environment with verl; name its interpreter with --python"
        )
    return _there(
        place.python,
        f"environment {spec.name!r} is not built on this host; to build it: liverl-tui envs sync {spec.name}",
    )


def _there(python: Path, otherwise: str) -> Path:
    if not os.access(python, os.X_OK):
        raise CannotExport(f"there is no program {python}: {otherwise}")
    return python


def _config(folder: Path) -> Mapping[str, object]:
    try:
        config = decode_loose_json(read_regular(folder / "config.json"))
    except (OSError, *BAD_JSON) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise CannotExport(
            f"{folder}/config.json, which describes the model, cannot be read: {words}"
        ) from None
    if not isinstance(config, dict):
        raise CannotExport(f"{folder}/config.json, which describes the model, is no JSON object")
    return config


def _tied(config: Mapping[str, object]) -> bool:
    text = config.get("text_config")
    return bool(
        config.get(
            "tie_word_embeddings", text.get("tie_word_embeddings") if isinstance(text, dict) else False
        )
    )


def _has_weights(folder: Path) -> bool:
    names = os.listdir(folder)
    return any(name.endswith((".safetensors", ".bin")) for name in names) and judged(folder).status == "ok"


def _bytes_of_weights(actor: Path, found: CheckpointFiles) -> int:
    if found.format == "megatron":
        parts = actor / "model" / "dist_ckpt"
        return sum(entry.stat().st_size for entry in os.scandir(parts)) if parts.is_dir() else 0
    prefix = f"model_world_size_{found.world_size}_rank_"
    return sum(entry.stat().st_size for entry in os.scandir(actor) if entry.name.startswith(prefix))


def require_room(export: ExportReport) -> None:
    """Check the disk of the target before hours are spent.

    Raises:
        CannotExport: there is too little room.
    """
    place = next(path for path in Path(export.target).parents if path.exists())
    status = os.statvfs(place)
    free = status.f_bavail * status.f_frsize
    # The merger writes bfloat16, and so at most what it reads (model_merger/fsdp_model_merger.py).
    if free < export.needs:
        raise CannotExport(
            f"{place} has {free:,} bytes free, and the model may take {export.needs:,}; name another disk with --to"
        )


def run_export(
    run_dir: Path, export: ExportReport, say: Callable[[str], None] = lambda _: None
) -> ExportReport:
    """Run the merger, and note the export in the run. A merger that fails or is interrupted leaves nothing. Blocking.

    Raises:
        CannotExport: it failed; the message has the end of its output.
        OSError: the target cannot be made.
    """
    if not export.command:
        add_export(run_dir, export.step, Path(export.target))
        return msgspec.structs.replace(export, done=True)
    require_room(export)
    target = Path(export.target)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}{_UNFINISHED}")
    make_directory(target.parent)
    command = [str(unfinished) if word == export.target else word for word in export.command]
    try:
        code, lines = _run(command, say)
        if code != 0:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed (exit {code})"
            raise CannotExport(f"verl's model_merger {how}:\n  " + "\n  ".join(lines))
        check = judged(unfinished)
        if check.status != "ok":
            raise CannotExport(f"verl's model_merger reports no error, but {check.evidence}")
        unfinished.rename(target)
    finally:
        with contextlib.suppress(OSError):
            remove_tree(unfinished)
    add_export(run_dir, export.step, target)
    return msgspec.structs.replace(export, done=True)


def _run(command: list[str], say: Callable[[str], None]) -> tuple[int, list[str]]:
    """Run a command; its exit code and its last lines. Its output goes to ``say`` line by line."""
    # No GPU is needed, and one that trains has no room for a second model.
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}
    last: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        errors="replace",
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if text := line.strip():
                    last = [*last, text][-_TAIL:]
                    say(text)
            return process.wait(), last
        except BaseException:
            process.kill()
            raise
