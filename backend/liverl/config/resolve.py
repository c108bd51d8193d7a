"""The run's name, its directory and absolute paths, as fixed when the run starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from liverl.config.schema import RunConfig
from liverl.config.secrets import FILE_SCHEME
from liverl.config.sections.run import SELF, names_a_folder
from liverl.config.sections.value_types import FALSE, TRUE
from liverl.config.sizing import BUILTIN, SMOKE, TRAIN_FILES, VAL_FILES, bare_key, files_of
from liverl.util.paths import default_cache_dir
from liverl.util.primary_address import primary_address

NAME_FORMAT = "%Y%m%d-%H%M%S"  # UTC


def resolved(
    config: RunConfig, *, env: Mapping[str, str], cwd: Path, now: float, file: Path | None = None
) -> RunConfig:
    """``config`` with the run's name and absolute paths filled in. A second call changes nothing.

    ``now``: Unix seconds, for a run without a name. A relative ``run.run_root`` starts at ``cwd``; LiveRL's relative
    paths start at the directory of ``file``, as in LiveRL (at ``cwd`` without a file).
    """
    name = (
        config.run.name
        or config.experiment.exp_name
        or datetime.fromtimestamp(now, UTC).strftime(NAME_FORMAT)
    )
    base = cwd / file.parent if file is not None else cwd

    def absolute(text: str) -> str:
        return _absolute(text, base, env) if text else ""

    def venv(text: str) -> str:
        return text if text == SELF else absolute(text)

    def copies(text: str) -> str:
        """A folder for copies as an absolute path; a yes or no as ``true`` or ``false``, anything else as it is."""
        word = text.lower()
        if word in TRUE or word in FALSE:
            return "true" if word in TRUE else "false"
        return absolute(text) if names_a_folder(text) else text

    def link(text: str) -> str:
        return text if "://" in text else absolute(text)

    def of_override(key: str, value: Any) -> Any:
        """verl starts elsewhere, and expands no ``~``."""
        files = files_of(value) if bare_key(key) in (TRAIN_FILES, VAL_FILES) and value is not None else None
        placed = [link(name) for name in files or ()]
        return value if tuple(placed) == (files or ()) else placed

    def programs(words: tuple[str, ...]) -> tuple[str, ...]:
        """A program that is named by a path with its absolute one; one that is on PATH as it is."""
        return (absolute(words[0]), *words[1:]) if "/" in words[0] else words

    model = config.model.model_path
    if model.startswith(SMOKE):
        folder = absolute(model.removeprefix(SMOKE)) or str(default_cache_dir(env).absolute() / "smoke")
        model = SMOKE + folder
    elif not model.startswith(BUILTIN) and model.startswith(("~/", "./", "../")):
        model = absolute(model)  # anything else may be a model id such as Qwen/Qwen3-0.6B
    command = config.trainer.kind == "command"
    return replace(
        config,
        run=replace(config.run, name=name, run_root=str(run_root(config, env=env, cwd=cwd))),
        model=replace(config.model, model_path=model),
        data=replace(
            config.data,
            data_dir=absolute(config.data.data_dir),
            train_index=absolute(config.data.train_index),
            val_index=absolute(config.data.val_index),
        ),
        verl=replace(config.verl, source=absolute(config.verl.source) if config.verl.source else ""),
        environment=replace(config.environment, venv_path=venv(config.environment.venv_path)),
        environments={
            key: replace(
                entry,
                venv_path=venv(entry.venv_path or "") or None,
                find_links=tuple(link(text) for text in entry.find_links),
                local_copy=copies(entry.local_copy),
            )
            for key, entry in config.environments.items()
        },
        trainer=replace(
            config.trainer,
            cwd=absolute(config.trainer.cwd or "." * command),
            overrides={key: of_override(key, value) for key, value in config.trainer.overrides.items()},
        ),
        agent=replace(
            config.agent,
            command=config.agent.command and programs(config.agent.command),
            verifier=config.agent.verifier and programs(config.agent.verifier),
            tools=absolute(config.agent.tools),
            functions=absolute(config.agent.functions),
            path=tuple(absolute(text) for text in config.agent.path),
        ),
        reward=replace(config.reward, function=absolute(config.reward.function)),
        ray=replace(
            config.ray,
            temp_dir=absolute(config.ray.temp_dir),
            auth_token_file=absolute(config.ray.auth_token_file) or _ray_token(config, env),
        ),
        infrastructure=replace(config.infrastructure, node0_ip=_head_address(config)),
        k8s=replace(config.k8s, kubeconfig=absolute(config.k8s.kubeconfig)),
        credentials=replace(
            config.credentials, wandb_api_key=_key_file(config.credentials.wandb_api_key, env)
        ),
        observe=replace(config.observe, metrics_token_file=absolute(config.observe.metrics_token_file)),
        diagnosis=replace(config.diagnosis, rules=tuple(map(absolute, config.diagnosis.rules))),
        notify=replace(
            config.notify,
            targets=tuple(
                replace(
                    target,
                    command=target.command and programs(target.command),
                    webhook=_key_file(target.webhook, env),
                    apprise=_key_file(target.apprise, env),
                )
                for target in config.notify.targets
            ),
        ),
        experiment=replace(
            config.experiment,
            exp_name=name,
            trials_dir=absolute(config.experiment.trials_dir),
            trajectory_logger_src=absolute(config.experiment.trajectory_logger_src),
        ),
    )


def run_root(config: RunConfig, *, env: Mapping[str, str], cwd: Path) -> Path:
    """The absolute directory that contains all runs; ``~`` and the default come from ``env`` (HOME, XDG_STATE_HOME)."""
    if config.run.run_root:
        return Path(_absolute(config.run.run_root, cwd, env))
    state = env.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # the XDG specification: ignore a relative path
        return Path(state, "liverl", "runs")
    return Path(env.get("HOME") or cwd, ".local", "state", "liverl", "runs")


def run_directory(config: RunConfig) -> Path:
    """``<run_root>/<project>/<name>`` of a resolved configuration.

    Raises:
        ValueError: the configuration is not resolved.
    """
    if not config.run.name or not os.path.isabs(config.run.run_root):
        raise ValueError("resolve the configuration first: the run name or an absolute run_root is missing")
    return Path(config.run.run_root, config.experiment.project_name, config.run.name)


def _key_file(value: str, env: Mapping[str, str]) -> str:
    """``file:~/x`` with its absolute path; any other value unchanged."""
    home = f"{FILE_SCHEME}~/"
    return (
        f"{FILE_SCHEME}{env['HOME']}/{value[len(home) :]}"
        if value.startswith(home) and env.get("HOME")
        else value
    )


def _ray_token(config: RunConfig, env: Mapping[str, str]) -> str:
    """The file with this user's Ray token, for an existing cluster; "" if there is none. ``ray start`` requires the
    token if this file exists, and clients must be given it (Ray 2.60). With a launch script, it is found
    from the script's Ray processes instead."""
    if not config.ray.address or config.trainer.kind == "command":
        return ""
    if env.get("RAY_AUTH_MODE", "token") != "token" or env.get("RAY_AUTH_TOKEN"):
        return ""  # Ray takes the token itself before a file, and the run's processes inherit it
    path = env.get("RAY_AUTH_TOKEN_PATH") or _absolute("~/.ray/auth_token", Path("/"), env)
    return path if os.path.isabs(path) and os.path.isfile(path) else ""


def _head_address(config: RunConfig) -> str:
    """``infrastructure.node0_ip``; of a run of verl on several hosts, without one, this host's address on its default
    route."""
    infra = config.infrastructure
    if infra.node0_ip or infra.nnodes == 1 or config.trainer.kind != "verl":
        return infra.node0_ip
    return primary_address()


def _absolute(text: str, base: Path, env: Mapping[str, str]) -> str:
    if text == "~" or text.startswith("~/"):
        text = (env.get("HOME") or "~") + text[1:]
    return os.path.normpath(base / text)
