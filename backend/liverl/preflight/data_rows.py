"""The rows that verl is to train on, read before the start: what runs them, and what would fail after the boot."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from liverl.agents.harbor.settings import HarborSettings
from liverl.agents.kinds import AgentSettings, harbor_task, kind_of
from liverl.agents.tasks import TASKS
from liverl.config import conditions as when
from liverl.config.carrier import agent_loop
from liverl.config.schema import RunConfig
from liverl.config.sections.agent import ROW_KINDS
from liverl.config.sections.verl import AGENT_LOOPS, OUR_LOOPS
from liverl.config.sizing import TRAIN_FILES, TRAIN_INDEX, bare_key, data_paths, model_path
from liverl.config.trainer_mode import fully_async, rollout_prompts, step_prompts
from liverl.model import Check
from liverl.preflight import rows_program
from liverl.preflight.batches import largest
from liverl.preflight.interpreter import ask_python, module_path
from liverl.preflight.rows_program import AS_TEXT, NO_MESSAGES, NO_TEXT
from liverl.rundir.commands import set_options
from liverl.util.nearest import did_you_mean
from liverl.util.plural import plural, quantity
from liverl.util.regular_file import read_text

_EPOCHS, _STEPS, _GEN_BATCH = "trainer.total_epochs", "trainer.total_training_steps", "data.gen_batch_size"
_PROMPT_KEY = "data.prompt_key"
_MEDIA_KEYS = {"data.image_key": "images", "data.video_key": "videos", "data.audio_key": "audios"}
_FILTER = "data.filter_overlong_prompts"
_CHARACTERS = 32  # of a token: more than in any text, so that what is longer has too many tokens
ROWS = "docs/own-run.md#rows has a complete example of rows, and the lines that write them"
_LOOP_FILE = "actor_rollout_ref.rollout.agent.agent_loop_config_path"
_REWARD_FILE = "reward.custom_reward_function.path"
_LOOPS = (*(loop for loop in AGENT_LOOPS if loop != "auto"), *ROW_KINDS)  # what rows may name
_HARBOR = HarborSettings(python="", agent={}, runtime={}, k8s={})  # which it is does not matter for the kind
_OF_VERL = tuple(loop for loop in AGENT_LOOPS if loop != "auto" and loop not in OUR_LOOPS)
_SCORED_BY_VERL = ("chat", "tools", *_OF_VERL)  # kinds of agents that give no reward themselves
_SENT_WHOLE = ("chat", "tools")  # kinds of agents that send the row's messages as they are
# Kinds of agents that get the row, and whose models get text only.
_OF_TEXT = (*_SENT_WHOLE, "task", "python", "command")
# Each of these makes verl compute rewards without a function that is chosen by ``data_source``.
_REWARD_MODELS = ("reward.reward_model.enable", "reward_model.enable")
_REWARD_MANAGERS = ("reward.reward_manager.module.path", "reward_model.reward_loop_module_path")
_Judge = Callable[[int, Mapping[str, Any]], str]  # number and row -> what is wrong with it, "" for nothing


class Task(msgspec.Struct, frozen=True):
    """A task of Harbor's that rows with the ``agent_name`` ``loop`` name. ``row``: number of the first of them."""

    path: str
    row: int
    count: int = 1
    loop: str = "None"


class Alike(msgspec.Struct, frozen=True):
    """Rows that are judged alike: ``row`` is the number of the first of ``count``. ``shape``: ``no messages`` or ``no
    text`` if the prompt is so; ``media``: what the row has of pictures, videos or sounds, "" for nothing."""

    row: int
    count: int = 1
    shape: str = ""
    media: str = ""


class File(msgspec.Struct, frozen=True):
    """A parquet file: number of rows, columns, and the number of rows by ``agent_name``. ``alike``: all rows, of which
    the first ``looked`` were looked at (None: all). ``rows``: the first one of each of these groups, the first three,
    and the one with the longest prompt, by their numbers from 0, without pictures. ``tokens``: that the prompts of
    these rows have at least, by the model's tokenizer; empty if that cannot be told."""

    count: int = 0
    columns: tuple[str, ...] = ()
    rows: dict[int, dict[str, Any]] = {}
    loops: dict[str, int] = {}
    tasks: tuple[Task, ...] = ()
    tokens: dict[int, int] = {}
    alike: tuple[Alike, ...] = ()
    looked: int | None = None
    error: str = ""


