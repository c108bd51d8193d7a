"""How much room there is for a training's checkpoints, and how much they take: worked out from the files of the model
and from how often one is written. A launch script is read for both; nothing of it is executed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from liverl.config.attention import GAE, with_critic
from liverl.config.schema import RunConfig
from liverl.importing import NoScript, NothingToImport, Said, script_says
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight import hub
from liverl.preflight.launch_script import script_of
from liverl.preflight.model import folder_of, named, will_be_made
from liverl.preflight.modelshape import of_shape, parameters, read_shape, tensors
from liverl.preflight.script_paths import elsewhere
from liverl.preflight.subject import main_folder, main_service, variables_of

NAME = "room for checkpoints"
# dryrun.sh: less than 50 GiB on the volume of the checkpoints is a warning. Only where their size is not known.
LITTLE_GIB = 50
# Bytes of a parameter in a checkpoint of verl's (save_contents: model, optimizer, extra): the weights and AdamW's two
# moments, in float32.
_BYTES = 4 + 8
_NO_SCRIPT = "the command is not a shell script that could be read"
_KEEP = "training.keep_checkpoints"


class Saving(msgspec.Struct, frozen=True):
    """What is known of a training's checkpoints. ``folder``: where they go, None = not known; ``parameters``: of the
    model, 0 = not known, and ``unknown`` says why; ``every``: steps between two, None = not known, 0 or less = none is
    written; ``steps``: of the training; ``kept``: how many stay, None = all; ``critic``: one is trained and saved, too;
    ``keys``: the names of save_freq and of the number that stays, where the user sets them."""

    folder: Path | None
    parameters: int = 0
    unknown: str = ""
    every: int | None = None
    steps: int | None = None
    kept: int | None = None
    critic: bool = False
    keys: tuple[str, str] = ("training.save_freq", _KEEP)


def room(plan: Plan, config: RunConfig, env: Mapping[str, str] = os.environ) -> Check:
    """Whether the disk holds the checkpoints. Too little is a warning: when they are written, others may have made
    room."""
    if plan.script is not None and elsewhere(config):
        return Check(NAME, "skipped", "the command runs on another host")
    saving = _of_script(plan, env) if plan.script is not None else _of_run(plan, config, env)
    if saving.folder is None:
        return Check(NAME, "skipped", "the script's checkpoint folder is not known")
    there = next((path for path in (saving.folder, *saving.folder.parents) if path.exists()), None)
    if there is None:
        return Check(NAME, "skipped", f"{saving.folder} does not exist")
    status = os.statvfs(there)
    free = status.f_bavail * status.f_frsize
    has, key = f"{there} has {_size(free)} free", "run.run_root" if plan.script is None else "trainer.cwd"
    fix = f"free space on that disk, or put the run on another one ({key})"
    frequency, keep = saving.keys
    if saving.every is not None and saving.every <= 0:
        return Check(NAME, "ok", f"{has}; no checkpoint is written ({frequency}: {saving.every})")
    if not saving.parameters:
        text = f"{has}; how much a checkpoint takes is not known: {saving.unknown}"
        if plan.script is None and will_be_made(config):
            return Check(NAME, "skipped", text)
        if free < LITTLE_GIB << 30:
            sizes = f"one of a 30B model takes more than {LITTLE_GIB} GiB, one of a 1B model about 11"
            return Check(NAME, "warn", f"{text}; {sizes}", fix=fix)
        return Check(NAME, "ok", text)
    one = saving.parameters * _BYTES * (2 if saving.critic else 1)
    most = _at_once(saving)
    need = one * (1 if most is None else most)
    count = saving.parameters
    named_count = f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count:,}"
    text = f"{has}; a checkpoint of {named_count} parameters takes about {_size(one)}"
    if saving.every is None:
        text += "; how often one is written is not known"
    elif most is None:
        text += f", and none of them is removed ({keep}); how many there will be is not known"
    if free < need:
        words = text if most is None else f"{text}, and up to {most} are on disk at once: {_size(need)}"
        return Check(NAME, "warn", words, fix=f"{fix}, or keep fewer ({keep})")
    return Check(NAME, "ok", text)


def _at_once(saving: Saving) -> int | None:
    """How many checkpoints there are at once, at most; None: not known, such as one per step of steps that nobody has
    counted. The next one is written before the oldest is removed."""
    if saving.every is None:
        return None
    written = None if saving.steps is None else max(1, -(-saving.steps // saving.every))
    if saving.kept is None:
        return written
    return saving.kept + 1 if written is None else min(saving.kept + 1, written)


def _size(count: int) -> str:
    """Bytes for people: ``46 GiB``, ``12 MiB``."""
    return f"{count / 2**30:.0f} GiB" if count >= 10 << 30 else f"{count / 2**20:,.0f} MiB"


def _of_run(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Saving:
    """Of a training that this program configures."""
    training, count, unknown = config.training, 0, ""
    if will_be_made(config):
        unknown = "the model is made at the start of the run; it is a tiny one"
    else:
        try:
            folder = folder_of(plan, config, env)
        except OSError as error:
            folder, unknown = None, f"{named(config).name}: {error.strerror or error}"
        if not unknown:
            count, unknown = _parameters(folder, named(config).name)
    return Saving(
        folder=Path(plan.run_dir),
        parameters=count,
        unknown=unknown,
        every=training.save_freq,
        steps=training.total_steps,
        kept=training.keep_checkpoints,
        critic=with_critic(config),
    )


def _of_script(plan: Plan, env: Mapping[str, str]) -> Saving:
    """Of a launch script, as far as its text says it. A model that it is given in ``MODEL_PATH`` counts."""
    script, cwd = main_service(plan), main_folder(plan)
    env = {name: text.replace("{run_dir}", plan.run_dir) for name, text in variables_of(script, env).items()}
    said, why = _said(script.argv, cwd, env)
    name = script.env.get("MODEL_PATH") or said.values.get("model.model_path", "")
    count, unknown = 0, why or "the script does not say which model it trains"
    if name:
        try:
            count, unknown = _parameters(_model(cwd, name, env), name)
        except OSError as error:
            unknown = f"{name}: {error.strerror or error}"
    return Saving(
        folder=None if said.saved_to is None else cwd / os.path.expanduser(said.saved_to),
        parameters=count,
        unknown=unknown,
        every=_number(said.values.get("training.save_freq", "")),
        steps=_number(said.values.get("training.total_steps", "")),
        kept=_number(said.values.get(_KEEP, "")),
        critic=said.values.get("algorithm.adv_estimator") == GAE,
        keys=("trainer.save_freq", "trainer.max_actor_ckpt_to_keep"),
    )


def _said(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[Said, str]:
    """What a launch script says, and else why nothing of it is known."""
    script = script_of(argv)
    try:
        return script_says(cwd / (script or argv[0]), env), ""
    except NoScript:
        why = _NO_SCRIPT
    except NothingToImport as error:
        why = str(error)
    except OSError as error:
        why = f"{cwd / script}: {error.strerror or error}" if script else _NO_SCRIPT
    return Said({}, ""), why


def _number(text: str) -> int | None:
    """A number of verl's; None where there is none, or where it is no whole number."""
    try:
        return int(text)
    except ValueError:
        return None


def _model(cwd: Path, name: str, env: Mapping[str, str]) -> Path | None:
    """The folder of a script's model; None if it is not on this host."""
    folder = cwd / os.path.expanduser(name)
    if folder.is_dir():
        return folder
    return hub.cached(name, env) if hub.is_id(name) else None


def _parameters(folder: Path | None, name: str) -> tuple[int, str]:
    """How many parameters a model has; else 0, and why that is not known."""
    if folder is None:
        return 0, f"{name} is not on this host"
    try:
        shape = read_shape(folder / "config.json")
        return parameters(tensors(folder) or of_shape(shape), shape), ""
    except (OSError, ValueError) as error:
        return 0, f"{name}: {getattr(error, 'strerror', None) or error}"
