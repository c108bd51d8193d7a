"""README.md and the other pages: what they name, link to and count exists. Names of keys, commands and options are
tested in test_mentions.py."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.mentions import ROOT, papers
from kit.recorded_turns import KEY, asked, recorded, said

import liverl
from liverl.config import load_config
from liverl.config.schema import value_of
from liverl.model import SCHEMA
from liverl.plan.harbor import _REQUIREMENTS
from liverl.preflight.origins import TRIED
from liverl.sessions import trial_log
from liverl.sessions.canonical import read_anthropic
from liverl.sessions.messages import Message, openai_message

ROOMS = {  # heading in ARCHITECTURE.md -> container
    "backend/liverl": "liverl",
    "liverl_tui": "liverl_tui",
    "The keeper": "liverl.supervise.keeper.process.liverl_keeper",
}
BASES = (ROOT, ROOT / "backend" / "liverl")  # what paths in the papers are relative to
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+(?:\.py|\.toml|\.md|\.yaml|/)")
_OF_RUNS = (
    "agent/",
    "attempt_",
    "checkpoints/",
    "exports/",
    "proxy/litellm.yaml",
    "sandbox/",
    "trials/",
    "verifier/",
)


def text(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def test_the_readme_is_short() -> None:
    """One screen and a half, and it leads to what a newcomer comes for."""
    page = text("README.md")
    assert len(page.splitlines()) <= 95
    for way in (
        "demo",
        "up --profile cpu-verl --config",
        "](docs/guides/your-rows.md)",
        "](docs/guides/watch.md)",
        "](docs/guides/it-failed.md)",
        "](docs/guides/daily.md)",
        "](docs/reference/exit-codes.md)",
    ):
        assert way in page, way


@pytest.mark.parametrize("page", [page for page in papers() if page.startswith("skills/")])
def test_a_skill_is_short_and_says_when_it_is_for(page: str) -> None:
    assert len(text(page).splitlines()) <= 60
    assert re.match(r"---\nname: ([\w-]+)\ndescription: \S.{40,}\n---\n", text(page))
    assert f"name: {Path(page).parent.name}\n" in text(page)


def rooms(page: str, heading: str) -> list[str]:
    """The first column of the table under a heading, from its top."""
    part = page.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    return re.findall(r"^\| `([\w.]+)` \|", part, re.MULTILINE)


@pytest.mark.parametrize("heading", ROOMS)
def test_architecture_lists_the_rooms_of_the_contract_from_the_ground_up(heading: str) -> None:
    contracts = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c.get("containers") == [ROOMS[heading]])
    assert rooms(text("ARCHITECTURE.md"), heading) == list(reversed(layers))


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def broken_links(page: str, source: str) -> list[str]:
    """Links to files that do not exist, or to headings that those do not have."""
    broken = []
    for link in _LINK.findall(source):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)
    return broken


def wrong_paths(source: str) -> list[str]:
    """Paths of the repository that are named in code and do not exist. Those with a placeholder are left out."""
    named = [word for code in _CODE.findall(source) for word in code.split()]
    named = [word for word in named if _PATH.fullmatch(word) and not word.startswith(_OF_RUNS)]
    return [word for word in named if not any((base / word).exists() for base in BASES)]


@pytest.mark.parametrize("page", papers())
def test_links_and_paths_lead_somewhere(page: str) -> None:
    assert broken_links(page, text(page)) == []
    assert wrong_paths(text(page)) == []


def test_wrong_links_and_paths_are_found() -> None:
    source = "[a](ROADME.md) [b](docs/scripts.md#files) [c](docs/scripts.md#library) `serving/registrie.py`"
    assert broken_links("README.md", source) == ["ROADME.md", "docs/scripts.md#files"]
    assert wrong_paths(source) == ["serving/registrie.py"]


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, queue = {"README.md"}, ["README.md"]
    while queue:
        page = queue.pop()
        for link in _LINK.findall(text(page)):
            target = ((ROOT / page).parent / link.partition("#")[0]).resolve()
            name = str(target.relative_to(ROOT)) if target.is_relative_to(ROOT) else ""
            if name.endswith(".md") and name not in seen:
                seen.add(name)
                queue.append(name)
    assert set(papers()) - seen == set()


def blocks(page: str) -> list[str]:
    """The blocks of Python of a page."""
    return re.findall(r"^```python\n(.*?)^```", text(page), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in papers() if any("import liverl" in block for block in blocks(page))]
)
def test_blocks_of_python_use_what_liverl_exports(page: str) -> None:
    used: set[str] = set()
    for block in blocks(page):
        for node in ast.walk(ast.parse(block)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "liverl"
            ):
                used.add(node.attr)
    assert used and used <= set(liverl.__all__)


@pytest.mark.parametrize(
    "page", ["README.md", "docs/start.md", "docs/install.md", "docs/guides/your-rows.md"]
)
def test_a_newcomer_is_told_what_a_checkout_is(page: str) -> None:
    """The pages that need one say what it is, or lead to where that is said."""
    before = text(page).partition("python3 -m venv")[0]
    assert "*checkout*" in before or "[checkout](../install.md#the-repository)" in before
    assert "## The repository" in text("docs/install.md")


def test_no_page_names_an_address_of_the_repository_while_there_is_none() -> None:
    """A line that a newcomer copies must not ask a host that does not exist."""
    address = tomllib.loads(text("pyproject.toml"))["project"]["urls"]["Repository"]
    assert ".example/" in address, "there is one now: name it on the pages, in place of what is said there"
    assert [
        page for page in papers() if ".example/repository" in text(page) or "git clone http" in text(page)
    ] == []


@pytest.mark.parametrize("page", [page for page in papers() if page.startswith("docs/guides/")])
def test_who_comes_to_a_guide_by_search_is_told_how_to_install(page: str) -> None:
    if page != "docs/guides/index.md":  # it lists the others
        assert "](../install.md" in "\n".join(text(page).splitlines()[:8])


@pytest.mark.parametrize("name", ["train.jsonl", "theirs.parquet"])
def test_the_script_that_converts_files_makes_rows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's script, with pyarrow's calls replaced: it writes what the table is made of."""
    (script,) = (block for block in blocks("docs/guides/your-rows.md") if "sys.argv" in block)
    written: list[tuple[list[dict[str, object]], str]] = []
    arrow, parquet = types.ModuleType("pyarrow"), types.ModuleType("pyarrow.parquet")
    vars(arrow).update(Table=types.SimpleNamespace(from_pylist=list), parquet=parquet)
    theirs = [{"question": "3 + 4?", "answer": 7}, {"question": "1 + 1?", "answer": "2"}]
    vars(parquet).update(
        read_table=lambda _: types.SimpleNamespace(to_pylist=lambda: theirs),
        write_table=lambda rows, name: written.append((rows, name)),
    )
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    lines = tmp_path / name
    if name.endswith(".jsonl"):
        lines.write_text("\n\n".join(map(json.dumps, theirs)) + "\n", "utf-8")
    monkeypatch.setattr(sys, "argv", ["to_parquet.py", str(lines), "train.parquet"])
    exec(compile(script, "to_parquet.py", "exec"), {})
    ((rows, made),) = written
    assert made == "train.parquet" and [row["reward_model"] for row in rows] == [
        {"ground_truth": "7"},
        {"ground_truth": "2"},
    ]
    assert rows[1]["prompt"] == [{"role": "user", "content": "1 + 1?"}]
    assert rows[1]["extra_info"] == {"index": 1}


