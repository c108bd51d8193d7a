"""What LiveRL's dryrun.sh looks at around a launch script: its repositories and pins, modules, what earlier
launches left, and whether one is going on. Nothing is changed, and nothing of the script is executed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.interpreter import ask_python
from liverl.preflight.launch_script import SHELLS
from liverl.preflight.liverl_repo import TRAIN, mapping, tree_of
from liverl.preflight.script_paths import elsewhere
from liverl.preflight.subject import main_folder, main_service, variables_of
from liverl.procs import procfs
from liverl.util.git_head import git_head

PINS, MODULES, RESIDUE, JOB = "pins", "script modules", "residue", "job running"
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