class Scored(msgspec.Struct, frozen=True):
    """The sources for which verl has a reward function: whole names, and beginnings of names."""

    exact: tuple[str, ...] = ()
    beginnings: tuple[str, ...] = ()

    def has(self, source: str) -> bool:
        """Whether verl scores rows of this source."""
        return source in self.exact or source.startswith(self.beginnings)


class Answer(msgspec.Struct, frozen=True):
    """What verl's environment knows. ``files``: by configuration key; ``scored``: None if that cannot be told, for the
    reason ``unknown``; ``missing``: modules that cannot be imported -> why; ``sources``: Python files of the others."""

    files: dict[str, File] = {}
    scored: Scored | None = None
    unknown: str = ""
    missing: dict[str, str] = {}
    sources: dict[str, str] = {}


class Prompts(msgspec.Struct, frozen=True):
    """How rows are looked at. ``column``: with the messages; ``tokenizer``: the model's ``tokenizer.json``;
    ``longest``: characters of a prompt whose tokens are counted; ``media``: columns with pictures, videos and sounds;
    ``tasks``: ids of the built-in tasks; ``seconds``: for the rows of one file."""

    column: str = "prompt"
    tokenizer: str = ""
    longest: int = 0
    media: tuple[str, ...] = ("images", "videos", "audios")
    tasks: tuple[str, ...] = tuple(TASKS)
    seconds: float = 20.0


def ask(
    python: Path,
    files: Mapping[str, str],
    modules: tuple[str, ...],
    path: tuple[str, ...],
    prompts: Prompts | None = None,
) -> Answer:
    """Ask the interpreter of verl's environment. ``path``: directories with the user's modules.

    Raises:
        ValueError: it cannot be asked; the text says why.
    """
    wanted = json.dumps([files, modules, msgspec.to_builtins(prompts or Prompts())])
    program = read_text(Path(rows_program.__file__))
    return ask_python(python, program, [wanted, module_path(path)], Answer)


def checks(config: RunConfig, answer: Answer, names: Mapping[str, str]) -> Iterator[Check]:
    """One check per file. ``names``: of the files, by configuration key. Pure."""
    train = [key for key in data_paths(config) if of_training(key)]
    first = train[0] if train and names.keys() >= {*train} else ""
    for key, name in names.items():
        file = answer.files[key]
        fault = _fault(config, file, answer.scored)
        if fault:
            yield Check(key, "fail", f"{name}: {fault}", fix=ROWS)
        elif key == first and (few := _too_few(config, key, _together(answer, names, train))) is not None:
            yield few
        else:
            yield Check(key, "ok", f"{name}: {_kinds(config, file)}{_unchecked(config, file, answer)}")


def of_training(key: str) -> bool:
    """Whether a key of ``sizing.data_paths`` names rows that are trained."""
    return key == TRAIN_INDEX or key.partition("[")[0] == TRAIN_FILES


class _Rows(msgspec.Struct, frozen=True):
    """Rows of one file or of several. ``name``: of the file, or how many they are."""

    name: str
    count: int


def _together(answer: Answer, names: Mapping[str, str], keys: Sequence[str]) -> _Rows:
    counts = [answer.files[key].count for key in keys]
    name = names[keys[0]] if len(keys) == 1 else f"{quantity(len(keys), 'file')} of {TRAIN_FILES} together"
    return _Rows(name, sum(counts))


def _unchecked(config: RunConfig, file: File, answer: Answer) -> str:
    """Which check was not made, if verl is to score a row."""
    if answer.scored is not None or not _first_of(file, partial(_unscored, config, Scored())):
        return ""
    return f"; whether verl scores their data_source is not known ({answer.unknown})"


