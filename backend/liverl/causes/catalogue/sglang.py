"""Signatures of SGLang's servers: a scheduler that hangs, and GPU memory that cannot be taken back."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="sglang-watchdog",
        component="verl",
        role="waits",
        pattern=r"Watchdog timeout \((?:self\.)?watchdog_timeout=(?P<seconds>\d{1,6}(?:\.\d{1,3})?)",
        needle="Watchdog timeout (",
        title="SGLang's scheduler hung: no batch ended within {seconds} s",
        cause=(
            "The scheduler ran one batch for {seconds} s, so its watchdog ended the server. A rank waits for "
            "another rank in a collective, or a GPU kernel does not return."
        ),
        fix=(
            "Look at the last line of each rank before it, and at the stacks that the watchdog printed; while it "
            "hangs, py-spy dump shows where each scheduler waits. If single batches do take so long, raise "
            "--watchdog-timeout."
        ),
        command="py-spy dump --pid $(pgrep -f sglang::scheduler | head -1)",
        source="sglang/srt/managers/scheduler.py, sglang/srt/utils/watchdog.py",
        fires="[2026-11-20 10:05:00 TP0] Watchdog timeout (self.watchdog_timeout=300)",
        spares="[2026-11-20 10:05:00 TP0] server_args: watchdog_timeout=300",
    ),
    Signature(
        id="sglang-child-ended",
        component="verl",
        role="consequence",
        pattern=r"SIGQUIT received\. signum=[^\n]{1,40}\bIt usually means one child failed",
        needle="SIGQUIT received. signum=",
        title="A child process of SGLang failed",
        fix="Read the first error of its scheduler or detokenizer above.",
        source="sglang/srt/entrypoints/engine.py",
        fires="[2026-11-20 10:05:05] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        spares="[2026-11-20 10:05:05] SIGTERM received. signum=15. Draining requests and shutting down...",
    ),
    Signature(
        id="sglang-memory-resume",
        component="verl",
        role="cause",
        pattern=(
            r"\[torch_memory_saver\.cpp\] CUresult error: 2 \(out of memory\)[^\n]{0,200}?(?:func=(?P<call>\w{1,60}))?"
        ),
        needle="[torch_memory_saver.cpp] CUresult error: 2",
        title="SGLang could not take back its GPU memory at wake-up",
        cause=(
            "Between two rollouts the engine gives its GPU memory to the trainer. When it was resumed, less was free "
            "than it had: the trainer, or another process on the GPU, still held some of it."
        ),
        fix=(
            "Lower actor_rollout_ref.rollout.gpu_memory_utilization (SGLang's mem_fraction_static), and let the "
            "trainer offload its parameters and optimizer before the engine resumes (actor.fsdp_config.param_offload "
            "and optimizer_offload)."
        ),
        command="nvidia-smi",
        gpu_memory=True,
        source="github.com/sgl-project/sglang/issues/14092",
        fires=(
            "[torch_memory_saver.cpp] CUresult error: 2 (out of memory)  file=csrc/utils.h func=cu_mem_create line=194"
        ),
        spares="[torch_memory_saver.cpp] CUresult error: 201 (invalid device context)  file=csrc/utils.h",
    ),
)
