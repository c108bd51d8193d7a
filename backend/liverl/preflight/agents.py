"""A user's agents, tools and reward function: whether they exist before the run starts."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.preflight.data_rows import Answer
from liverl.util.nearest import did_you_mean


def modules(config: RunConfig) -> tuple[str, ...]:
    """The modules that verl's processes must be able to import: of the Python agent, and of the tools' classes."""
    agent = config.agent
    named = {agent.python.partition(":")[0]} if agent.python else set()
    if agent.tools:
        try:
            named |= {name.rpartition(".")[0] for name in _classes(Path(agent.tools))}
        except ValueError:
            pass  # ``checks`` reports it
    return tuple(sorted(filter(None, named)))


def checks(config: RunConfig, answer: Answer | None) -> Iterator[Check]:
    """What is set of ``agent`` and ``reward``. ``answer``: of verl's environment; None if there is none yet."""
    agent = config.agent
    for key, words in (("agent.command", agent.command), ("agent.verifier", agent.verifier)):
        if words:
            found = shutil.which(words[0])
            yield Check(key, "ok", found) if found else Check(key, "fail", f"there is no program {words[0]}")
    if agent.python:
        yield _module("agent.python", agent.python.partition(":")[0], answer)
    if agent.tools:
        yield _tools(Path(agent.tools), answer)
    if agent.functions:
        yield _python_file("agent.functions", Path(agent.functions))
    if config.reward.function:
        yield _function(config.reward.function)


def _module(key: str, name: str, answer: Answer | None) -> Check:
    why = answer.missing.get(name) if answer is not None else None
    if why is None:
        return Check(key, "ok", name)
    return Check(
        key, "fail", f"module {name} cannot be imported: {why}; agent.path adds directories with modules"
    )


def _tools(file: Path, answer: Answer | None) -> Check:
    try:
        classes = _classes(file)
    except ValueError as error:
        return Check("agent.tools", "fail", str(error))
    for name in classes:
        found = _module("agent.tools", name.rpartition(".")[0], answer)
        if found.status == "fail":
            return found
    return Check("agent.tools", "ok", f"{file}: {len(classes)} tools")


def _classes(file: Path) -> list[str]:
    """The names of the classes in verl's tool configuration.

    Raises:
        ValueError: it is not one; the text names the file.
    """
    import yaml  # only a run with tools needs it

    try:
        document: Any = yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not YAML: {str(error).splitlines()[0]}") from error
    tools = document.get("tools") if isinstance(document, dict) else None
    if not isinstance(tools, list) or not tools:
        raise ValueError(f"{file} has no list `tools` with verl's tool configuration")
    for number, tool in enumerate(tools):
        if not isinstance(tool, dict) or "." not in str(tool.get("class_name", "")):
            raise ValueError(f"{file}: tools[{number}] has no class_name such as my_tools.Search")
    return [str(tool["class_name"]) for tool in tools]


def _python_file(key: str, file: Path) -> Check:
    try:
        ast.parse(file.read_text("utf-8"))
    except OSError as error:
        return Check(key, "fail", f"cannot read {file}: {error.strerror}")
    except (SyntaxError, ValueError) as error:
        return Check(key, "fail", f"{file} is not Python: {error}")
    return Check(key, "ok", str(file))


def _function(named: str) -> Check:
    key = "reward.function"
    file, _, name = named.rpartition(":")
    found = _python_file(key, Path(file))
    if found.status == "fail":
        return found
    names = set(_bound(ast.parse(Path(file).read_text("utf-8"))))
    if "*" not in names and name not in names:
        return Check(
            key, "fail", "; ".join(filter(None, (f"{file} defines no {name}", did_you_mean(name, names))))
        )
    return Check(key, "ok", f"{name} of {os.path.basename(file)}")


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that a module binds; ``*`` for a star import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
