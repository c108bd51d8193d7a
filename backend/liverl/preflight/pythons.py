"""The Python environments of a run, before one of them is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.config.sections.run import HARBOR
from liverl.environments import BuildError, resolve
from liverl.environments.resolve import EnvPlan
from liverl.model import Check
from liverl.plan.spec import EnvironmentSpec, Plan
from liverl.preflight.interpreter import ask_python
from liverl.preflight.subject import variables_of
from liverl.util.paths import default_cache_dir
from liverl.util.plural import quantity

# What each is for: the module that its services run. Others are only looked for.
_MODULES = {"proxy": "litellm", "vllm": "vllm"}
_OWN_CHECK = ("self", "verl", HARBOR)  # they have a check of their own
_FIND = (
    "import importlib.util, json, sys; print(json.dumps(importlib.util.find_spec(sys.argv[1]) is not None))"
)


def checks(plan: Plan, env: Mapping[str, str]) -> Iterator[Check]:
    """One check for each environment. Modules are located, not loaded."""
    for spec in plan.environments:
        if spec.name not in _OWN_CHECK:
            users = (plan.replica_template, *plan.services)
            user = next((s for s in users if s is not None and s.environment == spec.name), None)
            yield environment(
                spec, variables_of(user, env) if user is not None else env, default_cache_dir(env)
            )


def environment(spec: EnvironmentSpec, env: Mapping[str, str], cache: Path) -> Check:
    """Whether an environment is there, and has the module that its services run. ``env``: of such a service."""
    name = f"environment {spec.name}"
    try:
        place = resolve(spec, cache)
    except BuildError as error:
        return Check(name, "fail", error.text)
    if place.kind == "built":
        return _built(name, place)
    if not place.published:
        fix = f"set environments.{spec.name}.venv_path to an environment, or remove it: up then builds one"
        return Check(name, "fail", f"{place.python} does not exist", fix=fix)
    module = _MODULES.get(spec.name)
    if module is None:
        return Check(name, "skipped", f"{place.python} exists; what it must have is not known")
    return _has(name, place.python, module, env)


def _built(name: str, place: EnvPlan) -> Check:
    if place.published:
        return Check(name, "ok", f"built: {place.folder}")
    packages = f" ({quantity(len(place.lock.pins), 'package')})" if place.lock is not None else ""
    return Check(name, "skipped", f"will be built at the start of the run{packages}")


def _has(name: str, python: Path, module: str, env: Mapping[str, str]) -> Check:
    try:
        there = ask_python(python, _FIND, [module], bool, env=env, cwd="/")
    except ValueError as error:
        return Check(
            name, "fail", f"{python} cannot be asked: {error}", fix="repair or rebuild that environment"
        )
    if not there:
        return Check(name, "fail", f"{python} has no module {module}", fix=f"install {module} there")
    return Check(name, "ok", f"{python}: has {module}")
