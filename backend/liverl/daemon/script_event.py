"""The part of a run's first event about the variables of its launch script."""

from __future__ import annotations

from pathlib import Path

from liverl.plan.spec import Plan
from liverl.util.regular_file import read_regular


def variables_told(plan: Plan) -> str:
    """Which of LiveRL's variables the launch script gets and which are left to it, after ``; ``; "" without a launch
    script, and for plans of earlier versions."""
    if plan.script is None:
        return ""
    from liverl.plan.script_variables import script_variables, variables_words

    variables = script_variables(plan)
    return f"; {variables_words(variables, _script(plan))}" if variables is not None else ""


def _script(plan: Plan) -> str:
    """The text of the launch script; "" if it cannot be read, or the command names no file."""
    from liverl.preflight.launch_script import script_of

    spec = next(service for service in plan.services if service.ends_run)
    file = script_of(spec.argv) or (spec.argv[0] if "/" in spec.argv[0] else None)
    if file is None:
        return ""
    try:
        return read_regular(Path(spec.cwd.replace("{run_dir}", plan.run_dir)) / file).decode(
            "utf-8", "replace"
        )
    except OSError:
        return ""
