"""Texts that servers and trainers print while they start, in the order of their stages.

Checked with LiteLLM 1.106, Ray 2.60 and verl 0.9. The texts of inference engines are in ``liverl.engines``.
"""

from __future__ import annotations

from liverl.engines import boot_log
from liverl.engines.adapter.boot import Ranks, StageRule, bar
from liverl.util.late_pattern import late_pattern

LITELLM: Ranks = (
    (StageRule("Started server process", "config"), StageRule("Waiting for application startup", "config")),
    (StageRule("Proxy initialized with Config", "models set"),),
    (StageRule("Application startup complete", "startup complete"),),
)
# A single process prints this once it serves; with several workers, their parent prints it before they start.
LITELLM_LISTENS = "Uvicorn running on"

RAY: Ranks = (
    (StageRule("Local node IP", "starting the head"),),
    (StageRule("Ray runtime started", "Ray up"),),
)

TRAINER: Ranks = (
    (StageRule("All configuration checks passed", "config checked"),),
    (
        StageRule("ray init kwargs:", "connecting to Ray"),
        StageRule("Connecting to existing Ray", "connecting to Ray"),
    ),
    (StageRule("Started a local Ray instance", "Ray up"), StageRule("Connected to Ray cluster", "Ray up")),
    (StageRule("dataset len:", "data loaded"), StageRule("validate dataloader initialized", "data loaded")),
    (
        StageRule(
            "Total training steps:", "{b} steps planned", late_pattern(r"Total training steps: *(?P<b>\d+)")
        ),
    ),
    (
        StageRule("worker group kwargs:", "creating workers"),
        StageRule("create worker group", "creating workers"),
        StageRule(
            "Creating worker mapping and resource pools", "creating workers"
        ),  # fully asynchronous, as below
        StageRule("Starting create trainer", "creating the trainer"),
    ),
    (StageRule("Before FSDP, memory allocated", "loading the model"),),
    (
        StageRule("model engine initialized", "model loaded"),
        StageRule("FullyAsyncTrainer created and initialized", "trainer ready"),
    ),
    (
        StageRule("reward loop manager initialized", "starting replicas"),
        StageRule("Starting create rollouter", "starting replicas"),
    ),
    (
        StageRule("LLMServerManager: [", "replicas up"),
        StageRule("AgentLoopManager: [", "replicas up"),  # verl 0.6 and 0.7
        StageRule("checkpoint engine manager initialized", "replicas up"),
        StageRule("Rollouter created and initialized", "replicas up"),
        StageRule("Creating MessageQueue...", "creating the queue of samples"),
    ),
    (
        StageRule("Training from scratch", "training from scratch"),
        StageRule(
            "Resuming from ",
            "resuming from step {a}",
            late_pattern(r"Resuming from [^\r\n]{1,4096}?, setting global step to (?P<a>\d+)"),
        ),
        StageRule(
            "Setting global step to ",
            "resuming from version {a}",
            late_pattern(r"Setting global step to \d+, current_param_version to (?P<a>\d+)"),
        ),
    ),
    (
        StageRule("ready to fit", "ready to fit"),
        StageRule("All components initialized successfully", "ready to fit"),
    ),
    (
        bar("Training Progress:", "step {a}/{b}"),
        StageRule("step:", "step {a}", late_pattern(r"(?<![\w/])step:(?P<a>\d+) - ")),
        StageRule("Initial validation metrics:", "initial validation done", within=True),
        StageRule(
            "pending: ",
            "rollouts: {running} running, {pending} pending, {finished} finished, {failed} failed",
            late_pattern(
                r"pending: (?P<pending>\d+), running: (?P<running>\d+), finished: (?P<finished>\d+), "
                r"failure: (?P<failed>\d+)"
            ),
            within=True,
        ),
        # Of the fully asynchronous trainer: a line for each sample that it takes, the only sign of life within a step.
        StageRule("Param sync before fit", "sending the first weights to the replicas", within=True),
        StageRule(
            "sample collected ",
            "samples: {taken} of {wanted} taken, {queued} in the queue",
            late_pattern(r"sample collected (?P<taken>\d+)/(?P<wanted>\d+)\. mq_len: (?P<queued>\d+)"),
            within=True,
        ),
        StageRule(
            "Requesting ",
            "waiting for {wanted} samples",
            late_pattern(r"Requesting (?P<wanted>\d+) samples from queue"),
            within=True,
        ),
        StageRule(
            "Loop collection completed: ",
            "updating after {waited} s for samples",
            late_pattern(
                r"Loop collection completed: \d+/\d+ samples, total wait time: (?P<waited>[\d.]{1,12}) seconds"
            ),
            within=True,
        ),
        StageRule(
            "Saving checkpoint to ",
            "saving the checkpoint of step {step}",
            late_pattern(r"Saving checkpoint to [^\r\n]{1,4096}?global_step_(?P<step>\d+)"),
            within=True,
        ),
    ),
    (StageRule("Final validation metrics:", "training complete"),),
)

# What ``liverl.verl_runtime.smoke`` prints. Its training ends as soon as it is good enough: steps are no progress bar.
SMOKE: Ranks = (
    (StageRule("making the smoke model", "making a tiny model to train"),),
    (
        StageRule(
            "training: step ",
            "making a tiny model to train: step {step} of at most {most}",
            late_pattern(r"training: step (?P<step>\d+) of at most (?P<most>\d+)"),
        ),
    ),
    (StageRule("trained for ", "checking the tiny model"),),
)

_RANKS: dict[str, Ranks] = {"litellm": LITELLM, "trainer": TRAINER, "ray": RAY, "smoke": SMOKE}


def stages_of(kind: str) -> Ranks:
    """Return the stages of ``kind``: litellm, trainer, ray, smoke, or the name of an engine's boot log; else empty."""
    engine = boot_log(kind)
    return engine.stages if engine is not None else _RANKS.get(kind, ())
