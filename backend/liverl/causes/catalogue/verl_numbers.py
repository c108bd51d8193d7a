"""Signatures of numbers that are none: gradients, rewards, probabilities."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="verl-grad-not-finite",
        component="verl",
        role="cause",
        pattern=r"WARN: grad_norm is not finite: (?P<value>[^\n]{1,60})",
        needle="WARN: grad_norm is not finite:",
        title="The gradient is not a number ({value}); verl skips the update",
        cause=(
            "The loss became NaN or infinite: diverged weights, or probabilities of engine and trainer "
            "that disagree."
        ),
        fix=(
            "Go back to a checkpoint before it and lower algorithm.learning_rate; look at "
            "rollout_probs_diff_mean and actor/loss of the steps before."
        ),
        alive=True,
        source="verl workers/engine/veomni/transformer_impl.py",
        fires="WARN: grad_norm is not finite: nan",
        spares="grad_norm: 0.31",
    ),
    Signature(
        id="verl-nan-rewards",
        component="verl",
        role="cause",
        pattern=(
            r"(?:ValueError|RuntimeError|AssertionError): NaN in the (?P<what>rewards?|loss|advantages?)\b"
        ),
        needle="NaN in the",
        title="The {what} became NaN",
        cause="The {what} of a batch are not numbers.",
        fix=(
            "Look at your reward function's result for those rows (reward.function), and lower "
            "algorithm.learning_rate if it is the loss."
        ),
        source="the failing log of diagnosis-findings, section 9",
        fires="ValueError: NaN in the rewards of group 17",
        spares="actor/loss:nan - actor/entropy:nan",
    ),
    Signature(
        id="verl-nan-probabilities",
        component="torch",
        role="cause",
        pattern="probability tensor contains either `inf`, `nan` or element < 0",
        needle="probability tensor contains either `inf`, `nan` or element < 0",
        title="The model's probabilities are NaN: its weights are broken",
        cause=(
            "Sampling failed because the model's output is not a number: training diverged, or the dtype "
            "overflows."
        ),
        fix=("Resume from an earlier checkpoint, lower algorithm.learning_rate, or use vllm.dtype bfloat16."),
        source="torch aten/src/ATen/native/cuda/TensorCompare.cu",
        fires="RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        spares="INFO the probability tensor contains no inf and no nan",
    ),
)
