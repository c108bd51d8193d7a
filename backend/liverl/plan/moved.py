"""Modules and scripts of ours that earlier versions wrote into ``plan.json``, and their names in this version.

A run can outlive an upgrade. Its plan names modules (``-m``, entry points, Hydra's ``_target_``) and scripts (by path)
as they were called and installed in the version that made the plan. ``read_plan`` replaces those names, so that this
version can start the services. When you move a module that a plan can name, add it to ``MODULES``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from liverl.plan.spec import FileSpec, Plan, ServiceSpec
from liverl.util.decode import decode_json

PACKAGE = Path(__file__).parents[1]
# Old name -> present name, below the package ``liverl``. A package stands for everything in it.
MODULES: dict[str, str] = {"verlside": "verl_runtime"}
# The same for scripts, which are started by their path; here relative to the package.
SCRIPTS: dict[str, str] = {"proxy/runtime/runner.py": "proxy/runtime/runner.py"}


def read_plan(data: bytes) -> Plan:
    """The plan in ``data``, the content of a ``plan.json`` of this or an earlier version, with present names.

    Raises:
        msgspec.MsgspecError: ``data`` is not a plan, or one of an incompatible version.
    """
    return with_present_names(decode_json(data, type=Plan))


def with_present_names(plan: Plan) -> Plan:
    """``plan`` with the present names of the modules in ``MODULES`` and the scripts in ``SCRIPTS``. A plan of this
    version is not changed."""
    template, ray = plan.replica_template, plan.ray
    return replace(
        plan,
        services=tuple(_service(spec) for spec in plan.services),
        replica_template=_service(template) if template is not None else None,
        ray=replace(ray, child_env=_env(ray.child_env)) if ray is not None else None,
    )


def _service(spec: ServiceSpec) -> ServiceSpec:
    return replace(
        spec,
        argv=tuple(_script(_modules(word)) for word in spec.argv),
        env=_env(spec.env),
        files=tuple(_file(file) for file in spec.files),
    )


def _env(env: Mapping[str, str]) -> dict[str, str]:
    return {name: _modules(value) for name, value in env.items()}


def _file(file: FileSpec) -> FileSpec:
    if PurePosixPath(file.path).parts[-2:] == (PACKAGE.name, "__init__.py"):
        from liverl.plan.guest_path import stub

        return replace(file, text=stub("").text)  # this file contains the path of our package
    return replace(file, text=_modules(file.text))


def _modules(text: str) -> str:
    """``text`` with the present names of moved modules. Longer names that only begin with such a name are not
    changed."""
    if not MODULES:
        return text
    names = "|".join(re.escape(name) for name in sorted(MODULES, key=len, reverse=True))
    dotted = rf"(?<![\w./]){PACKAGE.name}\.({names})(?!\w)"
    return re.sub(dotted, lambda match: f"{PACKAGE.name}.{MODULES[match[1]]}", text)


def _script(word: str) -> str:
    """The path of the same script in this installation, if ``word`` is one of our scripts; else ``word`` unchanged."""
    for old, new in SCRIPTS.items():
        if word.endswith(f"/{PACKAGE.name}/{old}"):
            return str(PACKAGE / new)
    return word
