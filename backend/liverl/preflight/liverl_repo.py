"""The files of LiveRL's repository around a launch script: what its dryrun.sh looks at of the tree itself. Nothing is
changed, and nothing of the script is executed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from liverl.config.schema import RunConfig
from liverl.model import Check, Evidence
from liverl.plan.spec import Plan
from liverl.preflight.model import HEADS, arithmetic
from liverl.preflight.modeldir import read_heads
from liverl.preflight.script_paths import elsewhere
from liverl.preflight.script_syntax import of_file
from liverl.preflight.subject import main_folder, main_service, variables_of
from liverl.util.decode import Undecodable, decode_yaml
from liverl.util.regular_file import read_regular

CONFIG, UPSTREAM, FOLDERS, DASHBOARD, HEADS_OF = (
    "LiveRL's config.yaml",
    "upstream files",
    "folders of the script",
    "LiveRL's dashboard",
    "model heads",
)
MOST = 1 << 20  # bytes of a config.yaml, or of a script
TRAIN = Path("repos", "harbor-verl-train")
# Each is found by its name below TRAIN: other generations have other folders. Older trees have the second spelling.
_FILES = (
    ("sync_1node_cc.sh", "sync_1nodes_cc.sh"),
    ("harbor_verl_sync.yaml",),
    ("agent_loop_config_cc.yaml",),
)
_OWN_SCRIPTS = ("scripts/start.sh", "scripts/train_1node_cc.sh")
_DEEPEST, _MOST_FOLDERS = 5, 2000
_SKIPPED = ("harbor_trials", "trials", "logs", "checkpoints", "wandb", "node_modules", "__pycache__")
_WRITTEN = ("logs", "checkpoints")
_GEN_TP = re.compile(rb"^\s*(?:export\s+)?gen_tp=[\"']?(?:\$\{\w+:-)?(\d+)\}?", re.IGNORECASE | re.MULTILINE)


class Tree(NamedTuple):
    """LiveRL's repository, and its config.yaml. ``fault``: why that cannot be read."""

    root: Path
    document: dict[str, Any]
    fault: str = ""


def tree_of(plan: Plan) -> Tree | None:
    """LiveRL's repository at or above the script's folder; None if there is none."""
    cwd = main_folder(plan)
    for folder in (cwd, *cwd.parents[:3]):
        file = folder / "config.yaml"
        try:
            document = decode_yaml(read_regular(file, MOST))
        except FileNotFoundError:
            continue
        except (OSError, Undecodable) as error:
            if (folder / "repos").is_dir():
                why = error.strerror if isinstance(error, OSError) else error
                return Tree(folder, {}, f"{file} cannot be read: {why}")
            continue
        if mapping(mapping(document).get("meta_info")).get("repos"):
            return Tree(folder, mapping(document))
    return None


def mapping(value: object) -> dict[str, Any]:
    """A mapping of YAML; empty for anything else."""
    return value if isinstance(value, dict) else {}


def config_file(plan: Plan) -> Check | None:
    """Whether the start script can read its config.yaml: without it, it stops at once."""
    tree = tree_of(plan)
    if tree is None:
        return None
    if tree.fault:
        return Check(CONFIG, "fail", tree.fault, fix=f"correct {tree.root / 'config.yaml'}")
    return Check(CONFIG, "ok", str(tree.root / "config.yaml"))


def upstream(plan: Plan, env: Mapping[str, str]) -> Iterator[Check]:
    """Whether the files that the start script executes and hands over are there, and the syntax of its scripts."""
    tree = tree_of(plan)
    if tree is None or tree.fault or not (tree.root / TRAIN).is_dir():
        return  # the pins tell
    found = _found(tree.root / TRAIN)
    missing = [names[0] for names in _FILES if not any(name in found for name in names)]
    if missing:
        text = f"{tree.root / TRAIN} has no {', no '.join(missing)}, with which the start script trains"
        yield Check(
            UPSTREAM, "fail", text, fix=f"git -C {tree.root / TRAIN} status; check out the pinned commit"
        )
    else:
        yield Check(UPSTREAM, "ok", f"{tree.root / TRAIN} has {', '.join(names[0] for names in _FILES)}")
    variables = variables_of(main_service(plan), env)
    own = [tree.root / name for name in _OWN_SCRIPTS]
    for file in (*own, *(found[name] for name in _FILES[0] if name in found)):
        if file.is_file():
            yield of_file("bash", file, tree.root, variables, title=f"script syntax: {file.name}")


