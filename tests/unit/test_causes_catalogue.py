"""The catalogue of causes: every row fires where it should, nowhere else, and says what to do."""

from __future__ import annotations

import re
import string
from collections import Counter
from pathlib import Path

import pytest
from kit import regexes
from kit.cause_table import table

from liverl.causes import patterns
from liverl.causes.catalogue import by_id, rows
from liverl.causes.match import Matcher
from liverl.causes.signature import Signature
from liverl.causes.verdict.words import REWARD_FILE, explained
from liverl.config.schema import leaves
from liverl.logs.record import Raised, Record

DATA = Path(__file__).parent.parent / "data"
BY_ID = by_id()

# Causes that also match the text of another row, and why that is right.
ALSO: dict[str, set[str]] = {
    # noise in the same line wins
    "urllib3-retries": {"host-unreachable"},  # noise in the same line wins
    "hub-tries-again": {"host-unreachable"},
    "litellm-cost-map": {"name-resolution"},
    "falls-back": {"flash-attn-module"},
    "ray-core-told-to-exit": {"ray-out-of-scope"},
    # counts only where nothing else is wrong
    "agent-not-installed": {"shell-command-missing"},
}

# Further near misses, of rows with more than one lookaround.
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity "
OOM += "of 79.18 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 78.00 GiB memory in use."
NEAR: dict[str, tuple[str, ...]] = {
    "argument-missing": (
        "TypeError: BackendCompilerFailed.__init__() missing 1 required positional argument: 'x'",
    ),
    "server-status-error": (
        "HTTPStatusError: Client error '404 Not Found' for url 'https://huggingface.co/acme/m/resolve/main/x'",
    ),
    "no-length": ("TypeError: argument of type 'NoneType' is not iterable",),
    "file-missing": ("FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",),
    "dynamo-failed": (
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\n"
        "CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', '-lcuda']' returned non-zero exit status 1.",
    ),
    "hub-unauthorized": (
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/acme/m\n\n"
        "GatedRepoError: 401 Client Error.\n\nCannot access gated repo for url https://huggingface.co/acme/m.",
    ),
    "cuda-oom-load": (
        f'  File "worker.py", line 3, in load_model\n  File "actor.py", line 9, in update_actor\n{OOM}',
    ),
    "cuda-oom-weight-sync": (
        f'  File "worker.py", line 3, in update_weights\n  File "actor.py", line 9, in update_actor\n{OOM}',
    ),
}


def schema_has(key: str) -> bool:
    """Whether the configuration has this key, or a section or table of this name."""
    return any(leaf == key or leaf.startswith(key + ".") for leaf in leaves()) or key.startswith(
        "environments."
    )


def templates(signature: Signature) -> list[str]:
    return [
        *(signature.title, signature.cause, signature.fix, signature.command),
        *signature.patch.values(),
    ]


def test_a_row_fires_on_its_text_and_spares_its_near_miss() -> None:
    wrong = {}
    for one in rows():
        pattern = re.compile(one.pattern)
        if (fires := bool(pattern.search(one.fires)), spares := not pattern.search(one.spares)) != (
            True,
            True,
        ):
            wrong[one.id] = {"fires": fires, "spares": spares}
    assert wrong == {}


def test_ids_are_unique() -> None:
    assert [name for name, count in Counter(one.id for one in rows()).items() if count > 1] == []


def test_a_row_says_what_happened_and_what_to_do() -> None:
    told = [one for one in rows() if one.role != "noise"]
    assert [one.id for one in told if not one.fix] == []
    assert [one.id for one in told if bool(one.cause) != one.explains] == []
    sentences = [(one.id, text) for one in told for text in (one.cause, one.fix) if text]
    assert [sentence for sentence in sentences if not re.search(r"[.!}]$", sentence[1])] == []


def test_words_name_only_groups_that_every_match_captures() -> None:
    wrong = {}
    for one in rows():
        named = {name for text in templates(one) for _, name, _, _ in string.Formatter().parse(text) if name}
        certain = patterns.certain_groups(one.pattern)
        if missing := named - certain - ({"meant"} if "key" in certain else set()) - {REWARD_FILE}:
            wrong[one.id] = missing
    assert wrong == {}


def test_rows_of_short_gpu_memory_say_so() -> None:
    """Who else holds memory on the GPU is told of these only."""
    device = re.compile(r"GPU|NPU|CUDA|KV cache|sampler", re.IGNORECASE)
    short = re.compile(
        r"out of memory|no memory|(?:not enough|no) (?:free )?memory|memory is (?:full|held)|occupied by"
    )
    silent = [
        one.id
        for one in rows()
        if short.search(one.title) and device.search(one.title) and not one.gpu_memory
    ]
    assert silent == []


def test_a_title_is_one_short_line() -> None:
    titles = {}
    for one in rows():
        match = re.search(one.pattern, one.fires)
        titles[one.id] = one.title.format(**match.groupdict()) if match else ""
    assert {i: t for i, t in titles.items() if not 0 < len(t) <= 80 or "\n" in t or t.endswith(".")} == {}


def test_a_patch_sets_keys_that_exist() -> None:
    assert [(one.id, key) for one in rows() for key in one.patch if not schema_has(key)] == []


