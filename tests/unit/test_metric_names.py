"""One table of metrics: what the header, the charts and the rates call KL is the same number."""

from __future__ import annotations

import pytest
from kit.screens import snapshot

from liverl.model import StepMetrics
from liverl.observe.metrics.names import CHARTS, OVERVIEW, key_in, keys_of
from liverl.observe.metrics.rewards import RewardHistory
from liverl.observe.metrics.series import Batch, SeriesSet
from liverl_tui.widgets.header.learning import learning_parts

EVERY_KL = ("actor/ppo_kl", "rollout_corr/kl", "actor/reward_kl_penalty", "actor/kl_loss")


@pytest.mark.parametrize("present", [EVERY_KL[:n] for n in range(1, 5)])
def test_header_and_charts_show_the_same_kl(present: tuple[str, ...]) -> None:
    values = {key: 0.001 * (n + 1) for n, key in enumerate(present)}
    expected = present[-1]
    state = snapshot(metrics=StepMetrics(7, values))
    texts = ["".join(text for text, _ in part.forms[0]) for part in learning_parts(state)]
    assert f"KL {values[expected]:.3f}" in texts
    found = SeriesSet()
    found.add(Batch(records=((7, values),)))
    assert found.overview_charts() == (expected,) == found.default_charts()


def test_the_overview_is_a_part_of_the_charts_with_the_reward_first() -> None:
    assert OVERVIEW[0] == "reward"
    assert set(OVERVIEW) <= {name for name, _ in CHARTS}
    keys = [key for _, keys in CHARTS for key in keys]
    assert len(keys) == len(set(keys)), "a key belongs to one chart"
    assert key_in("reward", {"other": 1.0}) is None
    with pytest.raises(KeyError):
        keys_of("rewards")


def test_a_run_that_reports_only_rewards_before_penalties_has_a_reward() -> None:
    history = RewardHistory()
    history.add([StepMetrics(1, {"critic/rewards/mean": 0.25})])
    assert history.summary().newest == (0.25,)