def _found(top: Path) -> dict[str, Path]:
    """name -> path of the files below ``top`` that ``_FILES`` names; of several of one name, the nearest to ``top``."""
    wanted = {name for names in _FILES for name in names}
    found: dict[str, Path] = {}
    queue = [top]
    for number, folder in enumerate(queue):
        if number == _MOST_FOLDERS:
            break
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name in wanted and entry.is_file():
                found.setdefault(entry.name, Path(entry.path))
            elif entry.is_dir(follow_symlinks=False) and _may_hold(Path(entry.path), top):
                queue.append(Path(entry.path))
    return found


def _may_hold(folder: Path, top: Path) -> bool:
    return not folder.name.startswith((".", *_SKIPPED)) and len(folder.relative_to(top).parts) <= _DEEPEST


def folders(plan: Plan, config: RunConfig) -> Check | None:
    """Whether logs and checkpoints can be written below the repository."""
    tree = tree_of(plan)
    if tree is None or tree.fault:
        return None
    if elsewhere(config):
        return Check(FOLDERS, "skipped", "the command runs on another host")
    base = tree.root / TRAIN
    places = {name: _existing(base / name) for name in _WRITTEN}
    closed = {name: place for name, place in places.items() if not _writable(place)}
    if closed:
        told = ", ".join(f"{base / name} ({place} is not writable)" for name, place in closed.items())
        return Check(FOLDERS, "fail", f"cannot be written: {told}", fix="make it writable for this user")
    return Check(FOLDERS, "ok", f"{' and '.join(_WRITTEN)} below {base} can be written")


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def _writable(place: Path) -> bool:
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def dashboard(plan: Plan) -> Check | None:
    """Whether LiveRL's own dashboard is complete. A run needs none: this program shows it."""
    tree = tree_of(plan)
    if tree is None or tree.fault:
        return None
    folder = tree.root / "dashboard"
    if not folder.is_dir():
        return Check(
            DASHBOARD, "skipped", f"{folder} is not there; no run needs it: this program shows the run"
        )
    missing = [
        name
        for name, there in (("server.py", os.path.isfile), ("dist", os.path.isdir))
        if not there(folder / name)
    ]
    if missing:
        text = f"{folder} has no {' and no '.join(missing)}: its serve.sh shows nothing; this program shows the run"
        return Check(DASHBOARD, "warn", text, fix="check out the repository's files again, or do without it")
    return Check(DASHBOARD, "ok", f"{folder} has server.py and dist")


def heads(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Check | None:
    """Whether the replicas of the script can be split over its GPUs. Where the script sets gen_tp, the number
    is read there; otherwise it is vllm.gen_tp."""
    script = main_service(plan)
    model = variables_of(script, env).get("MODEL_PATH", "")
    if not model or elsewhere(config):
        return None
    file = main_folder(plan) / model / "config.json"
    tensor, source = _tensor(plan, config)
    try:
        known = read_heads(file)
    except (OSError, ValueError):
        return None if not file.is_file() else Check(HEADS_OF, "skipped", f"{file} cannot be read", HEADS)
    if tensor is None:
        return Check(
            HEADS_OF, "skipped", f"over how many GPUs {script.argv[-1]} splits a replica is not known", HEADS
        )
    problem = known.problem(tensor)
    if problem:
        fitting = known.divisors()
        fix = (
            f"set gen_tp of the script, and vllm.gen_tp, to {' or '.join(map(str, fitting))}"
            if fitting
            else ""
        )
        rows = (Evidence(f"{file}: {arithmetic(known, tensor)}"),)
        return Check(HEADS_OF, "fail", f"gen_tp is {tensor} ({source}), but {problem}", HEADS, rows, fix)
    if known.key_value is None:
        return Check(HEADS_OF, "skipped", f"{file} names no number of key-value heads", HEADS)
    return Check(HEADS_OF, "ok", f"{known.key_value} key-value heads, gen_tp {tensor} ({source})", HEADS)


def _tensor(plan: Plan, config: RunConfig) -> tuple[int | None, str]:
    tree = tree_of(plan)
    found = _found(tree.root / TRAIN) if tree is not None and (tree.root / TRAIN).is_dir() else {}
    for name in _FILES[0]:
        if name in found:
            try:
                match = _GEN_TP.search(read_regular(found[name], MOST))
            except OSError:
                continue
            if match is not None and int(match[1]):
                return int(match[1]), str(found[name])
    given = plan.script.given if plan.script is not None else None
    where = (given or {}).get("vllm.gen_tp")
    return (config.vllm.gen_tp, f"vllm.gen_tp, {where}") if where else (None, "")
