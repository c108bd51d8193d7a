"""The rows that verl is to train on, read before the start: what runs them, and what would fail after the boot."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from liverl.agents.harbor.settings import HarborSettings
from liverl.agents.kinds import AgentSettings, harbor_task, kind_of
from liverl.config import conditions as when
from liverl.config.carrier import agent_loop
from liverl.config.schema import RunConfig
from liverl.config.sections.agent import ROW_KINDS
from liverl.config.sections.verl import AGENT_LOOPS, OUR_LOOPS
from liverl.config.sizing import bare_key, model_path
from liverl.model import Check
from liverl.preflight.interpreter import ask_python, module_path
from liverl.util.nearest import did_you_mean

_PROMPT_KEY = "data.prompt_key"
_FILTER = "data.filter_overlong_prompts"
_CHARACTERS = 32  # of a token: more than in any text, so that what is longer has too many tokens
_TRAIN = "data.train_index"
_LOOP_FILE = "actor_rollout_ref.rollout.agent.agent_loop_config_path"
_REWARD_FILE = "reward.custom_reward_function.path"
_LOOPS = (*(loop for loop in AGENT_LOOPS if loop != "auto"), *ROW_KINDS)  # what rows may name
_HARBOR = HarborSettings(python="", agent={}, runtime={}, k8s={})  # which it is does not matter for the kind
_OF_VERL = tuple(loop for loop in AGENT_LOOPS if loop != "auto" and loop not in OUR_LOOPS)
_SCORED_BY_VERL = ("chat", "tools", *_OF_VERL)  # kinds of agents that give no reward themselves
_SENT_WHOLE = ("chat", "tools")  # kinds of agents that send the row's messages as they are
# Each of these makes verl compute rewards without a function that is chosen by ``data_source``.
_REWARD_MODELS = ("reward.reward_model.enable", "reward_model.enable")
_REWARD_MANAGERS = ("reward.reward_manager.module.path", "reward_model.reward_loop_module_path")
# Runs in verl's environment. Of verl only the source of its reward function is read: importing it takes 10 to 30 s.
_ASK = r"""
import ast, importlib.util, json, os, sys
files, modules, prompts = json.loads(sys.argv[1])
MOST = 100
sys.path[:0] = [p for p in sys.argv[2].split(os.pathsep) if p]

def first_rows(name):
    import pyarrow.parquet as pq
    try:
        file = pq.ParquetFile(name)
        columns, count = file.schema_arrow.names, file.metadata.num_rows
        loops, tasks, groups, shown = {}, {}, set(), set(range(min(3, count)))
        paths = task_paths(file)
        names = [None] * count
        if "agent_name" in columns:
            names = pq.read_table(name, columns=["agent_name"])["agent_name"].to_pylist()
        for number, loop in enumerate(map(str, names)):
            loops[loop] = loops.get(loop, 0) + 1
            path = str(paths[number]) if paths and paths[number] else ""
            if (loop, bool(path)) not in groups:
                groups.add((loop, bool(path)))
                shown.add(number)
            if path:
                task = tasks.setdefault((loop, path), {"loop": loop, "path": path, "row": number, "count": 0})
                task["count"] += 1
        rows = dict(chosen(file, sorted(shown)[:MOST]))
        loops = loops if "agent_name" in columns else {}
        found = {"count": count, "columns": columns, "rows": rows, "loops": loops, "tasks": list(tasks.values())}
        return {**found, "tokens": lengths(rows)}
    except Exception as error:
        return {"error": str(error).splitlines()[0] if str(error) else type(error).__name__}

