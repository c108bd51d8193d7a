"""Refuses to execute or end a run that another user could have changed; ``rundir.trust`` decides."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from liverl.config.trusted_roots import ROOTS_KEY, resolved_root
from liverl.config.trusted_roots import ROOTS_VARIABLE as ROOTS_VARIABLE
from liverl.config.trusted_roots import trusted_roots as roots_in
from liverl.exit_codes import ExitCode
from liverl.rundir.layout import RunDir
from liverl.rundir.path_facts import path_facts, present_caller
from liverl.rundir.trust import Finding, assess

_MOST = 4  # paths that one message names


class UntrustedRun(Exception):
    """Another user could have changed what the run executes. ``str()`` is the whole message for the user."""

    exit_code = ExitCode.PREFLIGHT


def trusted_roots(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories for which the user vouches in the environment, resolved.

    Raises:
        UntrustedRun: the variable is not a list of paths.
    """
    try:
        return roots_in(env)
    except ValueError as error:
        raise UntrustedRun(str(error)) from None


def vouch(roots: Iterable[str | os.PathLike[str]]) -> None:
    """Trust these directories from now on, in this process and in backends that it starts.

    Raises:
        UntrustedRun: the variable, which other directories are taken from, is not a list of paths.
    """
    more = [resolved_root(root) for root in roots]
    if more:
        os.environ[ROOTS_VARIABLE] = json.dumps(
            list(dict.fromkeys([*trusted_roots(os.environ), *more])), ensure_ascii=False
        )


def require_trusted(run_dir: Path) -> tuple[Finding, ...]:
    """Check that nobody but the caller and root can have changed a run; return what a group can change.

    ``run_dir`` need not exist yet: then only the directories above it are checked.

    Raises:
        UntrustedRun: somebody else can; nothing of the run may be executed or ended.
    """
    verdict = assess(path_facts(run_dir), present_caller(), trusted_roots(os.environ))
    if verdict.refused:
        raise UntrustedRun(_refusal(run_dir, verdict.refused))
    return verdict.warnings


def _refusal(run_dir: Path, findings: tuple[Finding, ...]) -> str:
    lines = [f"run {RunDir(run_dir).name} is not trusted; nothing was started or stopped:"]
    lines += [f"  {finding.path}: {finding.problem}" for finding in findings[:_MOST]]
    if len(findings) > _MOST:
        lines.append(f"  and {len(findings) - _MOST} more")
    lines.append(
        "Whoever can change a run's directory, or one above it, decides what this command executes as you. Expected: "
        "you or root own all of them, and no other user can write them."
    )
    cures = [finding.cure for finding in findings if finding.cure]
    if len(cures) == len(findings) <= _MOST:
        lines.append(f"If nobody else has changed anything there: {'; '.join(cures)}")
    lines.append(
        f"To trust it all the same: --trust {run_dir}, or {ROOTS_KEY} in your own configuration "
        f"({ROOTS_VARIABLE}=[DIR])"
    )
    return "\n".join(lines)
