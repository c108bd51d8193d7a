"""No text of the program names a configuration key, a command, an option or a key that does not exist."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from kit import mentions
from kit.mentions import HOLE, OTHERS, ROOT, VERBS, Text

AGENTS = "backend/liverl/diagnose/catalogue/agents.py"
SERVING = "backend/liverl/diagnose/catalogue/serving.py"
HOST = "backend/liverl/preflight/ports.py"
RULES = "backend/liverl/config/checks/verl.py"
DEFAULTS = "backend/liverl/config/default.yaml"
PAPERS = ("README.md", "GLOSSARY.md", "docs/running-verl.md", "docs/interface.md", "examples/README.md")


def texts_of(file: str, source: str) -> Iterator[Text]:
    if file.endswith(".py"):
        return mentions.python_texts(file, source)
    return mentions.page_texts(source, file) if file.endswith(".md") else mentions.yaml_texts(file, source)


def test_every_text_names_what_exists() -> None:
    assert mentions.problems(mentions.texts()) == []


def test_texts_of_every_kind_are_read() -> None:
    """Else the test above could pass because nothing is collected."""
    sentences = [text for text in mentions.texts() if not text.data]
    for where in (
        AGENTS,
        SERVING,
        HOST,
        RULES,
        DEFAULTS,
        "liverl_tui/app/lifecycle.py",
        "help of up",
        *PAPERS,
    ):
        assert any(text.where.startswith(where) for text in sentences), where
    told = "\n".join(text.text for text in sentences)
    for part in (
        "verl.disable_cascade_attn",
        "--profile cpu-verl",
        f"run {HOLE}",
        "until m is pressed",
    ):
        assert part in told, part


COMMAND_LINES = sorted(
    {
        text.text
        for page in mentions.papers()
        for text in mentions.page_texts((ROOT / page).read_text("utf-8"), page)
        if text.text.startswith("liverl-tui ")
    }
)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_line_of_the_papers_is_accepted(line: str) -> None:
    mentions.parse_command_line(line)


def test_wrong_command_lines_are_refused() -> None:
    assert len(COMMAND_LINES) > 10
    for line in (
        "liverl-tui scale",
        "liverl-tui up --wait soon",
        "liverl-tui plan --sets a=1",
        "liverl-tui grow 1",
        "liverl-tui trials lst",
        "liverl-tui rules test --colour a",
    ):
        with pytest.raises(click.UsageError):
            mentions.parse_command_line(line)


@pytest.mark.parametrize(
    ("file", "right", "wrong", "found"),
    [
        # a fix
        (AGENTS, "set model.model_path to", "set model.modl_path to", "model.modl_path"),
        (
            AGENTS,
            "harbor_agent.override_timeout_sec",
            "harbor_agent.trial_timeout",
            "harbor_agent.trial_timeout",
        ),
        (
            SERVING,
            "then restart the proxy",
            "then restart the proxy (key J)",
            "J",
        ),  # it works in one trajectory only: an alert is read anywhere
        # a preflight message
        (HOST, "set ray.address to use that", "use it with ray.adress", "ray.adress"),
        ("backend/liverl/preflight/gpus.py", "--profile cpu-verl", "--profile cpu", "--profile cpu"),
        # the README
        ("README.md", "liverl-tui doctor PATH", "liverl-tui doktor PATH", "liverl-tui doktor"),
        # pages
        ("docs/guides/daily.md", "vllm.gen_tp=2", "vllm.gentp=2", "vllm.gentp"),
        ("docs/interface.md", "LIVERL_UI__THEME", "LIVERL_UI__COLOUR", "ui.colour"),
        ("docs/interface.md", "| `?` |", "| `%` |", "%"),
        ("docs/guides/daily.md", "liverl-tui scale +1", "liverl-tui grow +1", "liverl-tui grow"),
        ("docs/guides/daily.md", "liverl-tui up --no-ui ", "liverl-tui up --quiet ", "up --quiet"),
        ("docs/scripts.md", "`status --json`", "`status --grep`", "--grep"),  # an option, but of `logs`
        # the other papers
        ("docs/running-verl.md", "verl.address_deadline", "verl.adress_deadline", "verl.adress_deadline"),
        (
            "docs/running-verl.md",
            "liverl-tui make-smoke DIR",
            "liverl-tui make-model DIR",
            "liverl-tui make-model",
        ),
        ("docs/scripts.md", "wait --for ready", "wait --until ready", "--until"),
        ("docs/interface.md", "`U` starts", "`i` starts", "i"),
        ("examples/README.md", "training.total_steps=2", "training.steps=2", "training.steps"),
        # an f-string: of its values, only the running program knows
        (
            RULES,
            'f"environments.{name}.python"',
            'f"environments.{name}.pyton"',
            f"environments.{HOLE}.pyton",
        ),
        (RULES, 'f"verl.faults.{', 'f"verl.fault.{', f"verl.fault.{HOLE}"),
        (
            "backend/liverl/rundir/index.py",
            "liverl-tui attach --run {",
            "liverl-tui attach --dir {",
            "attach --dir",
        ),
        # a command that click would refuse as it is printed
        (
            "backend/liverl/offline/run_disk.py",
            "checkpoints prune {words} --keep 1",
            "checkpoints prune {words} --kep 1",
            "--kep",
        ),
        # a key as the place of a configuration error
        (RULES, 'Finding("verl.rollout_gpus"', 'Finding("verl.rollout_gpu"', "verl.rollout_gpu"),
        (RULES, 'Finding("verl.rollout_gpus"', 'Finding("verk.rollout_gpus"', "verk.rollout_gpus"),
        # a comment of a YAML file, and the interface
        (DEFAULTS, "as environments.verl.venv_path", "as environments.verl.venv", "environments.verl.venv"),
        (DEFAULTS, "until m is pressed", "until z is pressed", "z"),
        (
            "backend/liverl/rundir/commands.py",
            "liverl-tui up --resume",
            "liverl-tui up --again",
            "up --again",
        ),
        ("liverl_tui/widgets/base/prompt.py", "Enter applies", "F9 applies", "F9"),
        ("docs/interface.md", "ui.keys.logs.access", "ui.keys.logs.acess", "ui.keys.logs.acess"),
    ],
)
def test_a_wrong_name_is_found(file: str, right: str, wrong: str, found: str) -> None:
    source = (ROOT / file).read_text("utf-8")
    assert right in source
    assert mentions.problems(texts_of(file, source)) == []
    told = mentions.problems(texts_of(file, source.replace(right, wrong)))
    assert any(line.endswith(f": {found!r}") for line in told), told


def test_every_exception_is_needed() -> None:
    told = "\n".join(text.text for text in mentions.texts())
    assert [word for word in (*OTHERS, *(f"liverl-tui {verb}" for verb in VERBS)) if word not in told] == []
