"""What LiveRL's dryrun.sh looks at around a launch script: its repositories and pins, modules, room for checkpoints,
what earlier launches left, and whether one is going on. Nothing is changed, and nothing of the script is executed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.plan.verl_overrides import GAE
from liverl.preflight.interpreter import ask_python
from liverl.preflight.launch_script import SHELLS
from liverl.preflight.liverl_repo import TRAIN, mapping, tree_of
from liverl.preflight.model import folder_of, named, will_be_made
from liverl.preflight.modelshape import of_shape, parameters, read_shape, tensors
from liverl.preflight.script_paths import elsewhere
from liverl.preflight.subject import main_folder, main_service, variables_of
from liverl.procs import procfs
from liverl.util.git_head import git_head

PINS, MODULES, ROOM, RESIDUE, JOB = "pins", "script modules", "room for checkpoints", "residue", "job running"
# dryrun.sh: less than 50 GiB on the volume of the checkpoints is a warning. Only where the model cannot be read.
ROOM_GIB = 50
# Bytes of a parameter in a checkpoint of verl's (save_contents: model, optimizer, extra): the weights and AdamW's two
# moments, in float32.
_CHECKPOINT = 4 + 8
# Modules that LiveRL's scripts import, which must come from the repository and not from somewhere else.
_MODULES = ("harbor", "verl", "verl_patch", "harbor_patch")
_FIND = (
    "import importlib.util, json, sys\n"
    "found = {}\n"
    "for name in sys.argv[1:]:\n"
    "  try: spec = importlib.util.find_spec(name)\n"
    "  except (ImportError, ValueError): spec = None\n"
    "  places = list(spec.submodule_search_locations or []) if spec else []\n"
    "  found[name] = (spec.origin or (places or [''])[0]) if spec else ''\n"
    "print(json.dumps(found))"
)
_RESIDUE = ("ray", "trajectory_logger.py")  # below /tmp; and what begins with:
_LITELLM, _TRIALS = "litellm_cc_", "harbor_trials"
# What a training of LiveRL's or verl's has in its command line.
_STARTERS = ("python", "bash", "sh", "dash", "ray", "torchrun")
_JOBS = ("sync_1node_cc", "sync_1nodes_cc", "train_1node_cc", "fully_async_main", "main_ppo")


def pins(plan: Plan) -> Iterator[Check]:
    """Whether the repositories of LiveRL's config.yaml are there, at the commits that it pins."""
    tree = tree_of(plan)
    if tree is None:
        return
    root = tree.root
    for key, repo in mapping(mapping(tree.document.get("meta_info")).get("repos")).items():
        name = str(mapping(repo).get("name") or key)
        pin = str(mapping(repo).get("pinned_commit") or "")
        folder, title = root / "repos" / name, f"{PINS}: {name}"
        if not folder.is_dir():
            fix = "clone it there, or correct meta_info.repos of its config.yaml"
            yield Check(title, "fail", f"{folder} does not exist", fix=fix)
            continue
        head = git_head(folder) if (folder / ".git").exists() else None
        if not pin:
            yield Check(title, "ok", f"{folder} is there; config.yaml pins no commit of it")
        elif head is None:
            yield Check(title, "fail", f"{folder} is no git repository, and config.yaml pins {pin}")
        elif head.startswith(pin):
            yield Check(title, "ok", f"{folder} is at {head[:12]}, as pinned")
        else:
            text = f"{folder} is at {head[:12]}, and config.yaml pins {pin}: other code would run"
            yield Check(title, "fail", text, fix=f"git -C {folder} checkout {pin}, or correct the pin")


def modules(plan: Plan, env: Mapping[str, str]) -> Iterator[Check]:
    """Whether the modules of LiveRL's repositories come from these in the script's environment."""
    script, tree = main_service(plan), tree_of(plan)
    if tree is None or not (tree.root / "repos").is_dir():
        return
    root = tree.root
    given = script.env.get("VENV_PATH")
    venv = Path(given) if given else root / "repos" / "harbor-verl-train" / ".venv"
    python = venv / "bin" / "python"
    if not python.exists():
        why = "" if given else "; its start script builds it"
        yield Check(MODULES, "fail" if given else "skipped", f"{python} does not exist{why}")
        return
    try:
        found = ask_python(
            python,
            _FIND,
            _MODULES,
            dict[str, str],
            env=variables_of(script, env),
            cwd=str(main_folder(plan)),
        )
    except ValueError as error:
        yield Check(MODULES, "skipped", f"{python} cannot be asked: {error}")
        return
    repos = os.path.realpath(root / "repos")
    missing = [name for name, place in found.items() if not place]
    outside = {n: p for n, p in found.items() if p and not Path(os.path.realpath(p)).is_relative_to(repos)}
    if missing:
        fix = f"install it there: {python} -m pip install -e FOLDER"
        yield Check(MODULES, "fail", f"{python} has no module {', '.join(missing)}", fix=fix)
    if outside:
        told = ", ".join(f"{name} from {place}" for name, place in outside.items())
        text = f"{python} takes {told}, which is not below {repos}: other code than that of the repository would run"
        yield Check(
            MODULES, "warn" if given else "fail", text, fix="install it from there with pip install -e"
        )
    if not missing and not outside:
        yield Check(MODULES, "ok", f"{python} takes {', '.join(found)} from {repos}")


