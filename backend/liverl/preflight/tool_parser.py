"""Whether the parser of tool calls reads what the model writes: its chat template is rendered with a call, and every
place that names a parser is compared with it. A wrong one is often silent: trials then call no tool, and their rewards
are 0.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from liverl.config import ConfigError, LoadedConfig, sizing
from liverl.config import conditions as when
from liverl.config.errors import Problem, Where
from liverl.config.schema import RunConfig
from liverl.embedded import modeldir as embedded
from liverl.engines import ENGINES
from liverl.engines.tool_formats import AUTO, FORMATS, PARSER_KEY, VERL_FORMATS, ToolFormat, look, reads
from liverl.model import Check, Evidence
from liverl.observe.trials.engine_parser import VARIABLES, Place, places
from liverl.plan.spec import Plan, ServiceSpec
from liverl.preflight import chat_template, verl
from liverl.preflight.chat_template import NoTemplate, Probe, Template
from liverl.preflight.model import folder_of, named, will_be_made
from liverl.util.regular_file import read_regular

NAME, TEMPLATE, REASONING = "tool parser", "chat template", "reasoning parser"
_ROLLOUT = "actor_rollout_ref.rollout"
_ENGINE = f"{_ROLLOUT}.engine_kwargs.vllm"
_FORMAT = f"{_ROLLOUT}.multi_turn.format"
_CUSTOM = "actor_rollout_ref.model.custom_chat_template"  # of verl: the template itself
_ANOTHER = (
    "give the engine another chat template, or set model.model_path to a model that is trained to call tools"
)
# vLLM's parsers of reasoning that take all text for reasoning until </think>, also if <think> never came (0.24,
# vllm/reasoning/), and the parsers of tool calls whose calls end the reasoning for them.
_SWALLOWING: dict[str, tuple[str, ...]] = {"deepseek_r1": (), "qwen3": ("qwen3_coder", "qwen3_xml")}


class Setting(NamedTuple):
    """A place that names a parser. ``where``: for people; ``parser``: the name; ``key``: of the configuration, which
    changes it, "" = none does."""

    where: str
    parser: str
    key: str = ""


class _Unknown(Exception):
    """The template cannot be looked at; the text says why."""


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Iterator[Check]:
    """The chat template, and each place that names a parser. Nothing is said of the model of a launch script that
    nobody has named."""
    if not when.managed(config) and when.verl_trainer(config) and config.model.tool_parser != AUTO:
        known = verl.tool_parser(config)
        if known.status == "fail":
            yield known
            return
    if when.command(config) and (plan.script is None or "model.model_path" not in (plan.script.given or ())):
        return
    settings = list(settings_of(plan, config))
    try:
        probe = chat_template.probe(template_of(plan, config, env))
    except NoTemplate as error:
        fix = "write chat_template.jinja into that folder, or set model.model_path to a model for chats"
        status: Literal["skipped", "fail", "warn"] = (
            "skipped" if not error.missing else "fail" if own_template(config) else "warn"
        )
        yield Check(TEMPLATE, status, str(error), fix=fix * error.missing)
        return
    except _Unknown as error:
        words = ", ".join(dict.fromkeys(f"{one.where} is {one.parser}" for one in settings)) or "none is set"
        yield Check(NAME, "skipped", f"{words}; whether it fits was not looked at: {error}")
        return
    for found in of_template(probe):
        mild = found.status == "fail" and when.command(config)  # a script may give its engine another one
        yield replace(found, status="warn") if mild else found
    if not probe.fault and probe.drops != "call":
        yield from of_parsers(config, probe, settings)
        yield from of_reasoning(config, plan, probe, settings)


def own_template(config: RunConfig) -> bool:
    """Whether the run cannot do without the model's own template: replicas without a trainer may serve something else
    than chats, and a launch script may give its engine another one."""
    return not when.managed(config) and not when.command(config)


def template_of(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Template:
    """The chat template with which the model is served.

    Raises:
        NoTemplate: the model has none that can be looked at.
        _Unknown: the model is not on this host.
        OSError: a file cannot be read.
    """
    name = named(config).name
    if when.managed(config) and not ENGINES[config.run.engine].gpus:
        try:
            return chat_template.find(embedded.find(name))
        except FileNotFoundError as error:
            raise _Unknown(f"{name} cannot be read") from error
    if will_be_made(config):
        raise _Unknown(f"{name} will be created at the start of the run")
    folder = folder_of(plan, config, env)
    variables: dict[str, str] = {}
    given = _override(config, _CUSTOM) or _override(config, f"{_ENGINE}.chat_template")
    if folder is None and given is None:
        raise _Unknown(f"{name} is not on this host")
    if given is None and folder is not None:
        return chat_template.find(folder)
    try:
        variables = chat_template.find(folder).variables if folder is not None else {}
    except NoTemplate:
        pass  # another one is given
    key = _CUSTOM if _override(config, _CUSTOM) else f"{_ENGINE}.chat_template"
    text = str(given)
    if key != _CUSTOM and os.path.isabs(text):
        return Template(read_regular(Path(text)).decode("utf-8", "replace"), text, variables)
    return Template(text, f"trainer.overrides.{key}", variables)


def settings_of(plan: Plan, config: RunConfig) -> Iterator[Setting]:
    """Each place that names a parser for this run."""
    parser = config.model.tool_parser
    if when.command(config):
        script = next((service for service in plan.services if service.ends_run), None)
        yield from _of_script(plan, script)
        return
    override = _override(config, f"{_ENGINE}.tool_call_parser") if when.verl_trainer(config) else None
    if override is None:
        yield Setting(PARSER_KEY, parser, PARSER_KEY)
    else:
        yield Setting(f"trainer.overrides.{_ENGINE}.tool_call_parser", str(override))
    form = _override(config, _FORMAT) if when.verl_trainer(config) else None
    if form is not None:
        yield Setting(f"trainer.overrides.{_FORMAT}", str(form))


def _of_script(plan: Plan, script: ServiceSpec | None) -> Iterator[Setting]:
    if script is None:
        return
    given = next((name for name in VARIABLES if name in script.env), None)
    if given is not None:
        yield Setting(f"{PARSER_KEY} ({given})", script.env[given], PARSER_KEY)
    folder = script.cwd.replace("{run_dir}", plan.run_dir)
    for place in places(folder) if os.path.isdir(folder) else ():
        if place.parser and not (place.variable and given is not None) and not place.unread:
            yield Setting(f"{place}{_default(place)}", place.parser)


def _default(place: Place) -> str:
    return f" (its default without {VARIABLES[0]})" if place.variable else ""


def of_template(probe: Probe) -> Iterator[Check]:
    """What is wrong with the template itself, or that nothing is."""
    seen = (Evidence(f"{probe.place} writes {probe.emitted!r}"),) if probe.emitted else ()
    if probe.fault:
        yield Check(
            TEMPLATE, "fail", f"the chat template of {probe.place} is of no use: {probe.fault}", fix=_ANOTHER
        )
    elif probe.drops:
        what = "tool calls" if probe.drops == "call" else "the arguments of tool calls"
        text = f"the chat template of {probe.place} drops {what}: from the second turn on the model does not see them"
        yield Check(TEMPLATE, "fail", text, evidence=seen, fix=_ANOTHER)
    elif probe.arguments == "only text":
        why = f" ({probe.why})" if probe.why else ""
        text = (
            f"the chat template of {probe.place} writes arguments only if they come as a string, and the engine gives "
            f"a mapping{why}: from the second turn on requests fail, or the history is not what the model writes"
        )
        yield Check(TEMPLATE, "warn", text, evidence=seen, fix=_ANOTHER)
    elif probe.arguments:
        how = (
            "as a string within the JSON"
            if probe.arguments == "text"
            else "as Python prints them, not as JSON"
        )
        text = (
            f"the chat template of {probe.place} writes arguments {how}: parsers then give tools no arguments"
        )
        yield Check(TEMPLATE, "warn", text, evidence=seen, fix=_ANOTHER)
    elif probe.format is None:
        text = f"the chat template of {probe.place} writes tool calls in a format that is not known here"
        yield Check(TEMPLATE, "warn", text, evidence=seen, fix="compare it with what the parser reads")
    else:
        yield Check(TEMPLATE, "ok", f"{probe.place} writes tool calls as {look([probe.format])}")


def of_parsers(config: RunConfig, probe: Probe, settings: Sequence[Setting]) -> Iterator[Check]:
    """Whether each place names a parser of the template's format."""
    form = probe.format
    if form is None:
        if settings:
            words = ", ".join(f"{one.where} is {one.parser}" for one in settings)
            yield Check(NAME, "skipped", f"{words}; whether it reads the template's format is not known")
        return
    wrong = [one for one in settings if not reads(one.parser, form)]
    seen = (Evidence(f"{probe.place} writes {probe.emitted!r}"),)
    for one in wrong:
        text = f"{one.where} is {one.parser}, but the model writes {look([form])}"
        best = suggested(config, form)
        if not best:
            fix = f"set model.model_path to a model whose calls {_title(config)} can read"
            yield Check(
                NAME, "fail", f"{text}, which no parser of {_title(config)} reads", evidence=seen, fix=fix
            )
            continue
        right = form.verl if one.where.endswith(_FORMAT) else best
        patch = {PARSER_KEY: best} if one.key else {}
        fix = f"set {one.key or one.where} to {right}" if one.key or ":" not in one.where else (
            f"replace {one.parser} by {right} in {one.where}"
        )  # fmt: skip
        known = any(reads(one.parser, other) for other in FORMATS)
        yield Check(NAME, "fail" if known else "warn", text, evidence=seen, fix=fix, patch=patch)
    if settings and not wrong:
        words = ", ".join(f"{one.where} is {one.parser}" for one in settings)
        yield Check(NAME, "ok", f"{words}: it reads {look([form])}, which the model's chat template writes")


