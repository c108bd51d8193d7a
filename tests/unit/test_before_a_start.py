"""Whether a start asks because of its checks, and what it says of the user's own rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from liverl.config import load_config
from liverl.model import Check
from liverl.preflight.own_lines import own_lines
from liverl.preflight.registry import CHECKS, asks

STANDING = Check("unguarded ports", "warn", "so it is", id="unguarded-ports")
GOOD = Check("a", "ok", "there")
UNREAD = Check("data rows", "skipped", "no environment", id="data")


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ((), False),
        ((GOOD, UNREAD), False),
        ((GOOD, STANDING), False),
        ((STANDING, Check("b", "warn", "rare", id="memory")), True),
        ((STANDING, Check("b", "fail", "no", id="data")), True),
        ((Check("unguarded ports", "fail", "no", id="unguarded-ports"),), True),
    ],
)
def test_only_what_this_start_alone_has_is_asked_about(checks: Sequence[Check], expected: bool) -> None:
    assert asks(checks) == expected


def test_few_checks_warn_of_what_always_holds() -> None:
    assert [entry.id for entry in CHECKS if entry.standing] == ["room", "unguarded-ports"]


ROWS = Check("data.train_index", "ok", "/w/t.parquet: 64 rows: chat 64")
BUILD = Check("environment verl", "skipped", "will be built at the start of the run, and looked at then")
OFF = ("training.test_freq=-1", "training.val_before_train=false")


@pytest.mark.parametrize(
    ("sets", "checks", "lines"),
    [
        (
            ("reward.function=/w/r.py:score", "agent.kind=chat", *OFF),
            (ROWS, BUILD, GOOD),
            [
                "rows       /w/t.parquet: 64 rows: chat 64",
                "reward     r.py:score",
                "agent      chat",
                "validates  never: training.test_freq is not above 0, and training.val_before_train is false",
                "first      environment verl: will be built at the start of the run, and looked at then",
            ],
        ),
        (
            ("data.val_index=/w/v.parquet", "training.test_freq=2", "training.val_before_train=true"),
            (),
            [
                "reward     of the agent, else verl's function for the data_source",
                "agent      auto",
                "validates  every 2 steps and before the training, on /w/v.parquet",
            ],
        ),
    ],
)
def test_what_will_be_trained(sets: tuple[str, ...], checks: Sequence[Check], lines: list[str]) -> None:
    given = load_config(profile="cpu-verl", sets=list(sets), env={}).config
    assert list(own_lines(given, checks)) == lines


def test_a_run_without_verl_says_nothing_of_it() -> None:
    assert list(own_lines(load_config(env={}, sets=["trainer.kind=none"]).config, (ROWS,))) == []