def _fault(config: RunConfig, file: File, scored: Scored | None) -> str:
    if file.error:
        return f"cannot be read: {file.error}"
    if why := columns_fault(config, file.count, file.columns):
        return why
    judges: tuple[_Judge, ...] = (
        partial(_no_task, config),
        partial(_pictures, config, file),
        partial(_too_long, config, file),
        partial(_unscored, config, scored),
    )
    first = _first_of(file, partial(_no_messages, config, file)) or _foreign_loop(config, file)
    return first or next(filter(None, (_first_of(file, judge) for judge in judges)), "")


def columns_fault(config: RunConfig, count: int, columns: Sequence[str]) -> str:
    """What is wrong with a file of ``count`` rows that has these columns, before a row is read."""
    prompt = prompts_of(config).column
    if not count:
        return "has no rows"
    if prompt not in columns:
        return f"has no column {prompt} with the messages; it has {', '.join(columns)}"
    return ""


def _first_of(file: File, judge: _Judge) -> str:
    """What is wrong with the first row that a judge finds, and how many rows it is of; empty if there is none."""
    found = {number: why for number, row in sorted(file.rows.items()) if (why := judge(number, row))}
    if not found:
        return ""
    first = next(iter(found))
    counts = {group.row: group.count for group in file.alike}
    number = sum(counts.get(row, 0) for row in found)
    of = f"; {number:,} of {file.count:,} rows" if number > 1 else ""
    return f"row {first}: {found[first]}{of}"


def _no_messages(config: RunConfig, file: File, number: int, row: Mapping[str, Any]) -> str:
    prompt = prompts_of(config).column
    shape = next((group.shape for group in file.alike if group.row == number), "")
    if shape == NO_MESSAGES or not _is_messages(row[prompt]):
        return f"{prompt} is {_shown(row[prompt])}; expected a list of messages with role and content"
    if shape == NO_TEXT and _kind(config, row) in (*_SENT_WHOLE, *_OF_VERL):
        return f"no message of {prompt} has a text"
    return ""


def _foreign_loop(config: RunConfig, file: File) -> str:
    loop = next((loop for loop in file.loops if _foreign(config, loop)), None)
    if loop is None:
        return ""
    names = loop if loop != "None" else "null"
    words = f"column agent_name has '{names}', which is no agent loop"
    rows = [number for number, row in sorted(file.rows.items()) if str(row.get("agent_name")) == loop]
    where = f"{file.loops[loop]:,} of {file.count:,} rows" + (f", the first is row {rows[0]}" if rows else "")
    return "; ".join(filter(None, (words, did_you_mean(loop, _LOOPS), where)))


def _no_task(config: RunConfig, _number: int, row: Mapping[str, Any]) -> str:
    if _kind(config, row) == "harbor" and harbor_task(row) is None:
        return "has no extra_info.task_path, the directory of a task of Harbor's"
    return ""


def _pictures(config: RunConfig, file: File, number: int, row: Mapping[str, Any]) -> str:
    """Why a row with pictures cannot be run: agents of ours send text."""
    media = next((group.media for group in file.alike if group.row == number), "")
    kind = _kind(config, row)
    if not media or media == AS_TEXT or kind not in _OF_TEXT:
        return ""
    what = (
        f"column {media} has pictures, videos or sounds"
        if media in file.columns
        else f"its prompt has {media}"
    )
    return (
        f"{what}, which the agent {kind} cannot hand to the model: only text is trained. Leave such rows out, or have "
        "verl's own agent loop run them (agent_name: single_turn_agent)"
    )


def prompts_of(config: RunConfig) -> Prompts:
    """How the prompts of a run are measured."""
    tokenizer = os.path.join(model_path(config), "tokenizer.json")
    longest = _CHARACTERS * config.training.max_prompt_length
    media = (_override(config, key, column) for key, column in _MEDIA_KEYS.items())
    return Prompts(_override(config, _PROMPT_KEY, "prompt"), tokenizer, longest, tuple(media))


def _too_long(config: RunConfig, file: File, number: int, row: Mapping[str, Any]) -> str:
    """Why a row's prompt could not be trained; empty if it could."""
    most, tokens = config.training.max_prompt_length, file.tokens.get(number, 0)
    filtered = _override(config, _FILTER, "").lower() == "true"
    if filtered or tokens <= most or _kind(config, row) not in _SENT_WHOLE:
        return ""
    return (
        f"{prompts_of(config).column} has at least {tokens} tokens, and training.max_prompt_length is {most}: shorten "
        f"it, raise that key, or let verl leave such rows out (trainer.overrides: {{{_FILTER}: true}})"
    )