def exported(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, list[Any]]:
    """What the page's script prints for a run: path of the trial -> its messages."""
    (script,) = blocks("docs/guides/trials.md")
    monkeypatch.setattr(sys, "argv", ["conversations.py", str(run)])
    exec(compile(script, "conversations.py", "exec"), {})
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    return {line["trial"]: line["messages"] for line in lines}


@pytest.mark.parametrize(
    ("recording", "roles"),
    [
        pytest.param("harbor/train-00-000d6687", "user assistant user assistant", id="openai"),
        pytest.param("command/gsm8k-15-220c18fd", "system user assistant user assistant", id="anthropic"),
    ],
)
def test_the_script_that_exports_conversations_reads_recordings(
    recording: str,
    roles: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded_trial = ROOT / "tests" / "data" / "own_runs_h200" / recording
    shutil.copytree(recorded_trial, tmp_path / "trials" / "step_0002" / "one")
    shutil.copytree(recorded_trial, tmp_path / "trials" / "validated")
    found = exported(tmp_path, monkeypatch, capsys)
    assert list(found) == ["trials/step_0002/one", "trials/validated"]
    for messages in found.values():
        assert " ".join(message["role"] for message in messages) == roles
        assert all(message["content"] for message in messages)


def test_the_script_that_exports_conversations_joins_what_the_sessions_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their lines have what is new. A question beside the main conversation comes last in the file, and is not it."""
    trial = tmp_path / "trials" / "step_0001" / "one"
    trial.mkdir(parents=True)
    messages = [Message("system", "Be brief."), Message("user", "One?\u2028Two?")]
    body = {"model": "m", "max_tokens": 9, "system": "What is this called?", "messages": []}
    aside = read_anthropic({**body, "messages": [{"role": "user", "content": "A title?"}]})
    for number in range(3):
        reply = said(f"Reply {number}.")
        record = trial_log.turn_record("s", "anthropic", asked(messages), recorded(number, reply))
        trial_log.append_turn(trial, record, KEY)
        messages += [reply, Message("user", f"Go on {number}.")]
    record = trial_log.turn_record("s", "anthropic", aside, recorded(3, said("Sums"), kind="aside"))
    trial_log.append_turn(trial, record, KEY)
    lines = (trial / trial_log.TURNS).read_text("utf-8").split("\n")
    assert [len(json.loads(line)["request_body"]["messages"]) for line in lines[:3]] == [2, 1, 1]
    expected = [openai_message(message) for message in messages[:-1]]
    found = exported(tmp_path, monkeypatch, capsys)["trials/step_0001/one"]
    assert [(one["role"], one["content"]) for one in found] == [
        (one["role"], one["content"]) for one in expected
    ]
    (trial / trial_log.TURNS).write_text("\n".join(lines[1:]), "utf-8")
    found = exported(tmp_path, monkeypatch, capsys)["trials/step_0001/one"]
    assert found[:3] == [None] * 3 and found[3]["content"] == "Go on 0.", "a lost line is not passed over"


def test_the_script_that_exports_conversations_takes_the_trials_of_an_export_with_their_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list of tools is in the first line that offers it, here beside the conversation; no validation is printed."""

    def call(number: int, kind: str, shared: dict[str, Any], **asked: Any) -> str:
        request = {"model": "m", "messages": [{"role": "user", "content": str(number)}], **asked}
        reply = {"id": str(number), "choices": [{"message": {"role": "assistant", "content": "."}}]}
        session = {"kind": kind, "tools": "digest", **shared}
        return json.dumps({"request_body": request, "response_body": reply, "session": session}) + "\n"

    turns = call(0, "aside", {}, tools=["bash"]) + call(1, "main", {})
    for trial in ("trials/step_0001/good", "trials/step_0001/bad", "trials/validated"):
        (tmp_path / trial).mkdir(parents=True)
        (tmp_path / trial / trial_log.TURNS).write_text(turns, "utf-8")
    (tmp_path / "good.jsonl").write_text(
        '{"path": "trials/step_0001/good"}\n{"path": "trials/validated"}\n', "utf-8"
    )
    (script,) = blocks("docs/guides/trials.md")
    monkeypatch.setattr(sys, "argv", ["conversations.py", str(tmp_path), str(tmp_path / "good.jsonl")])
    exec(compile(script, "conversations.py", "exec"), {})
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["trial"], line["tools"]) == ("trials/step_0001/good", ["bash"])
    assert [one["content"] for one in line["messages"]] == ["1", "."]


