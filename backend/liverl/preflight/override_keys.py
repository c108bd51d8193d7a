"""The keys of verl's command line against those of the installed verl, which are in a file of its package."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from liverl.causes.verdict.verl_keys import meant
from liverl.config.schema import RunConfig
from liverl.config.sizing import bare_key
from liverl.config.trainer_mode import fully_async
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.plan.verl_overrides import FSDP, overrides
from liverl.preflight.interpreter import UNBUILT, interpreter
from liverl.procs.asking import ask_program
from liverl.util.decode import Undecodable, decode_yaml
from liverl.util.plural import quantity
from liverl.util.regular_file import read_regular

NAME = "verl's keys"
# verl writes here what its default configuration is composed to (scripts/generate_trainer_config.sh).
_COMPOSED = "trainer/config/_generated_ppo_trainer.yaml"
_OF_ENGINE = "trainer/config/_generated_ppo_{}_trainer.yaml"  # with another group of model_engine
# What the fully asynchronous trainer has beside it.
_ASYNC = "experimental/fully_async_policy/config/fully_async_ppo_trainer.yaml"
_WHERE = "import importlib.util as u; print(u.find_spec('verl').submodule_search_locations[0])"
_SECONDS = 60.0  # for an interpreter on a slow file system
# Another choice of these, or of a configuration file, changes which keys there are.
_CHOICES = ("model_engine", "defaults")
_OLD = "which the installed verl does not have: liverl's overrides are written for verl 0.9"


def checks(plan: Plan, config: RunConfig) -> Check:
    """``check`` in the run's environment of verl."""
    python = interpreter(plan)
    if python is None:
        return Check(NAME, "skipped", f"the keys were not looked for: {UNBUILT}")
    return check(python, config)


def check(python: Path, config: RunConfig) -> Check:
    """Whether the installed verl has every key that the run sets without a ``+``. Hydra would refuse it after verl's
    imports, which take 10 to 60 s."""
    try:
        known = composed(python, _files(config), config.verl.source) | {"model_engine"}
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            why = f"{error.filename}: {error.strerror}"
        return Check(NAME, "skipped", f"not checked: {why}")
    given = {word.partition("=")[0] for word in overrides(config)}
    if any(bare_key(key) in _CHOICES for key in config.trainer.overrides):
        return Check(NAME, "skipped", "not checked: another configuration of verl is chosen")
    users = {bare_key(key) for key in config.trainer.overrides}
    faults = unknown(given, known)
    if not faults:
        return Check(NAME, "ok", quantity(len(given), "key"))
    words = []
    for key, near in faults.items():
        hint = f"; did you mean {near}?" if near else f" (+{key} would add it as a new one)"
        fault = f"the installed verl has no key {key}" if key in users else f"liverl sets {key}, {_OLD}"
        words.append(fault + hint)
    return Check(NAME, "fail", ("trainer.overrides: " if users & faults.keys() else "") + "; ".join(words))


def _files(config: RunConfig) -> tuple[str, ...]:
    engine = config.training.engine
    main = _COMPOSED if engine == FSDP else _OF_ENGINE.format(engine)
    return (main, _ASYNC) if fully_async(config) else (main,)


def unknown(given: Iterable[str], known: set[str]) -> dict[str, str]:
    """The keys of ``given`` that verl does not have, each with the one that it may mean, or "". Those with a sign, of
    Hydra itself, and choices of groups are none of verl's."""
    keys = [key for key in given if key[:1] not in "+~" and "@" not in key and "/" not in key]
    wrong = [key for key in keys if key not in known and not key.startswith("hydra.")]
    return {key: meant(key, sorted(known)) for key in sorted(wrong)}


def composed(python: Path, files: Iterable[str] = (_COMPOSED,), source: str = "") -> set[str]:
    """The dotted keys of verl's default configuration, sections included. ``files``: within its package, together;
    ``source``: the checkout that is imported in place of the installed one, if there is one.

    Raises:
        OSError, ValueError, subprocess.SubprocessError: verl, or its file, is not there or cannot be read.
    """
    if source:
        package = Path(source, "verl")
    else:
        done = ask_program([str(python), "-c", _WHERE], _SECONDS)
        done.check_returncode()
        package = Path(done.stdout.strip())
    return {key for file in files for key in _keys(_tree(package, file))}


def _tree(package: Path, file: str) -> Mapping[Any, Any]:
    try:
        tree = decode_yaml(read_regular(package / file).decode())
    except Undecodable as error:
        raise ValueError(f"{file} of verl is no YAML: {error}") from error
    if not isinstance(tree, Mapping):
        raise ValueError(f"{file} of verl has no keys")
    return tree


def _keys(tree: Mapping[Any, Any], prefix: str = "") -> Iterable[str]:
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")
