"""Which environment variables a component of a run reads: ours by their source, the others by a table."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import liverl

# Variables that plans set and programs of others read -> by whom, and where that can be looked up.
THIRD_PARTY: dict[str, dict[str, str]] = {
    "vllm": {
        "VLLM_LOGGING_LEVEL": "vllm/envs.py; the default of verl 0.9.1 is WARN (trainer/constants_ppo.py)",
        "VLLM_API_KEY": "vllm/envs.py; read where the server makes its routes",
    },
    "wandb": {
        "WANDB_API_KEY": "docs.wandb.ai, environment variables",
        "WANDB_MODE": "docs.wandb.ai, environment variables",
    },
    "verl": {
        "VERL_LOGGING_LEVEL": "66 modules of verl 0.9.1",
        "VERL_USE_EXTERNAL_MODULES": "verl/__init__.py",
        "VERL_ENGINE_DEVICE": "verl/workers/engine/base.py",
        "VERL_FILE_LOGGER_PATH": "verl/utils/tracking.py, FileLogger",
        "HYDRA_FULL_ERROR": "hydra.cc, debugging",
        "TORCH_COMPILE_DISABLE": "torch/_dynamo/config.py",
        "OMP_NUM_THREADS": "the OpenMP specification; PyTorch",
        "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP": "verl/utils/checkpoint/checkpoint_manager.py",
        "NCCL_SOCKET_IFNAME": "docs.nvidia.com, NCCL environment variables",
        "GLOO_SOCKET_IFNAME": "docs.pytorch.org, torch.distributed, choosing the network interface",
        "TP_SOCKET_IFNAME": "torch/csrc/distributed/rpc/tensorpipe_agent.cpp",
    },
    "ray": {
        "RAY_ADDRESS": "docs.ray.io, ray.init",
        "RAY_AUTH_MODE": "docs.ray.io, token authentication",
        "RAY_AUTH_TOKEN_PATH": "docs.ray.io, token authentication",
        "RAY_USAGE_STATS_ENABLED": "docs.ray.io, usage stats",
        "RAY_DEDUP_LOGS": "docs.ray.io, log deduplication",
        "RAY_DEBUG": "ray/util/rpdb.py",
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "ray/_private/ray_constants.py",
        "RAY_agent_register_timeout_ms": "ray_config_def.h: each of its settings is read as RAY_<name>",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "ray/_private/ray_constants.py",
    },
    "litellm": {"LITELLM_LOCAL_MODEL_COST_MAP": "litellm/__init__.py"},
    "python": {
        "PYTHONPATH": "docs.python.org, command line and environment",
        "PYTHONUNBUFFERED": "docs.python.org, command line and environment",
    },
}


@functools.cache
def own_reads(package: str) -> frozenset[str]:
    """The variables that the modules of ``package`` read."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    files = sorted(Path(spec.submodule_search_locations[0]).rglob("*.py"))
    assert files, package
    return frozenset(name for file in files for name in reads(file.read_text()))


def reads(source: str) -> set[str]:
    """The variables that a module reads: by ``os.environ`` or a mapping called ``env``, or by a function that gets
    one of these and the name. Writing to them is no reading."""
    tree = ast.parse(source)
    constants = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("liverl."):
            theirs = _constants_of(str(node.module))
            constants |= {
                one.asname or one.name: theirs[one.name] for one in node.names if one.name in theirs
            }
    found: set[str] = set()
    for node in ast.walk(tree):
        for name in _names_read(node):
            value = constants.get(name.id) if isinstance(name, ast.Name) else getattr(name, "value", None)
            if isinstance(value, str):
                found.add(value)
    return found


def _constants(tree: ast.Module) -> dict[str, object]:
    """The names that a module gives to constants."""
    return {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


@functools.cache
def _constants_of(module: str) -> dict[str, object]:
    """Those of a module of ours, which is not imported: some need what is not installed here."""
    path = Path(liverl.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return _constants(ast.parse(path.read_text())) if path.exists() else {}


def _names_read(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions in ``node`` that name a variable which it reads."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_environment(node.value):
        yield node.slice
    elif isinstance(node, ast.Compare) and any(_is_environment(right) for right in node.comparators):
        yield node.left
    elif isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute) and (
            function.attr == "getenv" or _is_environment(function.value)
        ):
            if function.attr in ("getenv", "get", "setdefault"):
                yield from node.args[:1]
        elif any(_is_environment(argument) for argument in node.args):
            yield from node.args


def _is_environment(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "environ"
    return isinstance(node, ast.Name) and node.id in ("env", "environ")