ASKED = {"model": "m", "system": "Be brief.", "messages": [{"role": "user", "content": "One?"}]}
USED = [{"type": "tool_use", "id": "1", "name": "bash", "input": {}}]


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        ({"id": "a", "choices": [{"message": {"role": "assistant", "content": "1"}}]}, "1"),
        ({"id": "a", "type": "message", "content": USED, "stop_reason": "tool_use"}, USED),
    ],
    ids=["as LiteLLM records it", "in Anthropic's form"],
)
def test_the_script_that_exports_conversations_reads_requests_of_anthropics_api(
    reply: dict[str, Any],
    content: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trial = tmp_path / "trials" / "step_0001" / "one"
    trial.mkdir(parents=True)
    records = [
        {"request_body": ASKED, "response_body": reply},
        {"request_body": ASKED, "response_body": None},
    ]
    (trial / trial_log.TURNS).write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")
    assert exported(tmp_path, monkeypatch, capsys)["trials/step_0001/one"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": content},
    ]


def shown_defaults(source: str) -> list[tuple[str, str]]:
    """(key, default) that a page shows: rows of tables with the columns ``key`` and ``default``, of one key or of some,
    and ``KEY`` seconds (N by default)."""
    found = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`[^()`]{0,12}\((\S+)(?: s)? by default\)", source)
    for table in re.findall(r"^\| key \| default \|.*\n\|[-|]+\n((?:\|.*\n)+)", source, re.MULTILINE):
        for row in table.splitlines():
            keys, defaults = (cell.strip().split(", ") for cell in row.split("|")[1:3])
            found += zip((key.strip("`") for key in keys), defaults, strict=True)
    return found


