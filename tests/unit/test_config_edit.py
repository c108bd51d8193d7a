"""Values changed in the text of a user's file: everything else of it stays as it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.config.edit import ChangedLine, EditRefused, changed_lines, edited
from liverl.config.layers import from_sets, from_text

FILE = """\
# my run, do not touch
model:
  # from the model's card
  tool_parser: hermes  # wrong?

vllm: {gen_tp: 2}  # one line
training:
  total_steps: 20
  # the end of training

proxy:
"""
SHARED = "verl:\n  faults: &f {crash_at_step: 3}\nembedded:\n  faults: *f\n"
LIVERL = "runtime_info:\n  input:\n    vllm:\n      gen_tp: 2\n"


def test_only_the_value_changes_and_every_comment_stays() -> None:
    after = edited(FILE, {"model.tool_parser": "qwen3_coder"})
    assert after == FILE.replace("tool_parser: hermes  #", "tool_parser: qwen3_coder  #")
    assert changed_lines(FILE, after) == [
        ChangedLine(4, "  tool_parser: hermes  # wrong?", "  tool_parser: qwen3_coder  # wrong?")
    ]


@pytest.mark.parametrize(
    ("key", "value", "lines"),
    [
        ("vllm.gen_tp", "1", [(6, "vllm: {gen_tp: 2}  # one line", "vllm: {gen_tp: 1}  # one line")]),
        (
            "vllm.max_num_seqs",
            "32",
            [(6, "vllm: {gen_tp: 2}  # one line", "vllm: {gen_tp: 2, max_num_seqs: 32}  # one line")],
        ),
        ("training.save_freq", "3", [(9, None, "  save_freq: 3")]),
        ("proxy.request_timeout", "2400", [(12, None, "  request_timeout: 2400")]),
        ("embedded.faults.crash_at_step", "3", [(12, None, "embedded:"), (13, None, "  faults:")]),
        ("trainer.overrides", "{a: 1}", [(12, None, "trainer:"), (13, None, "  overrides: {a: 1}")]),
        ("run.name", "007: x", [(12, None, "run:"), (13, None, '  name: "007: x"')]),
    ],
)
def test_a_key_is_added_where_its_section_is(key: str, value: str, lines: list[tuple[object, ...]]) -> None:
    assert [tuple(line) for line in changed_lines(FILE, edited(FILE, {key: value}))][: len(lines)] == lines


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", "vllm:\n  gen_tp: 1\n"),
        ("# nothing yet", "# nothing yet\nvllm:\n  gen_tp: 1\n"),
        ("vllm:", "vllm:\n  gen_tp: 1\n"),
        ("vllm: ~  # later\n", "vllm:  # later\n  gen_tp: 1\n"),
        ("vllm: {}\n", "vllm: {gen_tp: 1}\n"),
        ("vllm:\n    gen_tp:\n", "vllm:\n    gen_tp: 1\n"),
        ("vllm:\r\n  gen_tp: 2 # a\r\n# b\r\n", "vllm:\r\n  gen_tp: 1 # a\r\n# b\r\n"),
        ("vllm:\r\n  seed: 2\r\n# b\r\n", "vllm:\r\n  seed: 2\r\n  gen_tp: 1\r\n# b\r\n"),
        ("vllm:\n  gen_tp: '2'", "vllm:\n  gen_tp: 1"),
        (LIVERL, LIVERL.replace("2", "1")),
    ],
)  # fmt: skip
def test_a_file_of_any_form(text: str, after: str) -> None:
    if "seed" in text:
        text, after = text.replace("seed", "max_num_seqs"), after.replace("seed", "max_num_seqs")
    assert edited(text, {"vllm.gen_tp": "1"}) == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("model:\n  tool_parser: 'old' # a\n", "model:\n  tool_parser: 'new' # a\n"),
        ('{"model": {"tool_parser": "old"}}\n', '{"model": {"tool_parser": "new"}}\n'),
        ("model:\n  tool_parser: old\t# a tab\n", "model:\n  tool_parser: new\t# a tab\n"),
        ("model:\r\n  tool_parser: old\t# a\r\n", "model:\r\n  tool_parser: new\t# a\r\n"),
    ],
)
def test_quotes_and_tabs_stay(text: str, after: str) -> None:
    """A tab before a comment is read by the parser that reads configurations, and not by the one that edits."""
    assert edited(text, {"model.tool_parser": "new"}) == after


@pytest.mark.parametrize(
    ("text", "values", "why"),
    [
        ("model: [1]\n", {"model.tool_parser": "x"}, "model holds no keys in it"),
        ("- 1\n", {"model.tool_parser": "x"}, "no mapping of sections"),
        ("model: {\n", {"model.tool_parser": "x"}, "not valid YAML"),
        ("model:\n  a: 1\n---\nmodel:\n", {"model.tool_parser": "x"}, "has a second document"),
        ("model:\n\ta: 1\n", {"model.tool_parser": "x"}, "YAML forbids tabs for indentation"),
        ("modle:\n  a: 1\n", {"model.tool_parser": "x"}, "unknown key"),
        ("model:\n  tool_parser: x\n", {"vllm.gen_tp": "two"}, "wrong value"),
        ("vllm:\n  gen_tp: &n 2\n  max_num_seqs: *n\n", {"vllm.gen_tp": "1"}, "gen_tp has an anchor"),
        ("vllm:\n  gen_tp: &n 2\n  max_num_seqs: *n\n", {"vllm.max_num_seqs": "1"}, "comes from an alias"),
        (SHARED, {"embedded.faults.crash_at_step": "4"}, "comes from an alias"),
        (SHARED, {"verl.faults.crash_at_step": "4"}, "other values in it would change"),
        ("trainer:\n  command: |\n    a\n    b\n", {"trainer.command": "x"}, "longer than a line"),
        ("", {"trainer.command": "a\nb"}, "several lines"),
        ("", {"nothing.here": "x"}, "unknown key"),
    ],
)
def test_what_cannot_be_changed_alone_is_refused(text: str, values: dict[str, str], why: str) -> None:
    with pytest.raises(EditRefused, match=why):
        edited(text, values)


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1))
def test_any_word_is_read_back(value: str) -> None:
    wanted = from_sets([f"experiment.exp_name={value}"])
    for text in (FILE, "experiment: {project_name: a}\n", "experiment:\n  exp_name: old # c\n"):
        try:
            after = edited(text, {"experiment.exp_name": value})
        except EditRefused:
            continue
        path = ("experiment", "exp_name")
        assert from_text(after, "", "file").settings[path].value == wanted.settings[path].value
        assert text.count("#") <= after.count("#")