def lengths(rows):
    try:
        from tokenizers import Tokenizer
        encoder = Tokenizer.from_file(prompts["tokenizer"])
    except Exception:  # there is none: how long the prompts are is not known
        return {}
    found = {}
    for number, row in rows.items():
        messages = row.get(prompts["column"])
        texts = [m.get("content") for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
        text = "\n".join(text for text in texts if isinstance(text, str))[:prompts["longest"]]
        found[number] = len(encoder.encode(text, add_special_tokens=False).ids)
    return found

def task_paths(file):
    import pyarrow as pa
    schema = file.schema_arrow
    kind = schema.field("extra_info").type if "extra_info" in schema.names else None
    if kind is None or not pa.types.is_struct(kind) or kind.get_field_index("task_path") < 0:
        return []
    rows = file.read(columns=["extra_info.task_path"])["extra_info"].to_pylist()
    return [row and row["task_path"] for row in rows]

def chosen(file, numbers):
    start = 0
    for group in range(file.num_row_groups):
        end = start + file.metadata.row_group(group).num_rows
        wanted = [n for n in numbers if start <= n < end]
        for batch in file.iter_batches(1024, row_groups=[group]) if wanted else ():
            for n in wanted:
                if start <= n < start + batch.num_rows:
                    yield n, batch.slice(n - start, 1).to_pylist()[0]
            start += batch.num_rows
            if start > wanted[-1]:
                break
        start = end

def scored():
    package = importlib.util.find_spec("verl")
    if package is None:
        raise LookupError("verl is not installed")
    place = package.submodule_search_locations[0]
    with open(os.path.join(place, "utils", "reward_score", "__init__.py")) as source:
        tree = ast.parse(source.read())
    exact, beginnings = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and getattr(node.left, "id", "") == "data_source":
            exact.update(c.value for c in ast.walk(node) if isinstance(c, ast.Constant))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "data_source.startswith":
            beginnings.update(c.value for a in node.args for c in ast.walk(a) if isinstance(c, ast.Constant))
    return {"exact": sorted(exact), "beginnings": sorted(beginnings)}

sources = {}

def missing(module):
    try:
        spec = importlib.util.find_spec(module)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if spec and spec.has_location and spec.origin.endswith(".py"):
        sources[module] = spec.origin
    return "" if spec else "there is no such module"

known, unknown = None, ""
try:
    known = scored()
except Exception as error:
    unknown = f"{type(error).__name__}: {error}"
print(json.dumps({
    "files": {key: first_rows(name) for key, name in files.items()},
    "scored": known,
    "unknown": unknown,
    "missing": {module: why for module in modules if (why := missing(module))},
    "sources": sources,
}, default=str))
"""


class Task(msgspec.Struct, frozen=True):
    """A task of Harbor's that rows with the ``agent_name`` ``loop`` name. ``row``: number of the first of them."""

    path: str
    row: int
    count: int = 1
    loop: str = "None"


class File(msgspec.Struct, frozen=True):
    """A parquet file: number of rows, columns, and the number of rows by ``agent_name``. ``rows``: its first rows, and
    the first one of each ``agent_name`` with and without a task of Harbor's, by their numbers from 0. ``tokens``: that
    the prompts of these rows have at least, by the model's tokenizer; empty if that cannot be told."""

    count: int = 0
    columns: tuple[str, ...] = ()
    rows: dict[int, dict[str, Any]] = {}
    loops: dict[str, int] = {}
    tasks: tuple[Task, ...] = ()
    tokens: dict[int, int] = {}
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
    """How prompts are measured. ``column``: with the messages; ``tokenizer``: the model's ``tokenizer.json``;
    ``longest``: characters that are looked at."""

    column: str = "prompt"
    tokenizer: str = ""
    longest: int = 0


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
    return ask_python(python, _ASK, [wanted, module_path(path)], Answer)


def checks(config: RunConfig, answer: Answer, names: Mapping[str, str]) -> Iterator[Check]:
    """One check per file. ``names``: of the files, by configuration key. Pure."""
    for key, name in names.items():
        file = answer.files[key]
        fault = _fault(config, file, answer.scored) or (_too_few(config, file) if key == _TRAIN else "")
        yield (
            Check(key, "fail", f"{name}: {fault}")
            if fault
            else Check(key, "ok", f"{name}: {_kinds(config, file)}{_unchecked(config, file, answer)}")
        )


def _unchecked(config: RunConfig, file: File, answer: Answer) -> str:
    """Which check was not made, if verl is to score a row."""
    if answer.scored is not None or not _unscored(config, file, Scored()):
        return ""
    return f"; whether verl scores their data_source is not known ({answer.unknown})"


def _fault(config: RunConfig, file: File, scored: Scored | None) -> str:
    prompt = prompts_of(config).column
    if file.error:
        return f"cannot be read: {file.error}"
    if not file.count:
        return "has no rows"
    if prompt not in file.columns:
        return f"has no column {prompt} with the messages; it has {', '.join(file.columns)}"
    for number, row in file.rows.items():
        messages = row[prompt]
        if not _is_messages(messages):
            return f"row {number}: {prompt} is {_shown(messages)}; expected a list of messages with role and content"
    if unknown := [loop for loop in file.loops if _foreign(config, loop)]:
        words = f"column agent_name has '{unknown[0]}', which is no agent loop"
        return "; ".join(filter(None, (words, did_you_mean(unknown[0], _LOOPS))))
    for number, row in file.rows.items():
        if _kind(config, row) == "harbor" and harbor_task(row) is None:
            return f"row {number}: has no extra_info.task_path, the directory of a task of Harbor's"
    return _too_long(config, file) or _unscored(config, file, scored)


def prompts_of(config: RunConfig) -> Prompts:
    """How the prompts of a run are measured."""
    tokenizer = os.path.join(model_path(config), "tokenizer.json")
    longest = _CHARACTERS * config.training.max_prompt_length
    return Prompts(_override(config, _PROMPT_KEY, "prompt"), tokenizer, longest)


def _too_long(config: RunConfig, file: File) -> str:
    """Which row that is shown has a prompt that could not be trained; empty if none has."""
    most = config.training.max_prompt_length
    if _override(config, _FILTER, "").lower() == "true":
        return ""
    for number, row in file.rows.items():
        tokens = file.tokens.get(number, 0)
        if tokens > most and _kind(config, row) in _SENT_WHOLE:
            return (
                f"row {number}: {prompts_of(config).column} has at least {tokens} tokens, and "
                f"training.max_prompt_length is {most}: shorten it, raise that key, or let verl leave such rows out "
                f"(trainer.overrides: {{{_FILTER}: true}})"
            )
    return ""


def _too_few(config: RunConfig, file: File) -> str:
    batch = config.training.train_batch_size
    if file.count >= batch:
        return ""
    return f"has {file.count} rows, and training.train_batch_size is {batch}: verl trains whole batches only"


def _unscored(config: RunConfig, file: File, scored: Scored | None) -> str:
    """Why verl could not compute a reward for a row that is shown; empty if it can, or need not."""
    own = config.reward.function or _override(config, _REWARD_FILE, "")
    if not own and _otherwise_rewarded(config):
        return ""
    by_verl = _SCORED_BY_VERL if config.harbor_agent.verifier_enabled else (*_SCORED_BY_VERL, "harbor")
    for number, row in file.rows.items():
        if _kind(config, row) not in by_verl:
            continue
        source, model = row.get("data_source"), row.get("reward_model")
        if not isinstance(source, str):
            return f"row {number}: has no data_source, by which verl chooses the reward function"
        if not isinstance(model, dict) or model.get("ground_truth") is None:
            return f"row {number}: has no reward_model.ground_truth, which verl hands to the reward function"
        if not own and scored is not None and not scored.has(source):
            return (
                f"row {number}: verl has no reward function for data_source '{source}'; set reward.function"
            )
    return ""


def _otherwise_rewarded(config: RunConfig) -> bool:
    """Whether a model, or a reward manager of the user's, computes the rewards."""
    models = (_override(config, key, "").lower() for key in _REWARD_MODELS)
    return "true" in models or any(_override(config, key, "") for key in _REWARD_MANAGERS)


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
    return f"{file.count} rows: {told}{note}"


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
