"""``trials show --tokens``: what scripts and people read of a trial's tokens."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from kit.plans import plan_of

from liverl.embedded import tokenizer as embedded
from liverl.observe.trials.token_rows import token_rows
from liverl.observe.trials.token_texts import embedded_texts
from liverl.observe.trials.trajectory import read_trajectory
from liverl.offline.trial_tokens import HIDDEN, RowText, TokensShown, load, shown_tokens
from liverl.offline.trials import NoSuchTrial
from liverl.rundir.layout import RunDir
from liverl_tui.cli.trials import trials_command
from liverl_tui.text.token_lines import EMPTY, NEWLINE, chance, step_of, token_report, wrapped
from liverl_tui.text.wrapping import columns

RECORDED = Path(__file__).parents[1] / "data" / "own_runs_h200" / "command" / "gsm8k-15-220c18fd"


def said(*parts: tuple[str, int], **changed: Any) -> dict[str, Any]:
    """A row of the embedded engine: texts, each sampled (1) or not; the first is the prompt. Token ``i`` of the sampled
    ones has log-probability ``-i``."""
    prompt, *others = [(embedded.encode(text), bit) for text, bit in parts]
    mask = [bit for ids, bit in others for _ in ids]
    count, logprobs = 0, []
    for bit in mask:
        count += bit
        logprobs.append(-float(count) if bit else 0.0)
    return {
        "initial_prompt_token_len": len(prompt[0]),
        "traj_acc_ids": [*prompt[0], *(token for ids, _ in others for token in ids)],
        "traj_response_mask": mask,
        "traj_response_logprobs": logprobs,
        **changed,
    }


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """An ended run of the embedded engine."""
    run = RunDir(tmp_path / "liverl" / "one")
    run.path.mkdir(parents=True)
    run.config.write_text("run:\n  name: one\n  topology: managed\n  engine: embedded\n")
    run.journal.write_text("")
    return run


def put(run: RunDir, document: Any, name: str = "one-0a1b2c") -> Path:
    folder = run.trials / "step_0001" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text("{}")
    if document is not None:
        raw = document if isinstance(document, bytes) else json.dumps(document).encode()
        (folder / "proxy_trajectory.json").write_bytes(raw)
    return folder


def show(run: RunDir, **asked: Any) -> TokensShown:
    return shown_tokens(run, None, "one-0a1b2c", **asked)


def report(run: RunDir, **asked: Any) -> str:
    return "\n".join(token_report(show(run, **asked), asked.get("begin", 0), 60))


PARTS = (("user\nHej", 0), ("one two", 1), ("tool å\n", 0), ("end", 1))


def test_tokens_have_their_text_and_the_least_likely_come_first(run: RunDir) -> None:
    put(run, said(*PARTS, kind="main", policy_versions=[[7, 4], [8, 2]]))
    found = show(run, worst=2)
    assert (found.no_text, found.note, found.row, found.not_trained) == ("", "", 1, {})
    assert "embedded" in found.tokenizer
    by_part = [(token.text, token.sampled, token.logprob, token.version) for token in found.tokens]
    assert by_part[2:7] == [
        ("j", False, None, None), ("on", True, -1.0, 7), ("e ", True, -2.0, 7), ("tw", True, -3.0, 7),
        ("o", True, -4.0, 7),
    ]  # fmt: skip
    assert [(token.index, token.text) for token in found.worst] == [
        (len(by_part) - 1, "d"),
        (len(by_part) - 2, "en"),
    ]
    parts = [(token.text, token.bytes) for token in found.tokens if token.bytes is not None]
    assert parts == [(" \\xc3", "20c3"), ("\\xa5\n", "a50a")]  # of one character each
    joined = b"".join(
        bytes.fromhex(token.bytes) if token.bytes is not None else (token.text or "").encode()
        for token in found.tokens
    )
    assert joined.decode() == "".join(text for text, _ in PARTS)


@pytest.mark.parametrize(("begin", "most"), [(0, 3), (2, 4), (5, 100), (500, 3), (0, 0)])
def test_a_window_is_a_part_of_the_whole(run: RunDir, begin: int, most: int) -> None:
    put(run, said(*PARTS))
    whole = show(run).tokens
    assert show(run, begin=begin, most=most).tokens == whole[begin : begin + most]


def test_rows_are_chosen_by_number_and_say_why_they_are(run: RunDir) -> None:
    rows = [said(("a", 0), ("sub-agent", 1), kind="sub"), said(("b", 0), ("changed", 1), kind="rewrite")]
    put(run, {"rows": rows, "not_trained": {"hidden": 5, "bad": -1}})
    found = show(run, row=1)
    assert "".join(token.text or "" for token in found.tokens) == "asub-agent"
    assert (show(run).row, found.row, found.not_trained) == (2, 1, {"hidden": 5})
    words = report(run)
    assert "a row of its own: the history before it was changed" in words
    assert "sampled tokens that are in no row: 5 hidden" in words
    with pytest.raises(NoSuchTrial, match="has no row 3: it has rows 1, 2"):
        show(run, row=3)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "it has no proxy_trajectory.json: its calls went through no session"),
        (b"{", "cannot read proxy_trajectory.json: it is incomplete"),
        (b"[" * 100_000, "cannot read proxy_trajectory.json"),
        (b"[1]", "cannot read proxy_trajectory.json"),
        ({"messages_snapshot": []}, "proxy_trajectory.json: it has messages, but no tokens"),
        ({"rows": [{"traj_acc_ids": ["a"]}]}, "row 1 of 1: traj_acc_ids has a, expected ids"),
    ],
)
def test_where_there_are_no_tokens_it_says_so(run: RunDir, document: Any, words: str) -> None:
    put(run, document)
    found = show(run)
    assert words in found.note and (found.rows, found.tokens, found.row) == ((), (), None)
    assert words in report(run)
    with pytest.raises(NoSuchTrial, match="has no row 1"):
        show(run, row=1)


def test_a_link_in_the_place_of_the_document_is_not_followed(run: RunDir, tmp_path: Path) -> None:
    folder = put(run, None)
    (tmp_path / "other").write_text(json.dumps(said(*PARTS)))
    (folder / "proxy_trajectory.json").symlink_to(tmp_path / "other")
    assert "cannot read proxy_trajectory.json" in show(run).note


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"traj_response_logprobs": None}, "▲ log-probabilities are not recorded"),
        (
            {"traj_response_logprobs": [0.0] * 12},
            "▲ log-probabilities were filled with zeros instead of measured",
        ),
        (
            {"traj_response_mask": [1]},
            "▲ which tokens were sampled is not recorded, nor are log-probabilities",
        ),
    ],
)
def test_no_number_is_shown_where_none_was_measured(run: RunDir, changed: dict[str, Any], words: str) -> None:
    put(run, said(("ask", 0), ("abcdefghijklmnopqrstuvwx", 1), **changed))
    text = report(run)
    assert words in text and "least likely" not in text and "mean log-probability" not in text
    assert all(token.logprob is None and token.probability is None for token in show(run).tokens)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "the run has no config.yaml that names its model"),
        ("run: [", "the run's config.yaml, which names its model, cannot be read"),
        (
            "trainer: {kind: command, command: [./go]}\nrun: {topology: verl, engine: vllm}",
            "launch script chooses",
        ),
        (
            "trainer: {kind: verl}\nrun: {topology: verl, engine: vllm}\nmodel: {model_path: /nowhere}",
            "plan.json, which says where its model is",
        ),
    ],
)
def test_without_a_tokenizer_ids_are_shown_and_why(run: RunDir, config: str | None, words: str) -> None:
    put(run, said(*PARTS))
    run.config.unlink()
    if config is not None:
        run.config.write_text(config)
    found = show(run)
    assert words in found.no_text and found.tokenizer == ""
    assert {token.text for token in found.tokens} == {None} and found.tokens[0].id == embedded.encode(
        "user\n"
    )[0]
    assert f"<{found.tokens[0].id}>" in report(run) and words in report(run).replace("\n", " ")


def test_a_tokenizer_can_be_named(run: RunDir, tmp_path: Path) -> None:
    put(run, {**said(("a", 0), ("b", 1)), "traj_acc_ids": [0, 1]})
    model = {"type": "BPE", "vocab": {"Ġx": 0, "y": 1}}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "decoder": {"type": "ByteLevel"}}))
    found = show(run, tokenizer=tmp_path)
    assert [token.text for token in found.tokens] == [" x", "y"]
    assert found.tokenizer == str(tmp_path / "tokenizer.json")


def test_a_recorded_trial_says_which_turn_was_healed(run: RunDir) -> None:
    shutil.copytree(RECORDED, run.trials / "step_0001" / "one-0a1b2c")
    words = report(run)
    assert "turn 2 was healed" in words and "96 sampled in 2 replies" in words
    assert "the trainer's own log-probability" in words
    folder = run.trials / "step_0001" / "one-0a1b2c"
    os.unlink(folder / "litellm-trajectory.jsonl")
    assert "1 turn more healed, not known which" in report(run)


SECRET = "sk-ant-api03-" + "A1b2" * 20


def test_the_ids_of_a_secret_are_hidden_with_its_text(run: RunDir) -> None:
    put(run, said(("key:", 0), (f"before {SECRET} after", 1), ("word ", 0), ("more", 1)))
    found = show(run)
    plain = msgspec.json.encode(found).decode() + report(run)
    hidden = [token for token in found.tokens if token.id is None]
    assert {token.text for token in hidden} == {HIDDEN} and len(hidden) >= len(SECRET) // 2
    whole = "".join(token.text or "" for token in found.tokens if token.id is not None)
    assert "before" in whole and "after" in whole and "more" in whole and "A1b2" not in whole
    assert "A1" not in plain


@given(st.lists(st.tuples(st.text(alphabet="aé€😀\n\x1b\\ ", max_size=9), st.integers(0, 1)), max_size=8))
def test_every_token_is_on_the_lines_once_and_in_order(parts: list[tuple[str, int]]) -> None:
    (row,) = token_rows(said(("x", 0), *parts)).rows
    text = RowText(row, embedded_texts())
    for width in (8, 13):
        lines = list(wrapped(((n, text.shown(n)) for n in range(len(row.ids))), width))
        assert all(columns("".join(piece for _, piece in line)) <= width for line in lines)
        assert [n for n, _ in (piece for line in lines for piece in line)] == sorted(
            n for line in lines for n, _ in line
        )
        assert {n for line in lines for n, _ in line} == set(range(len(row.ids)))
        for number in range(len(row.ids)):
            shown = "".join(piece for line in lines for n, piece in line if n == number)
            assert shown.count(NEWLINE) == text.shown(number).count("\n")
            assert "\x1b" not in shown


def test_a_token_without_text_is_seen() -> None:
    assert list(wrapped([(0, ""), (1, "\n"), (2, "a\n\nb")], 20)) == [
        [(0, EMPTY), (1, NEWLINE)], [(2, "a" + NEWLINE)], [(2, NEWLINE)], [(2, "b")],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("logprob", "step"),
    [(None, None), (0.0, 0), (-0.1, 0), (-0.2, 1), (-1.0, 2), (-3.0, 3), (-5.0, 4), (-1e30, 4), (0.5, 0)],
)
def test_heat_has_five_steps(logprob: float | None, step: int | None) -> None:
    assert step_of(logprob) == step


@pytest.mark.parametrize(
    ("probability", "words"),
    [
        (None, "not known"),
        (1.0, "100 %"),
        (0.37, "37 %"),
        (0.0213, "2.1 %"),
        (1e-9, "< 0.01 %"),
        (0.0, "0 %"),
    ],
)
def test_chances_in_words(probability: float | None, words: str) -> None:
    assert chance(probability) == words


@pytest.mark.parametrize("option", ["--row", "--from", "--lines", "--worst", "--tokenizer"])
def test_options_of_tokens_are_refused_without_them(run: RunDir, option: str) -> None:
    put(run, said(*PARTS))
    value = str(run.path) if option == "--tokenizer" else "1"
    command = trials_command.commands["show"]
    assert isinstance(command, click.Command)
    result = CliRunner().invoke(command, ["one-0a1b2c", option, value, "--run", str(run.path)])
    assert result.exit_code == 2 and f"{option} is for tokens" in result.output


def test_the_command_prints_text_and_json(run: RunDir) -> None:
    put(run, said(*PARTS))
    asked = ["one-0a1b2c", "--tokens", "--worst", "1", "--run", str(run.path)]
    told = CliRunner().invoke(trials_command.commands["show"], asked)
    assert (
        "\n> one two\n" in told.output
        and "\n  tool" in told.output
        and "en«d»" in told.output.replace("\n", "")
    )
    document = json.loads(CliRunner().invoke(trials_command.commands["show"], [*asked, "--json"]).output)
    assert (document["row"], document["worst"][0]["text"]) == (1, "d")


def test_what_is_loaded_for_the_interface_is_the_same(run: RunDir) -> None:
    folder = put(run, said(*PARTS))
    found = load(run.path, "trials/step_0001/one-0a1b2c", read_trajectory(folder))
    assert [row.number for row in found.rows] == [1] and found.texts is not None


def test_the_tokenizer_of_a_verl_run_is_that_of_its_model(run: RunDir, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    sets = ("trainer.kind=verl", f"model.model_path={model}")
    run.plan.write_bytes(msgspec.json.encode(plan_of(*sets, run_dir=run.path)))
    config = {
        "trainer": {"kind": "verl"},
        "run": {"topology": "verl", "engine": "vllm"},
        "model": {"model_path": str(model)},
    }
    run.config.write_text(json.dumps(config))
    put(run, {**said(("a", 0), ("b", 1)), "traj_acc_ids": [0, 1]})
    assert f"{model} has no tokenizer.json" in show(run).no_text
    vocab = {"Ġx": 0, "y": 1}
    (model / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "BPE", "vocab": vocab}, "decoder": {"type": "ByteLevel"}})
    )
    assert [token.text for token in show(run).tokens] == [" x", "y"]
    model.rename(tmp_path / "moved")
    assert f"the model {model} (model.model_path) is not on this host" in show(run).no_text
