"""Layers -> one checked configuration, with the origins of the values that differ from the defaults, and warnings."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from liverl.config import profiles
from liverl.config.checks.managed import check, mirrored, secret_overrides, with_rollout_mode
from liverl.config.conditions import AUTO_HOST
from liverl.config.consumers import why_inert
from liverl.config.errors import ConfigError, Problem, Where
from liverl.config.layers import Layer, Setting, from_environment, from_sets, from_text
from liverl.config.loaded import LoadedConfig
from liverl.config.schema import Path as KeyPath
from liverl.config.schema import RunConfig, is_open, leaves, schema_key
from liverl.config.secrets import PLACEHOLDER, Secrets, take_secrets
from liverl.model import MIRRORED
from liverl.util.answered import NoAnswer, answered
from liverl.util.file_systems import file_system
from liverl.util.regular_file import open_binary, read_pipe, read_up_to

MAX_BYTES = 4 * 1024 * 1024
ANSWER_S = 10.0  # seconds that the file system of a configuration file has
PIPE_S = 5.0  # seconds that the writer of a FIFO given as configuration has
# Layers whose inert keys cause a warning: the user wrote the key on purpose.
_BY_HAND = ("file", "env", "set")
_BY_USER = (*_BY_HAND, "liverl env")
_TRAINER: KeyPath = ("trainer", "kind")

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def packaged_defaults() -> RunConfig:
    """The configuration of ``default.yaml`` alone, which no profile has changed."""
    return _build(_default_layer().settings)


def load_config(
    path: Path | str | None = None,
    *,
    profile: str | None = None,
    sets: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    read_secrets: bool = True,
    without: Collection[str] = (),
) -> LoadedConfig:
    """The configuration from all layers: defaults < those of the trainer < profile < ``path`` < LiveRL's variables <
    ``LIVERL_SECTION__KEY`` < ``sets``; a later layer overrides an earlier one.

    Reads these files and ``env`` only (None = the environment of this process). With ``read_secrets`` False, files
    named by ``file:`` are not read: a saved run may be opened on another machine. ``without``: dotted keys that count
    as not given in ``path``.

    Raises:
        ConfigError: the configuration has problems; the error lists all of them.
    """
    path = Path(path) if path is not None else None
    env = os.environ if env is None else env
    problems: list[Problem] = []
    default = _default_layer()
    file = from_text(_read(path, problems), str(path), "file") if path is not None else Layer("file")
    for key in without:
        file.settings.pop(tuple(key.split(".")), None)
    name = profile or (profiles.LIVERL_PROFILE if file.wrapped else "embedded")
    try:
        middle = from_text(profiles.profile_text(name), f"profile {name}", "profile")
    except ConfigError as error:
        problems.extend(error.problems)
        middle = Layer("profile")
    theirs, ours, warnings = from_environment(env)
    chosen = [middle, file, theirs, ours, from_sets(sets)]
    layers = [default, _trainer_layer(_trainer([default, *chosen])), *chosen]
    joined = _join(layers, middle, problems, env, read_secrets)
    if profile is None and file.wrapped:
        warnings.append(
            f"{path} is a LiveRL configuration; it is read on top of profile {name} (choose another with --profile)"
        )
    overridden = {key: setting for key, setting in file.settings.items() if key in theirs.settings}
    warnings.extend(_variables_over_file(overridden, theirs))
    layered = ("defaults", "" if name == "embedded" else f"profile {name}", str(path or ""))
    source = " + ".join(word for word in layered if word)
    return _loaded(joined, warnings, source=source, profile=name, kept=file.kept, file=str(path or ""))


def load_over(
    saved: Path,
    path: Path | None = None,
    *,
    profile: str | None = None,
    sets: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    read_secrets: bool = True,
    checked: bool = True,
    given: Mapping[str, str] | None = None,
) -> LoadedConfig:
    """The configuration of a run, as saved in ``saved``, with the keys that profile, file and ``sets`` have in place of
    its own. A profile stands on the defaults of its trainer. Environment variables (``env``; None = those of this
    process) were applied when the run was created; now they only override keys that the profile or the file has.
    Warnings and user origins are those of the new keys.
    Without ``checked``, what must hold between keys is not looked at. ``given``: ``LoadedConfig.given`` of the run.

    Raises:
        ConfigError: the configuration has problems; the error lists all of them.
    """
    env = os.environ if env is None else env
    problems: list[Problem] = []
    base = from_text(_read(saved, problems), str(saved), "profile")
    file = from_text(_read(path, problems), str(path), "file") if path is not None else Layer("file")
    middle = Layer("profile")
    if profile is not None:
        try:
            middle = from_text(profiles.profile_text(profile), f"profile {profile}", "profile")
        except ConfigError as error:
            problems.extend(error.problems)
    new = {*middle.settings, *file.settings}
    variables = [
        Layer(layer.name, {key: value for key, value in layer.settings.items() if key in new})
        for layer in from_environment(env)[:2]
    ]
    saved_run, chosen = [_default_layer(), base], [middle, file, *variables, from_sets(sets)]
    anew = [_trainer_layer(_trainer([*saved_run, *chosen]))] if profile is not None else []
    layers = [*saved_run, *anew, *chosen]
    joined = _join(layers, base, problems, env, read_secrets, checked)
    layered = (str(saved), f"profile {profile}" if profile else "", str(path or ""))
    loaded = _loaded(
        joined,
        [],
        source=" + ".join(word for word in layered if word),
        profile=profile or "",
        kept=base.kept | file.kept,
        file=str(path or ""),
    )
    known = None if given is None else {**given, **(loaded.given or {})}
    return msgspec.structs.replace(loaded, given=known)


class _Joined(Struct, frozen=True):
    """Layers joined to one configuration. ``base``: the values up to and with the layer that counts as the default."""

    config: RunConfig
    settings: dict[KeyPath, Setting]
    base: dict[KeyPath, Any]
    secrets: Secrets
    warnings: tuple[str, ...]


def _join(
    layers: Sequence[Layer],
    middle: Layer,
    problems: list[Problem],
    env: Mapping[str, str],
    read_secrets: bool,
    checked: bool = True,
) -> _Joined:
    """Join ``layers``; a later one overrides an earlier one. ``middle``: the last layer that the user did not write
    now. ``problems``: those of reading the layers.

    Raises:
        ConfigError: there are problems.
    """
    settings: dict[KeyPath, Setting] = {}
    base: dict[KeyPath, Any] = {}
    bad: set[KeyPath] = set()
    for layer in layers:
        problems.extend(sorted(layer.problems, key=lambda problem: problem.where.line or 0))
        bad |= layer.bad
        settings.update(layer.settings)
        if layer is middle:
            base = {key: setting.value for key, setting in settings.items()}
    # If a whole layer could not be read, rules between keys would be checked on values that nobody chose.
    unread = any(not problem.key or problem.where.source == "--profile" for problem in problems)
    secrets, secret_problems, warnings = take_secrets(settings, env, read_secrets)
    problems.extend(secret_problems)
    config = with_rollout_mode(_build(settings), settings)
    if checked and not unread:
        problems.extend(check(config, settings, {".".join(path) for path in bad} | {path[0] for path in bad}))
    idle = [problem for problem in problems if problem.key and mirrored(config, problem.key)]
    warnings += [f"{problem.where}: {problem.sentence}; it has no effect: {MIRRORED}" for problem in idle]
    if len(problems) > len(idle):
        raise ConfigError([problem for problem in problems if problem not in idle])
    return _Joined(config, settings, base, secrets, tuple(warnings))


def _trainer(layers: Sequence[Layer]) -> str:
    """The trainer that ``layers`` choose, whoever chooses it: a file need not name a profile to make another run."""
    kinds = [layer.settings[_TRAINER].value for layer in layers if _TRAINER in layer.settings]
    return str(kinds[-1])


def _loaded(
    joined: _Joined, warnings: list[str], *, source: str, profile: str, kept: dict[str, Any], file: str
) -> LoadedConfig:
    config, settings, base, secrets = joined.config, joined.settings, joined.base, joined.secrets
    default = _default_layer()
    warnings.extend(joined.warnings)
    warnings.extend(secret_overrides(settings))
    warnings.extend(_inert(config, settings, base))
    warnings.extend(_second_name(config, settings))
    warnings.extend(_open_proxy(config, settings))
    origins = {
        ".".join(key): str(setting.where)
        for key, setting in settings.items()
        if setting.layer != "default" and (_differs(default, key, setting) or _is_secret(key, secrets))
    }
    user_origins = {
        ".".join(key): str(setting.where)
        for key, setting in settings.items()
        if setting.layer in _BY_USER and (_changes(base, key, setting) or _is_secret(key, secrets))
    }
    given = {
        schema_key(".".join(key)): str(setting.where)
        for key, setting in settings.items()
        if setting.layer in _BY_USER
    }
    return LoadedConfig(
        config, origins, user_origins, tuple(warnings), source, profile, kept, secrets, file, given
    )


@functools.cache
def _default_layer() -> Layer:
    layer = from_text(profiles.default_text(), profiles.DEFAULT_FILE, "default")
    if layer.problems:  # the packaged file was edited
        raise ConfigError(layer.problems)
    return layer


@functools.cache
def _trainer_layer(kind: str) -> Layer:
    """The defaults that are others in a run of this trainer."""
    return from_text(profiles.trainer_text(kind), f"trainer {kind}", "trainer")


def _read(path: Path, problems: list[Problem]) -> str:
    """The file's text; "" with an entry in ``problems`` if the file cannot be read."""
    where = Where(str(path))
    try:
        data = answered(lambda: _content(path), ANSWER_S)
    except IsADirectoryError as error:
        hint = f"did you mean {error.filename}?" if error.filename else ""
        problems.append(Problem(where, "", "this is a directory, not a configuration file", hint=hint))
        return ""
    except NoAnswer:
        disk = file_system(path, followed=False)
        words = f"no answer within {ANSWER_S:g} s from {disk or 'its file system'}"
        hint = "see that its server and the network are up, or copy the file to another disk"
        problems.append(Problem(where, "", words, hint=hint))
        return ""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problems.append(Problem(where, "", f"cannot read the file: {reason}"))
        return ""
    if len(data) > MAX_BYTES:
        problems.append(
            Problem(
                where,
                "",
                f"the file is larger than {MAX_BYTES // 1024 // 1024} MiB, too large for a configuration",
            )
        )
        return ""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        found = f"byte 0x{data[error.start]:02x}"
        problems.append(
            Problem(
                Where(str(path), line, column), "", "the file is not UTF-8", found, hint="save it as UTF-8"
            )
        )
        return ""


