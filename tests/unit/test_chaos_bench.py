"""The books of the chaos run: what balances, and that each way not to is found (simulated run directories)."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
sys.path.append(str(BENCH))
import chaos  # noqa: E402

BATCH = 8


def line(turn: str, tokens: int = 3) -> str:
    return json.dumps({"response_body": {"id": turn}, "usage": {"completion_tokens": tokens}}) + "\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two steps of eight trials, with two turns each."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "events.jsonl").write_text('{"kind": "started"}\n')
    metrics = []
    for step in (1, 2):
        for number in range(BATCH):
            trial = tmp_path / "trials" / f"step_{step:04}" / f"t-{step}-{number}"
            trial.mkdir(parents=True)
            reward = {"verifier_result": {"rewards": {"reward": float(number % 2)}}}
            (trial / "result.json").write_text(json.dumps(reward))
            (trial / "litellm-trajectory.jsonl").write_text(line(f"{trial.name}/0") + line(f"{trial.name}/1"))
            rows = {"rows": [{}], "traj_response_mask": [1] * 6, "counters": {"num_calls": 2}}
            (trial / "proxy_trajectory.json").write_text(json.dumps(rows))
        metrics.append(json.dumps({"step": step, "data": {"critic/score/mean": 0.5}}))
    (tmp_path / "metrics.jsonl").write_text("\n".join(metrics) + "\n")
    return tmp_path


def read(run: Path, ends: int = 0) -> chaos.Books:
    return chaos.read_books(run, ends)


def first(run: Path) -> Path:
    return run / "trials" / "step_0001" / "t-1-0"


def test_whole_books_balance(run: Path) -> None:
    books = read(run)
    assert books.balanced and not books.problems
    assert (books.trials, books.results, books.turns, books.steps) == (16, 16, 32, 2)
    assert books.rewards_checked == 2
    assert "balanced" in chaos.table(7, books, chaos.Counter(kill=3)).splitlines()[0]


def test_a_trial_that_never_asked_is_whole(run: Path) -> None:
    (first(run) / "litellm-trajectory.jsonl").unlink()
    (first(run) / "proxy_trajectory.json").write_text('{"rows": [], "counters": {}}')
    assert read(run).balanced
    (first(run) / "proxy_trajectory.json").write_text("{}")
    assert read(run).balanced


def append(text: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        with (first(run) / "litellm-trajectory.jsonl").open("a") as file:
            file.write(text)

    return change


def count(calls: int) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        path = first(run) / "proxy_trajectory.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"counters": {"num_calls": calls}}))

    return change


def metrics(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def changed(run: Path) -> None:
        path = run / "metrics.jsonl"
        path.write_text("".join(text + "\n" for text in change(path.read_text().splitlines())))

    return changed


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a turn twice": (append(line("t-1-0/1")), "doubled: turn t-1-0/1 is 2 times"),
    "a turn of another trial": (append(line("t-1-1/0")), "doubled: turn t-1-1/0 is 2 times"),
    "a torn line": (append('{"half": \n'), "lost: t-1-0: line 3 of its turns is torn"),
    "no end": (append('{"half"'), "lost: t-1-0: the last line of its turns has no end"),
    "a turn more than counted": (count(1), "doubled: t-1-0: 1 turns counted, 2 in its file"),
    "a turn less than counted": (count(3), "lost: t-1-0: 3 turns counted, 2 in its file"),
    "tokens that no row has": (
        lambda run: (first(run) / "litellm-trajectory.jsonl").write_text(line("a", 3) + line("b", 4)),
        "lost: t-1-0: 7 tokens in its turns, 6 in its rows",
    ),
    "a trial without result": (
        lambda run: (first(run) / "result.json").unlink(),
        "lost: 1 trials without a result in {'step_0001': 1}, with 0 trainers that ended",
    ),
    "a step twice": (metrics(lambda ls: [*ls, ls[0]]), "doubled: step 1 is 2 times in metrics.jsonl"),
    "a step missing": (
        metrics(lambda ls: [ls[0].replace('"step": 1', '"step": 3'), *ls[1:]]),
        "lost: steps without metrics: [1]",
    ),
    "a torn step": (metrics(lambda ls: [*ls, '{"st']), "lost: 1 lines of metrics.jsonl are torn"),
    "another reward": (
        metrics(lambda ls: [ls[0].replace("0.5", "0.625"), ls[1]]),
        "lost: step 1: reward 0.625",
    ),
    "an open session": (
        lambda run: (run / "sessions" / "t-1-0.jsonl").touch(),
        "left: the session t-1-0 of a trial that has its result is open",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_lost_doubled_or_left_is_found(run: Path, name: str) -> None:
    change, words = CASES[name]
    change(run)
    books = read(run)
    assert not books.balanced
    assert any(problem.startswith(words) for problem in books.problems), books.problems
    assert "NOT BALANCED" in chaos.table(7, books, chaos.Counter())


def test_trials_that_their_trainer_left_are_no_loss_but_no_more_than_a_batch_for_each_end(run: Path) -> None:
    for trial in (run / "trials" / "step_0002").iterdir():
        (trial / "result.json").unlink()
    books = read(run, ends=1)
    assert books.balanced and books.with_their_trainer == BATCH
    (first(run) / "result.json").unlink()
    assert "9 trials without a result in" in read(run, ends=1).problems[0]
    assert read(run, ends=2).balanced


def test_what_the_run_has_told_of_is_named(run: Path) -> None:
    count(3)(run)
    (run / "events.jsonl").write_text('{"kind": "write"}\n')
    books = read(run)
    assert books.balanced and books.named == 1


def test_a_seed_says_what_is_done() -> None:
    """The same faults in the same order: what they meet differs."""

    def drawn(seed: int) -> list[str]:
        made = chaos.Chaos(None, seed, chaos.KINDS, Path("/x"), object())  # type: ignore[arg-type]
        return [made.random.choices(made.kinds, [chaos.WEIGHTS[k] for k in made.kinds])[0] for _ in range(50)]

    assert drawn(7) == drawn(7) != drawn(8)
    assert set(drawn(7)) <= set(chaos.KINDS)
    without = chaos.Chaos(None, 7, chaos.KINDS, None, None)  # type: ignore[arg-type]
    assert without.kinds == ["kill", "flood", "resume"]


def test_what_is_no_kind_and_no_time_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--only", "kill,fire"], ["--minutes", "0"], ["--minutes", "100000"]):
        with pytest.raises(SystemExit) as caught:
            chaos.main(words)
        assert caught.value.code == 2
    assert "no kind fire; kinds: kill, disk" in capsys.readouterr().err


def test_a_suspended_machine_never_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos.subprocess, "run", lambda *args, **how: None)  # the library itself: by hand
    for name in ("LD_PRELOAD", "LD_LIVERL_FAULT_CLOCK"):
        monkeypatch.setenv(name, "")
    clock = chaos.Clock(tmp_path)
    seen = []
    for wall, suspended in ((60.0, 60.0), (-5.0, 0.0), (0.0, 2.0), (0.0, 0.0)):
        clock.step(wall, suspended)
        seen.append(struct.unpack("dd", (tmp_path / "clock").read_bytes()))
    assert seen == [(60.0, 60.0), (-5.0, 60.0), (0.0, 62.0), (0.0, 62.0)]