def suggested(config: RunConfig, form: ToolFormat) -> str:
    """The value of ``model.tool_parser`` for a format; "" if the run's engine or verl has none."""
    in_verl = not when.managed(config) and when.verl_trainer(config)
    names = ENGINES[config.run.engine].tool_parsers
    own = in_verl and (config.run.topology == "in_process" or config.verl.device == "cpu")
    usable = [name for name in form.readers if name in names and (not own or name in VERL_FORMATS)]
    return usable[0] if usable else ""


def of_reasoning(config: RunConfig, plan: Plan, probe: Probe, settings: Sequence[Setting]) -> Iterator[Check]:
    """Whether a parser of reasoning takes calls for reasoning, so that no parser of calls ever sees them."""
    parser, where = _reasoning(config, plan)
    if not parser:
        return
    spared = _SWALLOWING.get(parser)
    if spared is None:
        yield Check(
            REASONING, "skipped", f"{where} is {parser}; whether it leaves tool calls was not looked at"
        )
    elif probe.ends_thought or (probe.format is not None and set(spared) & set(probe.format.readers)):
        yield Check(
            REASONING, "ok", f"{where} is {parser}; the chat template ends the reasoning with </think>"
        )
    else:
        text = (
            f"{where} is {parser}, which takes all text before </think> for reasoning, and the chat template of "
            f"{probe.place} has no </think>: it swallows the tool calls"
        )
        yield Check(REASONING, "fail", text, fix=f"remove {where}: this model does not reason in <think>")


