"""Signatures of settings and packages that verl refuses."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="verl-trainer-unknown",
        component="verl",
        role="cause",
        pattern=r"Unknown trainer '(?P<name>[^'\n]{1,60})'\. Available trainers: (?P<names>[^\n]{1,120})",
        needle="Unknown trainer '",
        title="verl has no trainer '{name}'",
        cause="The trainer mode is {name}, and this verl has {names}",
        fix="Remove the override of the trainer mode from trainer.overrides, or use one of those.",
        source="verl trainer/ppo/v1/trainer_base.py",
        fires=(
            "ValueError: Unknown trainer 'async'. Available trainers: colocate_async, separate_async, sync."
        ),
        spares="INFO trainer 'sync'",
    ),
    Signature(
        id="verl-rollout-sync",
        component="verl",
        role="cause",
        pattern="Rollout mode 'sync' has been removed",
        needle="Rollout mode 'sync' has been removed",
        title="verl's rollout mode 'sync' does not exist any more",
        cause="An override sets actor_rollout_ref.rollout.mode to sync, which this verl removed.",
        fix="Remove actor_rollout_ref.rollout.mode from trainer.overrides.",
        source="verl workers/config/rollout.py",
        fires=(
            "ValueError: Rollout mode 'sync' has been removed. Please set "
            "`actor_rollout_ref.rollout.mode=async` or remove the mode setting entirely."
        ),
        spares="INFO rollout mode async",
    ),
    Signature(
        id="verl-logger-unknown",
        component="verl",
        role="cause",
        pattern=r"AssertionError: (?P<name>\w{1,40}) is not supported",
        needle=" is not supported",
        title="verl has no logger {name}",
        cause="trainer.logger names {name}, which verl's tracking does not have.",
        fix='Correct "trainer.logger" in trainer.overrides: console, file, wandb, tensorboard, mlflow.',
        source="verl utils/tracking.py",
        fires="AssertionError: wandbb is not supported",
        spares="NotImplementedError: LR scheduler type x is not supported",
    ),
    Signature(
        id="verl-router-replay",
        component="verl",
        role="cause",
        pattern="router_replay RECORD: no router fired during this forward",
        needle="router_replay RECORD: no router fired during this forward",
        title="Router replay is on, and this model has no routers to replay",
        cause="The model is dense, or its mixture-of-experts layers are not connected to router replay.",
        fix=(
            'Switch it off: ENABLE_R3=False in LiveRL, "actor_rollout_ref.actor.router_replay.mode": '
            "disabled in trainer.overrides."
        ),
        source="verl utils/veomni/router_replay.py; LiveRL documentation, symptom B15",
        fires=(
            "RuntimeError: router_replay RECORD: no router fired during this forward. Either the model "
            "has no MoE layers or its SparseMoeBlock is not wired to "
            "`veomni.utils.moe_router_replay.maybe_replay_indices`."
        ),
        spares="INFO router_replay mode: disabled",
    ),
    Signature(
        id="verl-storage-zero",
        component="torch",
        role="cause",
        pattern=r"setStorage: [^\n]{1,300}storage of size 0",
        needle="setStorage:",
        title="The backward pass needs memory that was freed (fused kernels or offload)",
        cause="Fused kernels or activation offload do not work with veomni.",
        fix=(
            "Set use_fused_kernels and enable_activation_offload of the model to false in trainer.overrides."
        ),
        source="torch aten/src/ATen/native/Resize.h; LiveRL documentation, symptom B17",
        fires=(
            "RuntimeError: setStorage: sizes [4096, 4096], strides [4096, 1], storage offset 0, and "
            "itemsize 2 requiring a storage size of 33554432 are out of bounds for storage of size 0"
        ),
        spares="DEBUG setStorage: sizes [4096, 4096], strides [4096, 1], storage of size 33554432",
    ),
    Signature(
        id="verl-tensordict",
        component="verl",
        role="cause",
        pattern="TensorDict does not support membership checks",
        needle="TensorDict does not support membership checks",
        title="The installed tensordict does not fit verl",
        cause=(
            "This version of tensordict lacks what verl uses; on arm64 there is no ready wheel of the "
            "right one."
        ),
        fix=(
            "Install the tensordict that verl names (on arm64 build 0.6.2 from source) in environments.verl."
        ),
        source="LiveRL documentation, symptom B20",
        fires="NotImplementedError: TensorDict does not support membership checks",
        spares="INFO tensordict 0.6.2",
    ),
    Signature(
        id="wandb-no-key",
        component="python",
        role="cause",
        pattern=r"api_key not configured \(no-tty\)",
        needle="api_key not configured (no-tty)",
        title="wandb has no API key",
        cause="wandb wants to log in, and there is neither a key nor a terminal to ask for one.",
        fix="Set credentials.wandb_api_key (WANDB_API_KEY), or switch wandb off.",
        patch={"credentials.wandb_mode": "disabled"},
        source="wandb",
        fires=(
            "wandb.errors.errors.UsageError: api_key not configured (no-tty). call "
            "wandb.login(key=[your_api_key])"
        ),
        spares="wandb: api_key configured from the environment (no-tty)",
    ),
    Signature(
        id="verl-router-replay-model",
        component="verl",
        role="cause",
        pattern=r"router replay is not wired for model_type=(?P<type>\S{1,80})",
        needle="router replay is not wired for model_type=",
        title="Router replay is on, and verl cannot replay the routers of {type}",
        cause="Router replay needs a mixture-of-experts model that verl has wired for it; {type} is none.",
        fix=(
            'Switch it off: ENABLE_R3=False in LiveRL, "actor_rollout_ref.actor.router_replay.mode": '
            "disabled in trainer.overrides."
        ),
        source="LiveRL documentation, symptom B15",
        fires="NotImplementedError: router replay is not wired for model_type=qwen3",
        spares="INFO router replay is wired for model_type=qwen3_moe",
    ),
    Signature(
        id="verl-routing-replay-version",
        component="verl",
        role="cause",
        pattern=r"rollout\.enable_rollout_routing_replay=True requires vLLM >= (?P<version>[\d.]{1,12})",
        needle="rollout.enable_rollout_routing_replay=True requires vLLM >=",
        title="Routing replay needs vLLM {version} or newer",
        cause="The installed vLLM is older than {version}, and cannot report which experts it used.",
        fix=(
            "Upgrade vLLM in environments.verl, or switch enable_rollout_routing_replay of the rollout off in "
            "trainer.overrides."
        ),
        source="verl workers/config/rollout.py",
        fires="ValueError: rollout.enable_rollout_routing_replay=True requires vLLM >= 0.22.0, got 0.21.0",
        spares="INFO rollout.enable_rollout_routing_replay=True with vLLM 0.24.0",
    ),
)
