"""Why a trial got its reward, in words: what its verifier checked, expected and got, and what it ran last. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from liverl.agents.checks import Check
from liverl.observe.trials.pairing import LastCommand
from liverl.observe.trials.verifier import RESULT, VerifierReport
from liverl.util.plural import plural, quantity
from liverl_tui.text.words import one_line

UNKNOWN = (
    "only the reward is recorded: no verifier/checks.json, verifier/ctrf.json or output. To see reasons here, let "
    "your verifier write verifier/checks.json, or your reward function return a dict"
)
STANDS_FOR_NONE = (
    "the trial failed, as its ending above says: 0 stands for a reward that was never computed, too; "
    "it is not trained"
)
NOT_RECORDED = "(no answer is recorded)"
_MARKS = {True: "✔", False: "✖", None: "○"}


def mark_of(check: Check) -> str:
    """``✔``, ``✖``, or ``○`` where it is not known whether it has passed."""
    return _MARKS[check.passed]


def reward_title(rewards: Mapping[str, float]) -> str:
    """``why reward 0``, with the only or the main reward; ``why no reward``."""
    if "reward" in rewards:
        return f"why reward {rewards['reward']:g}"
    if len(rewards) == 1:
        name, value = next(iter(rewards.items()))
        return f"why {one_line(name)} {value:g}"
    return "rewards" if rewards else "why no reward"


def may_be_none(rewards: Mapping[str, float], outcome: str, failed: bool) -> bool:
    """Whether a trial's only reward, 0, may stand for none: it failed with an exception, and is not trained."""
    return failed and outcome == "masked" and list(rewards.values()) == [0.0]


def parts_words(rewards: Mapping[str, float]) -> str:
    """The parts of a reward: ``format 1, tests 0.5``; "" where there is only one."""
    return (
        ", ".join(f"{one_line(name)} {value:g}" for name, value in rewards.items())
        if len(rewards) > 1
        else ""
    )


def counted(report: VerifierReport) -> str:
    """``1 of 3 checks failed``, ``3 checks passed``; "" without checks."""
    if report.source == RESULT:  # the reward function's values, which are no checks
        return ""
    every = report.passed + report.failed
    skipped = len(report.checks) - every
    if not every:
        return "checks not judged" if report.checks else ""
    words = f"{report.failed} of {quantity(every, 'check')} failed"
    words = words if report.failed else f"{quantity(every, 'check')} passed"
    return f"{words}, {skipped} not judged" if skipped > 0 else words


def check_lines(check: Check) -> list[str]:
    """What was expected and found by a check, and what else it says; a line each, of any length."""
    texts = (("expected", check.expected), ("got", check.got), ("says", check.note))
    return [
        f"{name:<9}{line}" if number == 0 else f"{'':<9}{line}"
        for name, text in texts
        if text
        for number, line in enumerate(text.rstrip("\n").split("\n"))
    ]


def report_lines(rewards: Mapping[str, float], report: VerifierReport, *, none: bool = False) -> list[str]:
    """All that a verifier said, for plain text: the failed checks with what they say, the others by name, the end of
    its output. ``none``: see ``may_be_none``."""
    lines = [STANDS_FOR_NONE] if none else []
    lines += [f"parts: {words}"] if (words := parts_words(rewards)) else []
    if report.checks:
        if words := counted(report):
            lines.append(f"checks: {words}" + (f" ({report.source})" if report.source else ""))
        for check in report.checks:
            lines.append(f"  {mark_of(check)} {one_line(check.what)}")
            lines += [f"      {line}" for line in check_lines(check)] if check.passed is not True else []
    lines += map(one_line, report.unread)
    if report.output:
        lines.append(f"output, the end of {one_line(report.output_file)}:")
        lines += [f"  {line}" for line in report.output.split("\n")]
    return lines or [UNKNOWN]


def command_lines(commands: tuple[LastCommand, ...]) -> list[str]:
    """The last calls of tools, with the end of what each was answered."""
    lines = []
    for command in commands:
        words = " ".join(command.arguments.split())
        lines.append(f"  turn {command.turn}: {one_line(command.name)} {one_line(words)}")
        result = NOT_RECORDED if command.result is None else command.result
        lines += [f"      {line}" for line in result.split("\n")]
    return lines


def commands_title(commands: tuple[LastCommand, ...]) -> str:
    """``last command``, or ``last 3 commands``."""
    several = f"{len(commands)} " if len(commands) > 1 else ""
    return f"last {several}{plural(len(commands), 'command')}"
