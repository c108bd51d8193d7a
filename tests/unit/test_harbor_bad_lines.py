"""What one trial may do to the line that tells of it: the others of its process go on."""

from __future__ import annotations

import asyncio
import re
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from liverl.agents.harbor import local_environment_file
from liverl.verl_runtime.kinds import harbor_runner
from liverl.verl_runtime.kinds.harbor_runner import Ended, HarborRunner

# The value of each name is made where Harbor's verifier would make it. ``healthy`` ends when ``go`` exists.
VALUES = r"""
import decimal, math, os, time
from types import SimpleNamespace as N

class Wordless:
    def __str__(self):
        raise RuntimeError("no words")
    __repr__ = __str__

class OfNumpy:
    def __float__(self):
        return 0.25

class BaseEnd(BaseException):
    pass

REWARDS = {
    "healthy": {"reward": 1.0},
    "nan": {"reward": math.nan},
    "infinite": {"reward": -math.inf},
    "text": {"reward": "0.5"},
    "null": {"reward": None},
    "nested": {"reward": [1.0]},
    "huge": {"reward": 10**400},
    "one-of-two": {"reward": 1.0, "style": "good"},
    "list": [1.0],
    "number": 0.5,
    "object": {"reward": object()},
    "wordless": {"reward": Wordless()},
    "surrogate-reward": {"reward": "\udce9"},
    "surrogate-name": {"caf\udce9": "x"},
    "numpy": {"reward": OfNumpy()},
    "decimal": {"reward": decimal.Decimal("0.75")},
    "whole": {"reward": 1},
    "number-name": {7: 0.5},
    "none": None,
    "phases": {"reward": 1},
}
EXCEPTIONS = {
    "surrogate": N(exception_type="OSError", exception_message="no file caf\udce9"),
    "no-message": N(exception_type="OSError", exception_message=None),
    "type-of-class": N(exception_type=OSError, exception_message=OSError("gone")),
    "wordless-message": N(exception_type="OSError", exception_message=Wordless()),
    "long": N(exception_type="OSError", exception_message="x" * (3 << 20)),
}
RAISED = {
    "raises-surrogate": ValueError("caf\udce9"),
    "raises-wordless": Wordless(),
    "exits": SystemExit(3),
    "ends-all": BaseEnd("stop"),
}

def result(kind):
    if kind in RAISED:
        error = RAISED[kind]
        if isinstance(error, BaseException):
            raise error
        raise ValueError(error)
    if kind == "other-result":
        return N()
    if kind in EXCEPTIONS:
        return N(exception_info=EXCEPTIONS[kind], verifier_result=None)
    if kind == "nan-and-exception":
        return N(exception_info=N(exception_type="AgentTimeoutError", exception_message="late"),
                 verifier_result=N(rewards={"reward": math.nan}))
    return N(exception_info=None, verifier_result=N(rewards=REWARDS[kind]))
"""

QUEUE = """
import asyncio, os
from types import SimpleNamespace
from .single_step import AGENTS, SingleStepTrial
from .values import result

class TrialQueue:
    def __init__(self, n_concurrent, retry_config):
        self.told = {}

    def on_environment_started(self, callback):
        self.told["environment"] = callback

    def on_agent_started(self, callback):
        self.told["agent"] = callback  # a version that tells no start of a verifier

    async def submit(self, config):
        if config["trial_name"] == "phases":
            for callback in self.told.values():
                await callback(SimpleNamespace(config=SimpleNamespace(trial_name="phases")))
        if config["trial_name"] in AGENTS:
            return await SingleStepTrial(config["trial_name"]).run()
        while config["trial_name"] == "healthy" and not os.path.exists(os.environ["GO"]):
            await asyncio.sleep(0.01)
        return result(config["trial_name"])
"""

