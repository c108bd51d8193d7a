"""Whose code an exception was raised in, and who called it: what the frames of a traceback tell. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from liverl.logs.record import Record
from liverl.logs.tracebacks import ungrouped
from liverl.util.late_pattern import late_pattern

_FRAME = late_pattern(r'\s{1,8}File "([^"\n]{1,400})", line (\d{1,9})(?:, in (.{1,200}))?')
_MARKS = late_pattern(r"\s*[\^~]+[\s\^~]*$")
_INSTALLED = late_pattern(r"/(?:site|dist)-packages/([A-Za-z_]\w*)")
# Source trees that are used without being installed: <checkout>/<package>/<part of the package>.
_SOURCES = late_pattern(
    r"(?:^|/)(?:"
    r"(verl)/(?:trainer|workers|utils|single_controller|experimental|models|tools|interactions|checkpoint_engine"
    r"|third_party|protocol\.py|__init__\.py)"
    r"|recipe/\w{1,40}/\w{1,60}\.py$"
    r"|(liverl)/(?:agents|embedded|proxy|sessions|supervise|verl_runtime|util)"
    r"|(vllm)/(?:v1|engine|entrypoints|model_executor|config|worker|executor|distributed|transformers_utils|utils|lora)"
    r"|(sglang)/(?:srt|launch_server|lang)"
    r"|(megatron)/(?:core|training|bridge|legacy)"
    r"|(ray)/(?:_private|_raylet|util|exceptions|actor|dashboard|serve|train)"
    r"|(openrlhf|slime|areal|roll|swift|llamafactory|trl|skyrl_train)/(?:backends|cli|datasets|distributed|engine|extras"
    r"|generate|infra|inference_engines|llm|models|pipeline|plugins|ray|rollout|scripts|train|trainer|utils|workers|workflow)"
    r"|(atb_llm|mindie_llm)/(?:\w{1,40}/){0,4}\w{1,60}\.py$"  # MindIE's, below /usr/local/Ascend
    r"|(transformers|deepspeed|accelerate|peft|flash_attn|mbridge)/(?:src/)?(?:models|runtime|utils|core|tuners|ops)"
    r")"
)
_STANDARD = late_pattern(
    r"/lib(?:64)?/python\d(?:\.\d{1,2})?/(?!site-packages|dist-packages)|^<frozen |^<string>|^<__"
)
# Packages that only do what their caller asks: who called them is what counts.
_HELPERS = frozenset(
    [
        "torch",
        "numpy",
        "pandas",
        "requests",
        "httpx",
        "httpcore",
        "aiohttp",
        "urllib3",
        "sympy",
        "regex",
        "tensordict",
        "omegaconf",
        "hydra",
        "anyio",
        "uvloop",
        "datasets",
        "pyarrow",
        "jinja2",
        "PIL",
        "tqdm",
        "ray",
        "click",
        "pydantic",
        "cloudpickle",
        "safetensors",
        "openai",
        "tenacity",
        "einops",
        "codetiming",
        "msgspec",
        "yaml",
    ]
)


class Frame(msgspec.Struct, frozen=True):
    """``path``: as printed; ``function``: "" where none is named; ``source``: the line of code, "" if not printed."""

    path: str
    line: int
    function: str = ""
    source: str = ""

    @property
    def short(self) -> str:
        """``naive.py:88 in __call__``."""
        return f"{self.path.rpartition('/')[2]}:{self.line}" + (
            f" in {self.function}" if self.function else ""
        )

    @property
    def code(self) -> str:
        """The line of code as it can be quoted: without one that only raises, and marked where it goes on."""
        code = self.source.rstrip("\\ ")
        if code.startswith(("raise ", '"', "'", 'f"', "f'")) or code.count('"') % 2:
            return ""
        return code + " ...)" * code.endswith("(")

    @property
    def raises(self) -> bool:
        """Whether it raises by itself, and does not only call what raised."""
        return self.source.startswith(("raise ", "assert "))


class Origin(msgspec.Struct, frozen=True):
    """``at``: the innermost frame of code that decided something: not of Python itself, nor of a helper like torch;
    ``package``: whose code that is, "" for code that belongs to no known package; ``caller``: the package that called
    it, "" if none is known or it is the same; ``deep``: the innermost frame of all."""

    at: Frame
    package: str
    caller: str
    deep: Frame

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that take part, the innermost first."""
        return tuple(dict.fromkeys(name for name in (self.package, self.caller) if name))


def origin_of(record: Record, index: int) -> Origin | None:
    """Where ``record.raised[index]`` was raised; None if no frame of it is known."""
    frames = frames_of(record, index)
    named = [(frame, package_of(frame.path)) for frame in frames]
    deciding = [(frame, name) for frame, name in named if name is not None and name not in _HELPERS]
    deciding = deciding or [(frame, name) for frame, name in named if name]
    if not deciding:
        return None
    at, package = deciding[-1]
    caller = next((name for _, name in reversed(deciding) if name and name != package), "")
    return Origin(at, package or "", caller, frames[-1])


def frames_of(record: Record, index: int) -> tuple[Frame, ...]:
    """The frames of an exception of a traceback, the outermost first; those of a long one may be missing."""
    final = record.raised[index].text.partition("\n")[0].strip()
    found: tuple[Frame, ...] = ()
    open_: list[Frame] = []
    for line in (record.text, *record.more):
        text = ungrouped(line)
        frame = _FRAME.match(text)
        if frame is not None:
            open_.append(Frame(frame[1], int(frame[2]), frame[3] or ""))
        elif text[:1].isspace() and open_:
            if not open_[-1].source and not _MARKS.match(text):
                open_[-1] = msgspec.structs.replace(open_[-1], source=text.strip())
        elif text.strip() and open_ and not _MARKS.match(text):
            if text.strip() == final:
                found = tuple(open_)
            open_.clear()
    return found


def package_of(path: str) -> str | None:
    """The package that a file belongs to, "" for one of no known package; None for Python's own and for programs."""
    installed = _INSTALLED.search(path)
    if installed is not None:
        return installed[1]
    source = _SOURCES.search(path)
    if source is not None:
        return next((name for name in source.groups() if name), "verl")
    checkout = _of_checkout(path)
    if checkout:
        return checkout
    if _STANDARD.search(path) or not path.endswith(".py"):
        return None
    return ""


def _of_checkout(path: str) -> str:
    """The package of a checkout that is named like it (``/w/agent-lightning/agentlightning/trainer.py``); else ""."""
    parts = [part for part in path.split("/")[:-1] if part not in ("src", "python")]
    for folder, package in pairwise(parts):
        if package.isidentifier() and _bare(folder) == _bare(package):
            return package
    return ""


def _bare(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def told_place(origin: Origin) -> str:
    """A sentence: whose code raised it, and who called that."""
    frame = origin.at
    by = f", called by {origin.caller}" if origin.caller else ""
    line = f": {frame.code}" if frame.code else ""
    if origin.package:
        return f"It comes from {origin.package} ({frame.short}{line}){by}."
    return (
        f"It comes from {frame.path}:{frame.line}{_function(frame)}{line}, which is no installed package{by}."
    )


def versions_command(packages: Sequence[str]) -> str:
    """A command that shows the installed versions of these packages."""
    return f"pip list | grep -iE '^({'|'.join(name.replace('_', '.') for name in packages)})'"


def _function(frame: Frame) -> str:
    return f" in {frame.function}" if frame.function and frame.function != "<module>" else ""
