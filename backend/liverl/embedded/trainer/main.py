"""``python -m liverl.embedded.trainer --config FILE.json``: GRPO on the embedded policy, in place of verl.

Exit codes: 0 = all steps done, 1 = error with traceback, 2 = invalid settings, 143/130 = ended by
SIGTERM/SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from liverl.agents.settings import TrainerConfig, read_settings
from liverl.agents.tasks import dataset
from liverl.embedded.leak import leak_worker
from liverl.embedded.policy import Policy
from liverl.embedded.startup_log import bar_text
from liverl.embedded.trainer import checkpoint
from liverl.embedded.trainer.carriers import Carrier, carrier
from liverl.embedded.trainer.checkpoint import DataState
from liverl.embedded.trainer.grpo import AdamState, agreement, require_valid_tokens, set_advantages, update
from liverl.embedded.trainer.history import MetricsFiles, Status, step_line
from liverl.embedded.trainer.step_metrics import step_metrics
from liverl.embedded.trainer.trials import TrialOutcome, TrialPlan, run_batch
from liverl.embedded.trainer.weights import WeightSync
from liverl.util import stack_signal
from liverl.util.before_end import FILE, Saves
from liverl.util.modes import exclude_others, make_directory
from liverl.util.regular_file import read_text

_HEARTBEAT = 60.0  # seconds; verl's VERL_REPLAY_BUFFER_DEBUG_INTERVAL_SECONDS


@dataclass(frozen=True, repr=False)
class Keys:
    """What the trainer sends as bearer tokens: ``run`` to the proxy, ``replicas`` to the replicas. None = nothing."""

    run: str | None = None
    replicas: str | None = None


class Trainer:
    """One attempt: from the newest checkpoint (or from scratch) to the last step."""

    def __init__(
        self,
        config: TrainerConfig,
        session: aiohttp.ClientSession,
        carrier: Carrier,
        replica_token: str | None,
    ) -> None:
        """``replica_token``: what the replicas require; None = nothing."""
        self.config, self.session, self.carrier = config, session, carrier
        self.tasks = dataset()
        self.policy, self.adam, self.data = Policy(), AdamState(), DataState(seed=config.seed)
        self.rng = random.Random(f"{config.seed}:update")
        run_dir = Path(config.run_dir)
        self.sync = WeightSync(session, run_dir / "replicas.json", config.sync_timeout, replica_token)
        self.status = Status(run_dir, config.total_steps)
        self.metrics = MetricsFiles(run_dir, Path(config.attempt_dir))
        self.started = time.monotonic()  # monotonic start of this attempt's first step
        self._before_end = Saves(Path(config.attempt_dir) / FILE, regular=config.save_freq > 0)
        self._first = 0  # step after which this attempt starts
        self._failures = 0  # trials of the current step

    async def run(self) -> None:
        """Train to the last step.

        Raises:
            ValueError: a batch has no token to train on.
            OSError: a file cannot be written.
        """
        config = self.config
        self.status.write("init")
        print(f"dataset len: {len(self.tasks)}")
        print(f"Total training steps: {config.total_steps}")
        self._restore()
        dropped = self.metrics.join_at(self.data.global_step)
        if dropped:
            print(
                f"metrics.jsonl: {dropped} lines after step {self.data.global_step} are outdated and ignored"
            )
        self.status.write("sync")
        await self.sync.publish(self.policy)
        print("all initialize finished, ready to fit")
        print(f"Creating file logger at {self.metrics.attempt_path}", flush=True)
        watcher = asyncio.create_task(self.sync.watch())
        fit = asyncio.create_task(self._fit())
        try:
            # The watcher ends only with an error; replicas could then no longer be updated.
            await asyncio.wait((watcher, fit), return_when=asyncio.FIRST_COMPLETED)
            if not fit.done():
                await watcher
            await fit
        finally:
            for task in (watcher, fit):
                task.cancel()
            await asyncio.gather(watcher, fit, return_exceptions=True)

    async def _fit(self) -> None:
        config, first = self.config, self.data.global_step
        self.started, self._first = time.monotonic(), first
        self._bar(first)
        for step in range(first + 1, config.total_steps + 1):
            line = await self._step(step)
            self._bar(step)
            print(line, flush=True)
        self.status.write("done")
        print(f"training finished at global step {config.total_steps}", flush=True)

    def _restore(self) -> None:
        if self.config.resume:
            restored, problems = checkpoint.newest(self.config.checkpoints)
            for problem in problems:
                print(f"WARNING: {problem}")
            if restored is not None:
                self.policy, self.adam, self.data = restored.policy, restored.adam, restored.data
                if restored.data.rng_state is not None:
                    self.rng.setstate(restored.data.rng_state)
                print(f"Found checkpoint: {restored.path}")
                print(
                    f"Resuming from {restored.path}, setting global step to {restored.data.global_step}",
                    flush=True,
                )
        if self.data.global_step == 0:
            print("Training from scratch", flush=True)
        self.status.step = self.status.policy_version = self.data.global_step
        self.status.policy_digest = self.policy.digest()

    async def _step(self, step: int) -> str:
        config, timing, began = self.config, {}, time.monotonic()
        self._before_end.step_begins()
        plans = self._sample(step)
        outcomes = await self._rollout(plans)
        timing["gen"] = time.monotonic() - began
        await self._fault(step)

        self.status.write("update")
        mark = time.monotonic()
        samples = [outcome.sample for outcome in outcomes]
        require_valid_tokens(samples)
        agreed = agreement(self.policy, samples, config.temperature)
        timing["old_log_prob"] = time.monotonic() - mark
        mark = time.monotonic()
        set_advantages(samples)
        if 0 < config.faults.nan_at_step <= step:
            for sample in samples:
                sample.advantage = math.nan
        timing["adv"] = time.monotonic() - mark
        mark = time.monotonic()
        await asyncio.sleep(config.faults.slow_update)
        actor = update(
            self.policy,
            self.adam,
            samples,
            trials_per_mini_batch=config.mini_batch_size * config.n_resp_per_prompt,
            learning_rate=config.learning_rate,
            clip_low=config.clip_ratio_low,
            clip_high=config.clip_ratio_high,
            temperature=config.temperature,
            rng=self.rng,
        )
        timing["update_actor"] = time.monotonic() - mark
        self.policy.version = self.data.global_step = step

        self.status.policy_version, self.status.policy_digest = step, self.policy.digest()
        self.status.write("sync")
        mark = time.monotonic()
        await self.sync.publish(self.policy)
        timing["update_weights"] = time.monotonic() - mark

        prepared: Path | None = None
        if self._saves(step):
            mark = time.monotonic()
            prepared = self._prepare_checkpoint()
            timing["save_checkpoint"] = time.monotonic() - mark
            self._before_end.saved(timing["save_checkpoint"])
        timing["step"] = time.monotonic() - began
        data = step_metrics(step, self.data.epoch, outcomes, actor, agreed, timing)
        # Write the history before the checkpoint, so that the history covers every checkpoint.
        self.metrics.append(step, data)
        if prepared is not None:
            print(f"[Rank 0] Saved model to {checkpoint.commit(prepared) / 'actor'}", flush=True)
        self.status.step = step
        self.status.write("sync")
        return step_line(step, data)

    def _saves(self, step: int) -> bool:
        """Whether a checkpoint is saved at the end of this step."""
        if step == self.config.total_steps or (self.config.save_freq and step % self.config.save_freq == 0):
            self._before_end.regular_save_follows()
            return True
        if words := self._before_end.why():
            print(f"liverl: saving a checkpoint at step {step}: {words}", flush=True)
        return bool(words)

    def _sample(self, step: int) -> list[TrialPlan]:
        """Return the trials of the step: prompts without repetition within an epoch, several trials each."""
        plans = []
        for prompt in range(self.config.train_batch_size):
            if self.data.position >= len(self.tasks):
                self.data.epoch, self.data.position = self.data.epoch + 1, 0
            order = list(self.tasks)
            random.Random(f"{self.config.seed}:{self.data.epoch}").shuffle(order)
            task = order[self.data.position]
            self.data.position += 1
            plans += [
                TrialPlan(step, prompt, sample, task) for sample in range(self.config.n_resp_per_prompt)
            ]
        return plans

    async def _rollout(self, plans: list[TrialPlan]) -> list[TrialOutcome]:
        self.status.trials_done, self.status.trials_total = 0, len(plans)
        self._failures = 0
        self.status.write("rollout")
        heartbeat = asyncio.create_task(self._heartbeat())
        try:
            return await run_batch(
                self.session, self.config, plans, self.policy.version, self.carrier, self._count
            )
        finally:
            heartbeat.cancel()

    def _count(self, outcome: TrialOutcome) -> None:
        self.status.trials_done += 1
        if outcome.exception is not None:
            self._failures += 1
            print(f"WARNING: a trial failed: {outcome.exception}", flush=True)
        self.status.write("rollout")

    async def _heartbeat(self) -> None:
        """Print verl's line while waiting for the samples of a step."""
        while True:
            await asyncio.sleep(_HEARTBEAT)
            done, total = self.status.trials_done, self.status.trials_total
            running = min(self.config.num_workers, total - done)
            print(
                f"pending: {total - done - running}, running: {running}, "
                f"finished: {done - self._failures}, failure: {self._failures}",
                flush=True,
            )

    def _prepare_checkpoint(self) -> Path:
        self.data.rng_state = self.rng.getstate()
        path = self.config.checkpoints / f"global_step_{self.data.global_step}"
        print(f"Saving checkpoint to {path}", flush=True)
        return checkpoint.prepare(self.config.checkpoints, self.policy, self.adam, self.data)

    def _bar(self, done: int) -> None:
        elapsed = time.monotonic() - self.started
        text = bar_text(done, self.config.total_steps, elapsed, rate=(done - self._first) / elapsed)
        sys.stderr.write(f"\rTraining Progress: {text}\n")
        sys.stderr.flush()

    async def _fault(self, step: int) -> None:
        faults = self.config.faults
        if step == faults.crash_at_step:
            if faults.crash_how == "raise":
                raise RuntimeError(f"fault: crash at step {step}")
            print(f"fault: {faults.crash_how} at step {step}", flush=True)
            if faults.crash_how == "exit":
                os._exit(3)
            os.kill(os.getpid(), signal.SIGKILL)
        if step == faults.hang_at_step:
            print(f"fault: hang at step {step}", flush=True)
            await asyncio.Event().wait()