# Harbor's own, as far as it decides whether the verifier runs. Each name of ``AGENTS`` is what an agent raises.
SINGLE_STEP = """
import asyncio
from types import SimpleNamespace as N

class Failed(Exception):
    def __init__(self, **fields):
        self.__dict__ |= fields

class Wordless(Exception):
    @property
    def response(self):
        raise RuntimeError("no response")

def raised(error, cause=None, context=None, hidden=False):
    error.__cause__, error.__context__, error.__suppress_context__ = cause, context, hidden
    return error

def ring(one, two):
    one.__context__, two.__context__ = two, one
    return one

AGENTS = {
    "refused-openai": Failed(status_code=410),
    "refused-urllib": Failed(code=410),
    "refused-httpx": Failed(response=N(status_code=410)),
    "refused-too-long": Failed(status_code=400, code="context_length_exceeded"),
    "refused-cause": raised(RuntimeError("no reply"), cause=Failed(status_code=410)),
    "refused-context": raised(RuntimeError("no reply"), context=raised(KeyError("x"), context=Failed(code=410))),
    "refused-from-none": raised(RuntimeError("no reply"), context=Failed(code=400), hidden=True),
    "refused-group": ExceptionGroup("two", [KeyError("x"), Failed(status_code=410)]),
    "refused-behind-a-property": raised(Wordless(), cause=Failed(status_code=410)),
    "raises": RuntimeError("410"),
    "raises-in-a-ring": ring(KeyError("x"), KeyError("y")),
    "lost": Failed(status_code=503),
    "limited": Failed(response=N(status_code=429)),
    "coded": Failed(code="400", response=None),
    "late": TimeoutError("late"),
    "cancels": asyncio.CancelledError(),
}

class SingleStepTrial:
    def __init__(self, name):
        self.name, self.exception_info, self.verifier_result = name, None, None

    def _record_exception(self, error):
        self.exception_info = N(exception_type=type(error).__name__, exception_message="it")

    async def _run_agent(self):
        try:
            raise AGENTS[self.name]
        except TimeoutError as error:
            self._record_exception(error)

    async def run(self):
        try:
            await self._run_agent()
            self.verifier_result = N(rewards={"reward": 0.5})
        except Exception as error:
            self._record_exception(error)
        return self
"""

CONFIG = """
class RetryConfig:
    def __init__(self, max_retries=0):
        self.exclude_exceptions = {"AgentTimeoutError"}
"""

TRIAL_CONFIG = """
class TrialConfig(dict):
    @classmethod
    def model_validate(cls, values):
        return cls(values)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory of modules with a double of Harbor's package."""
    package = tmp_path / "site" / "harbor"

    def put(name: str, text: str = "") -> None:
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (path.parent, *path.parent.parents):
            if package in (folder, *folder.parents) and not (folder / "__init__.py").exists():
                (folder / "__init__.py").touch()
        path.write_text(textwrap.dedent(text))

    source = local_environment_file().with_name("environment.py").read_text()
    for module, names in re.findall(r"^from harbor\.([\w.]+) import \(?([^)\n]+|[^)]+)\)?$", source, re.M):
        found = re.findall(r"\w+", names)
        put(module.replace(".", "/") + ".py", "\n".join(f"class {name}: pass" for name in found))
    put("models/job/config.py", CONFIG)
    put("models/trial/config.py", TRIAL_CONFIG)
    put("trial/queue.py", QUEUE)
    put("trial/values.py", VALUES)
    put("trial/single_step.py", SINGLE_STEP)
    meta = tmp_path / "site" / "harbor-0.24.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: harbor\nVersion: 0.24.0\n")
    return tmp_path / "site"


@pytest.fixture
async def runner(site: Path, tmp_path: Path) -> AsyncIterator[HarborRunner]:
    env = {"PYTHONPATH": str(site), "GO": str(tmp_path / "go")}
    made = HarborRunner(sys.executable, 4, tmp_path / "log", env)
    yield made
    await made.close()


def run(runner: HarborRunner, name: str) -> asyncio.Future[Ended]:
    deadline = asyncio.get_running_loop().time() + 60
    return asyncio.ensure_future(runner.run({"trial_name": name}, deadline, asyncio.Event()))