def _content(path: Path) -> bytes:
    """The file's bytes, or one more than a configuration may have. Of a directory the file that may be meant is
    ``filename`` of the error."""
    if path.is_dir():
        inside = path / "config.yaml"
        raise IsADirectoryError(errno.EISDIR, "a directory", str(inside) if inside.is_file() else None)
    if path.is_fifo():  # bash's <(command)
        return read_pipe(path, MAX_BYTES, PIPE_S)
    with open_binary(path) as file:
        return read_up_to(file.fileno(), MAX_BYTES + 1)


def _build(settings: Mapping[KeyPath, Setting]) -> RunConfig:
    data: dict[str, Any] = {}
    for path, setting in settings.items():
        branch = data
        for part in path[:-1]:
            branch = branch.setdefault(part, {})
        branch[path[-1]] = setting.value
    for key, kind in leaves().items():
        section, _, name = key.rpartition(".")
        if section and is_open(kind):  # without an entry of its own if it is empty
            data[section].setdefault(name, {})
    return msgspec.convert(data, RunConfig, strict=False)


def _differs(default: Layer, key: KeyPath, setting: Setting) -> bool:
    return key not in default.settings or default.settings[key].value != setting.value


def _changes(base: Mapping[KeyPath, Any], key: KeyPath, setting: Setting) -> bool:
    """Whether a setting differs from default and profile."""
    return key not in base or base[key] != setting.value


