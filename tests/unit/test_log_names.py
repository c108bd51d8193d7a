"""Evidence names the file of whoever started the run, not a link to it in a directory of ours."""

from __future__ import annotations

from pathlib import Path

from liverl.model import Evidence, Symptom
from liverl_tui.text.log_names import shown_name, with_own_names
from liverl_tui.widgets.lists.alerts import alert_text


def test_evidence_and_titles_name_the_file_that_a_link_of_the_run_leads_to(tmp_path: Path) -> None:
    own = tmp_path / "train_node0.log"
    own.write_text("RuntimeError: out of luck\n")
    run = tmp_path / "run"
    logs = run / "attempt_001" / "logs"
    logs.mkdir(parents=True)
    (logs / "trainer.1.log").symlink_to(own)
    (logs / "r0.1.log").write_text("ours\n")
    proof = (
        Evidence("RuntimeError: out of luck", "attempt_001/logs/trainer.1.log", 3),
        Evidence("ours", "attempt_001/logs/r0.1.log", 0),
        Evidence("gone", "attempt_001/logs/gone.1.log"),
        Evidence("loss: nan"),
    )
    told = alert_text(with_own_names(Symptom("a", "critical", "t", "c", "f", proof), run))
    assert told.splitlines()[-4:] == [
        f"- {own} at byte 3: RuntimeError: out of luck",
        "- attempt_001/logs/r0.1.log at byte 0: ours",
        "- gone; log: attempt_001/logs/gone.1.log",
        "- loss: nan",
    ]
    assert (shown_name(logs / "trainer.1.log"), shown_name(logs / "r0.1.log")) == (
        "train_node0.log",
        "r0.1.log",
    )
