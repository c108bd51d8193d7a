"""What a trial's verifier said: its checks, one by one, and the end of its output.

``FORMS`` is the table of the files that hold checks; a trial's checks are those of the first one that has any. To read
another file, write a function of its bytes and add a line to the table. What no file says is not guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from liverl.agents.checks import FOLDER, NAME, Check
from liverl.logs.text import bare, plain
from liverl.observe.trials.files import TrialFile
from liverl.observe.trials.message_parts import loads
from liverl.util.regular_file import RefusedFileError, open_binary

MOST_CHECKS = 200  # kept of a trial; those that failed come first
LONGEST_TEXT = 2000  # characters kept of each text of a check
LARGEST = 4 << 20  # maximum bytes of a file of checks
OUTPUT_BYTES, OUTPUT_LINES = 64 << 10, 60  # the end of the output that is kept
PYTEST_OUTPUT = f"{FOLDER}/test-stdout.txt"  # Harbor's name for what a task's tests print
# Files with a verifier's output, the most telling first; then whatever else of text is in its folder.
OUTPUTS = (PYTEST_OUTPUT, f"{FOLDER}/test-stderr.txt", "agent/verifier.log")
_TEXTS = (".txt", ".log", ".out", ".err")
_REWARD = re.compile(r"reward.*\.(txt|json)")
# pytest's short summary: ``FAILED ../tests/test_outputs.py::test_text - AssertionError: ...``
_PYTEST = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+::.+?)(?: - (.*))?$", re.MULTILINE)
RESULT = "result.json"
# Of Ray's traceback of a reward that failed in verl's worker, and the function of verl that calls the user's.
_REWARD_CALL, _BIND = "RewardLoopWorker.compute_score", "_call_with_kwargs"
_GIVEN = ("data_source", "solution_str", "ground_truth", "extra_info")
_FRAME = re.compile(r'^ +File "([^"\n]+)", line (\d+), in (.+)$', re.MULTILINE)
_PASSED: dict[str, bool | None] = {
    "PASSED": True, "XPASS": True, "FAILED": False, "ERROR": False, "SKIPPED": None, "XFAIL": None,
    "passed": True, "failed": False,
}  # fmt: skip


class VerifierReport(msgspec.Struct, frozen=True):
    """``checks``: those that failed first, at most ``MOST_CHECKS``; ``passed``, ``failed``: how many of all;
    ``source``: the file that has them, relative to the trial's directory; ``output``: the end of what the verifier
    printed, without colours, and ``output_file`` that has it; ``unread``: what was not read, and why, a sentence for
    each file. Each empty where there is none."""

    checks: tuple[Check, ...] = ()
    passed: int = 0
    failed: int = 0
    source: str = ""
    output: str = ""
    output_file: str = ""
    unread: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the verifier said anything beside the reward, be it read or not."""
        return bool(self.checks or self.output or self.unread)


def parse_checks(data: bytes) -> tuple[Check, ...]:
    """``verifier/checks.json``, see ``agents.checks``. What is no check of it is left out."""
    items = loads(data)
    found = (_check(item) for item in items) if isinstance(items, list) else ()
    return tuple(check for check in found if check is not None)


def _check(item: object) -> Check | None:
    if not isinstance(item, dict) or not isinstance(item.get("what"), str):
        return None
    passed = item.get("passed")
    texts = {name: as_text(item.get(name)) for name in ("expected", "got", "note")}
    return Check(_short(item["what"]), passed if isinstance(passed, bool) else None, **texts)


def parse_ctrf(data: bytes) -> tuple[Check, ...]:
    """A report in the Common Test Report Format (https://ctrf.io), as pytest-json-ctrf writes it."""
    document = loads(data)
    results = document.get("results") if isinstance(document, dict) else None
    tests = results.get("tests") if isinstance(results, dict) else None
    return tuple(
        Check(
            _short(test["name"]),
            _PASSED.get(str(test.get("status"))),
            note=as_text(test.get("message") or test.get("trace")),
        )
        for test in (tests if isinstance(tests, list) else ())
        if isinstance(test, dict) and isinstance(test.get("name"), str)
    )


def parse_pytest(data: bytes) -> tuple[Check, ...]:
    """The short summary that pytest prints at the end (``-rA``, or only the failed tests without it)."""
    return tuple(
        Check(_short(name), _PASSED[word], note=_short(note or ""))
        for word, name, note in _PYTEST.findall(bare(data))
    )


FORMS: tuple[tuple[str, Callable[[bytes], tuple[Check, ...]]], ...] = (
    (f"{FOLDER}/{NAME}", parse_checks),
    (f"{FOLDER}/ctrf.json", parse_ctrf),
    (PYTEST_OUTPUT, parse_pytest),
)


def report_of(
    checks: Iterable[Check], source: str = "", output: str = "", output_file: str = ""
) -> VerifierReport:
    """A report of ``checks``, sorted and cut."""
    every = list(checks)
    ordered = sorted(every, key=lambda check: (check.passed is not False, check.passed is True))
    return VerifierReport(
        tuple(ordered[:MOST_CHECKS]),
        sum(check.passed is True for check in every),
        sum(check.passed is False for check in every),
        source if every else "",
        output,
        output_file if output else "",
    )


