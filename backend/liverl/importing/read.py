"""Reads a launch of another program to a configuration of ours: a generation-3 ``.env``, a script with verl's
overrides, LiveRL's ``config.yaml`` or its repository."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from liverl.config.env_vars import SECRET_KEYS, VARIABLES, value_from
from liverl.config.schema import leaves, value_of
from liverl.importing import asynchronous
from liverl.importing.batches import fill
from liverl.importing.builder import Builder
from liverl.importing.outcome import VERLS_DEFAULT, WANDB, Imported, NoScript, NothingToImport, finished
from liverl.importing.pools import pools
from liverl.importing.shell_words import Command, Unreadable, Word, assignment, commands, plain, source_text
from liverl.importing.targets import (
    DEFAULTS,
    INSTEAD,
    KEYS,
    LIVE_IN_MIRROR,
    MIRROR_SECTIONS,
    NOT_HERE,
    VERL_VARIABLES,
    WITHOUT_MEANING,
)
from liverl.importing.values import Place, Scope, Unknown, Untold, Value
from liverl.plan.checkpoints import SAVED_TO
from liverl.plan.inherit import names_secret
from liverl.util.plural import quantity
from liverl.util.regular_file import read_regular

MOST = 4 << 20  # bytes of a file that is read
_TRAINER = re.compile(r"(?:^|[./])(?:main_ppo|fully_async_main)(?:\.py)?$")
_FULLY_ASYNC = "fully_async_main"
# The variables of a generation-3 .env that choose the trainer, and their values for the fully asynchronous one.
_MODES = ("TRAIN_MODE", "TRAINING_MODE")
_ASYNC = ("async", "fully_async")
_HOSTS = ("N_NODES_TRAIN", "N_NODES_ROLLOUT", "NNODES")
_NOT_SPLIT = (
    "the fully asynchronous trainer generates on GPUs of its own, and N_NODES_TRAIN and N_NODES_ROLLOUT, both at least "
    "1 and together NNODES, are not set here: set verl.trainer_mode: fully_async with verl.train_nodes and "
    "verl.rollout_nodes, or with verl.rollout_gpus for GPUs of each host"
)
_WANDB_MODES = ("online", "offline", "disabled")
_SECRET = "a secret is not taken: export it where the run is started"
_NO_HOSTS = "hosts are split for the fully asynchronous trainer, if N_NODES_TRAIN + N_NODES_ROLLOUT is NNODES"
# Hydra's options that name another configuration: --config-path, --config-name, --config-dir, and their short forms.
_OTHER_CONFIG = ("--config-", "-cp", "-cn", "-cd")
_OVERRIDE = re.compile(r"(?:\+\+|\+|~)?[A-Za-z_][\w./@-]*(?:=|$)")
_SCRIPTS = ("repos/harbor-verl-train/scripts", "scripts")  # of LiveRL's repository, below its folder
_TEMPLATES = "scripts/templates"


class Said(msgspec.Struct, frozen=True):
    """What a launch script tells verl's trainer. ``values``: our keys, as text, and verl's defaults of those of which
    it is certain that nobody sets them; a key that is not in it is not known. ``saved_to``: where checkpoints go, "" =
    not told, None = told, but not known."""

    values: dict[str, str]
    saved_to: str | None


def script_says(path: Path, env: Mapping[str, str]) -> Said:
    """What the script at ``path`` tells verl's trainer, whether or not it makes a configuration of ours. Nothing is
    executed. ``env``: the variables with which it is started.

    Raises:
        NoScript: it is no script.
        NothingToImport: it starts no trainer of verl that can be seen.
        OSError: it cannot be read.
    """
    builder, scope = Builder(), Scope()
    scope.values = {name: Value(Place("the environment", 1), text) for name, text in env.items()}
    if not _read_script(builder, scope, path, _commands(path, _text(path))):
        raise NothingToImport(f"{path.name} starts no trainer of verl that can be seen")
    builder.settle()
    left = [what for what, _, _ in builder.left]
    unread = [*(word for word, _ in builder.overrides.values()), *(one.what for one in scope.untold)]
    unclear = {_key(word) for word in (*left, *unread)}
    values = {key: one.text for key, one in builder.values.items()}
    # Hydra takes the last word of a key, and a section as a whole (``trainer={...}``).
    certain = not scope.untold and not any(map(_of_another_file, (*left, *unread)))
    for theirs, ours in KEYS.items():
        if any(theirs == key or theirs.startswith(f"{key}.") for key in unclear):
            values.pop(ours, None)
        elif certain and ours in DEFAULTS:
            values.setdefault(ours, DEFAULTS[ours])
    if SAVED_TO in {_key(one.what) for one in scope.untold}:
        return Said(values, None)
    saved_to = [word.partition("=")[2].strip("'\"") for word in left if _key(word) == SAVED_TO]
    return Said(values, _until_interpolation(saved_to[-1]) if saved_to else "")


def _key(word: str) -> str:
    """The key of an override of verl's."""
    return word.lstrip("+~").partition("=")[0]


