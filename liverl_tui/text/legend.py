"""What each column head and mark of a screen means, one line each, for its help. Pure.

A test holds every head and glyph that the dashboard can draw against ``LEGEND``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Mark(NamedTuple):
    """``marks``: what stands on the screen, in each of its forms; ``meaning``: at most 50 columns, so that a line fits
    a terminal of 80."""

    marks: tuple[str, ...]
    meaning: str


LEGEND: dict[str, tuple[tuple[str, tuple[Mark, ...]], ...]] = {
    "dashboard": (
        (
            "The first rows",
            (
                Mark(("0.20 → 0.50",), "mean reward of the first and the last three steps"),
                Mark(("learning", "flat", "falling"), "what the rewards prove; noise alone proves nothing"),
                Mark(("all solved",), "all rewards are full: nothing is left to learn"),
                Mark(("nearly all solved",), "the same, but for a trial now and then"),
                Mark(("read-only", "ro"), "this view changes nothing of the run"),
                Mark(("val",), "validation score: first → newest, and the best"),
                Mark(("tools 30/32",), "trials of the newest step that called a tool"),
                Mark(("KL",), "how far the policy has moved from its reference"),
                Mark(("v59", "policy v59"), "policy version: weights after that many updates"),
                Mark(("▲", "✖"), "something is wrong; ✖ is worse"),
                Mark(("▶", "■", "‖"), "follows or plays; has ended; is paused"),
                Mark(("↻", "→"), "starts again after a delay; what to do about it"),
            ),
        ),
        (
            "GPUs and processes",
            (
                Mark(("gpu",), "number of the GPU on its host"),
                Mark(("util",), "share of the time in which the GPU computed"),
                Mark(("memory", "mem%"), "GPU memory used of all, and as a share"),
                Mark(("power", "temp", "clock"), "watts of its limit, temperature, clock"),
                Mark(("owner", "state"), "which service holds it, and how that is"),
                Mark(("history", "▁▄█"), "the past 15 minutes, now at the right"),
                Mark(("╸━─",), "the same number as a bar"),
                Mark(("service", "host", "kind"), "the process, its host, and what it is"),
                Mark(("cpu", "mem", "procs"), "% of one core, memory, number of its processes"),
            ),
        ),
        (
            "Replicas",
            (
                Mark(("replica",), "an inference engine, which answers model calls"),
                Mark(("proxy", "listed"), "new calls go to it: ● in, ○ out, ▲ cool (failed)"),
                Mark(("run/wait", "running/waiting"), "requests that it works on / that wait for it"),
                Mark(("running", "waiting"), "the same, each by itself"),
                Mark(("tok/s",), "tokens generated a second"),
                Mark(("s/ans", "s/answer"), "of the engine alone, last minute; I: whole calls"),
                Mark(("KV",), "share of its KV cache in use; full: requests wait"),
                Mark(("policy",), "version of its weights; amber: behind the trainer"),
                Mark(("prefix", "prefix hits"), "share of prompt tokens that its prefix cache had"),
                Mark(("rst", "restarts"), "how often it was started again"),
                Mark(("up", "gen"), "how long it serves; number of the process, from 1"),
                Mark(("port", "address"), "where it listens"),
                Mark(("answers", "tokens"), "answered requests, generated tokens since start"),
            ),
        ),
        (
            "Logs",
            (
                Mark(("•", "·"), "an event; a detail"),
                Mark(("‹", "›"), "more services to the left, to the right"),
                Mark(("●", "○", "◌", "◐", "◑"), "states: see below"),
            ),
        ),
        (
            "Trajectories",
            (
                Mark(("group", "▸ ×8", "▾ ×8"), "8 trials of one prompt in a row; Enter opens it"),
                Mark(("step", "val8", "v12"), "training step; validation after step 8, step 12"),
                Mark(("task", "name"), "what it was about; name of the trial"),
                Mark(("turns", "calls"), "answers of the model; tool calls"),
                Mark(("tools", "tools 8/8"), "trials that called a tool, of those that show it"),
                Mark(("trials",), "how many run, are done, were cut off"),
                Mark(("reward", "mean 0.50 ±0.20"), "its reward; of a group mean ± deviation"),
                Mark(("mean reward", "dev"), "of the step's trained trials; deviation in a group"),
                Mark(("finish", "endings"), "how it ended: submitted, max turns, an exception"),
                Mark(("time",), "how long it took, or takes so far"),
                Mark(("flags",), "what looks wrong with it: it is a flagged trial"),
                Mark(("flagged first",), "flagged of the last 2 steps, newest, running, rest"),
                Mark(("same reward",), "all rewards of the group are equal: no signal"),
                Mark(("last call or words",), "the last thing that the model did or said"),
                Mark(("✔", "◐", "○"), "done, running, cut off"),
            ),
        ),
    ),
    "runs": (
        (
            "Runs",
            (
                Mark(("reward",), "mean of the first → the last three steps"),
                Mark(("learning?",), "what its rewards prove"),
                Mark(("learning", "flat", "falling"), "they rise, stay or fall by more than noise"),
                Mark(("unclear", "too early"), "no clear trend; too few steps to tell one"),
                Mark(("all solved",), "all rewards are full: nothing is left to learn"),
                Mark(("near solved",), "nearly all solved: a trial now and then is not"),
                Mark(("steps",), "done, of those that are planned"),
            ),
        ),
    ),
    "timeline": (
        (
            "Lanes",
            (
                Mark(("52 × 0.9s",), "52 calls, mean time from arrival at the proxy"),
                Mark(("of the step",), "what each share in the column below is of"),
                Mark(("▁▄█",), "calls in flight, or how busy the GPU was"),
                Mark(("0.50 v4 -1",), "reward, policy version, versions behind"),
                Mark(("…", "-"), "the trial runs; it has no reward"),
                Mark(("•", "▲", "✖"), "all steps: an alert began, or a replica is slow"),
            ),
        ),
    ),
}


def sections(scopes: Sequence[str]) -> Iterator[tuple[str, tuple[Mark, ...]]]:
    """The sections of the screen whose keys are active: title and marks."""
    for scope in dict.fromkeys(scopes):
        yield from LEGEND.get(scope, ())