def _is_secret(key: KeyPath, secrets: Secrets) -> bool:
    return bool(getattr(secrets, key[-1], ""))


def _variables_over_file(overridden: Mapping[KeyPath, Setting], theirs: Layer) -> list[str]:
    """Warnings for LiveRL's variables that override the file: their names are common, so one may be set by accident."""
    return [
        f"{theirs.settings[key].where} overrides {'.'.join(key)} of {setting.where}"
        for key, setting in overridden.items()
        if theirs.settings[key].value != setting.value
    ]


def _open_proxy(config: RunConfig, settings: Mapping[KeyPath, Setting]) -> list[str]:
    """A warning if the proxy accepts the well-known placeholder key on an address that other machines reach."""
    key, host = config.infrastructure.anthropic_api_key, config.proxy.host
    if key != PLACEHOLDER or host in (*LOOPBACK, AUTO_HOST):
        return []
    where = settings["infrastructure", "anthropic_api_key"].where
    return [
        f"{where}: infrastructure.anthropic_api_key is {PLACEHOLDER!r} and proxy.host is {host}, so anyone "
        "who reaches this machine can use the proxy; leave the key empty (each run then generates its own)"
    ]


def _second_name(config: RunConfig, settings: Mapping[KeyPath, Setting]) -> list[str]:
    """A warning if one layer sets both ``run.name`` and a different ``experiment.exp_name``, which then has no
    effect."""
    name, other = settings["run", "name"], settings["experiment", "exp_name"]
    if not name.value or not other.value or name.value == other.value or name.layer != other.layer:
        return []
    return [f"{other.where}: experiment.exp_name has no effect: run.name is '{config.run.name}'"]


def _inert(config: RunConfig, settings: Mapping[KeyPath, Setting], base: Mapping[KeyPath, Any]) -> list[str]:
    """Warnings for keys that the user set in a file, ``--set`` or ``LIVERL_...`` and that nothing uses."""
    warnings = []
    for path, setting in settings.items():
        if setting.layer not in _BY_HAND or not _changes(base, path, setting):
            continue
        key = ".".join(path)
        why = why_inert(config, schema_key(key))
        if why is not None:
            warnings.append(f"{setting.where}: {key} has no effect: {why}")
    return warnings