def room(plan: Plan, config: RunConfig, env: Mapping[str, str] = os.environ) -> Check:
    """How much room there is for checkpoints: those of a script stand below its folder. What they take is estimated
    from the model's files; where these cannot be read, that is said."""
    if plan.script is not None:
        if elsewhere(config):
            return Check(ROOM, "skipped", "the command runs on another host")
        folder = main_folder(plan)
    else:
        folder = Path(plan.run_dir)
    there = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if there is None:
        return Check(ROOM, "skipped", f"{folder} does not exist")
    status = os.statvfs(there)
    free = status.f_bavail * status.f_frsize
    has, key = f"{there} has {_size(free)} free", "run.run_root" if plan.script is None else "trainer.cwd"
    fix = f"free space on that disk, or put the run on another one ({key})"
    count, unknown = _parameters(plan, config, env)
    if unknown:
        text = f"{has}; how much a checkpoint takes is not known: {unknown}"
        if free < ROOM_GIB << 30 and not will_be_made(config):
            return Check(ROOM, "warn", f"{text}; that of a 30B model takes more than {ROOM_GIB} GiB", fix=fix)
        return Check(ROOM, "skipped" if will_be_made(config) else "ok", text)
    one = count * _CHECKPOINT * (2 if config.algorithm.adv_estimator == GAE else 1)
    most = _checkpoints(config)
    need = one * (1 if most is None else most)
    named_count = f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count:,}"
    text = f"{has}; a checkpoint of {named_count} parameters takes about {_size(one)}"
    if most is None:
        text += (
            ", and none of them is removed (training.keep_checkpoints); how many there will be is not known"
        )
    if free < need:
        words = text if most is None else f"{text}, and up to {most} are on disk at once: {_size(need)}"
        return Check(ROOM, "warn", words, fix=f"{fix}, or keep fewer (training.keep_checkpoints)")
    return Check(ROOM, "ok", text)


def _checkpoints(config: RunConfig) -> int | None:
    """How many checkpoints there are at once, at most; None: as many as there will be steps, which nobody has said. The
    next one is written before the oldest is removed."""
    training = config.training
    every, steps, kept = training.save_freq, training.total_steps, training.keep_checkpoints
    if every <= 0:
        return 0
    written = None if steps is None else max(1, -(-steps // every))
    if kept is None:
        return written
    return kept + 1 if written is None else min(kept + 1, written)


def _size(count: int) -> str:
    """Bytes for people: ``46 GiB``, ``12 MiB``."""
    return f"{count / 2**30:.0f} GiB" if count >= 10 << 30 else f"{count / 2**20:,.0f} MiB"


def _parameters(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> tuple[int, str]:
    """How many parameters the model has; else 0, and why that is not known."""
    if plan.script is not None:
        return 0, "only the launch script knows the model"
    if will_be_made(config):
        return 0, "the model is made at the start of the run; it is a tiny one"
    try:
        folder = folder_of(plan, config, env)
        if folder is None:
            return 0, f"{named(config).name} is not on this host"
        shape = read_shape(folder / "config.json")
        return parameters(tensors(folder) or of_shape(shape), shape), ""
    except (OSError, ValueError) as error:
        return 0, f"{named(config).name}: {getattr(error, 'strerror', None) or error}"


def residue(plan: Plan, tmp: Path = Path("/tmp")) -> Check:
    """What earlier launches left in /tmp, where LiveRL's proxy reads its files, and their trials."""
    try:
        names = sorted(os.listdir(tmp))
    except OSError as error:
        return Check(RESIDUE, "skipped", f"{tmp}: {error.strerror}")
    found = [str(tmp / name) for name in names if name in _RESIDUE or name.startswith(_LITELLM)]
    tree = tree_of(plan)
    trials = tree.root / TRAIN / _TRIALS if tree is not None else main_folder(plan) / _TRIALS
    found += [str(trials)] if trials.is_dir() and any(trials.iterdir()) else []
    if not found:
        return Check(RESIDUE, "ok", f"nothing of earlier launches is in {tmp}, and no trials in {trials}")
    fix = "if no launch is going on, remove them; liverl-tui clean removes those of runs of ours"
    return Check(RESIDUE, "warn", f"earlier launches left {', '.join(found[:5])}", fix=fix)


def jobs(plan: Plan, config: RunConfig) -> Iterator[Check]:
    """Whether a training is going on: on the same GPUs two end each other, or mix their files."""
    if elsewhere(config):
        yield Check(JOB, "skipped", "the command runs on another host")
        return
    folder, found = os.path.realpath(main_folder(plan)), []
    for pid in procfs.scan():
        words = procfs.arguments(pid)
        if pid != os.getpid() and _trains(words):
            found.append(pid)
    here = [pid for pid in found if _works_below(pid, folder)]
    for pid in here or found[:3]:
        command = procfs.command_line(pid)[:80]
        text = f"pid {pid} of {procfs.user_of(pid)} is training: {command}"
        fix = f"wait for its end, or stop it: kill -INT {pid}"
        yield Check(JOB, "fail" if pid in here else "warn", text, fix=fix)
    if not found:
        yield Check(JOB, "ok", "no training of LiveRL's or verl's is going on")


def _trains(words: tuple[str, ...]) -> bool:
    """Whether a command line is that of a training: not of an editor in which its file is open."""
    if not words:
        return False
    program = os.path.basename(words[0])
    if program in SHELLS and "-n" in words[1:3]:
        return False  # only reads the script, as our own check of its syntax does
    return _is_job(words[0]) or (program.startswith(_STARTERS) and any(map(_is_job, words[1:6])))


def _is_job(word: str) -> bool:
    name = os.path.basename(word).removesuffix(".sh").removesuffix(".py")
    return name in _JOBS or name.rpartition(".")[2] in ("main_ppo", "fully_async_main")


def _works_below(pid: int, folder: str) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder)
    except OSError:
        return False  # of another user, or gone
