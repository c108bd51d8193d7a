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
from kit.reference import FOLDER, alerts, cases_of, fixes, makers, sayings

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


def words_alone(text: str) -> str:
    """A text without marks and capitals."""
    return " ".join(re.findall(r"\w+", text.lower()))


def lacking(page: str) -> dict[str, list[str]]:
    """Alert -> what its part of a page lacks: a description and something to do, in three words of their own at least;
    a title that names more than the service; a description that no other alert and no other line of it repeats."""
    parts = re.split(r"^### (.+)$", page, flags=re.MULTILINE)
    found: dict[str, list[str]] = {}
    known: dict[str, str] = {}
    for kind, part in zip(parts[1::2], parts[2::2], strict=True):
        text = re.split(r"^## ", part, flags=re.MULTILINE)[0]
        description, *lines = re.split(r"^ *- ", text.strip(), flags=re.MULTILINE)
        titles = [line.removeprefix("Title: ") for line in lines if line.startswith("Title: ")]
        titles = "".join(titles).split("; or: ")
        fix = text.partition("\n- What to do")[2]
        bare = [re.sub(r"\b(SERVICE|PID|OTHER|CARRIER|more)\b", "", title) for title in titles]
        told = words_alone(description)
        bad = []
        if sayings(description) < 3:
            bad.append("description")
        if kind != "log" and not all(map(sayings, bare)):  # its title is that of the line's cause
            bad.append("title")
        if sayings(fix) < 3 or "it depends" in text:
            bad.append("fix")
        if told and told in map(
            words_alone, [*titles, *(line.partition("What to do: ")[2] for line in lines)]
        ):
            bad.append("repeats itself")
        if told and known.setdefault(told, kind) != kind:
            bad.append(f"as {known[told]}")
        if bad:
            found[kind] = bad
    return found


def test_every_alert_says_in_its_own_words_what_it_means_and_what_to_do() -> None:
    page = site()["reference/alerts.md"]
    assert lacking(page) == {}
    assert page.count("\n### ") > 100
    for kind in ("replica_ended", "log_silent", "not_all_seen", "process_ended", "pods_evicted"):
        assert f"\n### {kind}\n" in page
    for line in ("    - 503: check that its replicas run", "- What to do: check the image's name and tag"):
        assert line in page, "the texts of tables are read"
    titles = re.findall(r"^- Title: (.*)", page, re.MULTILINE)
    assert "SERVICE is missing; or: SERVICE is down" in titles, "what a rule gives to a helper is read"
    flat = page.partition("\n### reward_flat\n")[2].partition("\n### ")[0]
    assert "; or: the reward is flat at ... for ... steps\n" in flat, "what says something else is shown, too"


def test_an_alert_that_lacks_something_is_found() -> None:
    good = "All trials have failed.\n\n- Title: SERVICE hangs\n- What to do: restart the old trainer\n\n"
    page = (
        f"### a\n\n{good}## Others\n\nRules for others of them.\n\n### b\n\n{good}"
        "### c\n\n- Title: SERVICE hangs\n- What to do: restart ...\n\n"
        "### d\n\nIts word is not ours.\n\n- Title: SERVICE ...\n- What to do: restart the old trainer\n\n"
        "### e\n\nRestart the old trainer.\n\n- Title: it is\n- What to do: restart the old trainer\n"
    )
    assert lacking(page) == {
        "b": ["as a"],
        "c": ["description", "fix"],
        "d": ["title"],
        "e": ["title", "repeats itself"],
    }


WAYS = re.compile(
    r"(?:;|,)? or (?=(?:add|allow|ask|double|give|halve|leave|let|limit|lower|raise|remove|restart|set|stop|use)\b)"
)
NAMED = re.compile(r"(?:\d{3}|any other): ")  # a status, which is the case itself


