"""What to do is said to others without keys of our configuration; and who else was on a GPU is said first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from liverl.causes.catalogue import rows
from liverl.causes.finding import Explanation
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.gpu_neighbours import with_neighbours
from liverl.causes.verdict.judge import judge
from liverl.causes.verdict.plain_keys import in_plain_words
from liverl.config.schema import leaves

KEYS = re.compile("|".join(rf"(?<![\w./-]){re.escape(key)}\b(?!\.\w|[/(])" for key in leaves() if "." in key))
OOM = "CUDA out of memory. Tried to allocate 2.00 GiB. "
OOM += "GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free."
OWN = " Including non-PyTorch memory, this process has {} GiB memory in use."


def test_no_row_names_a_key_of_ours_to_others() -> None:
    with_keys = [row for row in rows() if KEYS.search(row.fix)]
    assert len(with_keys) > 50
    assert not [row.id for row in with_keys if KEYS.search(in_plain_words(row.fix))]


@pytest.mark.parametrize("part", ["title", "cause", "fix"])
def test_every_row_reads_as_english_to_others(part: str) -> None:
    """What stands for a key fits behind "set", "check", "an empty" and "a", and is said once."""
    nonsense = re.compile(
        r"\bset set\b|'s \w+=|\ban? (?:\w+ )?\w+'s \w+_|\bset its address\b|(?<!\w)(\w[\w' ]*) \(\1\)"
    )
    texts = {row.id: in_plain_words(getattr(row, part)) for row in rows()}
    assert {id_: text for id_, text in texts.items() if nonsense.search(text)} == {}


@pytest.mark.parametrize(
    ("ours", "others"),
    [
        ("Shorten training.max_response_length.", "Shorten max response length."),
        (
            "Lower vllm.max_num_seqs or vllm.gen_tp",
            "Lower vLLM's max_num_seqs or vLLM's tensor_parallel_size",
        ),
        (
            "Set ray.address to the head; an empty ray.address",
            "Set RAY_ADDRESS to the head; an empty RAY_ADDRESS",
        ),
        ("Start with --set vllm.gen_tp=4.", "Start with vLLM's tensor_parallel_size = 4."),
        ("--set ray.address=auto", "RAY_ADDRESS=auto"),
        ("Choose a smaller vllm.gen_tp.", "Choose a smaller tensor_parallel_size of vLLM."),
        ("Correct the reward function (reward.function).", "Correct the reward function."),
        ("see training.py, trainer.nothing and my.training.lr", None),
    ],
)
def test_a_key_is_said_in_words(ours: str, others: str | None) -> None:
    assert in_plain_words(ours) == (ours if others is None else others)


@pytest.mark.parametrize(
    ("said", "first", "told"),
    [
        (
            " Process 4711 has 70.00 GiB memory in use." + OWN.format("7.48"),
            True,
            "process 4711 held 70.00 GiB",
        ),
        (" Process 7 has 300.00 MiB memory in use." + OWN.format("77.00"), False, "process 7 held 0.29 GiB"),
        (OWN.format("78.00"), False, ""),
        (" Process 7 has 1.2.3 GiB memory in use." + OWN.format("77.00"), False, "process 7 held"),
    ],
)
def test_the_other_process_that_torch_names(said: str, first: bool, told: str) -> None:
    """Torch's own words, of which the batch is no cause while another process has most of the GPU."""
    before = Explanation("cuda-oom-training", "critical", "t", "The batch does not fit.", "Shorten it.")
    found = with_neighbours(before, OOM + said)
    assert told in found.cause and found.cause.startswith("Another process had most") == first
    assert found.fix.endswith("Shorten it.") and found.fix.startswith("See what process 4711 is") == first
    assert ("does not fit" in found.cause) != first


ITSELF = "with its number outside the container"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (" Process 4711 has 70.00 GiB memory in use.", f": likely this process itself, {ITSELF}."),
        (
            " Process 4711 has 70.00 GiB memory in use. Process 4712 has 7.50 GiB memory in use."
            " Of the allocated memory 7.00 GiB is allocated by PyTorch, and 1.00 MiB is reserved",
            f"one of these is this process itself, {ITSELF}; likeliest 4712, "
            "since PyTorch had allocated 7.00 GiB.",
        ),
        (
            " Process 4711 has 70.00 GiB memory in use. Process 4712 has 7.50 GiB memory in use."
            " Of the allocated memory 37.21 GiB is allocated by PyTorch, and 1.00 MiB is reserved",
            "likeliest 4711, since PyTorch had allocated 37.21 GiB.",
        ),
        (
            " Process 4711 has 70.00 GiB memory in use. Of the allocated memory 71.00 GiB is allocated by PyTorch",
            "On this GPU process 4711 held 70.00 GiB.",
        ),
        (
            " Process 4711 has 70.00 GiB memory in use. Process 4712 has 7.50 GiB memory in use.",
            f"one of these is this process itself, {ITSELF}.",
        ),
    ],
)
def test_in_a_container_no_process_is_blamed(said: str, told: str) -> None:
    """The driver tells the numbers of processes on the host: torch lists itself as if it were another process."""
    before = Explanation("cuda-oom-training", "critical", "t", "The batch does not fit.", "Shorten it.")
    found = with_neighbours(before, OOM + said)
    assert found.cause.startswith("The batch does not fit. On this GPU process 4711 held 70.00 GiB")
    assert found.cause.endswith(told) and found.fix == "Shorten it."


@pytest.mark.parametrize(
    "head", ["", 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n']
)
def test_the_verdict_names_the_other_process(head: str, tmp_path: Path) -> None:
    """Torch's words are the last line of a traceback, not its first."""
    other = " Process 4711 has 70.00 GiB memory in use." + OWN.format("7.48")
    log = tmp_path / "a.log"
    log.write_text(f"{head}torch.OutOfMemoryError: {OOM}{other}\n")
    cause = judge([read_log(log, "a.log")]).cause
    assert cause is not None and cause.fix.startswith("See what process 4711 is")
