"""Renders LiteLLM's configuration for a run's proxy as text. Pure: no file is read or written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

_VARIABLE = "os.environ/"  # LiteLLM replaces a text that begins with this by the value of a variable


def normalise_backend(url: str) -> str:
    """Return the root address of a replica: ``http://127.0.0.1:4001``, without ``/v1`` and trailing slashes.

    Raises:
        ValueError: not an http(s) address with a host, or it contains credentials.
    """
    text = url.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"invalid http address: {url!r} ({error})") from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or " " in text:
        raise ValueError(f"invalid http address: {url!r}")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "an address must not contain credentials, because it is written to the run directory"
        )
    if port == 0:
        raise ValueError(f"port 0 is not a valid port: {url!r}")
    return text


def aliases(served_model: str, prefix: str) -> tuple[str, ...]:
    """Return the model names under which agents request the policy: Claude Code's, LiteLLM's form (``prefix`` is the
    engine's, with the slash), the plain name."""
    names = ("claude-*", f"{prefix}{served_model}", served_model)
    return tuple(dict.fromkeys(names))


def render_litellm_config(
    backends: Sequence[str],
    served_model: str,
    request_timeout: float,
    cooldown: float,
    draining: Sequence[str] = (),
    *,
    prefix: str,
    token: str = "",
) -> str:
    """Return the YAML for LiteLLM 1.106, listing every alias once per backend.

    ``backends``: addresses of replicas (see ``normalise_backend``); their order breaks ties of the load,
    duplicates are dropped. Without any, the proxy responds with 503 until a reload adds one. ``draining``:
    replicas that finish their current trials and get no new ones. ``request_timeout``: seconds, at least a
    trial's time limit. ``cooldown``: seconds for which an unreachable replica gets no requests. ``prefix``:
    LiteLLM's provider for the engine, with the slash. ``token``: what the replicas require, "" = nothing; it makes the
    text a secret.

    Raises:
        ValueError: an address, name or number is invalid.
    """
    invalid = any(character in served_model for character in "*\n") or served_model.startswith(_VARIABLE)
    if not served_model.strip() or invalid:
        raise ValueError(f"invalid model name: {served_model!r}")
    if not request_timeout > 0:
        raise ValueError(f"request_timeout must be more than 0 s, not {request_timeout!r}")
    if not cooldown >= 0:
        raise ValueError(f"cooldown must not be negative, not {cooldown!r}")
    roots = dict.fromkeys((normalise_backend(backend) for backend in backends), False)
    for backend in draining:
        roots.setdefault(normalise_backend(backend), True)
    document: dict[str, Any] = {
        "model_list": [
            _deployment(alias, root, served_model, leaves, prefix, token)
            for root, leaves in roots.items()
            for alias in aliases(served_model, prefix)
        ],
        "litellm_settings": {
            "callbacks": ["liverl_runtime.sticky_router.handler", "liverl_runtime.trajectory_logger.handler"],
            "request_timeout": request_timeout,
            "num_retries": 0,  # the trial must see a failed turn; it must not be resampled silently
            "drop_params": True,  # agents send parameters unknown to vLLM
            "telemetry": False,
            "cache": False,
        },
        "router_settings": {
            "routing_strategy": "simple-shuffle",
            "num_retries": 0,
            "max_fallbacks": 0,
            "timeout": request_timeout,
            "stream_timeout": request_timeout,
            "disable_cooldowns": True,  # routing.py has a cooldown per replica; LiteLLM's is per alias
            "cooldown_time": cooldown,
        },
        "general_settings": {
            "master_key": "os.environ/LITELLM_MASTER_KEY",
            "custom_auth": "liverl_runtime.auth.user_api_key_auth",
            "cancel_on_disconnect": True,  # stop generating when the client disconnects
            "background_health_checks": False,  # they would wake sleeping replicas
            "disable_spend_logs": True,
        },
    }
    import yaml

    return yaml.safe_dump(document, sort_keys=False)


def _deployment(
    alias: str, root: str, served_model: str, leaves: bool, prefix: str, token: str
) -> dict[str, Any]:
    params = {"model": f"{prefix}{served_model}", "api_base": f"{root}/v1"}
    fields = [alias, root, served_model]
    if token:
        params["api_key"] = token
        fields.append(token)
    identity = hashlib.sha256("\0".join(fields).encode()).hexdigest()[:16]
    info: dict[str, Any] = {"id": identity, "liverl_backend": root}
    if leaves:
        info["liverl_draining"] = True
    return {"model_name": alias, "litellm_params": params, "model_info": info}


def config_sha(text: str) -> str:
    """Return the hash that the runner reports as ``config_sha`` once it serves exactly this text."""
    return hashlib.sha256(text.encode()).hexdigest()
