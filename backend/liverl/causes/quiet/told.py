"""Reads from the log of a trainer or of its launch script what it says of its work: steps, epochs, batches, jobs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from liverl.logs.prefixes import colourless, without_prefix
from liverl.model import Evidence
from liverl.util.regular_file import open_binary

BLOCK = 1 << 20  # bytes read at a time
MOST = 32 << 20  # bytes of one log that are read, about 2 s: its beginning, where totals stand, and its end
HEAD = 8 << 20  # of those, bytes of its beginning
LONGEST = 1 << 16  # bytes of one line that are looked at
MOST_BARS = 200  # bars with different totals that are remembered
SHOWN = 200  # characters of a line that are kept


class Submitted(msgspec.Struct, frozen=True):
    """A job that a script has handed to a scheduler. ``system``: ray, slurm or kubernetes; ``address``: of Ray's job
    server; ``end``: how its log says that the job ended (succeeded, failed, stopped), empty if it does not."""

    system: str
    id: str
    address: str = ""
    end: str = ""


class Told(msgspec.Struct, frozen=True):
    """What the log of one process, or several logs together, say. None or empty: the log does not say it.

    ``total``: steps of the whole training, by the trainer's own sentence; ``bar``: by verl's bar of its progress;
    ``counted``: by another bar or counter of a training ("step 3/20"); ``configured``: by the configuration that it
    printed; ``asked``: by a command line in the log. ``step``: newest training step; ``made``: steps of this process,
    None if no trainer has printed anything; ``began``: step at which it began, 0 from scratch; ``batches``: of one
    epoch; ``epochs``: passes over the data; ``val_only``: it was told to validate only; ``used_up``: the line that says
    that the data is used up; ``checkpoint``: from which it went on; ``jobs``: in the order of their submission;
    ``background``: the line that shows a program that was put into the background; ``progress_at``: byte behind the
    last sign of progress, -1 without one; ``signs_at``: behind the last line of a trainer about its steps; ``closed``:
    the line by which a trainer, or its script, says that it ends; ``trains``: a trainer has printed something;
    ``proofs``: of each fact by its name, of a job by its id, the line that tells it.
    """

    total: int | None = None
    bar: int | None = None
    counted: int | None = None
    configured: int | None = None
    asked: int | None = None
    step: int | None = None
    made: int | None = None
    began: int | None = None
    batches: int | None = None
    epochs: int | None = None
    val_only: bool = False
    used_up: str = ""
    checkpoint: str = ""
    jobs: tuple[Submitted, ...] = ()
    background: str = ""
    progress_at: int = -1
    signs_at: int = -1
    closed: str = ""
    trains: bool = False
    proofs: dict[str, Evidence] = {}

    @property
    def has_bar(self) -> bool:
        """Whether a trainer has begun to count its steps."""
        return self.bar is not None or self.counted is not None


def read_told(path: str | os.PathLike[str], start: int = 0, shown: str = "") -> Told:
    """What the log at ``path`` tells from byte ``start`` on. ``shown``: its path as shown; default: ``path``.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read, or is no regular file.
    """
    listening = Listening(shown or os.fspath(path))
    with open_binary(path) as file:
        size = os.fstat(file.fileno()).st_size
        parts = (
            [(start, size)] if size - start <= MOST else [(start, start + HEAD), (size - MOST + HEAD, size)]
        )
        for begin, end in parts:
            file.seek(begin)
            rest, at = b"", begin
            while at < end and (data := file.read(min(BLOCK, end - at))):
                at += len(data)
                block = rest + data
                cut = block.rfind(b"\n") + 1
                if not cut and len(block) < LONGEST:
                    rest = block
                    continue
                listening.hear(block[: cut or len(block)], at - len(block))
                rest = block[cut:] if cut else b""
            listening.hear(rest, at - len(rest))
    return listening.told


def joined(parts: Sequence[Told]) -> Told:
    """What several logs of one process tell together: a script may write its trainer's log elsewhere. The first one
    that tells a fact counts, except for numbers that grow."""
    found: dict[str, Any] = {}
    for part in parts:
        for name in Told.__struct_fields__:
            value = getattr(part, name)
            if name == "proofs":
                found[name] = {**value, **found.get(name, {})}
            if value is None or value in ("", ()) or value is False or name in _OF_A_LOG:
                continue
            if name in ("step", "made") and name in found:
                found[name] = max(found[name], value)
            else:
                found.setdefault(name, value)
    return Told(**found)


_OF_A_LOG = ("progress_at", "signs_at", "proofs")  # facts about one log, or joined otherwise
_WORDS = r"(?:training(?: progress| steps?)?|train(?: steps?)?|(?:global )?steps?|iterations?)"
# tqdm's bars of a training; those of downloads and of maps over a data set have other names
_BAR = re.compile(
    rf"(?:^|[\s\])])({_WORDS})\s{{0,3}}:\s{{0,4}}\d{{1,3}}%\|[^|\n]{{0,200}}\|\s{{0,3}}(\d{{1,12}})/(\d{{1,12}}) \[",
    re.IGNORECASE,
)
# A bar without a name, as transformers' Trainer draws it. It counts only if its total is the announced one.
_NAMELESS = re.compile(r"\d{1,3}%\|[^|\n]{0,200}\|\s{0,3}(\d{1,12})/(\d{1,12}) \[")
# "step 3 | loss 0.5", "global_step=3 reward=0.1", of a trainer that prints neither bar nor verl's lines
_PLAIN_STEP = re.compile(
    r"(?:^|[\s\[(|])(?:(?:global|train(?:ing)?)[ _])?(?:step|iteration|iter)\s{0,3}[:=#]?\s{0,8}(\d{1,12})\b"
    r"(?!\s{0,3}[/%])",
    re.IGNORECASE,
)
# "step 25/100", "iteration      100/    1000 | consumed samples", "Step 25 of 100"
_COUNTER = re.compile(
    r"(?:^|[\s\[(|])(?:(?:global|train(?:ing)?)[ _])?(?:step|iteration|iter)\s{0,3}[:=#]?\s{0,8}"
    r"(\d{1,12})\s{0,8}(?:/|of)\s{0,8}(\d{1,12})\b",
    re.IGNORECASE,
)
_OTHER_COUNTS = re.compile(
    r"\b(?:eval|valid|test|warm|download|load|captur|epoch|prefill|decod|build|install|setup)", re.IGNORECASE
)
_MEASURED = re.compile(
    r"\b(?:loss|reward|lr|learning[ _]rate|grad[ _]norm|score|kl|acc|accuracy|consumed|elapsed|it/s|s/it|tokens)\b",
    re.IGNORECASE,
)
_STEP = re.compile(r"(?:^|[\s)\]])step:(\d{1,18}) - (\S[^\r\n]*)")
_TOTAL = re.compile(
    r"Total (?:number of )?(?:training|train|optimization) steps\s{0,3}[:=]\s{0,3}([\d,]{1,18})",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"\b(total_training_steps|total_epochs|val_only)['\"]?(=|\s{0,3}:\s{0,3})['\"]?([A-Za-z0-9_.-]{1,20})"
)
_LOADER = re.compile(r"Size of train dataloader:\s{0,3}(\d{1,12})")
_BEGAN = re.compile(r"[Ss]etting global step to (\d{1,18})|(Training from scratch)")
_FROM = re.compile(r"(?:Resuming from|Load from checkpoint folder:|Found checkpoint:) (\S+?),?(?:\s|$)")
_SERVER = re.compile(r"Job submission server address: (\S+)")
_SUBMITTED = re.compile(r"Job '([^'\s]{1,200})' submitted successfully")
_ENDED = re.compile(r"Job '([^'\s]{1,200})' (succeeded|failed|was stopped)")
_SLURM = re.compile(r"^Submitted batch job (\d{1,12})\b")
_KUBERNETES = re.compile(r"^([\w-]{0,20}job(?:\.[\w.-]{1,60})?/[\w.-]{1,200}) created\b")
_BACKGROUND = re.compile(
    r"^nohup: (?:ignoring input|appending output)|^\++ (?:nohup|setsid|disown|tmux new\S* -d|screen -d)\b"
)
_USED_UP = re.compile(
    r"\bdata(?:set|loader| loader)? (?:is |was |has been )?(?:exhausted|used up)|"
    r"\bno more (?:data|batches|samples|prompts)\b|\bout of (?:data|samples|prompts)\b",
    re.IGNORECASE,
)
_CLOSED = re.compile(
    r"^wandb: (?:Run summary|Run history|finished)|Final validation metrics|"
    r"training finished at global step|^real\s+\d+m|"
    r"\b(?:finished|exited|completed|done|ended) with (?:exit )?(?:code|status)\s{0,2}:?\s?0\b",
    re.IGNORECASE,
)
# verl prints it in its last step, which its bar may not show any more.
_FINAL = "Final validation metrics"
_TRAINS = re.compile(
    r"train and validate dataloader initialized|'actor_rollout_ref'|Initial validation metrics|"
    r"\bmain_ppo\b|Training Progress:"
)
# Text that stands in every line which is looked at.
_NEEDLES = (
    *(
        b"tep:",
        b"tep ",
        b"tep=",
        b"tep#",
        b"tep[",
        b"teps:",
        b"teps =",
        b"STEP",
        b"teration",
        b"iter ",
        b"iter:",
        b"iter=",
    ),
    *(
        b"%|",
        b"total_training_steps",
        b"total_epochs",
        b"val_only",
        b"train dataloader",
        b"validate dataloader",
    ),
    *(b"from scratch", b"global step to", b"esuming from", b"checkpoint folder:", b"Found checkpoint:"),
    *(
        b"Job '",
        b"Job submission",
        b"Submitted batch",
        b" created",
        b"nohup",
        b"+ setsid",
        b"+ disown",
        b"+ tmux",
    ),
    *(b"+ screen", b"xhausted", b"used up", b"o more ", b"out of data", b"out of samples", b"out of prompts"),
    *(b"wandb: Run", b"wandb: finished", b"validation metrics", b"training finished", b"real\t", b"real "),
    *(b"with exit", b"with code", b"with status", b"'actor_rollout_ref'", b"main_ppo"),
)


class Listening:
    """Reads a log block by block; collects the facts of ``Told``. ``log``: its path as shown; None without a file."""

    def __init__(self, log: str | None = None) -> None:
        self._log = log
        self._at = 0  # where the line begins that is being read
        self._text = ""
        self._proofs: dict[str, Evidence] = {}
        self._found: dict[str, Any] = {}
        self._jobs: dict[str, Submitted] = {}
        self._server = ""
        self._clear()

    def _clear(self) -> None:
        """Forget the steps of a trainer."""
        self._steps: set[int] = set()
        self._bars: tuple[int, int] | None = None  # the first and the newest number of its bar
        self._nameless: dict[
            int, tuple[int, int]
        ] = {}  # total of another bar -> its first and its newest number
        self._plain: set[int] = set()  # steps of lines in no known form
        for name in ("began", "bar", "counted", "used_up", "closed", "checkpoint"):
            self._found.pop(name, None)
        self._progress_at = self._signs_at = -1

    @property
    def told(self) -> Told:
        """What was told so far."""
        bars = self._bars or self._nameless.get(self._found.get("total") or 0)
        steps = self._steps or (set() if bars else self._plain)
        first, last = bars or (0, 0)
        began = self._found.get("began")
        known = [*steps, *([last] if bars else []), *([began] if began is not None else [])]
        speaks = bool(known) or "total" in self._found or bool(self._found.get("trains"))
        return Told(
            **self._found,
            step=max(known) if known else None,
            made=max(len(steps), last - first) if speaks else None,
            jobs=tuple(self._jobs.values()),
            progress_at=self._progress_at,
            signs_at=self._signs_at,
            proofs={
                n: proof
                for n, proof in self._proofs.items()
                if n in self._found or n in self._jobs or n == "step"
            },
        )

    def _tell(self, **facts: Any) -> None:
        """Note facts that the present line tells."""
        self._found |= facts
        for name in facts:
            self._prove(name)

    def _prove(self, name: str) -> None:
        self._proofs[name] = Evidence(
            self._text[:SHOWN], self._log, self._at if self._log is not None else None
        )

    def hear(self, data: bytes, offset: int) -> None:
        """Read further whole lines. ``offset``: where they begin in the log."""
        for begin, end in _lines_of(data):
            text = data[begin : min(end, begin + LONGEST)].decode("utf-8", "replace")
            self._at = offset + begin
            for part in colourless(text).split("\r"):
                if part.strip():
                    prefix, line = without_prefix(part.strip())
                    self._line(line.strip(), offset + end, own=not prefix)

    def _line(self, text: str, end: int, *, own: bool) -> None:
        """Read one line. ``own``: the script printed it, and no actor: those may print what a model has written."""
        self._text = text
        for bar in _BAR.finditer(text) if "%|" in text else ():
            name = "bar" if bar[1].lower() == "training progress" else "counted"
            self._bar(name, int(bar[2]), int(bar[3]), end)
        for nameless in _NAMELESS.finditer(text) if "%|" in text else ():
            self._nameless_bar(int(nameless[1]), int(nameless[2]))
        if (match := _STEP.search(text)) is not None:
            self._found["trains"] = True
            step = int(match[1])
            validation = match[2].startswith("val-") and "training/" not in match[2]
            if step > 0 and not validation and step not in self._steps:
                self._steps.add(step)
                self._progress(end)
        elif (match := _TOTAL.search(text)) is not None:
            if self._steps or self._plain or (self._bars is not None and self._bars[1] > self._bars[0]):
                self._clear()  # another trainer begins
            self._found["trains"], self._signs_at = True, end
            self._tell(total=int(match[1].replace(",", "")) or None)
        elif (match := _COUNTER.search(text)) is not None and _counts_training(text, match.end()):
            self._bar("counted", int(match[1]), int(match[2]), end)
        elif (match := _PLAIN_STEP.search(text)) is not None and _counts_training(
            text, match.end(), alone=False
        ):
            self._plain.add(int(match[1]))
            self._signs_at = end
        else:
            self._places(text, end)
            for read in (self._keys, *((self._submissions,) if own else ()), self._signs):
                read(text)

    def _bar(self, name: str, done: int, total: int, end: int) -> None:
        self._found["trains"], self._signs_at = True, end
        self._tell(**{name: total or None})
        if self._bars is None or done < self._bars[1]:
            self._bars = done, done
        elif done > self._bars[1]:
            self._bars = self._bars[0], done
            self._progress(end)

    def _nameless_bar(self, done: int, total: int) -> None:
        if total in self._nameless or len(self._nameless) < MOST_BARS:
            first, last = self._nameless.get(total, (done, done))
            self._nameless[total] = (done, done) if done < last else (first, done)

    def _progress(self, end: int) -> None:
        self._progress_at = self._signs_at = end
        self._prove("step")
        for name in ("closed", "used_up"):
            self._found.pop(name, None)

    def _keys(self, text: str) -> None:
        """Values of the configuration that a trainer has printed, or of a command line."""
        for name, sign, value in _KEY.findall(text):
            if name == "val_only":
                self._tell(val_only=value.lower() == "true")
            elif value.isdigit() and int(value):
                key = "epochs" if name == "total_epochs" else "asked" if sign == "=" else "configured"
                self._tell(**{key: int(value)})

    def _places(self, text: str, end: int) -> None:
        if (match := _LOADER.search(text)) is not None:
            self._tell(batches=int(match[1]))
        if (match := _BEGAN.search(text)) is not None:
            self._signs_at = end
            self._tell(began=int(match[1]) if match[1] else 0)
        if (match := _FROM.search(text)) is not None:
            self._tell(checkpoint=match[1])

    def _submissions(self, text: str) -> None:
        if (match := _SERVER.search(text)) is not None:
            self._server = match[1]
        elif (match := _SUBMITTED.search(text)) is not None:
            self._job(Submitted("ray", match[1], self._server))
        elif (match := _ENDED.search(text)) is not None:
            job = self._jobs.get(match[1], Submitted("ray", match[1], self._server))
            self._job(msgspec.structs.replace(job, end=match[2].removeprefix("was ")))
        elif (match := _SLURM.search(text)) is not None:
            self._job(Submitted("slurm", match[1]))
        elif (match := _KUBERNETES.search(text)) is not None:
            self._job(Submitted("kubernetes", match[1]))

    def _job(self, job: Submitted) -> None:
        self._jobs[job.id] = job
        self._prove(job.id)

    def _signs(self, text: str) -> None:
        if _BACKGROUND.search(text) and "background" not in self._found:
            self._tell(background=text[:SHOWN])
        if _USED_UP.search(text):
            self._tell(used_up=text[:SHOWN])
        if _FINAL in text and self._bars is not None and self._bars[1] + 1 == self._found.get("bar"):
            self._bars = self._bars[0], self._bars[1] + 1
            self._prove("step")
        if _CLOSED.search(text):
            self._tell(closed=text[:SHOWN])
        if _TRAINS.search(text):
            self._found["trains"] = True


def _counts_training(text: str, behind: int, *, alone: bool = True) -> bool:
    """Whether "step 3/20" counts a training: it stands alone, or with what the step measured. Scripts number their own
    parts in the same way. ``alone``: it may stand alone."""
    rest = text[behind:].strip(" .])|")
    return not _OTHER_COUNTS.search(text) and (_MEASURED.search(rest) is not None if rest else alone)


def _lines_of(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of the lines that hold a needle, in their order."""
    begins = set()
    for needle in _NEEDLES:
        place = data.find(needle)
        while place >= 0:
            begin = data.rfind(b"\n", 0, place) + 1
            begins.add(begin)
            end = data.find(b"\n", place)
            place = data.find(needle, end) if end >= 0 else -1
    for begin in sorted(begins):
        end = data.find(b"\n", begin)
        yield begin, end if end >= 0 else len(data)
