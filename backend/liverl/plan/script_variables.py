"""Which of LiveRL's variables a launch script gets, from where, and which are left to the script. Pure."""

from __future__ import annotations

import re

from msgspec import Struct

from liverl.config.env_vars import SECRET_KEYS, VARIABLES, was_given
from liverl.plan.inherit import names_secret
from liverl.plan.launch_script import TRIALS
from liverl.plan.spec import Plan
from liverl.util.redact import HIDDEN

RUN_KEY = "ANTHROPIC_API_KEY"


class ScriptVariables(Struct, frozen=True):
    """``given``: name -> ``value, where it was set``, of the variables that the script gets; values of secrets are not
    in it. ``left``: the names of LiveRL's other variables, for which the script's own values hold."""

    given: dict[str, tuple[str, str]]
    left: tuple[str, ...]


def script_variables(plan: Plan) -> ScriptVariables | None:
    """The variables of the launch script of ``plan``; None if it has none, or does not say what the user has given."""
    if plan.script is None or plan.script.given is None:
        return None
    spec = next(service for service in plan.services if service.ends_run)
    keys, where = dict(VARIABLES), plan.script.given
    found: dict[str, tuple[str, str]] = {}
    for name, plain in spec.env.items():
        value = HIDDEN if names_secret(name) else plain.replace("{run_dir}", plan.run_dir)
        key = keys.get(name, "")
        if was_given(key, where):
            found[name] = value, where.get(key) or where.get("run.name", "")
        else:
            found[name] = value, "liverl-tui" if name == TRIALS else where.get("trainer.env", "trainer.env")
    for name in spec.secret_env:
        key = "infrastructure.anthropic_api_key" if name == RUN_KEY else keys.get(name, "")
        found[name] = HIDDEN, where.get(key, "liverl-tui")
    left = (name for name, key in VARIABLES if name not in found and key not in SECRET_KEYS)
    return ScriptVariables(found, tuple(left))


def variables_words(variables: ScriptVariables, script: str) -> str:
    """What a launch script gets and what is left to it, in one line. ``script``: its text; variables that it does not
    mention are only counted. "" = it cannot be read, and all are named."""
    given = ", ".join(f"{name}={value} ({where})" for name, (value, where) in sorted(variables.given.items()))
    read = [name for name in variables.left if not script or re.search(rf"\b{name}\b", script)]
    others = len(variables.left) - len(read)
    left = ", ".join(read) or "none that it mentions"
    more = f" ({others} that it does not mention)" if others and read else ""
    return f"the launch script gets {given}; not set, so its own values apply: {left}{more}"
