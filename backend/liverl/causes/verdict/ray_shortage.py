"""What waits in a Ray cluster for resources that nobody gives it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from liverl.causes.finding import Evidence, Explanation

ID = "ray-too-few-resources"
_COUNTED = ("CPU", "GPU")


class RayLoad(msgspec.Struct, frozen=True):
    """The resources of a cluster, by name. ``pending``: what each actor or placement group that waits asks for, as the
    sum over its bundles."""

    used: Mapping[str, float] = {}
    total: Mapping[str, float] = {}
    pending: tuple[Mapping[str, float], ...] = ()


def shortage(load: RayLoad) -> Explanation | None:
    """Why actors wait; None if nothing waits for more than is free.

    What waits although its resources are free is just being placed, or is kept off a node for another reason.
    """
    waiting = wanted(load)
    if waiting is None:
        return None
    short = _short(load, waiting)
    need = {name: load.used.get(name, 0.0) + waiting[name] for name in short}
    has = ", ".join(
        f"{_free(load, name):g} of {load.total.get(name, 0.0):g} {_plural(name)}" for name in short
    )
    return Explanation(
        ID,
        "critical",
        f"An actor waits for {words(waiting)}, and Ray has {has} free",
        f"{_usage(load)} of the cluster are in use. verl waits until what it asks for is free, without a message or a "
        "time limit of its own.",
        f"Start Ray with at least {words(need)} ({_flags(need)}), stop what else holds them "
        "(ray list actors), or ask for less: infrastructure.ngpus_per_node.",
        "ray status",
        evidence=(Evidence(f"Ray's cluster status: {_usage(load)} in use; pending: {_all(load)}"),),
    )


def wanted(load: RayLoad) -> Mapping[str, float] | None:
    """The largest of the requests that wait for more than is free; None without one."""
    return max((asked for asked in load.pending if _short(load, asked)), key=amount, default=None)


def amount(asked: Mapping[str, float]) -> float:
    """How much a request asks for, of all resources."""
    return sum(asked.values())


def _short(load: RayLoad, asked: Mapping[str, float]) -> list[str]:
    return [name for name, amount in sorted(asked.items()) if amount > _free(load, name)]


def _free(load: RayLoad, name: str) -> float:
    return load.total.get(name, 0.0) - load.used.get(name, 0.0)


def words(resources: Mapping[str, float]) -> str:
    """``3 CPUs and 1 GPU``."""
    return " and ".join(
        f"{amount:g} {name if amount == 1 else _plural(name)}" for name, amount in sorted(resources.items())
    )


def _plural(name: str) -> str:
    return f"{name}s" if name in _COUNTED else name


def _flags(resources: Mapping[str, float]) -> str:
    flags = {"CPU": "--num-cpus", "GPU": "--num-gpus"}
    named = [f"ray start {flags[name]}" for name in sorted(resources) if name in flags]
    settings = ["ray.num_cpus"] if "CPU" in resources else []
    return ", ".join([*named, *settings]) or "ray start --resources"


def _usage(load: RayLoad) -> str:
    return ", ".join(
        f"{load.used.get(name, 0.0):g} of {load.total[name]:g} {name}s"
        for name in _COUNTED
        if name in load.total
    )


def _all(load: RayLoad) -> str:
    return "; ".join(words(one) for one in load.pending[:5])