def _of_another_file(word: str) -> bool:
    """Whether a word has Hydra read a configuration that is not verl's own."""
    return word.startswith(_OTHER_CONFIG) or _key(word) == "hydra.searchpath"


def _until_interpolation(path: str) -> str | None:
    """A path up to where Hydra writes another key's value into it; None if that is not a whole folder."""
    known, dollar, _ = path.partition("${")
    return None if dollar and not known.endswith("/") else known


def read_path(path: Path) -> Imported:
    """The launch at ``path`` as a configuration that loads. Nothing is executed, no variable of this process is used.

    Raises:
        NothingToImport: nothing there can be imported.
        OSError: it cannot be read.
    """
    if path.is_dir():
        return _repository(path)
    text = _text(path)
    if re.search(r"^\s*runtime_info\s*:", text, re.MULTILINE):
        return _liverl(path, None)
    script = _commands(path, text)
    if path.suffix == ".env" or (any(_is_settings(c) for c in script) and _trainer(script) is None):
        return _env_file(path, script)
    return _launch_script(path, script)


def _text(path: Path) -> str:
    data = read_regular(path, MOST)
    if b"\0" in data[:4096]:
        raise NoScript(f"{path} is no text; expected a .env, a shell script, or LiveRL's config.yaml")
    return data.decode("utf-8", "replace")


def _commands(path: Path, text: str) -> list[Command]:
    try:
        return list(commands(text))
    except Unreadable as error:
        raise NoScript(f"{path}: {error}, so that it is no script that a shell could read") from None


# --- generation 3 -------------------------------------------------------------------------------------


def _is_settings(command: Command) -> bool:
    """Whether a command belongs to a generation-3 .env."""
    return any(name == "TEMPLATE_MODULES" for name, _, _ in command.arrays)


def _env_file(path: Path, script: list[Command]) -> Imported:
    scope, builder = Scope(), Builder()
    files = [str(path)]
    _read_settings(scope, script, path, builder)
    for template in _templates(scope, path, builder):
        files.append(str(template))
        _read_settings(scope, _commands(template, _text(template)), template, builder)
    _verl(builder, path)
    mode = _async_mode(scope)
    split = _split(scope)
    builder.fully_async = mode is not None and split is not None and min(split) > 0
    if mode is not None and not builder.fully_async:
        builder.leave(f"{mode}={scope.values[mode].text}", scope.values[mode].place, _NOT_SPLIT)
    builder.take("agent.kind", "harbor", Place(str(path), 1), "rows are run by Harbor")
    keys = dict(VARIABLES)
    for name, value in scope.values.items():
        target = INSTEAD.get(name)
        if target is not None and target in scope.values:
            continue  # the one that counts is set itself
        known = target or name
        if value.text is None:
            continue  # told as what only execution could tell
        if names_secret(name) and known not in VERL_VARIABLES:
            if value.text:
                builder.leave(name, value.place, _SECRET)
        elif not value.text:
            continue  # as in LiveRL, an empty value is the default
        elif name in WITHOUT_MEANING:
            builder.leave(name, value.place, WITHOUT_MEANING[name])
        elif name in NOT_HERE:
            builder.leave(f"{name}={value.text}", value.place, NOT_HERE[name])
        elif known in _HOSTS[:2] and not builder.fully_async and (split is None or split[1] > 0):
            builder.leave(f"{name}={value.text}", value.place, _NO_HOSTS)
        elif known in keys:
            text = value_from(known, value.text)
            builder.take(keys[known], text, value.place, name, default=value.default)
        elif VERL_VARIABLES.get(known) in asynchronous.KEYS:  # of no other trainer's, whichever is taken
            key = asynchronous.KEYS[VERL_VARIABLES[known]]
            builder.take(key, value.text, value.place, name, default=value.default)
        elif known in VERL_VARIABLES:
            builder.word(f"{VERL_VARIABLES[known]}={value.text}", value.place, name, default=value.default)
        elif not _axis(builder, name, value.text, value.place):
            builder.leave(f"{name}={value.text}", value.place, "it means nothing to a run of ours")
    hosts = builder.values.get("infrastructure.nnodes")
    if hosts is not None and hosts.text.isdecimal() and int(hosts.text) > 1:
        builder.take("run.topology", "in_process", hosts.place, "several hosts: sessions on each of them")
    builder.settle()
    if not builder.fully_async:
        fill(builder, Place(str(path), 1))
    return finished("env file", builder, scope, files, path)


