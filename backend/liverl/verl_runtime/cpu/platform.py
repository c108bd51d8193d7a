"""A verl platform without an accelerator: torch on the CPU, gloo, and Ray's GPUs as plain numbers.

verl's placement groups always request GPUs, so the cluster is started with as many as there are ranks.
"""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from verl.plugin.platform.platform_base import PlatformBase

NAME = "liverl_cpu"


class _DeviceModule(types.ModuleType):
    """Replaces ``torch.cuda``: what the CPU supports; everything else does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(torch.cpu, name):
            return getattr(torch.cpu, name)
        return _ANSWERS.get(name, _nothing)


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _host_memory() -> tuple[int, int]:
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


_ANSWERS: dict[str, Callable[..., Any]] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "get_device_name": lambda *a: "CPU",
    "mem_get_info": lambda *a: _host_memory(),
    "get_rng_state": lambda *a: torch.get_rng_state(),
    "set_rng_state": lambda state, *a: torch.set_rng_state(state),
    **dict.fromkeys(
        ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"), lambda *a: 0
    ),
}
_MODULE = _DeviceModule("liverl_cpu_device")


class CpuPlatform(PlatformBase):  # type: ignore[misc]
    """The device interface of verl, for the CPU. Methods without a CPU equivalent do nothing."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _MODULE

    def is_available(self) -> bool:
        """The CPU is always available."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """The CPU is always available."""
        return True

    def current_device(self) -> torch.device:
        """Return the CPU device."""
        return torch.device("cpu")

    def device_count(self) -> int:
        """Return 1."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Do nothing."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Do nothing: CPU operations are synchronous."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """Do nothing."""

    def empty_cache(self) -> None:
        """Do nothing."""

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        """Return (None, None): a CPU has no compute capability."""
        return None, None

    def communication_backend_name(self) -> str:
        """Return the name of torch's process group backend."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Return the variable that Ray sets for a worker's devices."""
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """Do nothing: there is no profiler."""
        yield

    def profiler_start(self) -> None:
        """Do nothing."""

    def profiler_stop(self) -> None:
        """Do nothing."""

    def ray_resource_name(self) -> str:
        """Return the Ray resource that verl requests per rank."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Return the variables that keep Ray from setting visible devices."""
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        """Return False: there is no CUDA IPC."""
        return False

    def cudart(self) -> None:
        """Return None: there is no CUDA runtime."""


def init_process_group(timeout_second: float | None = None, backend: str | None = None) -> None:
    """Replacement for verl's ``initialize_global_process_group_ray`` with gloo only: on a CPU verl's names
    one backend twice."""
    if not dist.is_initialized():
        dist.init_process_group(
            "gloo",
            rank=int(os.environ.get("RANK", "0")),
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
            timeout=timedelta(seconds=timeout_second) if timeout_second is not None else None,
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )
