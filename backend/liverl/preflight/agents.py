"""A user's agents, tools and reward function: whether they exist before the run starts, and take the arguments that
they will be called with."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from liverl.config.schema import RunConfig
from liverl.config.sizing import bare_key
from liverl.model import Check
from liverl.preflight import signatures
from liverl.preflight.data_rows import Answer, has_reward_manager, has_reward_model
from liverl.preflight.interpreter import UNBUILT
from liverl.util.decode import decode_yaml
from liverl.util.nearest import did_you_mean
from liverl.util.plural import quantity
from liverl.util.regular_file import read_regular, read_text

PARSED = 8  # sources and documents that are kept while a run is checked


def modules(config: RunConfig) -> tuple[str, ...]:
    """The modules that verl's processes must be able to import: of the Python agent, of the tools' classes, and those
    that the files of the reward function and of the tools' functions import."""
    agent = config.agent
    named = {agent.python.partition(":")[0]} if agent.python else set()
    for file in (config.reward.function.rpartition(":")[0], agent.functions):
        named |= set(_imported(Path(file))) if file else set()
    if agent.tools:
        try:
            named |= {name.rpartition(".")[0] for name in _classes(Path(agent.tools))}
        except ValueError:
            pass  # ``checks`` reports it
    return tuple(sorted(filter(None, named)))


def checks(config: RunConfig, answer: Answer | None) -> Iterator[Check]:
    """What is set of ``agent`` and ``reward``. ``answer``: of verl's environment; None if there is none yet."""
    try:
        yield from _of_each(config, answer)
    finally:
        _parsed.cache_clear()
        _decoded.cache_clear()


def _of_each(config: RunConfig, answer: Answer | None) -> Iterator[Check]:
    agent = config.agent
    for key, words in (("agent.command", agent.command), ("agent.verifier", agent.verifier)):
        if words:
            yield _program(key, words[0])
    if agent.python:
        module, _, name = agent.python.partition(":")
        yield _in_module("agent.python", module, name, answer, signatures.AGENT)
    if agent.tools:
        yield _tools(Path(agent.tools), answer)
    if agent.functions:
        yield _tool_functions(Path(agent.functions), answer)
    if config.reward.function:
        yield _function(config, answer)


def _program(key: str, name: str) -> Check:
    found = shutil.which(name)
    if found:
        return Check(key, "ok", found)
    if os.path.isfile(name):
        return Check(key, "fail", f"{name} is not executable; chmod +x makes it so")
    return Check(key, "fail", f"there is no program {name}")


def _in_module(
    key: str, module: str, name: str, answer: Answer | None, wanted: Sequence[signatures.Method]
) -> Check:
    """Whether a module can be imported and has the class ``name`` with the methods ``wanted``, as far as its source
    tells."""
    why = answer.missing.get(module) if answer is not None else None
    if why is not None:
        return Check(
            key,
            "fail",
            f"module {module} cannot be imported: {why}; agent.path adds directories with modules",
        )
    if answer is None:
        return Check(key, "skipped", f"{module}:{name} was not looked for: {UNBUILT}")
    source = answer.sources.get(module)
    if source is None:
        words = f"module {module} can be imported; it has no source in which {name} could be looked for"
        return Check(key, "skipped", words)
    found = _defines(key, Path(source), name)
    if found.status == "fail":
        return found
    return _told(found, signatures.methods(_tree(Path(source)), source, name, wanted))


def _told(check: Check, found: signatures.Found) -> Check:
    """A check that is good so far, after the arguments of what it names."""
    if found.fault:
        return Check(
            check.name, "fail", found.fault, fix="write it with the expected arguments: docs/own-run.md"
        )
    if found.unknown:
        words = f"{check.text}; whether it takes what it is called with is not known: {found.unknown}"
        return Check(check.name, "skipped", words)
    return check


def _tree(file: Path) -> ast.Module:
    """The source of a Python file, in the encoding that it names.

    Raises:
        OSError: it cannot be read.
        SyntaxError: it is no Python.
        ValueError: it has characters that no source has, or expressions that are too deep for this Python.
    """
    return _parsed(read_regular(file))