class ReportReader:
    """Reads the report of one trial, again only where one of its files has changed. ``refused``: name of a file that
    must not be read -> why."""

    def __init__(self, trial_dir: Path) -> None:
        self._path = trial_dir
        self._seen: tuple[tuple[str, int, int], ...] | None = None
        self._report = VerifierReport()
        self.refused: dict[str, str] = {}

    def read(self, files: Sequence[TrialFile]) -> VerifierReport:
        """The present report. ``files``: of the trial, as ``list_files`` gives them.

        Raises:
            OSError: the storage failed; missing files are no error.
        """
        there = {file.name for file in files}
        names = [name for name, _ in FORMS if name in there]
        output = next((name for name in OUTPUTS if name in there), "") or _other_output(files)
        seen = tuple((one.name, one.modified, one.size) for one in files if one.name in (*names, output))
        if seen != self._seen:
            self.refused = {}
            self._report = self._read(names, output)
            self._seen = seen
        return self._report

    def _read(self, names: Sequence[str], output: str) -> VerifierReport:
        checks: tuple[Check, ...] = ()
        source = ""
        parsers = dict(FORMS)
        for name in names:
            data = self._bytes(name, LARGEST, whole=name.endswith(".json"))
            if found := parsers[name](data):
                checks, source = found, name
                break
        report = report_of(checks, source, _last_lines(self._bytes(output, OUTPUT_BYTES)), output)
        unread = tuple(f"{name} was not read: {why}" for name, why in self.refused.items())
        return replace(report, unread=unread) if unread else report

    def _bytes(self, name: str, most: int, *, whole: bool = False) -> bytes:
        """The last ``most`` bytes of a file of the trial; none of one that is missing, or must not be read. ``whole``:
        also none of a larger one, whose end alone says nothing."""
        if not name:
            return b""
        try:
            with open_binary(self._path / name, inside=self._path.parent) as file:
                size = os.fstat(file.fileno()).st_size
                if whole and size > most:
                    limit = f"it has {size / 2**20:,.1f} MiB, the limit is {most >> 20}"
                    self.refused[name] = f"too large to read ({limit})"
                    return b""
                file.seek(max(0, size - most))
                return file.read(most)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except (RefusedFileError, PermissionError) as error:
            self.refused[name] = error.strerror or str(error)
            return b""


def as_text(value: object) -> str:
    """A value of JSON as text, cut at ``LONGEST_TEXT``: a string is itself."""
    if value is None:
        return ""
    return _short(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def row_report(row: Mapping[str, Any], passed: bool | None) -> VerifierReport:
    """What a row of verl's dump says of its reward: the ground truth (``gts``), and what the reward function took for
    the answer (``pred``), if it says that. ``passed``: as it judged, None if that is not known."""
    expected, got = as_text(row.get("gts")), as_text(row.get("pred"))
    check = Check("the answer, by the reward function", passed, expected, got)
    return report_of((check,) if expected or got else ())


def with_reward(report: VerifierReport, result: Mapping[str, Any] | None) -> VerifierReport:
    """``report``, with what ``result.json`` says of a reward function where no verifier has said anything: its values,
    the ground truth, and why it failed."""
    check = None if report.checks or result is None else reward_check(result)
    return report if check is None else replace(report, checks=(check,), source=RESULT)


def reward_check(result: Mapping[str, Any]) -> Check | None:
    """What the result of a trial says of the reward function that scored it; None if none did, as far as is known.
    A trial from before ``reward_from`` was written is told by the function's values, or by Ray's traceback."""
    by, extras = result.get("reward_from"), result.get("reward_extra_info")
    told = result.get("exception_info")
    failure = told if isinstance(told, dict) else {}
    text = str(failure.get("exception_traceback") or "")
    failed = _REWARD_CALL in text
    if not isinstance(by, dict):
        if not failed and not isinstance(extras, dict):
            return None
        by = {}
    who = f"reward from {as_text(by.get('function')) or 'the reward function'}"
    if failed:
        frames = _FRAME.findall(text)
        where = f" ({frames[-1][0].rpartition('/')[2]}:{frames[-1][1]} in {frames[-1][2]})" if frames else ""
        words = f"failed with {failure.get('exception_type')}: {failure.get('exception_message')}{where}"
        if frames and frames[-1][2].startswith(_BIND):
            words += f"; verl calls it with {', '.join(_GIVEN)} and the names in reward.kwargs"
        return Check(who, False, as_text(by.get("ground_truth")), "", _short(words))
    values = extras.items() if isinstance(extras, dict) else ()
    note = ", ".join(
        (
            *(
                f"{name} {value:g}" if isinstance(value, float) else f"{name} {as_text(value)}"
                for name, value in values
            ),
            *_of_tools(result.get("tool_rewards")),
        )
    )
    return Check(who, None, as_text(by.get("ground_truth")), "", _short(note))


def _of_tools(rewards: Any) -> Iterator[str]:
    """What the run's tools gave for each call of the model, in words; nothing if that is not known."""
    if isinstance(rewards, list) and rewards and all(type(one) in (int, float) for one in rewards):
        yield f"tool_rewards {' '.join(f'{one:g}' for one in rewards)}"


def _other_output(files: Iterable[TrialFile]) -> str:
    """The first text in the verifier's folder that is no reward."""
    for file in files:
        folder, _, name = file.name.partition("/")
        if folder == FOLDER and name.endswith(_TEXTS) and not _REWARD.fullmatch(name) and file.size:
            return file.name
    return ""


def _last_lines(data: bytes) -> str:
    if b"\0" in data:
        return ""  # no text
    return "\n".join(plain(line) for line in bare(data).rstrip().split("\n")[-OUTPUT_LINES:])


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
