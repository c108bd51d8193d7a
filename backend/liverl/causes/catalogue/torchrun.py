"""Signatures of torchrun and FSDP."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="torchrun-hangup",
        component="torch",
        role="cause",
        pattern=r"SignalException: Process \d{1,10} got signal: 1\b",
        needle=" got signal: ",
        title="The terminal from which torchrun was started was closed (SIGHUP)",
        cause=("torchrun got SIGHUP: the ssh connection or the terminal ended, and its children with it."),
        fix="Start it in tmux or screen, with nohup, or as a job of the batch system.",
        source="torch/distributed/elastic/multiprocessing/api.py",
        fires=("torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 1"),
        spares=("torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 15"),
    ),
    Signature(
        id="torchrun-stopped",
        component="torch",
        role="consequence",
        pattern=r"SignalException: Process \d{1,10} got signal: (?P<number>2|15)\b",
        needle=" got signal: ",
        title="Somebody or something stopped torchrun (signal {number})",
        fix=(
            "Look for who sent it: scancel, a time limit, a preemption, docker stop, or another node whose "
            "trainer failed first."
        ),
        tells=True,
        source="torch/distributed/elastic/multiprocessing/api.py",
        fires=("torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 15"),
        spares="INFO Process 4711 got signal",
    ),
    Signature(
        id="torchrun-child-failed",
        component="torch",
        role="consequence",
        pattern=(
            r"failed \(exitcode: (?P<code>-?\d{1,4})\) local_rank: (?P<rank>\d{1,6}) \(pid: "
            r"(?P<pid>\d{1,10})\)"
        ),
        needle="failed (exitcode: ",
        title="torchrun's local rank {rank} (pid {pid}) ended with code {code}",
        fix=(
            "Read that rank's own output, above or in torchrun's --log-dir; @record on main makes torchrun "
            "print its traceback."
        ),
        source="torch/distributed/elastic/multiprocessing/api.py",
        fires=(
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: "
            "1622990) of binary: /opt/python"
        ),
        spares="INFO worker (exitcode: 0) local_rank: 0 (pid: 1) finished",
    ),
    Signature(
        id="fsdp-mixed-tensors",
        component="torch",
        role="cause",
        pattern=(
            r"Must flatten tensors with uniform (?:original parameter )?(?P<what>dtype|requires_grad)"
            r"[^\n]{0,20}(?: but got (?P<has>[^\n]{1,80}))?"
        ),
        needle="Must flatten tensors with uniform ",
        title="FSDP cannot shard a layer whose weights differ in {what}",
        cause=(
            "FSDP 1 puts all weights of a layer into one tensor, and some of them have another {what} (usual "
            "with LoRA, quantized or partly frozen models)."
        ),
        fix=(
            "Use FSDP 2 (actor.strategy=fsdp2 in trainer.overrides) or use_orig_params=True, and load all "
            "weights in one dtype."
        ),
        source="torch/distributed/fsdp/_flat_param.py",
        fires=(
            "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"
        ),
        spares="INFO flatten tensors with uniform dtype torch.bfloat16",
    ),
    Signature(
        id="fsdp-no-layer-class",
        component="verl",
        role="cause",
        pattern=(
            r"Could not find the transformer layer class (?:to wrap )?(?:[\w.]{1,80} )?(?:to wrap )?in the model"
        ),
        needle="Could not find the transformer layer class ",
        title="FSDP does not find the layers of this model to wrap",
        cause=(
            "The names in wrap_policy.transformer_layer_cls_to_wrap (or in the model's _no_split_modules) "
            "are no classes of the model that was loaded."
        ),
        fix=(
            "Set fsdp_config.wrap_policy.transformer_layer_cls_to_wrap in trainer.overrides to the name of "
            "the model's decoder layer class."
        ),
        source="verl utils/fsdp_utils.py",
        fires="Exception: Could not find the transformer layer class to wrap in the model.",
        spares="INFO transformer layer class to wrap: Qwen2DecoderLayer",
    ),
)
