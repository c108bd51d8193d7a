"""The pages of ``docs/reference/`` are what the code says, and every command, key and alert is named on a page.

Where they differ and should: ``pytest tests/unit/test_reference_pages.py --update-documents``.
"""

from __future__ import annotations

import re
from functools import cache

import pytest
from kit import alert_texts, cause_pages, event_kinds, site_tree
from kit.alert_texts import UNKNOWN
from kit.command_pages import ROOT, commands
from kit.key_kinds import KINDS, used_in
from kit.reference import FOLDER, fixes, makers, sayings

from liverl.causes.catalogue import rows
from liverl.config.schema import leaves
from liverl.diagnose.catalogue.alert_ids import kinds
from liverl.exit_codes import ExitCode
from liverl.schemas import SCHEMAS

PAGES = {str(path.relative_to(ROOT)): make for path, make in makers().items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str, request: pytest.FixtureRequest) -> None:
    path, text = ROOT / name, PAGES[name]()
    if request.config.getoption("--update-documents"):
        path.write_text(text, "utf-8")
    assert path.is_file(), "made by --update-documents"
    assert path.read_text("utf-8") == text, "if this is meant: --update-documents"


def test_there_is_no_other_page() -> None:
    assert {str(path.relative_to(ROOT)) for path in FOLDER.rglob("*.md")} == set(PAGES)


@cache
def site() -> dict[str, str]:
    return {name: text for name, text in site_tree.tree().items() if isinstance(text, str)}


def heads(page: str) -> set[str]:
    return set(re.findall(r"^#+ (.+)$", site()[page], re.MULTILINE))


def unnamed() -> list[str]:
    """Commands, keys, alerts, causes, events, schemas and exit codes that no page has a place for."""
    missing = [f"key {key}" for key in leaves() if key not in heads("reference/configuration.md")]
    missing += [
        f"alert {kind}" for kind in kinds() if kind not in heads("reference/alerts.md") and kind != "log"
    ]
    missing += [
        f"schema {name}" for name in SCHEMAS if name != "config" and name not in heads("reference/json.md")
    ]
    for one in commands():
        page = f"reference/commands/{one.words.partition(' ')[0]}.md"
        if one.words not in heads(page):
            missing.append(f"command {one.words}")
    events = site()["reference/events.md"]
    missing += [f"event {kind}" for kind in event_kinds.kinds() if f"| `{kind}` |" not in events]
    codes = site()["reference/exit-codes.md"]
    missing += [
        f"exit code {code}" for code in ExitCode if not code.internal and f"| {code.value} |" not in codes
    ]
    for row in rows():
        if row.role in cause_pages.ROLES and row.id not in heads(f"reference/causes/{row.printer}.md"):
            missing.append(f"cause {row.id}")
    return missing


def test_everything_has_a_place_on_a_page() -> None:
    assert unnamed() == []


def test_what_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    without = dict(site())
    without["reference/alerts.md"] = without["reference/alerts.md"].replace(
        "### reward_flat", "### reward_flatt"
    )
    without["reference/commands/rules.md"] = without["reference/commands/rules.md"].replace(
        "## rules test", ""
    )
    without["reference/causes/ray.md"] = without["reference/causes/ray.md"].replace("## actor-died\n", "")
    monkeypatch.setattr(f"{__name__}.site", lambda: without)
    assert unnamed() == ["alert reward_flat", "command rules test", "cause actor-died"]


def test_every_key_says_what_it_means_in_sentences() -> None:
    sections = re.split(r"^### (.+)$", site()["reference/configuration.md"], flags=re.MULTILINE)
    told = {
        key: re.split(r"^(?:<!-- facts -->|- Default: )", text, maxsplit=1, flags=re.MULTILINE)[0].strip()
        for key, text in zip(sections[1::2], sections[2::2], strict=True)
    }
    assert set(told) >= leaves().keys()
    assert [key for key in leaves() if len(told[key].split()) < 2] == []
    assert [key for key, text in told.items() if text.startswith("... ") or text.endswith(" ...")] == []
    assert "\n- `in_process`: as verl" in told["run.topology"], "a list stays a list"


def without_a_fix(page: str) -> list[str]:
    """The alerts of a page that do not say, in three words of their own at least, what to do."""
    parts = re.split(r"^### (.+)$", page, flags=re.MULTILINE)
    return [
        kind
        for kind, text in zip(parts[1::2], parts[2::2], strict=True)
        if sayings(text.partition("\n- What to do")[2].partition("\n\n")[0]) < 3 or "it depends" in text
    ]


def test_every_alert_says_what_to_do() -> None:
    page = site()["reference/alerts.md"]
    assert without_a_fix(page) == []
    assert page.count("\n### ") > 100
    for line in ("    - 503: check that its replicas run", "- What to do: check the image's name and tag"):
        assert line in page, "the texts of tables are read"


def test_an_alert_without_a_fix_is_found() -> None:
    page = (
        "### a\n\n- What to do: restart ...\n\n### b\n\n- Severity: info\n\n"
        "### c\n\n- What to do: read the log of ...\n"
    )
    assert without_a_fix(page) == ["a", "b"]
    for texts in (["..."], [], ["...; ..."]):
        with pytest.raises(ValueError, match="nothing of what to do"):
            fixes(texts)


def test_what_a_rule_chooses_between_is_a_list_without_what_only_a_run_knows() -> None:
    assert fixes(["...; then restart NAME", "read the log of ...", "read the log of ..."]) == [
        "- What to do: read the log of ..."
    ]
    assert fixes(["...; then restart NAME"]) == ["- What to do: then restart NAME"]
    assert fixes(["read it", "write it"]) == [
        "- What to do, as the case may be:",
        "    - read it",
        "    - write it",
    ]


def test_alerts_are_read_from_the_rules() -> None:
    found = {one.kind: one for one in alert_texts.found()}
    assert found["trials_do_not_begin"].title == ("no trial starts",)
    assert found["rollout_mismatch"].severity == ("critical", "warning")
    told = [one for one in found.values() if any(fix.replace(UNKNOWN, "").strip(". ") for fix in one.fix)]
    assert len(told) == len(found), "the texts of all rules can be read"
    assert found["pods_evicted"].title == ("... of trials evicted",), (
        "each row of a table is an alert of its own"
    )


@pytest.mark.parametrize(
    ("key", "runs"),
    [
        ("run.topology", "all runs"),
        ("run.seed", "embedded"),
        ("vllm.max_model_len", None),
        ("trainer.command", "command"),
        (
            "observe.metrics_token_file",
            "none of these by default (no metrics are served: observe.metrics_port is 0)",
        ),
    ],
)
def test_where_a_key_has_an_effect_is_said(key: str, runs: str | None) -> None:
    if key in leaves():
        assert used_in(key) == runs if runs else used_in(key).split(", ")[0] in KINDS


def test_events_are_read_from_the_calls() -> None:
    kinds_ = event_kinds.kinds()
    assert {
        "step",
        "symptom",
        "state",
        "run_ready",
        "run_done",
        "notified",
        "clock",
        "checkpoint",
    } <= kinds_.keys()
    assert "steps ... to ... finished while no backend was running" in kinds_["step"]