def _async_mode(scope: Scope) -> str | None:
    """The variable that chooses the fully asynchronous trainer; None if none does."""
    return next((name for name in _MODES if name in scope.values and scope.values[name].text in _ASYNC), None)


def _split(scope: Scope) -> tuple[int, int] | None:
    """How many hosts of a .env only train, and how many only generate; None if it does not say that for all hosts. It
    has no word for GPUs of one host that only generate."""
    texts = [scope.values[name].text if name in scope.values else "" for name in _HOSTS]
    train, rollout, hosts = (int(text) if text is not None and text.isdecimal() else -1 for text in texts)
    hosts = 1 if texts[-1] == "" else hosts  # as here and in LiveRL
    return (train, rollout) if min(train, rollout) >= 0 and train + rollout == hosts else None


def _axis(builder: Builder, name: str, text: str, place: Place) -> bool:
    """The four choices of a .env. False if the variable is none of them."""
    if name in _MODES:
        if text in _ASYNC:
            if builder.fully_async:
                builder.take("verl.trainer_mode", "fully_async", place, name)
        elif text != "sync":
            builder.leave(
                f"{name}={text}", place, "set verl.trainer_mode: sync, separate_async or fully_async"
            )
        return True
    if name in ("ENGINE", "MODEL_ENGINE"):
        if text in ("veomni", "megatron"):
            builder.take("training.engine", text, place, name)
        elif text != "fsdp":
            builder.word(f"model_engine={text}", place, name)
        return True
    if name == "SCAFFOLD":
        if text == "cc":
            builder.take("harbor_agent.agent_name", "claude-code", place, name)
        else:
            why = "set harbor_agent.agent_name and agent_import_path to the agent of this scaffold"
            builder.leave(f"{name}={text}", place, why)
        return True
    if name == "BACKEND":
        builder.leave(f"{name}={text}", place, "harbor_agent.environment_import_path chooses the sandboxes")
        return True
    return False


def _read_settings(scope: Scope, script: list[Command], path: Path, builder: Builder) -> None:
    for command in script:
        if scope.read(command, str(path)):
            continue
        place = Place(str(path), command.line)
        name = plain(command.words[0]) if command.words else ""
        if name in ("source", "."):
            what = " ".join(map(source_text, command.words))
            scope.untold.append(Untold(what, place, "a file that is sourced is not read"))
        elif command.words:
            builder.leave(" ".join(map(source_text, command.words))[:120], place, "a command is not executed")


def _templates(scope: Scope, path: Path, builder: Builder) -> Iterator[Path]:
    """The files of TEMPLATE_MODULES, in whose order the first assignment wins."""
    array = scope.arrays.get("TEMPLATE_MODULES")
    if array is None:
        return
    root = next((p / _TEMPLATES for p in path.absolute().parents if (p / _TEMPLATES).is_dir()), None)
    for word, place in array.words:
        try:
            name, _ = scope.expand(word, place)
        except Unknown as error:
            scope.untold.append(Untold(source_text(word), place, str(error)))
            continue
        template = root / name if root is not None else None
        if template is not None and template.is_file():
            yield template
        else:
            where = f"{root} has no such file" if root is not None else f"no folder above has {_TEMPLATES}"
            builder.leave(name, place, f"the template was not read: {where}; its defaults are not known")


# --- scripts that start verl ------------------------------------------------------------------------------


def _trainer(script: list[Command]) -> Command | None:
    """The command that starts verl's trainer: the first, and rather one that is started in any case."""
    found = [command for command in script if _start(command) is not None]
    return next((command for command in found if command.sure), found[0] if found else None)


def _start(command: Command) -> int | None:
    """Where the arguments of verl's trainer begin in a command; None if it starts none."""
    for number, word in enumerate(command.words):
        text = plain(word)
        if text is not None and _TRAINER.search(text) and number > 0:
            return number + 1
    return None


