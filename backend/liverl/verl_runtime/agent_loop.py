"""verl's agent loops of ours; registered in the run's ``agent_loop.yaml``. ``ProxyAgentLoop`` goes through LiteLLM.

verl's own loops call the replicas as actors: no proxy would see any training traffic. For verl 0.9.1's v1
trainer (``trainer.use_v1``, its default) and its fully asynchronous trainer (``streamed``).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from pydantic import PrivateAttr
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from liverl.agents.kinds import AgentSettings
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular
from liverl.verl_runtime.carriers import Carrier, ProxyCarrier
from liverl.verl_runtime.loop_trial import LoopSettings, Outcome, files_error, read_prompt, run_trial
from liverl.verl_runtime.streamed import completed, masked_row, one_row, streamed, version_prompts
from liverl.verl_runtime.tokens import Row
from liverl.verl_runtime.verl_tools import verl_tools
from liverl.verl_runtime.worker_facts import (
    extra_fields,
    of_trajectory,
    reward_from,
    rewards_of_tools,
    validates,
)

logger = logging.getLogger(__name__)


class TrialLoop(AgentLoopBase):  # type: ignore[misc]  # verl is not installed where types are checked
    """Runs a trial. verl creates one for each trial; the keyword arguments come from the plan, the others from
    verl."""

    def __init__(
        self,
        *args: Any,
        run_dir: str,
        attempt_dir: str,
        served_model: str,
        max_turns: int = 8,
        trial_timeout: float = 2400.0,
        max_retries: int = 0,
        temperature: float = 1.0,
        max_tokens: int = 256,
        agent_file: str | None = None,
        kind: str = "auto",
        **kwargs: Any,
    ) -> None:
        """``agent_file``: section ``agent`` of the configuration, as JSON; ``kind``: of agent, by the row's column
        ``agent_name``."""
        super().__init__(*args, **kwargs)
        self._kind, self._tools = kind, kwargs.get("tools")
        self._version_prompts = version_prompts(self.config)
        self.settings = LoopSettings(
            run_dir=run_dir,
            attempt_dir=attempt_dir,
            served_model=served_model,
            max_turns=max_turns,
            trial_timeout=trial_timeout,
            max_retries=max_retries,
            temperature=temperature,
            max_tokens=max_tokens,
            prompt_length=self.rollout_config.prompt_length,
            response_length=self.rollout_config.response_length,
            agent=_agent(agent_file) if agent_file else AgentSettings(),
            step_trials=int(self.config.data.train_batch_size) * int(self.rollout_config.n),
        )

    @abstractmethod
    def carrier(self) -> AbstractAsyncContextManager[Carrier]:
        """What this trial goes through."""

    async def run(
        self, sampling_params: dict[str, Any], **kwargs: Any
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Run one trial. Of several rows that of the main conversation is the last one: verl computes the advantage of
        a trial from its last row, and gives it to the others.

        A trial without a token to train on returns an empty list: verl then omits the session, computes the
        advantages of its group from the remaining ones, and fills up the batch with fewer padding rows than a
        mini-batch has. A row of masked tokens would instead add its reward of 0 to the mean of the group, and
        a mini-batch of such rows would have a loss over no tokens, which is NaN. A batch without any row
        makes verl exit with an error that says so. The fully asynchronous trainer takes exactly one row (``one_row``).

        Raises:
            ValueError: no kind of agent can run the row.
            OSError: the trial's files cannot be written.
        """
        lone = streamed(kwargs)
        if lone:
            kwargs = completed(kwargs, of_trajectory(), self._version_prompts)
        tools = verl_tools(self.rollout_config.multi_turn, self._tools, kwargs)
        prompt = read_prompt(
            kwargs,
            sampling_params,
            self.settings,
            named=self._kind,
            has_tools=bool(tools.definitions),
            validation=validates(),
        )
        async with self.carrier() as carrier:
            outcome = await run_trial(self.settings, prompt, carrier, tools)
        if outcome.reward is None:
            outcome.files.facts |= reward_from(self.config, prompt.row)
        end = self.tokenizer.eos_token_id
        rows = [one_row(outcome, end)] if lone else outcome.rows
        if not rows and prompt.validation:
            # A validation computes no loss, and a failed session counts with reward 0.
            rows, outcome.reward = [masked_row(end)], 0.0
        told = tools.told()
        outcome.files.facts |= rewards_of_tools(told)
        if not outcome.recorded:
            _record_at_the_end(outcome)
        outputs = [self._output(row, outcome, extra_fields(prompt, outcome, row, told)) for row in rows]
        return outputs[0] if lone else outputs

    def _output(self, row: Row, outcome: Outcome, extra: dict[str, Any]) -> AgentLoopOutput:
        output = Scored(
            prompt_ids=row.prompt,
            response_ids=row.response,
            response_mask=row.mask,
            response_logprobs=row.logprobs if self.rollout_config.calculate_log_probs else None,
            multi_modal_data={},
            reward_score=outcome.reward,
            num_turns=outcome.num_turns,
            metrics=AgentLoopMetrics(
                generate_sequences=outcome.asked_seconds, tool_calls=outcome.tool_seconds
            ),
            extra_fields=extra,
        )
        return output.of(outcome)


class Scored(AgentLoopOutput):  # type: ignore[misc]
    """Tells its trial the reward as soon as verl has computed it: verl's worker converts an output right afterwards."""

    _outcome: Outcome = PrivateAttr()

    def of(self, outcome: Outcome) -> Scored:
        """This output, with its trial."""
        self._outcome = outcome
        return self

    def as_dict(self) -> dict[str, Any]:
        """See verl's ``AgentLoopOutput``.

        Raises:
            TrialFailed: the trial's files cannot be written, or its reward is no finite number.
        """
        extras = self.extra_fields.get("reward_extra_info")
        if self.reward_score is not None or extras:  # the extras say that it was asked for one
            try:
                self._outcome.score(self.reward_score, extras)
            except OSError as error:
                raise files_error(error) from error
        found: dict[str, Any] = super().as_dict()
        return found


@functools.cache  # verl makes a loop for each trial
def _agent(file: str) -> AgentSettings:
    return decode_json(read_regular(file), type=AgentSettings)


def _record_at_the_end(outcome: Outcome) -> None:
    """Record the trial as failed if verl does not get as far as its reward. verl runs each trial in a task of its own,
    whose exception is why; without one (a reward model that scores after the step), the reward is not known here."""

    def ended(task: asyncio.Task[Any]) -> None:
        try:
            if task.cancelled():
                outcome.fail(asyncio.CancelledError("the trial was cancelled before its reward was computed"))
            elif (error := task.exception()) is not None:
                outcome.fail(error)
            elif not outcome.recorded:
                outcome.record(outcome.reward)
        except OSError as error:
            logger.error("trial %s: its result cannot be written: %s", outcome.name, error)

    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(ended)


class ProxyAgentLoop(TrialLoop):
    """Through LiteLLM."""

    def __init__(self, *args: Any, proxy_url: str, run_key_file: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._proxy_url, self._key_file = proxy_url, run_key_file

    @asynccontextmanager
    async def carrier(self) -> AsyncIterator[Carrier]:
        """See ``TrialLoop.carrier``."""
        yield ProxyCarrier(self._proxy_url, self._key_file, self.settings.lengths)