def test_a_fix_names_keys_that_exist() -> None:
    sections = (
        "run|model|data|infrastructure|vllm|training|algorithm|harbor_agent|harbor_runtime|trainer|agent|ray|"
    )
    sections += "verl|proxy|session_proxy|supervise|observe|environments|environment|reward|embedded"
    key = re.compile(rf"(?<![\w.\-/~{{])((?:{sections})\.[a-z]\w*(?:\.\w+)*)(?![\w(])")
    named = [(one.id, name) for one in rows() for name in key.findall(f"{one.cause} {one.fix}")]
    # trainer.nnodes, trainer.n_gpus_per_node and trainer.logger are verl's, ray.kill is Ray's.
    ours = [row for row in named if not row[1].startswith(("trainer.n", "trainer.logger", "ray.kill"))]
    assert len(ours) > 50
    assert [row for row in ours if not schema_has(row[1])] == []


def test_a_needle_is_in_every_match() -> None:
    assert [one.id for one in rows() if not one.needle and one.role != "noise"] == []
    assert [
        one.id
        for one in rows()
        if not any(one.needle in run for run in ["", *patterns.literals(one.pattern)])
    ] == []


def test_a_consequence_names_rows_that_exist() -> None:
    assert [(one.id, cause) for one in rows() for cause in one.of if cause not in BY_ID] == []
    assert [one.id for one in rows() if one.of and one.role != "consequence"] == []


def test_no_other_cause_matches_the_text_of_a_row() -> None:
    """But for general rows, which give way to the others, and for those that another one is before."""
    causes = [(one, re.compile(one.pattern)) for one in rows() if one.explains]

    def gives_way(other: Signature, one: Signature) -> bool:
        return other.id in one.before or (other.role == "general" and one.role != "general")

    others = {
        one.id: {
            other.id
            for other, pattern in causes
            if other is not one and pattern.search(one.fires) and not gives_way(other, one)
        }
        for one in rows()
    }
    assert {name: found for name, found in others.items() if found} == ALSO


def test_a_needle_is_more_than_a_number() -> None:
    """Lines are known by their shapes without digits: what is left of a needle must not stand in most of them."""
    bare = {one.id: re.sub(r"[\d\s]", "", one.needle) for one in rows() if re.search(r"\d", one.needle)}
    assert {row: text for row, text in bare.items() if len(text) < 5} == {}


FRONT = re.compile(
    r"^(?:\(\?:\(\?<=: \)\|\(\?<!\[(?:[^\]\\]|\\.)+\]\)\)|\(\?<!(?:\\S|\[(?:[^\]\\]|\\.)+\])\))(?=\(\?P<|\\S\{)"
)


def test_no_lookaround_of_a_pattern_is_idle() -> None:
    """Without it, the row would match its near miss, the text of another row, or one of ``NEAR``; but for one that
    keeps a run of characters at the front from being tried anew from each of them (tests/bench/slow_patterns.py)."""
    idle = []
    for one in rows():
        others = [one.spares, *NEAR.get(one.id, ()), *(row.fires for row in rows() if row is not one)]
        assert not any(re.search(one.pattern, text) for text in NEAR.get(one.id, ()))
        idle += [
            (one.id, wider)
            for wider in regexes.without_lookarounds(FRONT.sub("", one.pattern))
            if not any(re.search(wider, text) for text in others)
        ]
    assert idle == []


def test_a_search_takes_linear_time() -> None:
    reasons = {one.id: regexes.unbounded(one.pattern) for one in rows()}
    assert {name: why for name, why in reasons.items() if why} == {}


def test_the_table_lists_each_row_with_what_it_rests_on() -> None:
    lines = table(rows())
    for signature in rows():
        (row,) = (line for line in lines if line.split()[0] == signature.id)
        assert ("recording" in row.split()) == signature.recorded


def test_a_row_that_reads_frames_is_quoted_with_its_exception() -> None:
    signature = BY_ID["cuda-oom-load"]
    head, *more, last = signature.fires.split("\n")
    raised = (Raised("TimeoutError", "first"), Raised(*last.split(": ", 1)))
    record = Record(0, 1, text=head, kind="traceback", more=(*more, last), raised=raised)
    (match,) = Matcher([signature]).of(record)
    assert (match.text, match.raised, match.groups["tried"]) == (last, 1, "224.00 MiB")


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("trainer.max_ckpt_to_keep", "trainer.max_actor_ckpt_to_keep"),
        ("trainer.nodes", "trainer.nnodes"),
        ("+trainer.n_gpu_per_node", "trainer.n_gpus_per_node"),
        ("data.train_batchsize", "data.train_batch_size"),
        ("dat.train_batch_size", "data.train_batch_size"),
        ("actor_rollout_ref.rollout.no_such_key", ""),
        ("trainer.zzz", ""),
        ("foo.bar", ""),
    ],
)
def test_a_wrong_key_of_verl_is_told_with_the_nearest_one(key: str, near: str) -> None:
    text = f"Could not override '{key}'.\nTo append to your config use +{key}=3"
    record = Record(0, 1, text=text.split("\n")[0], more=(text.split("\n")[1],))
    (match,) = Matcher([BY_ID["hydra-renamed"]]).of(record)
    fix = explained(match, ()).fix
    assert (f"launch script (did you mean {near}?):" in fix) == bool(near)
    assert ("did you mean" in fix) == bool(near), fix
