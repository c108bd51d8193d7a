"""verl's replica class: which actor to start for a rank, and where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.workers.rollout.replica import RolloutMode, RolloutReplica

from liverl.verl_runtime.cpuengine.settings import Settings, faults

_NOBODY = "liverl_nobody_has_this"  # a resource that no node has, for the fault "pending"


def settings_of(rank: int, config: Any, model: str, *, hybrid: bool) -> Settings:
    """Return the settings of the actor of ``rank``; ``config`` is verl's RolloutConfig."""
    extra = dict((config.engine_kwargs or {}).get("vllm") or {})
    served = extra.get("served_model_name") or model
    injected = faults()
    plain = Settings(
        rank=rank,
        model=model,
        served=tuple([served] if isinstance(served, str) else served),
        tool_parser=extra.get("tool_call_parser") or config.multi_turn.format,
        max_model_len=config.max_model_len or config.prompt_length + config.response_length,
        max_num_seqs=config.max_num_seqs,
        prompt_length=config.prompt_length,
        response_length=config.response_length,
        seed=config.seed,
        hybrid=hybrid,
        free_cache_engine=config.free_cache_engine,
        load_weights=config.load_format != "dummy",
    )
    return replace(
        plain,
        listen_delay=injected.late_seconds if injected.late_rank == rank else 0.0,
        mute=injected.mute_rank == rank,
        dead=injected.dead_rank == rank,
    )


def _place(_worker: Any) -> tuple[str, str]:
    """The node and the address of the process that executes this: a replica serves where its worker trains, as verl's
    vLLM replica does. The process that starts the replicas may be on any host."""
    return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address().strip("[]")


class CpuReplica(RolloutReplica):  # type: ignore[misc]
    """Registered as "vllm", with the same actor names as verl's own replicas."""

    async def launch_servers(self) -> None:
        """Start the actor and its server, and store its handle and address."""
        # Imported late: the actor's module imports transformers, which other users of this plug-in do not need.
        from liverl.verl_runtime.cpuengine.server import vLLMHttpServer

        role = "reward_" if self.is_reward_model else "teacher_" if self.is_teacher_model else ""
        node_id, address = await self.workers[0].__ray_call__.remote(_place)
        options: dict[str, Any] = {"num_cpus": 0}
        if not role and faults().pending_rank == self.replica_rank:
            options["resources"] = {
                _NOBODY: 1
            }  # of any node: Ray refuses it at once for a node that has none
        else:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
        model = getattr(self.model_config, "local_path", None) or self.model_config.path
        settings = settings_of(
            self.replica_rank, self.config, model, hybrid=self.rollout_mode is RolloutMode.HYBRID
        )
        settings = replace(settings, guarded=not role)
        server = (
            ray.remote(vLLMHttpServer)
            .options(
                name=f"vllm_server_{role}{self.replica_rank}_0{self.name_suffix}",
                max_concurrency=self.max_concurrency,
                **options,
            )
            .remote(settings, address)
        )
        self.servers.append(server)
        await server.launch_server.remote()
        host, port = await server.get_server_address.remote()
        self._server_handle, self._server_address = server, f"{host}:{port}"

    async def sleep(self) -> None:
        """Put the replica to sleep once its running requests have finished, as verl's vLLM replica does."""
        await self.servers[0].wait_for_requests_to_drain.remote()
        await self.servers[0].sleep.remote()
