"""The parsers of tool calls that the installed vLLM and verl have, read from their source: nothing of them is imported,
which would take 10 to 60 s. Versions rename them."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.config import conditions as when
from liverl.config import sizing
from liverl.config.carrier import agent_loop
from liverl.config.schema import RunConfig
from liverl.config.sections.verl import OUR_LOOPS
from liverl.engines.tool_formats import PARSER_KEY, VERL_FORMATS, readers_like
from liverl.model import Check, Evidence
from liverl.plan.spec import Plan
from liverl.preflight.interpreter import ask_python, interpreter
from liverl.util.nearest import did_you_mean
from liverl.util.regular_file import read_regular

NAME = "installed parsers"
# Of vLLM: since 0.11 a mapping of names in one file; before, a decorator in each file.
_VLLM = ("tool_parsers", "entrypoints/openai/tool_parsers")
_MAPPING = "_TOOL_PARSERS_TO_REGISTER"
_DECORATOR = re.compile(
    r"ToolParserManager\.register_module\(\s*(?:name\s*=\s*)?(\[[^\]]*\]|[\"'][^\"']+[\"'])"
)
_QUOTED = re.compile(r"[\"']([^\"']+)[\"']")
_VERL = "experimental/agent_loop/tool_parser.py"
_OF_VERL = re.compile(r"@ToolParser\.register\(\s*[\"']([^\"']+)[\"']")
_WHERE = (
    "import importlib.util as u, json, sys\n"
    "found = [u.find_spec(name) for name in sys.argv[1:]]\n"
    "print(json.dumps([list(f.submodule_search_locations or [''])[0] if f else '' for f in found]))"
)
_LARGEST = 4 << 20


def of_vllm(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Check | None:
    """Whether the vLLM of managed replicas has ``model.tool_parser``."""
    return next(_checks(plan, config, env, "vllm"), None) if config.run.engine == "vllm" else None


def of_verl(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Iterator[Check]:
    """Whether the vLLM in verl's environment has it, and verl the format of the same calls."""
    return _checks(plan, config, env, "verl")


def _checks(plan: Plan, config: RunConfig, env: Mapping[str, str], environment: str) -> Iterator[Check]:
    python = interpreter(plan, environment)
    if python is None:
        words = f"the environment {environment} is not built yet: which parsers it has was not looked at"
        yield Check(NAME, "skipped", words)
        return
    modules = ["vllm", "verl"] if environment == "verl" else ["vllm"]
    try:
        folders = ask_python(python, _WHERE, modules, list[str], env=env, cwd="/")
    except ValueError as error:
        yield Check(NAME, "skipped", f"{python} cannot be asked: {error}")
        return
    parser = config.model.tool_parser
    if folders[0] and not (environment == "verl" and config.verl.device == "cpu"):
        yield _judged("vLLM", PARSER_KEY, parser, vllm_names(Path(folders[0])), folders[0])
    form = sizing.override(config, "actor_rollout_ref.rollout.multi_turn.format") or VERL_FORMATS.get(parser)
    reads = config.run.topology == "in_process" or agent_loop(config) not in OUR_LOOPS
    if environment == "verl" and folders[-1] and form and (reads or when.cpu_replicas(config)):
        where = "actor_rollout_ref.rollout.multi_turn.format"
        yield _judged("verl", where, str(form), verl_names(Path(folders[-1])), folders[-1])


def _judged(title: str, key: str, parser: str, names: frozenset[str], folder: str) -> Check:
    if not names:
        return Check(NAME, "skipped", f"in {folder} no list of {title}'s parsers was found")
    if parser in names:
        return Check(NAME, "ok", f"{title} has {parser}, one of {len(names)}")
    same = sorted(names & {*readers_like(parser)})
    hint = f"set {key} to {' or '.join(same)}, which reads the same" if same else did_you_mean(parser, names)
    patch = {key: same[0]} if same and key == PARSER_KEY else {}
    return Check(
        NAME,
        "fail",
        f"{key} is {parser}, which the {title} in {os.path.dirname(folder)} does not have",
        evidence=(Evidence(f"it has {', '.join(sorted(names))}"),),
        fix=hint or f"set {key} to one of those that it has",
        patch=patch,
        guess=len(same) > 1,
    )


def vllm_names(folder: Path) -> frozenset[str]:
    """The names of tool parsers in a package ``vllm``; none if they stand where no known version has them.

    Raises:
        OSError: a file cannot be read.
    """
    for place in (folder / part for part in _VLLM):
        if not place.is_dir():
            continue
        found = (
            _mapped(read_regular(place / "__init__.py", _LARGEST))
            if (place / "__init__.py").is_file()
            else set()
        )
        for path in sorted(place.glob("*_tool_parser.py")):
            text = read_regular(path, _LARGEST).decode("utf-8", "replace")
            found |= {name for match in _DECORATOR.findall(text) for name in _QUOTED.findall(match)}
        if found:
            return frozenset(found)
    return frozenset()


def verl_names(folder: Path) -> frozenset[str]:
    """The names of tool parsers in a package ``verl``; none if it has no such file.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        text = read_regular(folder / _VERL, _LARGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        return frozenset()
    return frozenset(_OF_VERL.findall(text))


def _mapped(source: bytes) -> set[str]:
    """The keys of the mapping of names in a file of Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == _MAPPING for target in targets):
            keys = (key.value for key in node.value.keys if isinstance(key, ast.Constant))
            found |= {key for key in keys if isinstance(key, str)}
    return found