def _too_few(config: RunConfig, key: str, rows: _Rows) -> Check | None:
    """The check of fewer rows than the training takes; None if there are enough."""
    if fully_async(config):  # it goes through the rows until it has its prompts, or the epochs are over
        return _too_few_prompts(config, key, rows)
    batch, count = config.training.train_batch_size, rows.count
    if count >= batch:
        return _too_few_epochs(config, key, rows)
    patch = largest(config, count)
    has = f"{rows.name}: has {quantity(count, 'row')}"
    text = f"{has}, and training.train_batch_size is {batch}: verl trains whole batches only"
    fix = (
        f"add rows, or train on smaller batches: {set_options(patch)}"
        if patch
        else f"add rows: no batch of at most {count} fits the GPUs"
    )
    return Check(key, "fail", text, fix=fix, patch=patch, guess=bool(patch))


def _too_few_epochs(config: RunConfig, key: str, rows: _Rows) -> Check | None:
    """The check of a training whose epochs are over before its steps are made; None if they are not, or if its own keys
    of verl's do not tell. verl reads whole batches only, and ends without an error."""
    try:
        each = int(_override(config, _GEN_BATCH, str(config.training.train_batch_size)))
        epochs = int(_override(config, _EPOCHS, str(config.training.total_epochs)))
        steps = int(_override(config, _STEPS, str(config.training.total_steps or 0)))
    except ValueError:
        return None
    if each <= 0 or (most := rows.count // each * epochs) >= steps or most <= 0:
        return None
    needed = -(-steps // (rows.count // each))
    text = (
        f"{rows.name}: {quantity(rows.count, 'row')} are {quantity(rows.count // each, 'step')} of {each} an epoch: "
        f"training.total_epochs {epochs} ends the training after {most} of {quantity(steps, 'step')}"
    )
    # What trainer.overrides says is changed there.
    own = {bare_key(one) for one in config.trainer.overrides} & {_EPOCHS, _STEPS, _GEN_BATCH}
    patch = {} if own else {"training.total_epochs": str(needed)}
    fix = f"add rows, train fewer steps, or train more epochs: {set_options(patch) if patch else f'at least {needed}'}"
    return Check(key, "warn", text, fix=fix, patch=patch, guess=bool(patch))


def _too_few_prompts(config: RunConfig, key: str, rows: _Rows) -> Check | None:
    prompts, epochs, each = rollout_prompts(config), config.training.total_epochs, step_prompts(config)
    most = rows.count * epochs
    needed = prompts or each
    if most >= needed:
        return None
    words = f"{rows.name}: {quantity(rows.count, 'row')} x training.total_epochs {epochs} = {quantity(most, 'prompt')}"
    text = (
        f"{words}; one version of the parameters takes {each}"
        if prompts is None
        else f"{words}, but {prompts} are to be sampled: verl would end after {most // each} of "
        f"{prompts // each} {plural(prompts // each, 'version')}"
    )
    patch = {"training.total_epochs": str(-(-needed // max(1, rows.count)))}
    fix = f"add rows, or train more epochs: {set_options(patch)}"
    return Check(key, "fail", text, fix=fix, patch=patch, guess=True)


def _unscored(config: RunConfig, scored: Scored | None, _number: int, row: Mapping[str, Any]) -> str:
    """Why verl could not compute a reward for a row; empty if it can, or need not."""
    own = config.reward.function or _override(config, _REWARD_FILE, "")
    if not own and _otherwise_rewarded(config):
        return ""
    by_verl = _SCORED_BY_VERL if config.harbor_agent.verifier_enabled else (*_SCORED_BY_VERL, "harbor")
    if _kind(config, row) not in by_verl:
        return ""
    source, model = row.get("data_source"), row.get("reward_model")
    if not isinstance(source, str):
        return "has no data_source, by which verl chooses the reward function"
    if not isinstance(model, dict) or model.get("ground_truth") is None:
        return "has no reward_model.ground_truth, which verl hands to the reward function"
    if not own and scored is not None and not scored.has(source):
        return f"verl has no reward function for data_source '{source}'; set reward.function"
    return ""


def _otherwise_rewarded(config: RunConfig) -> bool:
    """Whether a model, or a reward manager of the user's, computes the rewards."""
    return has_reward_model(config) or has_reward_manager(config)


def has_reward_model(config: RunConfig) -> bool:
    """Whether verl runs a reward model, whose address it gives to the reward function."""
    return "true" in (_override(config, key, "").lower() for key in _REWARD_MODELS)


def has_reward_manager(config: RunConfig) -> bool:
    """Whether a reward manager of the user's computes the rewards."""
    return any(_override(config, key, "") for key in _REWARD_MANAGERS)


def harbor_tasks(config: RunConfig, file: File) -> tuple[Task, ...]:
    """The tasks of Harbor's that rows of the file name and Harbor runs."""

    def row(task: Task) -> dict[str, Any]:
        loop = None if task.loop == "None" else task.loop
        return {"agent_name": loop, "extra_info": {"task_path": task.path}}

    return tuple(task for task in file.tasks if _kind(config, row(task)) == "harbor")


def _kinds(config: RunConfig, file: File) -> str:
    counts = _kind_counts(config, file)
    told = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    past = sum(count for loop, count in file.loops.items() if loop in AGENT_LOOPS and loop not in OUR_LOOPS)
    note = f"; {past} of them are run by verl's own agent loop, past the proxy" if past else ""
    if file.tasks and not when.harbor(config):
        tasks = sum(task.count for task in file.tasks)
        note += f"; {tasks} of them have extra_info.task_path, and Harbor runs none: set environments.harbor"
    as_text = sum(group.count for group in file.alike if group.media == AS_TEXT)
    if as_text:
        first = min(group.row for group in file.alike if group.media == AS_TEXT)
        note += f"; {as_text} of them have {AS_TEXT} of their prompt, the first is row {first}: it is sent as it is"
    if file.looked is not None and file.looked < file.count:
        note += f"; only the first {file.looked:,} rows were looked at, as reading took too long"
    return f"{file.count} {plural(file.count, 'row')}: {told}{note}"


def _kind_counts(config: RunConfig, file: File) -> Counter[str]:
    """How many rows each kind of agent runs. Those with the same ``agent_name`` are judged by the first one, and by
    the first one with a task of Harbor's."""
    first: dict[tuple[str, bool], dict[str, Any]] = {}
    for row in file.rows.values():
        first.setdefault((str(row.get("agent_name")), harbor_task(row) is not None), row)
    counts: Counter[str] = Counter()
    for loop, count in (file.loops or {"None": file.count}).items():
        with_task = sum(task.count for task in file.tasks if task.loop == loop)
        name = None if loop == "None" else loop
        for has_task, rows in ((True, with_task), (False, count - with_task)):
            if rows:
                counts[_kind(config, {**first.get((loop, has_task), {}), "agent_name": name})] += rows
    return counts


def _kind(config: RunConfig, row: Mapping[str, Any]) -> str:
    """The kind of agent that runs a row; the name of its agent loop if that is not ours."""
    loop = str(row.get("agent_name") or agent_loop(config))
    named = "auto" if loop in OUR_LOOPS else ROW_KINDS.get(loop)
    if named is None:
        return loop
    agent = config.agent
    harbor = _HARBOR if when.harbor(config) else None
    settings = AgentSettings(agent.kind, agent.python, agent.command or (), harbor=harbor)
    return kind_of(row, named, settings, has_tools=bool(agent.tools or agent.functions))


def _foreign(config: RunConfig, loop: str) -> bool:
    """Whether no agent loop of verl's or ours has this name. The user may have registered others."""
    if _override(config, _LOOP_FILE, "") or config.verl.agent_loop not in AGENT_LOOPS:
        return False
    return loop not in _LOOPS


def _is_messages(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(one, dict) and {"role", "content"} <= one.keys() for one in value)


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:40]!r}"


def _override(config: RunConfig, key: str, otherwise: str) -> str:
    return next((str(v) for k, v in config.trainer.overrides.items() if bare_key(k) == key), otherwise)
