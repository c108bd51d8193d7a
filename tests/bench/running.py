"""What the backend takes of a run with 64 replicas and 512 trials that run, beside what asking the replicas takes.

``python tests/bench/running.py [--quick] [--json FILE] [--replicas 64] [--trials 512] [--turn 10]``. Replicas and
trainer are simulated (``running_stub.py``): processes that serve a recording of vLLM's ``/metrics`` and write what
agents would, a turn of each trial every ``--turn`` seconds. Their CPU is shown apart. Supervision, probes, scans,
snapshot and diagnosis are the backend's own. Exit code 1 if a target is missed. All is CPU time and memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[2:4])

from kit.runs import QUICK_STOP, ToyRun, make_run  # noqa: E402
from kit.waiting import wait_until  # noqa: E402
from processes import cpu_seconds, pss_mib  # noqa: E402
from stored import Figure, Recorder, add_option  # noqa: E402

from liverl.control.client import Client  # noqa: E402
from liverl.diagnose.catalogue.rules import RULES  # noqa: E402
from liverl.diagnose.tracker import Diagnosis, RunContext  # noqa: E402
from liverl.model import Snapshot  # noqa: E402
from liverl.plan.replica import TOKEN  # noqa: E402
from liverl.plan.spec import PortSpec, Probe, Probes, ServiceSpec, Settings  # noqa: E402
from liverl.util.ticks import until_tick  # noqa: E402

STUB = HERE / "running_stub.py"
RECORDED = HERE.parent / "data" / "recordings" / "h200" / "vllm_metrics.txt"
LIMIT, LIMIT_MIB, LIMIT_CALL = 5.0, 120.0, 20.0  # % of a core, MiB, ms
SETTLE = 10.0  # seconds after all is ready that are not measured: a start leaves work
READY, LIVE = 2.0, 5.0  # seconds between two probes, as in the plan of a real replica
FLOOR = "aiohttp that asks the replicas the same"
STUBS = "the simulated replicas and trainer"


def metrics_file(folder: Path) -> Path:
    """The recording, with a mark where the number of generated tokens stands."""
    text = RECORDED.read_text("utf-8")
    text, count = re.subn(
        r"^(vllm:generation_tokens_total\{.*\} ).*$", r"\1@TOKENS@", text, flags=re.MULTILINE
    )
    assert count
    path = folder / "metrics.txt"
    path.write_text(text, "utf-8")
    return path


def made(folder: Path, replicas: int, trials: int, turn: float) -> ToyRun:
    """The run, with probes and settings of a real one."""
    python = (sys.executable, "-I", "-S", str(STUB))
    recorded = str(metrics_file(folder))

    def health(interval: float, timeout: float, failures: int) -> Probe:
        return Probe(
            "http",
            port="http",
            path="/health",
            interval=interval,
            timeout=timeout,
            failures=failures,
            token_file=TOKEN,
        )

    services = [
        ServiceSpec(
            name=f"replica-{number}",
            kind="replica",
            argv=(*python, "replica", "{port:http}", recorded),
            ports=(PortSpec("http"),),
            probes=Probes(
                startup=health(1.0, 60.0, 3),
                ready=health(READY, 5.0, 3),
                live=health(LIVE, 10.0, 6),
            ),
            stop=QUICK_STOP,
            stage_parser="vllm",
        )
        for number in range(replicas)
    ]
    trainer = ServiceSpec(
        name="trainer",
        kind="trainer",
        argv=(*python, "trainer", str(trials), str(turn), "{run_dir}"),
        probes=Probes(startup=Probe("log_line", pattern="Total training steps", interval=0.1)),
        stop=QUICK_STOP,
        stage_parser="trainer",
    )
    run = make_run(folder, [*services, trainer], settings=Settings())
    plan = json.loads((run.run_dir / "plan.json").read_text())
    (run.run_dir / "plan.json").write_text(json.dumps(plan | {"engine": "vllm", "replica_token_file": TOKEN}))
    return run


def ready(run: ToyRun, trials: int) -> None:
    """Wait until every service is, every replica is listed, and all trials have been seen."""

    def look() -> bool:
        now = run.snapshot()
        listed = now.replicas.listed == len(now.replicas.items)
        return listed and now.trials.running == trials and all(s.state == "ready" for s in now.services)

    wait_until(look, 180, "the run to be up")


def share(pids: Iterable[int], seconds: float) -> float:
    """% of a core that these processes take."""
    found = list(pids)
    before, began = cpu_seconds(found), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(found) - before) / (time.monotonic() - began)


def floor(urls: list[str], seconds: float) -> float:
    """% of a core that it takes to ask what the backend asks: ``/metrics`` of each once a second over a connection that
    is kept, ``/health`` as the ready probe does over a new one; by an aiohttp client that does nothing with the
    answers."""
    import aiohttp

    async def ask() -> float:
        over = time.monotonic() + seconds

        async def get(session: aiohttp.ClientSession, url: str) -> None:
            async with session.get(url) as reply:
                await reply.text()

        async def probe(session: aiohttp.ClientSession, url: str) -> None:
            while time.monotonic() < over:
                await get(session, f"{url}/health")
                await asyncio.sleep(READY)

        async def poll(session: aiohttp.ClientSession) -> None:
            while time.monotonic() < over:
                await asyncio.gather(*(get(session, f"{url}/metrics") for url in urls))
                await asyncio.sleep(until_tick(1.0))

        closing = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession() as kept, aiohttp.ClientSession(connector=closing) as new:
            began, wall = time.process_time(), time.monotonic()
            await asyncio.gather(poll(kept), *(probe(new, url) for url in urls))
            return 100 * (time.process_time() - began) / (time.monotonic() - wall)

    return asyncio.run(ask())


async def _attached(run_dir: Path, seconds: float, pids: list[int]) -> tuple[float, list[Snapshot]]:
    """% of a core while a client gets every snapshot, as the interface does; and these."""
    seen: list[Snapshot] = []

    async def follow() -> None:
        async with aclosing(Client(run_dir).stream(snapshots=True)) as stream:
            async for one in stream:
                if isinstance(one, Snapshot):
                    seen.append(one)

    following = asyncio.create_task(follow())
    await asyncio.sleep(3)
    seen.clear()
    before, began = cpu_seconds(pids), time.monotonic()
    await asyncio.sleep(seconds)
    took = 100 * (cpu_seconds(pids) - before) / (time.monotonic() - began)
    following.cancel()
    return took, seen


def snapshot_ms(run: ToyRun, backend: int, other: float, rounds: int) -> float:
    """CPU milliseconds of the backend for one answer to a client that asks for the state. ``other``: % of a core that
    it takes meanwhile for everything else."""
    before, began = cpu_seconds([backend]), time.monotonic()
    for _ in range(rounds):
        run.snapshot()
    took, wall = cpu_seconds([backend]) - before, time.monotonic() - began
    return (took - other / 100 * wall) / rounds * 1000


def diagnosis_ms(seen: list[Snapshot]) -> float:
    """CPU milliseconds to diagnose one of these snapshots after the other, the median."""
    diagnosis, took = Diagnosis(RULES), []
    for snapshot in seen:
        began = time.process_time()
        diagnosis.update(snapshot, RunContext())
        took.append(time.process_time() - began)
    return statistics.median(took) * 1000


def measured(run: ToyRun, args: argparse.Namespace) -> list[Figure]:
    """All figures of a run that is started here."""
    seconds = 20.0 if args.quick else 60.0
    run.start()
    ready(run, args.trials)
    now = run.snapshot()
    keeper = now.backend.keeper_pid
    assert keeper is not None
    ours, stubs = [now.backend.pid, keeper], [s.pid for s in now.services if s.pid]
    urls = [replica.address for replica in now.replicas.items if replica.address]
    time.sleep(SETTLE)
    theirs = cpu_seconds(stubs)
    alone = share(ours, seconds)
    theirs = 100 * (cpu_seconds(stubs) - theirs) / seconds
    watched, seen = asyncio.run(_attached(run.run_dir, seconds, ours))
    mib = pss_mib(ours)
    asked = snapshot_ms(run, now.backend.pid, watched, 40)
    least = floor(urls, seconds / 2)
    what = f"{args.replicas} replicas and {args.trials} running trials"
    note = f"{STUBS}: {theirs:.1f} %"
    return [
        Figure(f"{what}: CPU of the backend", alone, "%", {FLOOR: least}, LIMIT, note),
        Figure("the same, with a client that gets each snapshot", watched, "%", {FLOOR: least}, LIMIT),
        Figure("the same: memory (PSS) of the backend", mib, "MiB", {}, LIMIT_MIB),
        Figure("a snapshot, asked for: CPU of the backend", asked, "ms", {}, LIMIT_CALL),
        Figure("a diagnosis: CPU", diagnosis_ms(seen), "ms", {}, LIMIT_CALL),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 s for each figure instead of 60")
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--trials", type=int, default=512)
    parser.add_argument("--turn", type=float, default=10.0, help="seconds between two turns of a trial")
    add_option(parser)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="running-"))
    os.environ["XDG_STATE_HOME"] = str(folder / "state")  # the user's list of runs is left alone
    recorder = Recorder("The backend of a large run: 64 replicas, 512 trials (simulated)")
    run = made(folder, args.replicas, args.trials, args.turn)
    try:
        found = measured(run, args)
    finally:
        run.end()
        shutil.rmtree(folder, ignore_errors=True)
    for one in found:
        beside = "".join(f", {name}: {value:.2f}" for name, value in one.beside.items())
        beside += f", {one.note}" if one.note else ""
        missed = "  MISS" if one.limit is not None and one.value > one.limit else ""
        print(f"{one.what}: {one.value:.2f} {one.unit}{beside} (target {one.limit:g}){missed}")
    if args.json:
        recorder.write(args.json, found)
    sys.exit(any(one.limit is not None and one.value > one.limit for one in found))


if __name__ == "__main__":
    main()
