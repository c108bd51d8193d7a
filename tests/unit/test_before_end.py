"""When a trainer saves outside of its rhythm, and how that gets into verl's trainers."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from liverl.config import load_config
from liverl.plan import make_plan
from liverl.plan.verl_trainer import CAPACITY_END
from liverl.supervise.services import prepare
from liverl.util.before_end import FILE, SAVE_S, SHARE, VARIABLE, BeforeEnd, Saves, read, saves_of, write
from liverl.verl_runtime import before_end

WALL = 1_796_000_000.0


class Trainer:
    """A trainer whose clock the test moves. ``wall``: how far the system's clock is ahead of the other one."""

    def __init__(self, folder: Path, *, regular: bool = True) -> None:
        self.path, self.now, self.wall = folder / FILE, 1_000.0, WALL - 1_000.0
        self.saves = Saves(
            self.path, regular=regular, ran=lambda: self.now, wall=lambda: self.wall + self.now
        )

    def told(self, left: float | None, margin: float = 180.0, asked: int = 0) -> None:
        """The backend writes that so many seconds are left."""
        write(self.path, BeforeEnd(None if left is None else self.wall + self.now + left, margin, asked))

    def step(self, seconds: float, after: float = 0.0, save: float | None = None) -> bool:
        """A step of so many seconds; whether it saves, which takes ``save``. ``after``: until the next one."""
        self.saves.step_begins()
        self.now += seconds
        due = bool(self.saves.why())
        if save is not None:
            self.now += save
            self.saves.saved(save)
        self.now += after
        return due


@pytest.mark.parametrize(
    ("left", "due"),
    [(100 + 180 + SAVE_S + 1, False), (100 + 180 + SAVE_S, True), (1.0, True), (0.0, False), (-1.0, False)],
)
def test_a_checkpoint_once_another_step_and_a_save_do_not_fit(tmp_path: Path, left: float, due: bool) -> None:
    trainer = Trainer(tmp_path)
    trainer.told(left + 100.0)
    assert trainer.step(100.0) == due


