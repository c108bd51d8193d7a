"""What to do is said to others without keys of our configuration; and who else was on a GPU is said first."""

from __future__ import annotations

import re

import pytest

from liverl.causes.catalogue import rows
from liverl.causes.finding import Explanation
from liverl.causes.verdict.gpu_neighbours import with_neighbours
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


@pytest.mark.parametrize(
    ("ours", "others"),
    [
        ("Shorten training.max_response_length.", "Shorten max response length."),
        (
            "Lower vllm.max_num_seqs or vllm.gen_tp",
            "Lower vLLM's max_num_seqs or vLLM's tensor_parallel_size",
        ),
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
        (" Process 4711 has 70.00 GiB memory in use.", True, "process 4711 held 70.00 GiB"),
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
