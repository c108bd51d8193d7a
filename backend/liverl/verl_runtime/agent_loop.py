"""verl's agent loops of ours; registered in the run's ``agent_loop.yaml``. ``ProxyAgentLoop`` goes through LiteLLM.

verl's own loops call the replicas as actors: no proxy would see any training traffic. For verl 0.9.1's v1
trainer (``trainer.use_v1``, its default).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from liverl.verl_runtime.carriers import Carrier, ProxyCarrier
from liverl.verl_runtime.loop_trial import LoopSettings, Outcome, Prompt, read_prompt, run_trial
from liverl.verl_runtime.tokens import Row


class TrialLoop(AgentLoopBase):  # type: ignore[misc]  # verl is not installed where types are checked
    """Runs a trial of ours. verl creates one for each trial; the keyword arguments come from the plan, the others from
    verl."""

    def __init__(
        self,
        *args: Any,
        run_dir: str,
        attempt_dir: str,
        served_model: str,
        max_turns: int = 8,
        trial_timeout: float = 2400.0,
        temperature: float = 1.0,
        max_tokens: int = 256,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.settings = LoopSettings(
            run_dir=run_dir,
            attempt_dir=attempt_dir,
            served_model=served_model,
            max_turns=max_turns,
            trial_timeout=trial_timeout,
            temperature=temperature,
            max_tokens=max_tokens,
            prompt_length=self.rollout_config.prompt_length,
            response_length=self.rollout_config.response_length,
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
        makes verl exit with an error that says so.

        Raises:
            ValueError: the row is not one of a liverl data set.
            OSError: the trial's files cannot be written.
        """
        prompt = read_prompt(kwargs, sampling_params, self.settings.temperature)
        async with self.carrier() as carrier:
            outcome = await run_trial(self.settings, prompt, carrier)
        rows = outcome.rows
        if not rows and prompt.validation:
            # A validation computes no loss, and a failed session counts with reward 0.
            end = self.tokenizer.eos_token_id
            rows = [Row(prompt=[end], response=[end], mask=[0], logprobs=[0.0])]
        return [self._output(prompt, outcome, row) for row in rows]

    def _output(self, prompt: Prompt, outcome: Outcome, row: Row) -> AgentLoopOutput:
        return AgentLoopOutput(
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
            extra_fields=_extra_fields(prompt, outcome, row),
        )


class ProxyAgentLoop(TrialLoop):
    """Through LiteLLM."""

    def __init__(self, *args: Any, proxy_url: str, run_key_file: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._proxy_url, self._key_file = proxy_url, run_key_file

    @asynccontextmanager
    async def carrier(self) -> AsyncIterator[Carrier]:
        """See ``TrialLoop.carrier``."""
        yield ProxyCarrier(self._proxy_url, self._key_file, self.settings.lengths)


def _extra_fields(prompt: Prompt, outcome: Outcome, row: Row) -> dict[str, Any]:
    """Return verl's own keys, as its client and tool agent set them, and liverl's."""
    low, high = row.versions or (prompt.policy_version(), prompt.policy_version())
    return {
        "global_steps": high,
        "min_global_steps": low,
        "max_global_steps": high,
        "turn_scores": [],
        "tool_rewards": [],
        "reward_extra_info": {},  # verl copies that of the last row to the others
        "trial": outcome.name,
        "row": row.kind,
        "tool_call_count": outcome.tool_calls,
        "retries": outcome.retries,
        "divergences": outcome.divergences,
        "ended_by": outcome.ended_by,
        "exception": outcome.exception,
    }
