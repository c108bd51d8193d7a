"""What a change of ``batch.*`` does to a run, as its consequence says it before it is applied."""

from __future__ import annotations

import msgspec
import pytest
from kit.screens import NOW, snapshot

from liverl.model import BatchEnd, ConfigChange
from liverl.plan.spec import Settings
from liverl_tui.data.config_change import batch_words

SLURM = BatchEnd(NOW + 9000.0, "SLURM_JOB_END_TIME", "", 180.0, "")
OWN = BatchEnd(NOW + 9000.0, "batch.end_time", "", 180.0, "")


def said(
    key: str, end: float | None, margin: float = 180.0, known: BatchEnd | None = None, unsaved: str = ""
) -> str:
    text = "" if end is None else f"{NOW + end:.0f}"
    settings = msgspec.structs.replace(
        Settings(), batch_end_time=text, batch_margin=margin, batch_unsaved=unsaved
    )
    seen = snapshot(step_seconds=40.0, batch_end=known)
    return batch_words([ConfigChange(2, key, "", text, "--set")], settings, seen, live=True, now=NOW)


@pytest.mark.parametrize(
    ("words", "key", "end", "more"),
    [
        ("", "batch.end_time", 9000.0, {}),
        ("", "batch.end_time", None, {"known": OWN}),
        ("", "training.save_freq", 200.0, {}),
        ("The run then ends soon: its batch job ends in 3 min;", "batch.end_time", 200.0, {}),
        ("the trainer saves one at the end of its present step", "batch.end_time", 200.0, {}),
        ("training.save_freq is -1", "batch.end_time", 200.0, {"unsaved": "training.save_freq is -1"}),
        ("batch.end_time is 10 min in the past", "batch.end_time", -600.0, {}),
        ("SLURM_JOB_END_TIME says when", "batch.end_time", 200.0, {"known": SLURM}),
        ("3 h are kept free (batch.margin)", "batch.margin", None, {"known": SLURM, "margin": 10800.0}),
        ("", "batch.margin", None, {"known": SLURM, "margin": 200.0}),
    ],
)
def test_a_change_of_the_end_of_the_job(
    words: str, key: str, end: float | None, more: dict[str, object]
) -> None:
    found = said(key, end, **more)  # type: ignore[arg-type]
    assert words in found and bool(words) == bool(found), found