def _reasoning(config: RunConfig, plan: Plan) -> tuple[str, str]:
    """The parser of reasoning, and what sets it; "" if none is set."""
    if when.verl_trainer(config):
        value = _override(config, f"{_ENGINE}.reasoning_parser")
        return str(value or ""), f"trainer.overrides.{_ENGINE}.reasoning_parser"
    argv = plan.replica_template.argv if plan.replica_template is not None else ()
    for word, following in itertools.pairwise((*argv, "")):
        if word == "--reasoning-parser":
            return following, word
        if word.startswith("--reasoning-parser="):
            return word.partition("=")[2], "--reasoning-parser"
    return "", ""


def _override(config: RunConfig, key: str) -> Any:
    return sizing.override(config, key)


def _title(config: RunConfig) -> str:
    return ENGINES[config.run.engine].title


# --- model.tool_parser: auto --------------------------------------------------------------------------------


def settled(loaded: LoadedConfig, plan: Plan, env: Mapping[str, str]) -> LoadedConfig:
    """``loaded`` with the parser in the place of ``auto``; without it, as it is. ``plan``: made from it.

    Raises:
        ConfigError: it cannot be told; the problem says why, and what to set.
    """
    config = loaded.config
    if config.model.tool_parser != AUTO:
        return loaded
    try:
        probe = chat_template.probe(template_of(plan, config, env))
    except (NoTemplate, _Unknown, OSError) as error:
        raise _unsettled(loaded, f"the chat template cannot be looked at: {error}") from error
    if probe.fault or probe.drops == "call" or probe.format is None:
        (found,) = of_template(probe)
        raise _unsettled(loaded, found.text)
    parser = suggested(config, probe.format)
    if not parser:
        raise _unsettled(
            loaded, f"{_title(config)} has no parser for {look([probe.format])}, which the model writes"
        )
    settled = replace(config, model=replace(config.model, tool_parser=parser))
    origins = {PARSER_KEY: f"{loaded.origins.get(PARSER_KEY, PARSER_KEY)}, {AUTO}: {probe.place}"}
    return replace(loaded, config=settled, origins=loaded.origins | origins)


def _unsettled(loaded: LoadedConfig, why: str) -> ConfigError:
    where = Where((loaded.given or {}).get(PARSER_KEY, loaded.source))
    allowed = ", ".join(ENGINES[loaded.config.run.engine].tool_parsers)
    return ConfigError([Problem(where, PARSER_KEY, why, f"'{AUTO}'", allowed)])
