"""The supervisor is killed at random moments and started again: what became of its children?"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator

from bench import Bench, Line, figure
from kit.waiting import wait_until
from peers import Ours, Peer, Toy
from processes import births, copies

from liverl.rundir.layout import RunDir

BEATS = [Toy(f"beat{number}", "beat") for number in range(3)]
PHASES = ("start", "ready", "restart", "stop")


def killed(bench: Bench) -> Iterator[Line]:
    rounds = 2 if bench.quick else 6
    for phase in PHASES:
        counts: dict[str, Counter[str]] = {}
        for _ in range(rounds):
            with bench.peers(f"kill-{phase}", BEATS) as peers:
                for peer in peers:
                    counts.setdefault(peer.title, Counter()).update(one_kill(bench, peer, phase))
        cells = {title: kill_words(count) for title, count in counts.items()}
        ours = counts["liverl"]
        # Where no child was alive at any kill, nothing was tried.
        ok = bool(ours["alive"]) and not (ours["lost"] or ours["doubled"] or ours["missing"] or ours["left"])
        damage = {
            title: float(count["lost"] + count["doubled"] + count["missing"] + count["left"])
            for title, count in counts.items()
        }
        told = f"kill -9 of the supervisor ({phase}), started again: children lost, doubled or left"
        # Nothing is stored of kills at which no child was alive.
        stored = [figure(told, "children", damage, 0, guarded=False)] if ours["alive"] else []
        what = f"kill -9 of the supervisor at a random moment of {phase}, started again, {rounds} times"
        target = "0 lost, 0 doubled"
        yield Line("4", what, cells["liverl"], cells.get("supervisord", ""), target, ok, stored)


def kill_words(count: Counter[str]) -> str:
    """The counts, those of a rare kind only where there are any."""
    shown = [f"{count[kind]} {kind}" for kind in ("adopted", "ended") if count[kind]]
    words = [f"of {count['alive']} alive {' and '.join(shown) or '0 adopted'}"]
    words += [f"{count['lost']} lost", f"{count['doubled']} doubled"]
    words += [f"{count[kind]} {kind}" for kind in ("missing", "left", "again") if count[kind]]
    return ", ".join(words)


def one_kill(bench: Bench, peer: Peer, phase: str) -> Counter[str]:
    """What became of three children. alive: there at the kill; adopted: the same processes once the supervisor
    is back; lost: gone without having been asked to; doubled: further copies; missing: not there at all; left:
    there although the stop was carried out; ended: taken over and stopped on request; again: started anew although
    a stop was asked."""
    moment = bench.random.random()
    if phase == "start":
        peer.launch()
        wait_until(lambda: begins_children(peer), what="the first start of a child")
        time.sleep(moment * 0.2)  # within it all three are started, and become ready
    else:
        peer.ready()
        wait_until(lambda: all(births(peer.folder, toy.name) for toy in BEATS))
    if phase == "restart":
        os.kill(births(peer.folder, "beat1")[-1][0], signal.SIGKILL)
        time.sleep(moment * 0.06)
    if phase == "stop":
        peer.ask_stop()
        time.sleep(moment * 0.5)
    if phase == "stop" and peer.ended():
        return Counter()  # it was quicker than the kill
    peer.kill()
    before = {pid for pids in copies(peer.folder).values() for pid in pids}
    peer.again()
    if phase == "stop" and isinstance(peer, Ours):
        return _after_stop(peer, before)
    peer.ready()
    wait_until(lambda: len(copies(peer.folder)) == len(BEATS), what="all three children")
    if phase == "stop":
        return Counter(alive=len(before), again=len(BEATS))
    return _compare(before, copies(peer.folder))


def begins_children(peer: Peer) -> bool:
    """Whether the first child is being started: until then a kill can lose nothing."""
    if isinstance(peer, Ours):
        journal = RunDir(peer.run.run_dir).journal
        return journal.exists() and b'"intent"' in journal.read_bytes()
    return any(births(peer.folder, toy.name) for toy in BEATS)


def _after_stop(peer: Ours, before: set[int]) -> Counter[str]:
    """The stop that was asked for goes on, unless it was never heard: then everything is still there."""

    def settled() -> bool:
        return peer.ended() or (
            len(copies(peer.folder)) == len(BEATS) and peer.run.snapshot().state == "running"
        )

    wait_until(settled, 30, "the end of the stop, or everything running")
    if not peer.ended():
        return _compare(before, copies(peer.folder))
    left = [pid for pids in copies(peer.folder).values() for pid in pids]
    return Counter(alive=len(before), ended=len(before), left=len(left))


def _compare(before: set[int], now: dict[str, list[int]]) -> Counter[str]:
    after = {pid for pids in now.values() for pid in pids}
    return Counter(
        alive=len(before),
        adopted=len(before & after),
        lost=len(before - after),
        doubled=sum(len(pids) - 1 for pids in now.values()),
        missing=len(BEATS) - len(now),
    )
