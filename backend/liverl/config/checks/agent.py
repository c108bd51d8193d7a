"""Rules between configuration keys about a user's own agents and rewards under verl."""

from __future__ import annotations

import re
from collections.abc import Iterator

from liverl.config import conditions as when
from liverl.config.checks.ruleset import Finding, RuleSet
from liverl.config.dump import looks_secret
from liverl.config.schema import RunConfig

RULES = RuleSet()
_rule = RULES.rule

_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_FUNCTION = re.compile(r".+\.py:[A-Za-z_]\w*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The contract with the agent; see docs/own-run.md.
_OURS = re.compile(r"LIVERL_.*|(OPENAI|ANTHROPIC)_(BASE_URL|API_KEY|MODEL)")
_NEEDS = {
    "command": ("agent.command", "the program and its arguments"),
    "python": ("agent.python", "module:Class"),
    "tools": ("agent.tools", "a file with verl's tool configuration, or agent.functions"),
}


def _set(c: RunConfig, kind: str) -> bool:
    """Whether the configuration has what a kind of agent needs."""
    agent = c.agent
    given = {"command": agent.command, "python": agent.python, "tools": agent.tools or agent.functions}
    return bool(given.get(kind, True))


@_rule("agent.kind", "agent.command", "agent.python", "agent.tools", "agent.functions", "trainer.kind")
def _kind(c: RunConfig) -> Iterator[Finding]:
    if not when.our_loop(c):
        return
    if not _set(c, c.agent.kind):
        key, allowed = _NEEDS[c.agent.kind]
        yield Finding(key, f"agent.kind {c.agent.kind} needs it", "nothing", allowed)
    if c.agent.kind == "auto" and c.agent.command and c.agent.python:
        words = "agent.command and agent.python are both set, and each could run the rows"
        yield Finding("agent.kind", words, "auto", "command or python")


@_rule(
    "agent.kind", "agent.command", "proxy.trials_through", "run.topology", "trainer.kind", "verl.agent_loop"
)
def _carried(c: RunConfig) -> Iterator[Finding]:
    wanted = c.agent.kind == "command" or (c.agent.kind == "auto" and c.agent.command)
    if when.our_loop(c) and wanted and not when.through_sessions(c):
        words = "the tokens of an agent that is a program are recorded by sessions only"
        yield Finding("proxy.trials_through", words, "litellm", "auto or sessions")


@_rule("agent.python")
def _python(c: RunConfig) -> Iterator[Finding]:
    if c.agent.python and not _CLASS.fullmatch(c.agent.python):
        yield Finding("agent.python", "not the name of a class", f"'{c.agent.python}'", "module:Class")


@_rule("agent.command", "agent.verifier")
def _programs(c: RunConfig) -> Iterator[Finding]:
    for key, words in (("agent.command", c.agent.command), ("agent.verifier", c.agent.verifier)):
        if words == ():
            yield Finding(key, "names no program", "[]", "a program and its arguments, or null")


@_rule("agent.path")
def _path(c: RunConfig) -> Iterator[Finding]:
    for number, directory in enumerate(c.agent.path):
        if ":" in directory:
            words = "PYTHONPATH would take it for two directories"
            yield Finding(
                f"agent.path[{number}]", words, f"'{directory}'", "a directory without ':' in its path"
            )


@_rule("agent.env")
def _env(c: RunConfig) -> Iterator[Finding]:
    for name in c.agent.env:
        if not _VARIABLE.fullmatch(name):
            yield Finding(
                f"agent.env.{name}", "not the name of a variable", f"'{name}'", "letters, digits, _"
            )
        elif _OURS.fullmatch(name):
            words = "each trial gets a value of its own for this variable"
            yield Finding(f"agent.env.{name}", words, f"'{name}'", "another name")
        elif looks_secret(name):
            words = "a secret would be saved with the run"
            hint = "let your program read it from a file"
            yield Finding(f"agent.env.{name}", words, "a value", "no secrets", hint)


@_rule("reward.function")
def _reward(c: RunConfig) -> Iterator[Finding]:
    if c.reward.function and not _FUNCTION.fullmatch(c.reward.function):
        words = "not the name of a function in a file"
        yield Finding("reward.function", words, f"'{c.reward.function}'", "FILE.py:name")
