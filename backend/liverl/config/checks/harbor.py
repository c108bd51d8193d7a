"""Rules between configuration keys about tasks of Harbor's under verl."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from liverl.agents.harbor.config import ConfigError, HarborTrial, trial_config
from liverl.agents.harbor.settings import HarborSettings
from liverl.config import conditions as when
from liverl.config.checks.ruleset import Finding, RuleSet
from liverl.config.schema import RunConfig

RULES = RuleSet()
_rule = RULES.rule

_WANTED = ("agent.kind", "environments", "trainer.kind", "run.topology", "proxy.trials_through")
# What no key decides.
_TRIAL = HarborTrial(
    task="/",
    name="",
    trials_dir="",
    openai="",
    anthropic="",
    key="",
    model="",
    turns=1,
    context=1,
    reply=1,
)


@_rule(*_WANTED, "verl.agent_loop")
def _carried(c: RunConfig) -> Iterator[Finding]:
    if when.harbor(c) and c.agent.kind in ("harbor", "auto") and not when.through_sessions(c):
        words = "an agent of Harbor's calls the model itself, and its tokens are recorded by sessions only"
        yield Finding("proxy.trials_through", words, "litellm", "auto or sessions")


@_rule(
    *_WANTED,
    "harbor_agent.agent_name",
    "harbor_agent.agent_import_path",
    "harbor_agent.environment_type",
    "harbor_agent.environment_import_path",
    "harbor_agent.host_path_mounts",
    "harbor_agent.runtime_image",
    "harbor_agent.runtime_mount_path",
)
def _trial(c: RunConfig) -> Iterator[Finding]:
    if not when.harbor(c):
        return
    settings = HarborSettings(
        python="",
        agent=msgspec.to_builtins(c.harbor_agent),
        runtime=msgspec.to_builtins(c.harbor_runtime),
        k8s=msgspec.to_builtins(c.k8s),
    )
    try:
        trial_config(_TRIAL, settings)
    except ConfigError as error:
        yield Finding(error.key, error.words, error.found, error.allowed)
