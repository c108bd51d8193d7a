"""Where an environment takes its packages from, and which versions were tried together."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.environments import BuildError
from liverl.environments.copy_proof import editable_packages
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.interpreter import ask_python, environments_of

ORIGIN = "where modules come from"
VERSIONS = "versions"
# Tried together by us: the requirements of config/default.yaml, and what they install. A version is known good with
# the digits that are given.
TRIED = {
    "verl": "0.9",
    "vllm": "0.24",
    "ray": "2.60",
    "TransferQueue": "0.1",
}
# verl's FAQ: on aarch64 there is no wheel of tensordict below 0.8, and verl asks for one: it is built from source.
_TENSORDICT_ARM = ("aarch64", "0.6")
_ASK = (
    "import importlib.metadata as m, json, sys\n"
    "def v(n):\n"
    "  try: return m.version(n)\n"
    "  except m.PackageNotFoundError: return None\n"
    "print(json.dumps({n: v(n) for n in sys.argv[1:]}))"
)


def origins(plan: Plan) -> Iterator[Check]:
    """For each environment that is there: the packages that come from a folder elsewhere (``pip install -e``)."""
    for name, python in _there(plan):
        title = f"{ORIGIN}: {name}"
        try:
            found = editable_packages(python)
        except BuildError as error:
            yield Check(title, "skipped", error.text)
            continue
        gone = sorted(name for name, place in found.items() if not place)
        told = ", ".join(f"{module} from {place}" for module, place in found.items())
        if gone:
            text = f"{python}: {', '.join(gone)} is installed with pip install -e, and its folder is gone"
            yield Check(
                title, "fail", text, fix="install it anew from where it is now: pip install -e FOLDER"
            )
        elif found:
            yield Check(title, "ok", f"{python}: {told}; the rest is its own")
        else:
            yield Check(
                title, "ok", f"{python}: all of it is its own, nothing is installed with pip install -e"
            )


def versions(plan: Plan, env: Mapping[str, str]) -> Check:
    """Whether verl, vLLM and Ray have the versions that were tried together."""
    python = next((python for name, python in _there(plan) if name == "verl"), None)
    if python is None:
        return Check(
            VERSIONS, "skipped", "there is no environment verl yet; what up builds was tried together"
        )
    names = (*TRIED, "tensordict")
    try:
        found = ask_python(python, _ASK, names, dict[str, str | None], env=dict(env), cwd="/")
    except ValueError as error:
        return Check(VERSIONS, "skipped", f"{python} cannot be asked: {error}")
    other = [
        f"{name} {found[name]} (tried: {wanted})"
        for name, wanted in TRIED.items()
        if found.get(name) and not _begins(str(found[name]), wanted)
    ]
    tensordict = found.get("tensordict")
    if (
        platform.machine() == _TENSORDICT_ARM[0]
        and tensordict
        and not _begins(tensordict, _TENSORDICT_ARM[1])
    ):
        other.append(f"tensordict {tensordict} on aarch64 (verl's FAQ: build 0.6.2 from source)")
    there = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if other:
        return Check(VERSIONS, "warn", f"{python}: not tried together: {'; '.join(other)}")
    if not there:
        return Check(VERSIONS, "skipped", f"{python} has none of {', '.join(names)}")
    return Check(VERSIONS, "ok", f"{python}: {there}")


def _begins(version: str, wanted: str) -> bool:
    return version == wanted or version.startswith(f"{wanted}.")


def _there(plan: Plan) -> Iterator[tuple[str, Path]]:
    """The environments that can be asked."""
    for spec, place in environments_of(plan):
        if place.kind != "own" and place.published:
            yield spec.name, place.python
