"""What an alert of a watched run advises: in terms of that run, which has no keys and no commands of ours."""

from __future__ import annotations

import re

import pytest
from kit.alert_texts import found

from liverl.config.schema import leaves
from liverl.diagnose.catalogue.go_back import GO_BACK
from liverl.model import Symptom
from liverl.watch.advice import for_watched
from liverl.watch.alerts import merged

NAMED = re.compile(
    rf"(?<![\w./-])(?:{'|'.join(re.escape(key) for key in leaves() if '.' in key)})\b(?!\.\w|[/(])"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"lower algorithm.learning_rate; {GO_BACK}", "lower learning rate"),
        (f"resume it from step 3: {GO_BACK}", "resume it from step 3"),
        (
            "restart the proxy (r in the interface): no request is lost",
            "restart the proxy: no request is lost",
        ),
        ("look at its host; then liverl-tui restart replica-0", "look at its host"),
        (
            "remove them (liverl-tui clean --sandboxes). Give it (a, or b). Look with: liverl-tui clean --sandboxes",
            "remove them. Give it (a, or b)",
        ),
        ("liverl-tui notify --test", "change it where the run was started"),
        ("remove them (by name; or: liverl-tui clean); give it more", "give it more"),
        ("name folders; liverl-tui doctor FILE reads one", "name folders; liverl-tui doctor FILE reads one"),
    ],
)
def test_advice_in_the_runs_own_terms(text: str, said: str) -> None:
    assert for_watched(text) == said


def test_no_advice_names_what_a_watched_run_has_not() -> None:
    for text in {fix for one in found() for fix in one.fix if fix}:
        said = for_watched(text)
        assert said
        assert "in the interface" not in said and GO_BACK not in said, said
        commands = re.findall(r"liverl-tui (\w+)", said)
        assert set(commands) <= {"doctor", "watch"}, said
        assert NAMED.search(said) is None, said


def test_the_alerts_of_a_watched_run_are_put_so() -> None:
    one = Symptom("a", "warning", "t", "training.save_freq is 3", f"lower training.save_freq; {GO_BACK}")
    (shown,) = merged([one])
    assert (shown.cause, shown.fix) == ("save freq is 3", "lower save freq")