def test_the_longest_step_counts_with_what_follows_it_but_not_its_save(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    trainer.told(None)
    assert not trainer.step(100.0, after=50.0, save=4.0)  # 150 s, and a save of 4
    trainer.told(150 + 4 + 180 + 10.0 + 1.0)
    assert not trainer.step(10.0)
    trainer.told(150 + 4 + 180 + 10.0)
    assert trainer.step(10.0)


def test_the_time_left_follows_no_system_clock(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    trainer.told(5_000.0)
    assert not trainer.step(10.0)
    trainer.wall += 4_800  # somebody sets it
    assert not trainer.step(10.0)
    trainer.wall -= 4_800
    trainer.now += 4_800
    assert trainer.step(10.0)


def test_saves_take_a_share_of_the_last_minutes(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    trainer.told(200.0)
    assert trainer.step(1.0, save=3.0)
    count = 0
    for _ in range(3 * round(1 / SHARE) - 4):
        count += trainer.step(1.0)
    assert count == 0
    assert trainer.step(1.0)


def test_one_that_never_saves_does_so_only_if_it_is_asked(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, regular=False)
    trainer.told(30.0)
    assert not trainer.step(10.0)
    trainer.told(30.0, asked=1)
    assert trainer.step(10.0) and not trainer.step(1.0)


def test_each_request_is_one_checkpoint(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    assert not trainer.step(1.0), "there is no file yet"
    trainer.told(None, asked=2)  # two within one step
    assert trainer.step(1.0) and not trainer.step(1.0)
    trainer.told(None, asked=3)
    trainer.saves.regular_save_follows()
    assert not trainer.step(1.0), "the trainer's own was one"
    trainer.told(None, asked=4)
    assert "asked" in trainer.saves.why()


@pytest.mark.parametrize("text", ["", "[]", '{"asked": "x"}', "{", '{"ends_at": "soon"}'])
def test_a_file_that_is_not_ours_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert read(tmp_path / FILE) == BeforeEnd()


# --- in verl ----------------------------------------------------------------------------------------------


class PPOTrainer:
    """The part of verl's class that the plug-in changes."""

    def __init__(self, save_freq: int, total: int) -> None:
        self.config = SimpleNamespace(trainer=SimpleNamespace(save_freq=save_freq))
        self.global_steps, self.total_training_steps, self.saved_at = 0, total, list[int]()

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> str:
        metrics["seen"] = True
        self.within()
        return f"batch {self.global_steps}"

    def within(self) -> None:
        """What happens during a step."""

    def _save_checkpoint(self) -> None:
        self.saved_at.append(self.global_steps)

    def fit(self) -> list[dict[str, float]]:
        """The order of trainer_base.py:470."""
        timings = []
        for number in range(1, self.total_training_steps + 1):
            self.global_steps = number
            metrics, timing = dict[str, Any](), dict[str, float]()
            assert self.step(metrics, timing) == f"batch {self.global_steps}" and metrics == {"seen": True}
            every = self.config.trainer.save_freq
            if every > 0 and (
                self.global_steps == self.total_training_steps or self.global_steps % every == 0
            ):
                self._save_checkpoint()
            timings.append(timing)
        return timings


@pytest.fixture
def wrapped(monkeypatch: pytest.MonkeyPatch) -> type[PPOTrainer]:
    copy = type("PPOTrainer", (), dict(vars(PPOTrainer)))
    before_end.wrap(copy)
    return copy


def test_a_trainer_of_verl_saves_once_for_what_was_asked(
    wrapped: type[PPOTrainer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / FILE))
    write(tmp_path / FILE, BeforeEnd(None, 0.0, 1))
    trainer = wrapped(3, 7)
    timings = trainer.fit()
    assert trainer.saved_at == [1, 3, 6, 7]
    assert [sorted(timing) for timing in timings] == [["save_checkpoint"], *[[]] * 6]
    assert "liverl: saving a checkpoint at step 1: somebody has asked for it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked_at", "saved_at"), [(2, [2, 3, 6, 7]), (3, [3, 6, 7]), (6, [3, 6, 7]), (7, [3, 6, 7])]
)
def test_a_step_that_is_saved_anyway_is_what_was_asked(
    asked_at: int,
    saved_at: list[int],
    wrapped: type[PPOTrainer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / FILE))
    trainer = wrapped(3, 7)
    trainer.within = lambda: (  # type: ignore[method-assign]
        write(tmp_path / FILE, BeforeEnd(None, 0.0, 1)) if trainer.global_steps == asked_at else None
    )
    trainer.fit()
    assert trainer.saved_at == saved_at


def test_the_time_of_each_save_is_noted(
    wrapped: type[PPOTrainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / FILE))
    write(tmp_path / FILE, BeforeEnd(time.time() + 50.0, 0.0, 0))
    ticks = itertools.count(0.0, 30.0)  # a save seems to take half a minute or more
    monkeypatch.setattr(before_end, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    trainer = wrapped(100, 5)
    trainer.fit()
    assert trainer.saved_at == [1, 5], (
        "the next one would take more than its share; the last step is verl's own"
    )


def test_without_the_variable_a_trainer_is_as_it_was(
    wrapped: type[PPOTrainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert saves_of(regular=True) is None
    trainer = wrapped(-1, 3)
    assert trainer.fit() == [{}, {}, {}] and trainer.saved_at == []


def test_the_class_is_changed_when_its_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "verl" / "trainer" / "ppo" / "v1"
    package.mkdir(parents=True)
    for folder in (package, *list(package.parents)[:3]):
        (folder / "__init__.py").touch()
    (package / "trainer_base.py").write_text(
        "class PPOTrainer:\n    def step(self): pass\n    def _save_checkpoint(self): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(VARIABLE, "x")
    names = [name for name in sys.modules if name.partition(".")[0] == "verl"]
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    finders = list(sys.meta_path)
    monkeypatch.setattr(sys, "meta_path", list(finders))
    before_end._begin()
    module = importlib.import_module(before_end.MODULE)
    assert module.PPOTrainer.step.__wrapped__.__qualname__ == "PPOTrainer.step"
    assert sys.meta_path == finders, "it looks for nothing else"
    for name in [name for name in sys.modules if name.partition(".")[0] == "verl"]:
        monkeypatch.delitem(sys.modules, name)


def test_another_verl_trains_without_it(caplog: pytest.LogCaptureFixture) -> None:
    before_end.install(ModuleType("trainer_base"))
    assert "no checkpoint is saved before the end of the batch job" in caplog.text


# --- in the plan ------------------------------------------------------------------------------------------


def trainer_of(profile: str | None, *sets: str) -> Any:
    plan = make_plan(load_config(profile=profile, sets=sets, env={}), Path("/r"))
    return next(service for service in plan.services if service.ends_run)


def test_verls_workers_are_told_where_the_file_is() -> None:
    trainer = trainer_of("cpu-verl")
    assert f"+ray_kwargs.ray_init.runtime_env.env_vars.{VARIABLE}='{{attempt_dir}}/{FILE}'" in trainer.argv
    files = {file.path: file.text for file in trainer.files}
    assert "before_end = liverl.verl_runtime.before_end" in "".join(files.values())
    assert not any(CAPACITY_END in word for word in trainer.argv)


def test_the_other_trainers_of_verl_get_the_variable_that_they_know() -> None:
    trainer = trainer_of("cpu-verl", 'trainer.overrides={"trainer.use_v1": false}')
    words = [word for word in trainer.argv if CAPACITY_END in word]
    assert words == [f"+ray_kwargs.ray_init.runtime_env.env_vars.{CAPACITY_END}='{{batch_end}}'"]
    places = prepare.Placeholders(Path("/r"), Path("/r/a"), 1, {}, {}, "1796000000")
    assert prepare.fill(words[0], places).endswith("='1796000000'")


@pytest.mark.parametrize(
    ("known", "given", "expected"),
    [("1796000000", None, "1796000000"), ("", None, None), ("1796000000", "5", "5"), ("", "5", "5")],
)
def test_a_launch_script_gets_it_unless_its_user_has_set_it(
    known: str, given: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CAPACITY_END, raising=False)
    if given is not None:
        monkeypatch.setenv(CAPACITY_END, given)
    sets = ("run.topology=verl", "run.engine=vllm", "trainer.kind=command", "trainer.command=[bash, x.sh]")
    spec = trainer_of(None, *sets)
    places = prepare.Placeholders(Path("/r"), Path("/r/a"), 1, {}, {}, known)
    env = prepare.environment(msgspec.structs.replace(spec, secret_env={}), places, "t", ())
    assert env.get(CAPACITY_END) == expected


def test_the_file_is_plain(tmp_path: Path) -> None:
    write(tmp_path / FILE, BeforeEnd(WALL, 180.0, 2))
    assert json.loads((tmp_path / FILE).read_text()) == {"ends_at": WALL, "margin": 180.0, "asked": 2}