BAD = "expected a finite number"
EXPECTED: dict[str, Ended | tuple[str, str]] = {
    **dict.fromkeys(
        ("nan", "infinite", "text", "null", "nested", "huge", "one-of-two", "object", "surrogate-reward"),
        ("RewardError", BAD),
    ),
    "wordless": ("RewardError", BAD),
    "surrogate-name": ("RewardError", "reward 'caf\ufffd' is str 'x'"),
    "list": ("RewardError", r"the verifier's rewards are list '[1.0]'; expected names with finite numbers"),
    "number": ("RewardError", "expected names with finite numbers"),
    "nan-and-exception": ("AgentTimeoutError", "late"),
    "numpy": Ended(rewards={"reward": 0.25}),
    "decimal": Ended(rewards={"reward": 0.75}),
    "whole": Ended(rewards={"reward": 1.0}),
    "number-name": Ended(rewards={"7": 0.5}),
    "none": Ended(),
    "surrogate": ("OSError", "no file caf\ufffd"),
    "no-message": ("OSError", "None"),
    "type-of-class": ("<class 'OSError'>", "gone"),
    "wordless-message": ("OSError", "a Wordless without a text"),
    "long": ("OSError", "x" * 1000),
    "raises-surrogate": ("ValueError", "caf\ufffd"),
    "raises-wordless": ("ValueError", "a ValueError without a text"),
    "exits": ("SystemExit", "3"),
    "ends-all": ("BaseEnd", "stop"),
    "other-result": ("AttributeError", "exception_info"),
}


AGENTS = re.findall(r'^    "([a-z0-9-]+)": ', SINGLE_STEP, re.M)


async def test_the_tests_of_a_task_run_after_an_agent_that_was_refused(runner: HarborRunner) -> None:
    """Harbor runs them after a time-out only. Other failures stay without a reward, and may be repeated."""
    assert len(AGENTS) == 16
    for name in AGENTS:
        ended = await run(runner, name)
        verified = name.startswith("refused-") or name == "late"
        assert ended.rewards == ({"reward": 0.5} if verified else None), name
        assert ended.cancelled is (name == "cancels") and (ended.exception is None) is ended.cancelled, name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("single_step.py", None),
        ("single_step.py", "class SingleStepTrial: _run_agent = None"),
        ("single_step.py", "class Another: pass"),
    ],
)
async def test_a_version_of_harbor_with_other_names_runs_trials(
    runner: HarborRunner, site: Path, name: str, text: str | None
) -> None:
    queue = site / "harbor" / "trial" / "queue.py"
    queue.write_text(
        queue.read_text().replace("from .single_step import AGENTS, SingleStepTrial", "AGENTS = ()")
    )
    file = queue.with_name(name)
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    assert await run(runner, "whole") == Ended(rewards={"reward": 1.0})


async def test_a_bad_value_costs_its_own_trial_only(runner: HarborRunner, tmp_path: Path) -> None:
    """Harbor's process is the real ``runner.py``."""
    healthy = run(runner, "healthy")
    for name, expected in EXPECTED.items():
        ended = await run(runner, name)
        if isinstance(expected, Ended):
            assert ended == expected, name
            continue
        kind, words = expected
        assert ended.exception is not None, name
        assert (ended.exception[0], words in ended.exception[1]) == (kind, True), (
            name,
            ended.exception[1][:200],
        )
        assert not ended.rewards and not ended.cancelled, name
    assert not healthy.done()  # by the process of all the others
    (tmp_path / "go").touch()
    assert await healthy == Ended(rewards={"reward": 1.0})


async def test_phases_are_told_as_harbor_begins_them(runner: HarborRunner) -> None:
    """Harbor's process is the real ``runner.py``."""
    told: list[str] = []
    began, late = time.time(), asyncio.get_running_loop().time() + 60

    def begins(phase: str, at: float) -> None:
        assert began - 1 <= at <= time.time() + 1
        told.append(phase)

    ended = await runner.run({"trial_name": "phases"}, late, asyncio.Event(), begins)
    assert ended == Ended(rewards={"reward": 1.0}) and told == ["setup", "agent"]


# --- lines of another runner, such as a patched one -------------------------------------------------------------------

