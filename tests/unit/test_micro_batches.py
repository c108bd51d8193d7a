"""Which micro batches verl could not cut, by the profile without a GPU: two ranks, micro batches of eight."""

from __future__ import annotations

import msgspec
import pytest

from liverl.config import load_config
from liverl.preflight.micro_batches import LOG_PROBS, UPDATE, checks

MINI = "training.train_prompt_mini_batch_size"
SMALL = ("training.train_batch_size=2", f"{MINI}=2", "training.n_resp_per_prompt=4")


@pytest.mark.parametrize(
    ("sets", "found"),
    [
        pytest.param((), [("ok", "16 trials of a mini batch in micro batches of 8")], id="the profile"),
        pytest.param(SMALL, [
            ("fail", "4 trials of a mini batch on each of 2 trainer ranks cannot be split into micro batches of 8"),
            ("fail", "4 trials of a batch on each of 2 trainer ranks cannot be split into micro batches of 8"),
        ], id="fewer trials than a micro batch"),
        pytest.param((*SMALL, "training.use_dynamic_bsz=true"), [("ok", "packed by tokens")], id="packed"),
        pytest.param(("training.train_batch_size=6", f"{MINI}=3"), [
            ("fail", "6 trials of a mini batch"), ("fail", "12 trials of a batch"),
        ], id="no multiple"),
        pytest.param(("training.train_batch_size=8", f"{MINI}=2"), [("fail", "4 trials of a mini batch")],
                     id="the update only"),
        pytest.param((f"{MINI}=1", "training.train_batch_size=2", "training.n_resp_per_prompt=1"),
                     [("skipped", "see batches")], id="no whole trials"),
        pytest.param(("infrastructure.ngpus_per_node=4",), [("ok", "on each of 4 trainer ranks 8 trials")],
                     id="four ranks"),
    ],
)  # fmt: skip
def test_what_a_rank_can_cut(sets: tuple[str, ...], found: list[tuple[str, str]]) -> None:
    told = list(checks(load_config(None, profile="cpu-verl", sets=sets, env={}).config))
    assert [check.status for check in told] == [status for status, _ in found]
    assert all(words in check.text for check, (_, words) in zip(told, found, strict=True))


@pytest.mark.parametrize(("key", "other"), [(UPDATE, LOG_PROBS), (LOG_PROBS, UPDATE)])
@pytest.mark.parametrize(
    ("value", "status"), [("4", ""), ("3", "fail"), ("${x}", "skipped"), ("0", "skipped")]
)
def test_each_size_counts(key: str, other: str, value: str, status: str) -> None:
    config = load_config(None, profile="cpu-verl", env={}).config
    overrides = {**config.trainer.overrides, key: value, other: 1}
    config = msgspec.structs.replace(
        config, trainer=msgspec.structs.replace(config.trainer, overrides=overrides)
    )
    told = list(checks(config))
    assert [check.status for check in told] == [status or "ok"]
    assert status != "fail" or (key in told[0].text and told[0].patch == {"training.use_dynamic_bsz": "true"})
