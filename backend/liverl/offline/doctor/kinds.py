"""What a file is, by its name and its first and last bytes. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from liverl.offline.doctor.up_output import KIND, is_output
from liverl.procs.stack_text import is_stacks

HEAD = 64 << 10  # bytes at each end of a file that are looked at
_CONTROL = re.compile(
    rb"[\x01-\x06\x0e-\x1a\x1c-\x1f]"
)  # not in text: ESC, tab, form feed and backspace may be


class Kind(NamedTuple):
    """``words``: for people; ``log``: whether a process may have written there why it ended; ``missed``: likewise, but
    in a form that is not read."""

    words: str
    log: bool
    missed: bool = False


PACKED = "compressed"  # how the words of a packed file begin
_DATA = {
    **dict.fromkeys((".json", ".jsonl"), "JSON data"),
    **dict.fromkeys((".yaml", ".yml", ".toml", ".ini", ".cfg"), "a configuration file"),
    **dict.fromkeys((".py", ".sh", ".sbatch", ".ipynb"), "a program"),
    **dict.fromkeys((".csv", ".tsv", ".parquet", ".arrow"), "tabular data"),
    **dict.fromkeys((".md", ".rst", ".html"), "a document"),
    **dict.fromkeys((".safetensors", ".pt", ".pth", ".bin", ".distcp"), "model weights"),
    **dict.fromkeys((".gz", ".xz", ".bz2"), f"{PACKED}; read only if you name it"),
    **dict.fromkeys((".zst", ".zip", ".tar", ".tgz"), f"{PACKED}; unpack it first"),
    ".idx": "an index of log times",
}
STACKS = "stacks of a process that hung"
TRANSCRIPT = "transcript of a trial: what fails in its sandbox belongs to its task"
_RAY_NAMES = (
    (re.compile(r"raylet\.(?:\d+\.)?(?:out|err|log)$"), "log of Ray's raylet"),
    (re.compile(r"gcs_server\.(?:out|err|log)$"), "log of Ray's GCS"),
    (re.compile(r"(?:\w+-)?worker-.*\.(?:out|err|log)$"), "log of a Ray worker"),
    (
        re.compile(
            r"(?:dashboard\w*|monitor|log_monitor|agent|runtime_env_agent)(?:-\d+)?\.(?:out|err|log)$"
        ),
        "log of a Ray service",
    ),
    (re.compile(r"job-driver-.*\.log$"), "log of a Ray job"),
)
# What runs of agents write: recordings of terminals of Harbor and Terminal-Bench, and their own output
_TRANSCRIPT = re.compile(
    rb"asciinema: (?:recording asciicast|asciicast saved) to /logs/|mini-swe-agent|\[swea?-agent\b|"
    rb"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT|openhands:(?:INFO|ERROR|WARNING)|"
    rb'^\{"type": ?"(?:system|assistant|user)", ?"(?:subtype|message)"|OpenAI Codex v\d',
    re.M,
)
_TRAINER = re.compile(
    rb"\((?:TaskRunner|main_task) pid=|main_ppo|\bverl[./ ]|(?:^|\s)step:\d+ - |HYDRA_FULL_ERROR|resource_pool_spec"
)
# A server's own lines, which name the model's path among its arguments; a trainer's Ray puts a prefix before them.
_SERVER = re.compile(
    rb"^(?:\(APIServer pid=\d+\) )?INFO [^\n]{0,60}(?:vLLM API server version|non-default args: )", re.M
)
_TRAINS = re.compile(
    rb"\((?:TaskRunner|main_task) pid=|main_ppo|(?:^|\s)step:\d+ - |HYDRA_FULL_ERROR|resource_pool_spec"
)
# By content, the most special first: a trainer's log has lines of its engines, too.
_CONTENT = (
    (re.compile(rb"^# (?:HELP|TYPE) \w", re.M), Kind("Prometheus metrics", False)),
    (_TRAINS, Kind("trainer log (verl, Ray)", True)),
    (_SERVER, Kind("vLLM log", True)),
    (_TRAINER, Kind("trainer log (verl, Ray)", True)),
    (re.compile(rb"TrainRayActor pid="), Kind("trainer log (slime, Ray)", True)),
    (
        re.compile(
            rb"sglang_router(?:_rs)?::|\[Router \(Rust\)\]|\bsmg(?:::|_gateway)|sglang_router\.launch"
        ),
        Kind("SGLang router log", True),
    ),
    (
        re.compile(
            rb"The server is fired up and ready|(?:Decode|Prefill) batch[^\n]{0,40}, #|server_args=ServerArgs|"
            rb"sglang\.srt|\bsglang/|self\.watchdog_timeout="
        ),
        Kind("SGLang log", True),
    ),
    (re.compile(rb"LiteLLM|litellm\.|\blitellm\b"), Kind("LiteLLM log", True)),
    (
        re.compile(
            rb"vLLM API server|\(APIServer|\(EngineCore|LLM engine \(v|(?:api_server|core|async_llm)\.py:\d+\]|vllm\."
        ),
        Kind("vLLM log", True),
    ),
    (re.compile(rb"\[rank\d+\]:|torch\.distributed|torchrun|elastic_launch"), Kind("torch log", True)),
    (
        re.compile(rb"\(raylet\)|\(gcs_server\)|Started a local Ray instance|ray\.exceptions"),
        Kind("Ray log", True),
    ),
    (re.compile(rb"oom-kill:|Out of memory: Killed process|NVRM: Xid"), Kind("kernel log", True)),
)
_SLURM = re.compile(rb"^(?:slurmstepd(?:-[^\s:]{1,64})?|srun|slurm_script|sbatch): ", re.M)
# A log that was cut while its writer went on, at another place than its beginning, has a run of zeros in it.
_ZEROS = re.compile(rb"\0{16,}")
_OWN_LOG = re.compile(r"[\w-]+\.\d+\.log$")
# Of a file in a form that is not read, whose content cannot tell
_MAY_BE_LOG = re.compile(
    r"(?:^|[._-])(?:log|out|err|stdout|stderr|output)s?(?:[._-]|$)|^(?:slurm|raylet|gcs_server|train|trainer|worker)\b",
    re.I,
)
_LOG_NAME = re.compile(r"\.(?:log|out|err|stdout|stderr|txt)(?:\.\d+)?$|^[^.]+$|^slurm-")


def kind_of(name: str, head: bytes, tail: bytes = b"", *, named: bool = True, own: bool = False) -> Kind:
    """What a file with these first and last bytes is. ``named``: the user asked for this very file, so that any text
    is taken for a log; ``own``: it lies among the logs of a run of this program."""
    if not head:
        return Kind("empty", False)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Kind("text in UTF-16; convert it first: iconv -f utf-16 -t utf-8", False, True)
    # A log that was emptied while its writer went on begins with zeros.
    head = head.lstrip(b"\0") or tail.lstrip(b"\0") or head
    head = _ZEROS.sub(b"", head) or head
    suffix = name[name.rfind(".") :].lower() if "." in name else ""
    data = _DATA[".tar"] if ".tar." in name.lower() else _DATA.get(suffix)
    if b"\0" in head or len(_CONTROL.findall(head)) * 20 > len(head):
        return Kind(data or "binary", False, _may_be_log(name, data))
    if data is not None:
        return Kind(data, False, _may_be_log(name, data))
    if is_stacks(head[:4096].decode("utf-8", "replace")):
        return Kind(STACKS, False)
    sample = head + b"\n" + tail
    if not own and _TRANSCRIPT.search(sample) and not _TRAINER.search(sample):
        return Kind(TRANSCRIPT, True)
    for pattern, words in _RAY_NAMES:
        if pattern.search(name):
            return Kind(words, True)
    if not own and is_output(sample):
        return Kind(KIND, True)
    found = next((kind for pattern, kind in _CONTENT if pattern.search(sample)), None)
    if found is None and _SLURM.search(sample):
        found = Kind("Slurm output", True)
    elif found is not None and found.log and _SLURM.search(sample):
        found = Kind(f"Slurm output with a {found.words}", True)
    if own and _OWN_LOG.search(name):
        return Kind(f"liverl-tui's log of {name.split('.')[0]}", True)
    if found is not None:
        return found
    return Kind("text", named or _LOG_NAME.search(name) is not None)


def _may_be_log(name: str, data: str | None) -> bool:
    """Whether a file that is not read has the name of a log. ``data``: what its name says that it is."""
    packed = data is not None and data.startswith(PACKED)
    return (packed or data is None) and _MAY_BE_LOG.search(name) is not None