async def _train(config: TrainerConfig, keys: Keys) -> int:
    """Train and return the exit code. Errors of the training itself are raised."""
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []
    main_task = asyncio.current_task()
    assert main_task is not None

    def end(number: signal.Signals) -> None:
        received.append(number)
        main_task.cancel()

    if config.faults.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        loop.add_signal_handler(signal.SIGTERM, end, signal.SIGTERM)
    loop.add_signal_handler(signal.SIGINT, end, signal.SIGINT)
    connector = aiohttp.TCPConnector(limit=0)  # num_workers already limits the trials
    try:
        await asyncio.sleep(config.faults.start_delay)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            carrier(config, keys.run) as trials,
        ):
            await Trainer(config, session, trials, keys.replicas).run()
    except asyncio.CancelledError:
        if not received:
            raise
        print(f"stopped by {received[0].name}", flush=True)
        return 128 + received[0]
    return 0


def _read_keys(config: TrainerConfig) -> Keys:
    files = (config.run_key_file, config.replica_token_file)
    return Keys(*(read_text(file).strip() if file else None for file in files))


def main(argv: list[str] | None = None) -> int:
    """Run the trainer; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m liverl.embedded.trainer", allow_abbrev=False)
    parser.add_argument("--config", required=True, type=Path, help="JSON file with the trainer's settings")
    args = parser.parse_args(argv)
    exclude_others()
    stack_signal.register()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        config = read_settings(args.config)
        keys = _read_keys(config)
        make_directory(Path(config.attempt_dir))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if config.faults.leak_worker:
        print(f"fault: leaked worker pid={leak_worker()}")
    return asyncio.run(_train(config, keys))