# The checks of one run read the same few files many times: each is parsed once, unless it changes meanwhile
@lru_cache(maxsize=PARSED)
def _parsed(source: bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except (RecursionError, MemoryError) as error:
        raise ValueError("its expressions are too deep to be read") from error


def _defines(key: str, file: Path, name: str) -> Check:
    """Whether a Python file binds ``name``."""
    found = _python_file(key, file, None)
    if found.status == "fail":
        return found
    names = set(_bound(_tree(file)))
    if names.isdisjoint(("*", "__getattr__", name)):
        return Check(
            key, "fail", "; ".join(filter(None, (f"{file} defines no {name}", did_you_mean(name, names))))
        )
    return Check(key, "ok", f"{name} of {os.path.basename(file)}")


def _tools(file: Path, answer: Answer | None) -> Check:
    try:
        classes = _classes(file)
    except ValueError as error:
        return Check("agent.tools", "fail", str(error))
    left: list[str] = []
    for name in classes:
        module, _, bare = name.rpartition(".")
        found = _in_module("agent.tools", module, bare, answer, signatures.TOOL)
        if found.status == "fail":
            return found
        left += [f"{file}: {found.text}"] if found.status == "skipped" else []
    if left:
        return Check("agent.tools", "skipped", left[0])
    return Check("agent.tools", "ok", f"{file}: {quantity(len(classes), 'tool')}")


def _classes(file: Path) -> list[str]:
    """The names of the classes in verl's tool configuration.

    Raises:
        ValueError: it is not one; the text names the file.
    """
    try:
        document = _decoded(read_text(file))
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{file} is not YAML: {error}") from error
    tools = document.get("tools") if isinstance(document, dict) else None
    if not isinstance(tools, list) or not tools:
        raise ValueError(f"{file} has no list `tools` with verl's tool configuration")
    for number, tool in enumerate(tools):
        if not isinstance(tool, dict) or "." not in str(tool.get("class_name", "")):
            raise ValueError(f"{file}: tools[{number}] has no class_name such as my_tools.Search")
    return [str(tool["class_name"]) for tool in tools]


@lru_cache(maxsize=PARSED)
def _decoded(text: str) -> Any:
    return decode_yaml(text)


def _python_file(key: str, file: Path, answer: Answer | None) -> Check:
    """Whether a file can be read, is Python, and imports only what there is."""
    try:
        _tree(file)
    except OSError as error:
        words = f"cannot read {file}: {error.strerror}"
        return Check(key, "fail", "; ".join(filter(None, (words, _near(file)))))
    except SyntaxError as error:
        return Check(key, "fail", f"{file} is not Python: line {error.lineno}: {error.msg}")
    except ValueError as error:
        return Check(key, "fail", f"{file} is not Python: {error}")
    if answer is None:
        modules = ", ".join(sorted(set(_imported(file))))
        words = f"{file} is Python; whether it can import {modules} was not tried: {UNBUILT}"
        return Check(key, "skipped", words) if modules else Check(key, "ok", str(file))
    missing = answer.missing
    for module in _imported(file):
        if module in missing:
            return Check(key, "fail", f"{file} imports {module}, which cannot be imported: {missing[module]}")
    return Check(key, "ok", str(file))


def _near(file: Path) -> str:
    """The Python file beside a missing one that was probably meant."""
    try:
        return did_you_mean(file.name, sorted(one.name for one in file.parent.glob("*.py") if one != file))
    except OSError:
        return ""


def _tool_functions(file: Path, answer: Answer | None) -> Check:
    found = _python_file("agent.functions", file, answer)
    if found.status == "fail":
        return found
    tools = signatures.tool_functions(_tree(file), str(file))
    return _told(found, tools) if found.status == "ok" or tools.fault else found


def _function(config: RunConfig, answer: Answer | None) -> Check:
    key = "reward.function"
    path, _, name = config.reward.function.rpartition(":")
    file = Path(path)
    found = _defines(key, file, name)
    if found.status == "fail":
        return found
    imports = _python_file(key, file, answer)
    if imports.status == "fail":
        return imports
    if has_reward_manager(config):
        told = signatures.Found(unknown="a reward manager of your own calls it")
    else:
        call = signatures.reward_call(_reward_kwargs(config), has_model=has_reward_model(config))
        told = signatures.function(_tree(file), path, name, call)
    return _told(found, told) if told.fault or imports.status == "ok" else imports


def _reward_kwargs(config: RunConfig) -> tuple[str, ...]:
    """The names in ``reward.kwargs``, and those that ``trainer.overrides`` adds in verl's spelling."""
    keys = (bare_key(key).rpartition(".") for key in config.trainer.overrides)
    added = (name for place, _, name in keys if place.endswith("custom_reward_function.reward_kwargs"))
    return (*config.reward.kwargs, *added)


def _imported(file: Path) -> Iterator[str]:
    """The modules that a Python file cannot do without: its own imports at the top, not those within ``try``."""
    try:
        tree = _tree(file)
    except (OSError, SyntaxError, ValueError):
        return  # ``checks`` reports it
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that a module binds; ``*`` for a star import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