def _launch_script(path: Path, script: list[Command]) -> Imported:
    builder, scope = Builder(), Scope()
    if not _read_script(builder, scope, path, script):
        raise NothingToImport(
            f"{path} starts no trainer of verl that can be seen (python -m verl.trainer.main_ppo KEY=VALUE...), and is "
            "no .env of generation 3 (with TEMPLATE_MODULES=) and no LiveRL configuration (runtime_info:). A script "
            "that is to be run as it is: trainer.kind command"
        )
    _verl(builder, path)
    if builder.fully_async:
        pools(builder, Place(str(path), 1))
    _defaults(builder, path)
    return finished("launch script", builder, scope, [str(path)], path)


def _read_script(builder: Builder, scope: Scope, path: Path, script: list[Command]) -> bool:
    """Take the overrides of the trainer that a script starts; whether it starts one."""
    chosen = _trainer(script)
    for command in script:
        place = Place(str(path), command.line)
        if command is chosen:
            _arguments(builder, scope, command, place)
            continue
        if scope.read(command, str(path)) or not command.words:
            continue
        name = plain(command.words[0])
        what = " ".join(map(source_text, command.words))[:120]
        if name in ("source", "."):
            scope.untold.append(Untold(what, place, "a file that is sourced is not read"))
        elif _start(command) is not None:
            builder.leave(what, place, "only one start of the trainer was taken: the other one")
        elif name == "cd":
            builder.leave(
                what, place, "relative paths start there; those of a configuration at its own folder"
            )
    for name, value in scope.values.items():
        if value.exported:
            _exported(builder, name, value, "export ")
    return chosen is not None


def _exported(builder: Builder, name: str, value: Value, before: str) -> None:
    """A variable that the trainer of a script gets. ``before``: the word before its name."""
    if value.text is None:
        return  # told as what only execution could tell
    if names_secret(name):
        builder.leave(f"{before}{name}", value.place, _SECRET)
    elif name == "WANDB_MODE" and value.text in _WANDB_MODES:
        logged = builder.values.get(WANDB)
        if logged is None or logged.text != "disabled":  # trainer.logger has wandb, as verl's default has
            builder.take(WANDB, value.text, value.place, name, default=value.default)
    else:
        why = "export it where the run is started: the trainer gets variables of known programs from there"
        builder.leave(f"{before}{name}={value.text}", value.place, why)


def _arguments(builder: Builder, scope: Scope, command: Command, place: Place) -> None:
    start = _start(command)
    assert start is not None
    program = plain(command.words[start - 1]) or ""
    if not command.sure:
        builder.notice(
            program, place, "it is started under a condition, in a loop or in a function; taken as if it ran"
        )
    if _FULLY_ASYNC in program:
        builder.fully_async = True
        builder.take("verl.trainer_mode", "fully_async", place, program)
    places = [Place(place.file, line) for line in command.lines]
    for word, where, why in scope.flat(list(zip(command.words[start:], places[start:], strict=True))):
        _argument(builder, scope, word, where, why)
    for word, where in zip(command.words[: start - 1], places, strict=False):
        given = assignment(word)
        if given is not None:  # NAME=value in front of the command is its own
            own = Scope()
            own.values = dict(scope.values)
            own.assign(given[0], given[1], given[2], where, True, exported=True)
            for one in own.untold:
                builder.leave(one.what, where, one.why)
            _exported(builder, given[0], own.values[given[0]], "")


def _argument(builder: Builder, scope: Scope, word: Word, place: Place, why: str) -> None:
    shown = source_text(word)
    if why:
        scope.untold.append(Untold(shown, place, why))
        return
    if shown in ("$@", "$*"):
        scope.untold.append(Untold(shown, place, "arguments that are given when the script is started"))
        return
    try:
        text, default = scope.expand(word, place)
    except Unknown as error:
        scope.untold.append(Untold(shown, place, str(error)))
        return
    if not text:
        return
    if text.startswith("-") or not _OVERRIDE.match(text):
        builder.leave(text, place, "no override (KEY=VALUE) of verl's")
        return
    builder.word(text, place, "", default=default)


# --- LiveRL's config.yaml ---------------------------------------------------------------------------------


