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
            r"failed \(exitcode: (?P<code>\d{1,4})\) local_rank: (?P<rank>\d{1,6}) \(pid: (?P<pid>\d{1,10})\)"
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
        id="fsdp-dtensor",
        component="torch",
        role="cause",
        pattern=(r"got mixed torch\.Tensor and DTensor, need to convert all torch\.Tensor to DTensor"),
        needle="got mixed torch.Tensor and DTensor",
        title="Plain and sharded tensors (DTensor) meet in one operation",
        cause=(
            "A layer that FSDP 2 or tensor parallelism did not wrap works on weights that are sharded: LoRA, "
            "tied embeddings, a value head or a patched forward."
        ),
        fix=(
            "Use versions of verl, torch and transformers that belong together, or FSDP 1 "
            "(actor.strategy=fsdp in trainer.overrides)."
        ),
        source="torch/distributed/tensor/_dispatch.py",
        fires=(
            "RuntimeError: aten.embedding.default: got mixed torch.Tensor and DTensor, need to convert all "
            "torch.Tensor to DTensor before calling distributed operators!"
        ),
        spares="INFO torch.Tensor and DTensor are converted",
    ),
    Signature(
        id="fsdp-cpu-parameters",
        component="torch",
        role="cause",
        pattern=(
            r"FSDP parameters should be materialized on (?P<where>\w{1,20}) when enabling CPU offloading"
        ),
        needle="FSDP parameters should be materialized on ",
        title="FSDP 2 with CPU offload found weights that are not on the CPU",
        cause=(
            "The weights must be on {where} before FSDP 2 is used with offload_policy, and something moved "
            "them."
        ),
        fix=(
            "Switch offload_policy off (fsdp_config.offload_policy=False in trainer.overrides) and use "
            "param_offload, or use newer versions."
        ),
        source="torch/distributed/fsdp/_fully_shard",
        fires=(
            "RuntimeError: FSDP parameters should be materialized on CPU when enabling CPU offloading. For "
            'example, load a CPU state dict or call module.to_empty(device="cpu").'
        ),
        spares="INFO FSDP parameters are materialized on CPU",
    ),
    Signature(
        id="fsdp-optimizer-empty",
        component="torch",
        role="cause",
        pattern=r"The state of _OptimStateKey\(unflat_param_names=\('(?P<name>[^'\n]{1,160})'",
        needle="The state of _OptimStateKey(",
        title="The checkpoint has no optimizer state of {name}",
        cause=(
            "These weights never got a gradient before it was saved (a vision tower without pictures, frozen "
            "layers), so the optimizer had nothing to save, and FSDP cannot load that."
        ),
        fix=(
            "Resume without the optimizer's state (checkpoint.load_contents=[model,extra] in "
            "trainer.overrides), or let every batch use these layers."
        ),
        source="torch/distributed/fsdp/_optim_utils.py",
        fires=(
            "RuntimeError: The state of _OptimStateKey(unflat_param_names=('visual.blocks.0.norm1.weight', "
            "'visual.blocks.0.norm2.weight'), is_fsdp_managed=True) is empty. This should happen when "
            "use_orig_params=True."
        ),
        spares="INFO The state of _OptimStateKey is loaded, none is empty",
    ),
    Signature(
        id="optimizer-state-missing",
        component="torch",
        role="cause",
        where="exception",
        pattern=(
            "^KeyError: '(?P<key>optimizer|optimizer_state_dict|param_groups|state|lr_scheduler|exp_avg)'"
        ),
        needle="KeyError: '",
        title="The checkpoint lacks the optimizer's part ({key})",
        cause=("The checkpoint was saved without it, by another version, or by another kind of optimizer."),
        fix=(
            "Resume with the model's weights only, or from a checkpoint of the same version with the "
            "optimizer."
        ),
        source="torch/optim/optimizer.py, as programs read checkpoints",
        fires="KeyError: 'param_groups'",
        spares="KeyError: 'optimizer_name'",
    ),
    Signature(
        id="torch-save-parent",
        component="torch",
        role="cause",
        pattern=r"Parent directory (?P<path>\S{1,300}) does not exist",
        needle="Parent directory ",
        title="A checkpoint cannot be written: {path} does not exist",
        cause=("torch.save does not make directories, and {path} is missing on the node that writes."),
        fix="Create it, or choose a path that all nodes share.",
        command="ls -ld {path}",
        source="torch caffe2/serialize/inline_container.cc",
        fires="RuntimeError: Parent directory /ckpt/global_step_10 does not exist.",
        spares="INFO Parent directory /ckpt exists",
    ),
    Signature(
        id="torch-save-iostream",
        component="torch",
        role="cause",
        pattern="basic_ios::clear: iostream error",
        needle="basic_ios::clear: iostream error",
        title="A checkpoint could not be written or read: the disk is probably full",
        cause=(
            "A write or read of a file failed below torch: the disk is full, its quota is used up, or the "
            "file system failed."
        ),
        fix=(
            "See how much is free there (df -h, quota -s), delete old checkpoints, keep fewer "
            "(training.save_freq), then restart."
        ),
        command="df -h",
        source="libstdc++, under torch.save",
        fires="RuntimeError: basic_ios::clear: iostream error",
        spares="INFO iostream error state cleared",
    ),
    Signature(
        id="port-in-use-errno",
        component="torch",
        role="cause",
        pattern=(r"has failed to bind to (?P<address>\S{1,80}) \(errno: 98 - Address already in use\)"),
        needle=" (errno: 98 - Address already in use)",
        title="The port of torch's rendezvous is taken: {address}",
        cause=(
            "torch could not listen on {address}: another process, or a leftover of an earlier run, uses "
            "that port."
        ),
        fix=(
            "Stop the leftover if it is yours (ss -ltnp shows it), or set MASTER_PORT to a free port; by "
            "itself it may also be bad luck, so start again."
        ),
        command="ss -ltnp",
        source="torch/csrc/distributed/c10d/socket.cpp",
        fires=(
            "RuntimeError: The server socket has failed to listen on any local network address. The server "
            "socket has failed to bind to [::]:38123 (errno: 98 - Address already in use)."
        ),
        spares=("The server socket has failed to bind to [::]:38123 (code: 98 - Address already in use)"),
    ),
    Signature(
        id="lora-modules",
        component="torch",
        role="cause",
        pattern=r"Target modules (?P<names>[^\n]{1,200}?) not found in the base model",
        needle=" not found in the base model",
        title="The model has no layers that LoRA should change",
        cause="target_modules names {names}, which are no layers of this model.",
        fix=(
            "Use the names of its linear layers (q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
            "down_proj for most), or all-linear (actor_rollout_ref.model.target_modules in "
            "trainer.overrides)."
        ),
        source="peft tuners/tuners_utils.py",
        fires=(
            "ValueError: Target modules {'q_projj'} not found in the base model. Please check the target "
            "modules and try again."
        ),
        spares="INFO Target modules found in the base model: q_proj",
    ),
    Signature(
        id="torch-expanded-size",
        component="torch",
        role="cause",
        pattern=(
            r"The expanded size of the tensor \((?P<wanted>\d{1,12})\) must match the existing size "
            r"\((?P<has>\d{1,12})\)"
        ),
        needle="The expanded size of the tensor (",
        title="Two tensors have different sizes: {wanted} and {has}",
        cause=(
            "One tensor has {has} entries where the other has {wanted}: they were padded or cut differently, "
            "or belong to different batches."
        ),
        fix=(
            "Look at the frame for which two they are; masks, rewards and responses must have one length "
            "(padding, max_response_length)."
        ),
        source="torch aten/src/ATen/native/TensorShape.cpp",
        fires=(
            "RuntimeError: The expanded size of the tensor (1024) must match the existing size (1000) at "
            "non-singleton dimension 1."
        ),
        spares="INFO The expanded size of the tensor is 1024",
    ),
    Signature(
        id="trainer-bf16",
        component="cuda",
        role="cause",
        pattern="Your setup doesn't support bf16/(?P<where>gpu|tpu)",
        needle="Your setup doesn't support bf16/",
        title="This GPU or torch has no bfloat16, or no GPU is visible",
        cause=(
            "The trainer was asked for bf16, which needs a visible GPU of compute capability 8.0 or newer."
        ),
        fix="Check nvidia-smi and CUDA_VISIBLE_DEVICES; on older GPUs use fp16.",
        command="nvidia-smi",
        source="transformers training_args.py",
        fires=(
            "ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with "
            "cuda>=11.0"
        ),
        spares="INFO setup does support bf16/gpu",
    ),
    Signature(
        id="group-no-cpu",
        component="torch",
        role="cause",
        pattern=r"No backend type associated with device type (?P<device>\w{1,20})",
        needle="No backend type associated with device type ",
        title="The process group cannot exchange tensors on the device {device}",
        cause=(
            "Tensors on {device} are sent by a group that was set up for another device only (nccl knows no "
            "CPU tensors), as checkpoints with offload do."
        ),
        fix=(
            "Set the group up for both (backend cpu:gloo,cuda:nccl), update verl and torch, or switch "
            "offload off while saving."
        ),
        source="torch/csrc/distributed/c10d/ProcessGroup.hpp",
        fires="RuntimeError: No backend type associated with device type cpu",
        spares="INFO backend type associated with device type cpu: gloo",
    ),
)
