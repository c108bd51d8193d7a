"""What ``envs ls``, ``show`` and ``localize`` print as JSON."""

from __future__ import annotations

import platform

import msgspec

from liverl.environments.copy_proof import editable_packages, python_version
from liverl.environments.errors import BuildError
from liverl.environments.local_copy import base_of, copies, family
from liverl.environments.resolve import EnvPlan
from liverl.util.file_systems import file_system
from liverl.util.tree_size import measure


class EnvListed(msgspec.Struct, frozen=True):
    """One line of ``envs ls``. ``state``: own, existing, built or not built; ``packages``: of its lock."""

    name: str
    state: str
    python: str
    pinned_by: str
    lock: str | None
    packages: int | None
    hashes: bool


class CopyShown(msgspec.Struct, frozen=True):
    """A complete copy on this host. ``copied_at``: Unix seconds; ``proof``: what was run in it, in words."""

    folder: str
    copied_at: float
    files: int
    proof: str


class EnvShown(msgspec.Struct, frozen=True):
    """What is known of one environment. ``network``: its disk may be one of a network; ``editable``: module -> file of
    packages that come from elsewhere; ``bytes``: on the disk; ``problem``: why it could not be looked at. None where
    something is not known."""

    listed: EnvListed
    folder: str
    file_system: str | None
    mount: str | None
    network: bool | None
    local_copy: str
    python_version: str | None = None
    files: int | None = None
    bytes: int | None = None
    editable: dict[str, str] | None = None
    copies: tuple[CopyShown, ...] = ()
    problem: str | None = None


class Localized(msgspec.Struct, frozen=True):
    """A copy that ``envs localize`` made or found. ``read_files``, ``read_bytes``: what was read of the source for it;
    ``imported``: the module whose import was measured in new processes, with its seconds in both; None if none was."""

    name: str
    source: str
    folder: str
    new: bool
    read_files: int
    read_bytes: int
    proof: str
    imported: str | None
    seconds_before: float | None
    seconds_after: float | None


def shown(listed: EnvListed, plan: EnvPlan, local_copy: str) -> EnvShown:
    """What is known of an environment. Its interpreter is asked, and its files are counted; nothing is changed."""
    root = plan.python.parent.parent
    disk = file_system(root)
    found = EnvShown(
        listed=listed,
        folder=str(root),
        file_system=disk.kind if disk is not None else None,
        mount=disk.mount if disk is not None else None,
        network=disk.network if disk is not None else None,
        local_copy=local_copy,
        copies=tuple(
            CopyShown(str(path), copy.copied_at, len(copy.files), copy.proof)
            for path, copy in copies(family(root, base_of(local_copy)))
        ),
    )
    if plan.kind == "own":
        return msgspec.structs.replace(found, python_version=platform.python_version())
    if not plan.published:
        why = "it is not built yet" if plan.kind == "built" else f"{plan.python} does not exist"
        return msgspec.structs.replace(found, problem=why)
    try:
        size = measure(root)
        return msgspec.structs.replace(
            found,
            python_version=python_version(plan.python),
            editable=editable_packages(plan.python),
            files=size.files,
            bytes=size.bytes,
        )
    except BuildError as error:
        return msgspec.structs.replace(found, problem=error.text)
    except OSError as error:
        return msgspec.structs.replace(found, problem=f"{error.filename or root}: {error.strerror}")
