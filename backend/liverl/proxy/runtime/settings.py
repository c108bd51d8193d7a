"""Settings of the runner: environment, the run's keys and the generated LiteLLM configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from liverl.util.http_limits import HTTP, MAX_BODY

from .files import read
from .sampling import Policy, PolicyError, read_policy

# Variables meant for other tools that would make LiteLLM open a database, a cache or a
# second configuration that do not belong to this run.
FOREIGN_ENV = (
    "DATABASE_URL",
    "DATABASE_HOST",
    "DIRECT_URL",
    "REDIS_URL",
    "REDIS_HOST",
    "WORKER_CONFIG",
    "STORE_MODEL_IN_DB",
    "LITELLM_CONFIG_BUCKET_NAME",
    "LITELLM_WORKER_STARTUP_HOOKS",
    "LITELLM_SALT_KEY",
    "PROMETHEUS_MULTIPROC_DIR",
)
# vLLM's server (uvicorn) closes idle connections after 5 s by default. A client pool that keeps them
# longer may send a request into a closing connection, and that turn is lost.
BACKEND_KEEPALIVE = "3"


class SettingsError(Exception):
    """A setting is missing or invalid; the message says which."""


@dataclass(frozen=True)
class Keys:
    """The master key and the run key."""

    master: str
    run: str


@dataclass(frozen=True)
class Settings:
    """Settings of one generation."""

    run_dir: Path
    config: Path
    listen_fd: int
    generation: int
    drain_timeout: float  # seconds that each request gets while draining
    idle_grace: float  # seconds an idle kept-alive connection is left open while draining
    keys: Keys
    max_body: int = MAX_BODY  # bytes of one request
    head_timeout: float = HTTP.head_timeout  # seconds for a complete request head
    body_timeout: float = HTTP.body_timeout  # seconds for a complete body behind it
    write_timeout: float = HTTP.write_timeout  # seconds for which a client may leave a full buffer unread
    sampling: Policy | None = None  # None: the client decides


def _number(env: Mapping[str, str], name: str, default: str | None) -> float:
    text = env.get(name) or default
    if text is None:
        raise SettingsError(f"{name} is not set")
    try:
        value = float(text)
    except ValueError:
        raise SettingsError(f"{name} is not a number: {text!r}") from None
    if not 0 <= value < 1e9:
        raise SettingsError(f"{name} is out of range: {text}")
    return value


def _secret(path: Path) -> str:
    try:
        text = read(path).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the key file {path}: {error}") from None
    if not text:
        raise SettingsError(f"the key file {path} is empty")
    return text


def _policy(path: str) -> Policy | None:
    if not path:
        return None
    try:
        return read_policy(read(path))
    except OSError as error:
        raise SettingsError(f"cannot read the sampling parameters in {path}: {error.strerror}") from None
    except PolicyError as error:
        raise SettingsError(f"{path} has no sampling parameters: {error}") from None


def read_settings(env: Mapping[str, str]) -> Settings:
    """Read the settings from ``env`` and the key files below its run directory.

    Raises:
        SettingsError: one is missing or invalid.
    """
    for name in ("LIVERL_RUN_DIR", "LIVERL_PROXY_CONFIG", "LIVERL_LISTEN_FD"):
        if not env.get(name):
            raise SettingsError(f"{name} is not set")
    run_dir = Path(env["LIVERL_RUN_DIR"])
    return Settings(
        run_dir=run_dir,
        config=Path(env["LIVERL_PROXY_CONFIG"]),
        listen_fd=int(_number(env, "LIVERL_LISTEN_FD", None)),
        generation=int(_number(env, "LIVERL_GENERATION", "1")),
        drain_timeout=_number(env, "LIVERL_DRAIN_TIMEOUT", "600"),
        idle_grace=_number(env, "LIVERL_DRAIN_IDLE_GRACE", "5"),
        max_body=int(_number(env, "LIVERL_MAX_BODY_BYTES", str(MAX_BODY))),
        head_timeout=_number(env, "LIVERL_HEAD_TIMEOUT", str(HTTP.head_timeout)),
        body_timeout=_number(env, "LIVERL_BODY_TIMEOUT", str(HTTP.body_timeout)),
        write_timeout=_number(env, "LIVERL_WRITE_TIMEOUT", str(HTTP.write_timeout)),
        sampling=_policy(env.get("LIVERL_SAMPLING", "")),
        keys=Keys(
            master=_secret(run_dir / "secrets" / "master_key"), run=_secret(run_dir / "secrets" / "run_key")
        ),
    )


def prepare_environment(env: MutableMapping[str, str], settings: Settings, connections: int) -> None:
    """Set up ``env`` (``os.environ``) before LiteLLM is imported. ``connections``: the most that it is given."""
    for name in FOREIGN_ENV:
        env.pop(name, None)
    env["LITELLM_MASTER_KEY"] = settings.keys.master
    env["CONFIG_FILE_PATH"] = str(settings.config)
    env["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise the import downloads a price list
    env["LITELLM_MODE"] = "PRODUCTION"  # DEV reads a .env file from the working directory
    env["DISABLE_AIOHTTP_TRUST_ENV"] = "True"  # connect to replicas directly, ignoring HTTP_PROXY
    env.setdefault("DISABLE_ADMIN_UI", "True")
    env.setdefault("AIOHTTP_KEEPALIVE_TIMEOUT", BACKEND_KEEPALIVE)
    # Otherwise LiteLLM ends a stream with an error after 100 equal chunks: a policy that repeats itself is a sample,
    # which the trainer must see whole.
    env.setdefault("REPEATED_STREAMING_CHUNK_LIMIT", str(10**9))
    # Otherwise 500 streams that nobody reads keep every other request to their replica waiting.
    for name in ("AIOHTTP_CONNECTOR_LIMIT", "AIOHTTP_CONNECTOR_LIMIT_PER_HOST"):
        env.setdefault(name, str(connections))


@dataclass(frozen=True)
class ModelConfig:
    """The part of the configuration that a reload may change."""

    sha: str  # sha256 of the file's bytes
    models: tuple[dict[str, Any], ...]
    backends: tuple[str, ...]  # root addresses that get new trials, in order, each once
    draining: tuple[str, ...]  # root addresses that finish their current trials
    cooldown: float  # seconds


def read_model_config(path: Path, parse: Any) -> ModelConfig:
    """Read and validate the generated YAML; ``parse`` is ``yaml.safe_load``.

    Raises:
        SettingsError: it is not valid; the caller keeps its current one.
    """
    try:
        data = read(path)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    try:
        document = parse(data)
    except Exception as error:  # noqa: BLE001 - the parser's own exception type is not importable here
        raise SettingsError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise SettingsError(f"{path} does not contain a mapping")
    models = document.get("model_list")
    if not isinstance(models, list):
        raise SettingsError(f"{path.name} has no model_list")
    backends: dict[str, bool] = {}
    ids: set[str] = set()
    for index, model in enumerate(models):
        backend, identity = _check_model(f"{path.name}: model_list[{index}]", model)
        if identity in ids:
            raise SettingsError(f"{path.name}: model_list[{index}] repeats the id {identity}")
        ids.add(identity)
        backends[backend] = model["model_info"].get("liverl_draining") is True
    router = document.get("router_settings")
    cooldown = router.get("cooldown_time", 30.0) if isinstance(router, dict) else 30.0
    if not isinstance(cooldown, int | float) or cooldown < 0:
        raise SettingsError(f"{path.name}: router_settings.cooldown_time is not a number of seconds")
    return ModelConfig(
        sha=hashlib.sha256(data).hexdigest(),
        models=tuple(models),
        backends=tuple(root for root, leaves in backends.items() if not leaves),
        draining=tuple(root for root, leaves in backends.items() if leaves),
        cooldown=float(cooldown),
    )


def _check_model(where: str, model: Any) -> tuple[str, str]:
    if not isinstance(model, dict):
        raise SettingsError(f"{where} is not a mapping")
    params, info = model.get("litellm_params"), model.get("model_info")
    if (
        not isinstance(model.get("model_name"), str)
        or not isinstance(params, dict)
        or not isinstance(info, dict)
    ):
        raise SettingsError(f"{where} lacks model_name, litellm_params or model_info")
    if not isinstance(params.get("model"), str):
        raise SettingsError(f"{where} has no litellm_params.model")
    backend, identity = info.get("liverl_backend"), info.get("id")
    if not isinstance(backend, str) or not isinstance(identity, str):
        raise SettingsError(f"{where} lacks model_info.liverl_backend or model_info.id")
    if urlsplit(backend).scheme not in ("http", "https"):
        raise SettingsError(f"{where}: {backend!r} is not an http address")
    return backend, identity