def unchosen(page: str) -> dict[str, int]:
    """Alert -> how many fixes its part of a page has, where it has several, or one that names more than two ways, and
    no table says by what is seen which of them applies."""
    parts = re.split(r"^### (.+)$", page, flags=re.MULTILINE)
    found = {}
    for kind, part in zip(parts[1::2], parts[2::2], strict=True):
        text = re.split(r"^## ", part, flags=re.MULTILINE)[0]
        told = text.partition("\n- What to do")[2].partition("\n\n")[0]
        listed = [line.removeprefix("    - ") for line in told.splitlines() if line.startswith("    - ")]
        ways = max((1 + len(WAYS.findall(line)) for line in told.splitlines()), default=1)
        if (len(listed) < 2 and ways < 3) or (listed and all(map(NAMED.match, listed))):
            continue
        table = text.partition("\n| what you see | what to do |\n|---|---|\n")[2]
        if len(re.findall(r"^\| [^|]+ \| [^|]+ \|$", table, re.MULTILINE)) < 2:
            found[kind] = max(len(listed), ways)
    return found


def test_every_alert_with_more_than_one_fix_says_how_to_choose() -> None:
    page = site()["reference/alerts.md"]
    assert unchosen(page) == {}
    assert page.count("| what you see |") > 40
    for row in (
        "| The texts hold no tags, and the tools are in the prompt | The model answers without them:",
        "| No GPU is free | Lower `harbor_runtime.num_workers`",
        "| A pid is named | `py-spy dump --pid PID` shows where it waits |",
    ):
        assert row in page
    part = page.partition("### rollouter_idle")[2].partition("###")[0]
    assert "waits-for queue" not in part, "a case of the other alert of its function"


def test_an_alert_that_does_not_say_how_to_choose_is_found() -> None:
    cases = "\n\n| what you see | what to do |\n|---|---|\n| x | y |\n| z | w |\n"
    several = "\n- What to do, as the case may be:\n    - lower it\n    - raise it"
    ways = "\n- What to do: lower it, or raise it, or add one"
    page = (
        f"### a\n{several}\n\n### b\n{several}{cases}\n### c\n{ways}\n\n### d\n{ways}{cases}\n"
        "### e\n\n- What to do: lower it, or raise it\n\n"
        "### f\n\n- What to do, as the case may be:\n    - 400: lower it\n    - any other: raise it\n\n"
        f"### g\n{several}{cases.replace('| z | w |', '')}"
    )
    assert unchosen(page) == {"a": 2, "c": 3, "g": 2}


def test_a_case_without_what_to_do_is_refused() -> None:
    def look() -> None:
        """It hangs.

        - it is seen, and nothing follows
        """

    with pytest.raises(ValueError, match="a: no case"):
        cases_of(look, "a")


def test_texts_without_a_word_of_what_to_do_are_refused() -> None:
    for texts in (["..."], [], ["...; ..."]):
        with pytest.raises(ValueError, match="nothing of what to do"):
            fixes(texts)


def test_what_a_rule_chooses_between_is_a_list_without_what_only_a_run_knows() -> None:
    assert fixes(["...; then restart SERVICE", "read the log of ...", "read the log of ..."]) == [
        "- What to do: read the log of ..."
    ]
    assert fixes(["...; then restart SERVICE"]) == ["- What to do: then restart SERVICE"]
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


def test_no_sentence_has_lost_its_last_word() -> None:
    """Names of variables in brackets are left out of a key's text: one within a sentence would leave ``or.``"""
    page = PAGES["docs/reference/configuration.md"]()
    assert re.findall(r"[^\n]{0,60}\b(?:or|by|of|and|the|Set it in)[.;,](?=\s|$)", page) == []


def test_a_key_of_several_hosts_says_so() -> None:
    assert "several hosts" in used_in("infrastructure.node0_ip")
    assert used_in("ray.worker_ports") == "several hosts"


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


def test_a_service_that_failed_once_and_one_that_failed_too_often_have_titles_of_their_own() -> None:
    """They are alerts of one rule, and stood there with the titles of both."""
    pages = {part.partition("\n")[0]: part for part in alerts().split("### ")}
    titles = {
        kind: next(line for line in pages[kind].splitlines() if line.startswith("- Title: "))
        for kind in ("service_failed", "service_gave_up")
    }
    assert titles == {
        "service_failed": "- Title: SERVICE has failed",
        "service_gave_up": "- Title: SERVICE failed too often",
    }