def _repository(path: Path) -> Imported:
    config = path / "config.yaml"
    if config.is_file() and re.search(r"^\s*runtime_info\s*:", _text(config), re.MULTILINE):
        return _liverl(config, path)
    settings = sorted(path.glob("scripts/train/configs/*.env"))
    if settings:
        names = ", ".join(str(p.relative_to(path)) for p in settings[:5])
        raise NothingToImport(f"{path} has {quantity(len(settings), '.env')}: name one, such as {names}")
    raise NothingToImport(
        f"{path} is a folder without LiveRL's config.yaml (runtime_info:) and without scripts/train/configs/*.env; "
        "name the file to import"
    )


def _liverl(config: Path, repository: Path | None) -> Imported:
    from liverl.config import ConfigError, load_config

    try:
        loaded = load_config(config, env={}, read_secrets=False)
    except ConfigError as error:
        raise NothingToImport(f"{config} cannot be read as LiveRL's configuration:\n{error}") from None
    builder, scope, files = Builder(), Scope(), [str(config)]
    for key, where in (loaded.given or {}).items():
        if key in SECRET_KEYS or key not in leaves():
            continue
        builder.put(key, value_of(loaded.config, key), _place(where, config), key.rpartition(".")[2])
    script = _sync_script(repository) if repository is not None else None
    fixed = Builder()
    if script is not None:
        files.append(str(script))
        _read_script(fixed, scope, script, _commands(script, _text(script)))
    unread = []
    for key, taken in list(builder.values.items()):
        if key.partition(".")[0] not in MIRROR_SECTIONS or key in LIVE_IN_MIRROR:
            continue
        real = fixed.values.get(key)
        if real is None:
            unread.append(key)
        elif real.value != taken.value:
            builder.values[key] = real
            words = f"LiveRL's scripts did not read it; {real.place} has {real.value}, which was taken"
            builder.live(f"{key}: {taken.value}", taken.place, words)
    if unread:
        here = "its launch script was not found" if script is None else f"{script.name} does not set it"
        words = f"LiveRL's scripts did not read it, and a run of ours does; {here}"
        builder.live(", ".join(unread), builder.values[unread[0]].place, words)
    for key, real in fixed.values.items():
        if key not in builder.values and key.partition(".")[0] in MIRROR_SECTIONS:
            builder.values[key] = real
    builder.overrides |= {key: one for key, one in fixed.overrides.items() if key not in builder.overrides}
    builder.left += fixed.left
    _verl(builder, config)
    described = loaded.config.harbor_agent.environment_import_path
    if (
        described
        and "agent.kind" not in builder.values
        and "harbor_agent.environment_import_path" in builder.values
    ):
        place = builder.values["harbor_agent.environment_import_path"].place
        builder.take("agent.kind", "harbor", place, "its rows are run by Harbor")
    return finished("LiveRL configuration", builder, scope, files, config)


def _place(where: str, config: Path) -> Place:
    line = re.search(r":(\d+)", where)
    return Place(str(config), int(line[1]) if line else 1)


def _sync_script(repository: Path) -> Path | None:
    """The launch script that LiveRL's start script ends in: the first that starts verl's trainer."""
    for folder in _SCRIPTS:
        for path in sorted((repository / folder).glob("*.sh")):
            try:
                found = _trainer(list(commands(_text(path))))
            except (OSError, Unreadable, NothingToImport):
                continue
            if found is not None:
                return path
    return None


def _verl(builder: Builder, path: Path) -> None:
    place = Place(str(path), 1)
    for key, value in (("run.topology", "verl"), ("run.engine", "vllm"), ("trainer.kind", "verl")):
        if key not in builder.values:
            builder.take(key, value, place, "verl trains and starts vLLM")


def _defaults(builder: Builder, path: Path) -> None:
    """What verl takes where the script says nothing, so that the run is the script's."""
    builder.settle()
    place = Place(str(path), 1)
    defaults = DEFAULTS
    if builder.fully_async:
        defaults = {key: value for key, value in DEFAULTS.items() if key not in asynchronous.WITHOUT}
        defaults |= asynchronous.DEFAULTS
    for key, value in defaults.items():
        if key not in builder.values:
            builder.take(key, value, place, VERLS_DEFAULT)
    if "vllm.max_model_length" not in builder.values:
        lengths = [builder.values[f"training.max_{part}_length"].text for part in ("prompt", "response")]
        if all(text.isdecimal() for text in lengths):
            length = str(sum(map(int, lengths)))
            builder.take("vllm.max_model_length", length, place, "not set there: prompt and response")