def test_shown_defaults_are_those_of_the_code() -> None:
    config = load_config(env={}).config
    pages = [page for page in papers() if page != "CHANGELOG.md"]  # it tells what was
    shown = [(page, *one) for page in pages for one in shown_defaults(text(page))]
    assert {"docs/guides/gpu-memory.md", "docs/guides/slurm.md", "docs/guides/several-hosts.md"} <= {
        page for page, _, _ in shown
    }
    assert len(shown) >= 15
    wrong = [one for one in shown if yaml.safe_load(one[2]) != value_of(config, one[1])]
    assert wrong == []


def test_shown_defaults_are_found() -> None:
    page = "| key | default | up |\n|---|---|---|\n| `a.b`, `a.c` | 4, true | x |\n\n`d.e_f` (1.5 s by default)\n"
    assert shown_defaults(page) == [("d.e_f", "1.5"), ("a.b", "4"), ("a.c", "true")]


def test_the_versions_on_the_install_page_are_those_that_are_installed_and_tried() -> None:
    title = "## Which version of verl, vLLM and Ray do I need\n"
    table = text("docs/install.md").partition(title)[2].partition("\n## ")[0]
    shown = dict(re.findall(r"^\| ([\w' -]+) \| ([^|]+) \|", table, re.MULTILINE))
    environments = load_config(env={}).config.environments
    words = " ".join(word for one in ("proxy", "verl") for word in environments[one].requirements)
    pinned = dict(re.findall(r"(\w+)(?:\[\w+\])?==([\d.]+)", words))
    assert {name: shown[name] for name in ("verl", "vLLM", "Ray", "LiteLLM")} == {
        name: pinned[name.lower()] for name in ("verl", "vLLM", "Ray", "LiteLLM")
    }
    for name in ("verl", "vLLM", "Ray"):
        assert f"{TRIED[name if name == 'verl' else name.lower()]}.x counts as fitting" in table
    (harbor,) = _REQUIREMENTS
    assert f"`{harbor.removeprefix('harbor')}`" in shown["Harbor"]
    ours = tomllib.loads(text("pyproject.toml"))["project"]
    named = [one.rpartition(" ")[2] for one in ours["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert shown["Python of liverl-tui"] == f"{named[0]} to {named[-1]}"


def test_shown_json_has_the_version_of_today() -> None:
    """As it is in the answers that a reader compares with."""
    found = [(page, int(one)) for page in papers() for one in re.findall(r'"schema": (\d+)', text(page))]
    assert found and [(page, number) for page, number in found if number != SCHEMA] == []


def test_no_line_of_a_list_begins_with_a_number_that_would_begin_another() -> None:
    """Python-Markdown takes ``  401. Treat`` within an entry for the first entry of a numbered list."""
    found = [
        f"{page}: {line}"
        for page in papers()
        for line in re.sub(r"^```.*?^```", "", text(page), flags=re.MULTILINE | re.DOTALL).splitlines()
        if re.match(r"\s+\d{2,}\. ", line)
    ]
    assert found == []


def test_the_changelog_knows_this_version() -> None:
    changes = text("CHANGELOG.md")
    assert "\n## Unreleased\n" in changes or f"\n## {liverl.__version__}" in changes