# Writes the bytes of the trial's file in the directory LINES; ``healthy`` ends on the request after it.
DOUBLE = r"""
import json, os, sys

def write(data):
    while data:
        data = data[os.write(1, data):]

write(b'{"event": "ready", "harbor": "0"}\n')
for line in sys.stdin:
    request = json.loads(line)
    name = (request.get("config") or {}).get("trial_name")
    if name == "last":
        for one in ("healthy", "last"):
            write(json.dumps({"trial": one, "event": "ended", "rewards": {"reward": 1.0}, "exception": None,
                              "retry": False, "cancelled": False}).encode() + b"\n")
    elif name not in (None, "healthy"):
        with open(os.path.join(os.environ["LINES"], name), "rb") as file:
            write(file.read())
"""
_LIMIT = 1 << 20  # bytes of a line at most, in this test
_HEAD = b'{"trial": "bad", "event": "ended", '

NAMED = {  # the trial can be found
    "nan": _HEAD + b'"rewards": {"reward": NaN}, "exception": null, "retry": false, "cancelled": false}',
    "text reward": _HEAD + b'"rewards": {"r": "x"}, "exception": null, "retry": false, "cancelled": false}',
    "list": _HEAD + b'"rewards": [1], "exception": null, "retry": false, "cancelled": false}',
    "no exception": _HEAD + b'"rewards": null, "retry": false, "cancelled": false}',
    "one word": _HEAD + b'"rewards": null, "exception": ["x"], "retry": false, "cancelled": false}',
    "retry text": _HEAD + b'"rewards": null, "exception": null, "retry": "yes", "cancelled": false}',
    "no event": b'{"trial": "bad"}',
    "another event": b'{"trial": "bad", "event": "begun"}',
    "event number": b'{"trial": "bad", "event": 7}',
    "event list": b'{"trial": "bad", "event": ["ended"]}',
    "cut": _HEAD + b'"rewards": {"rew',
    "surrogate": b'{"exception": ["OSError", "caf\\udce9"], "event": "failed", "trial": "bad"}',
    "bytes": b'{"exception": ["OSError", "\xff\xfe"], "event": "failed", "trial": "bad"}',
    "deep": _HEAD + b'"rewards": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "long, name first": _HEAD + b'"exception": ["E", "' + b"x" * (3 * _LIMIT) + b'"]}',
    "long, name last": b'{"event": "failed", "exception": ["E", "' + b"x" * (3 * _LIMIT) + b'"], "trial": "bad"}',
    "names another in a text": b'{"exception": ["E", "\\"trial\\": \\"healthy\\""], "event": "x", "trial": "bad"}',
}  # fmt: skip
NAMELESS = {  # it cannot
    "no JSON": b"Traceback (most recent call last):",
    "empty": b"",
    "list": b"[1, 2]",
    "text": b'"trial"',
    "null": b"null",
    "stranger": b'{"trial": "nobody", "event": "ended", "rewards": 3}',
    "trial list": b'{"trial": ["bad"], "event": "ended"}',
    "long": b"x" * (3 * _LIMIT),
}


@pytest.fixture
async def doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HarborRunner]:
    monkeypatch.setattr(harbor_runner, "_LINE", _LIMIT)
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{DOUBLE}")
    python.chmod(0o755)
    made = HarborRunner(str(python), 4, tmp_path / "log", {"LINES": str(tmp_path)})
    yield made
    await made.close()


@pytest.mark.parametrize("kind", NAMED)
async def test_a_line_that_cannot_be_read_fails_its_trial(
    doubled: HarborRunner, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "bad").write_bytes(NAMED[kind] + b"\n")
    healthy = run(doubled, "healthy")
    ended = await run(doubled, "bad")
    assert ended.exception is not None and ended.exception[0] == "HarborEventError"
    assert not healthy.done()
    await run(doubled, "last")
    assert await healthy == Ended(rewards={"reward": 1.0})


@pytest.mark.parametrize("kind", NAMELESS)
async def test_a_line_that_names_no_trial_is_passed_over(
    doubled: HarborRunner, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bad").write_bytes(NAMELESS[kind] + b"\n")
    healthy, bad = run(doubled, "healthy"), run(doubled, "bad")
    await run(doubled, "last")
    assert await healthy == Ended(rewards={"reward": 1.0}) and not bad.done()
    bad.cancel()
    if kind != "stranger":
        assert "a line of Harbor's process is no event" in caplog.text
