"""verl's agent loops that go through sessions: those of the run's service, or those of this worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import ray
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.tools.schemas import OpenAIFunctionToolSchema
from verl.workers.rollout.llm_server import LLMServerClient

from liverl.sessions.client import service_sessions
from liverl.sessions.segments import Asides, Rewrite
from liverl.verl_runtime.agent_loop import TrialLoop
from liverl.verl_runtime.carriers import Carrier, SessionCarrier
from liverl.verl_runtime.verl_engine import Verl, VerlReplicas
from liverl.verl_runtime.worker_sessions import HostSettings, OfThisProcess, WorkerSessions, new_name

_HOST = OfThisProcess()


class ServiceAgentLoop(TrialLoop):
    """Through the run's service ``sessions``, which asks the replicas over HTTP."""

    def __init__(self, *args: Any, control_key_file: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._key_file = Path(control_key_file)

    @asynccontextmanager
    async def carrier(self) -> AsyncIterator[Carrier]:
        """See ``TrialLoop.carrier``."""
        async with service_sessions(Path(self.settings.run_dir), self._key_file) as sessions:
            yield SessionCarrier(sessions, self.settings.lengths)


class WorkerAgentLoop(TrialLoop):
    """Through sessions in this process, which sample by verl's own client: it knows which replicas sleep, switch or are
    paused."""

    def __init__(
        self,
        *args: Any,
        advertise: str = "",
        rewrite: Rewrite = "split",
        asides: Asides = "skip",
        models: Sequence[str] = (),
        patience: float = 120.0,
        max_replica_deaths: int = 2,
        in_flight: int = 16,
        rows_per_trial: int = 64,
        main_agent_prefix_match: int = 256,
        max_body_bytes: int = 16 << 20,
        **kwargs: Any,
    ) -> None:
        """``advertise``: the host by which agents reach this one; "": its address in Ray's cluster; the others: see the
        keys of ``session_proxy``."""
        super().__init__(*args, **kwargs)
        self._advertise = advertise
        self._rewrite: Rewrite = rewrite
        self._asides: Asides = asides
        self._models, self._patience, self._max_replica_deaths = tuple(models), patience, max_replica_deaths
        self._in_flight, self._rows_per_trial = in_flight, rows_per_trial
        self._prefix_match, self._body_limit = main_agent_prefix_match, max_body_bytes

    @asynccontextmanager
    async def carrier(self) -> AsyncIterator[Carrier]:
        """See ``TrialLoop.carrier``."""
        yield SessionCarrier(await _HOST.get(self._start), self.settings.lengths)

    async def _start(self) -> WorkerSessions:
        settings = HostSettings(
            run_dir=self.settings.run_dir,
            attempt=Path(self.settings.attempt_dir).name,
            worker=new_name(ray.get_runtime_context().get_actor_name()),
            host=self._advertise or ray.util.get_node_ip_address().strip("[]"),
            rewrite=self._rewrite,
            asides=self._asides,
            models=self._models,
            patience=self._patience,
            max_replica_deaths=self._max_replica_deaths,
            in_flight=self._in_flight,
            rows_per_trial=self._rows_per_trial,
            main_agent_prefix_match=self._prefix_match,
            max_body_bytes=self._body_limit,
        )
        host = WorkerSessions(settings, VerlReplicas(self._verl(), [self.settings.served_model]))
        await host.start()
        return host

    def _verl(self) -> Verl:
        parser = ToolParser.get_tool_parser(self.rollout_config.multi_turn.format, self.tokenizer)
        ends = {self.tokenizer.eos_token_id, *parser.stop_token_ids}
        lengths = self.rollout_config.prompt_length + self.rollout_config.response_length
        return Verl(
            generate=_generate(self.server_manager),
            tokenizer=self.tokenizer,
            builder=self.continuous_token_builder,
            parse=partial(_parse, parser),
            template=dict(self.apply_chat_template_kwargs),
            stops=frozenset(token for token in ends if token is not None),
            context=self.rollout_config.max_model_len or lengths,
        )


async def _parse(parser: Any, ids: list[int], tools: list[dict[str, Any]]) -> tuple[str, Sequence[Any]]:
    schemas = [OpenAIFunctionToolSchema.model_validate(tool) for tool in tools]
    text, calls = await parser.extract_tool_calls(ids, schemas)
    return text, calls


def _generate(client: Any) -> Callable[..., Awaitable[Any]]:
    """The client's way to sample once. ``FullyAsyncLLMServerClient`` continues by itself what a weight update has cut,
    and says only the first and the last version then; a session continues it with each part's version."""
    if isinstance(client, LLMServerClient):
        return partial(LLMServerClient.generate, client)
    return client.generate  # type: ignore[no-any-return]
