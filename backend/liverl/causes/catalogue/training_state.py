"""Signatures of weights, optimizers and checkpoints that do not fit what trains them."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="weight-shape-set",
        component="torch",
        role="cause",
        pattern=(
            r"Trying to set a tensor of shape torch\.Size\(\[(?P<file>[\d, ]{0,40})\]\) in "
            r'"(?P<name>[^"\n]{1,120})" \(which has shape torch\.Size\(\[(?P<model>[\d, ]{0,40})\]\)\)'
        ),
        needle="Trying to set a tensor of shape torch.Size([",
        title="The weight {name} has another shape in the file than in the model",
        cause=(
            "The file holds [{file}], the model [{model}]: the checkpoint is of another size or "
            "vocabulary. A size of 0 comes of DeepSpeed ZeRO-3, which keeps only a part on each rank."
        ),
        fix=(
            "Load the checkpoint into the model that it was saved from; with ZeRO-3 gather the "
            "weights before saving (stage3_gather_16bit_weights_on_model_save)."
        ),
        source="accelerate/utils/modeling.py",
        fires=(
            'ValueError: Trying to set a tensor of shape torch.Size([32000, 4096]) in "weight" '
            "(which has shape torch.Size([0])), this look incorrect."
        ),
        spares='INFO set a tensor of shape torch.Size([8]) in "weight"',
    ),
    Signature(
        id="zero3-state",
        component="torch",
        role="cause",
        pattern=r"AssertionError: \{'id': (?P<id>\d{1,9}), 'status': '(?P<status>\w{1,20})'",
        needle="AssertionError: {'id': ",
        title="DeepSpeed ZeRO-3 did not expect parameter {id} to be {status}",
        cause=(
            "A part of the model is gathered, used or released in another order than ZeRO-3 expects: "
            "by generating, evaluating or saving within a step, or by branches that differ."
        ),
        fix=(
            "Gather the weights for it (deepspeed.zero.GatheredParameters), let all ranks make the "
            "same calls, and set use_reentrant=False for gradient checkpointing."
        ),
        source="deepspeed/runtime/zero/partition_parameters.py",
        fires=("AssertionError: {'id': 0, 'status': 'AVAILABLE', 'numel': 544997376, 'ds_numel': 544997376}"),
        spares="INFO parameter {'id': 0, 'status': 'AVAILABLE'}",
    ),
    Signature(
        id="optimizer-devices",
        component="torch",
        role="cause",
        pattern="Tensors of the same index must be on the same device and the same dtype",
        needle="Tensors of the same index must be on the same device and the same dtype",
        title="The optimizer's tensors are on different devices, or of different types",
        cause=(
            "A parameter, its gradient and the optimizer's state do not match: the model was moved "
            "or cast after the optimizer was made, or its state was loaded elsewhere."
        ),
        fix=(
            "Make the optimizer after the model is on its device and has its type; move the state "
            "with the model."
        ),
        source="torch/utils/_foreach_utils.py",
        fires=(
            "RuntimeError: Tensors of the same index must be on the same device and the same dtype "
            "except `step` tensors"
        ),
        spares="INFO tensors of the same index are on the same device",
    ),
    Signature(
        id="tied-weights",
        component="python",
        role="cause",
        pattern=(
            r"This checkpoint seem corrupted\. The tied weights mapping for this model specifies to "
            r"tie (?P<source>[\w.]{1,120})"
        ),
        needle=("This checkpoint seem corrupted. The tied weights mapping for this model specifies to tie "),
        title="The checkpoint lacks weights that others are tied to",
        cause="transformers ties other weights to {source}, which the file does not hold.",
        fix=(
            "Use the version of transformers that saved it (often below 5), or save the checkpoint "
            "again with all weights."
        ),
        command="pip show transformers",
        source="transformers/modeling_utils.py",
        fires=(
            "ValueError: This checkpoint seem corrupted. The tied weights mapping for this model "
            "specifies to tie shared.weight (which should be present and is not), to "
            "encoder.embed_tokens.weight."
        ),
        spares="INFO the tied weights mapping is complete",
    ),
    Signature(
        id="weights-bin-unreadable",
        component="torch",
        role="cause",
        pattern=(r"Unable to load weights from pytorch checkpoint file for '(?P<file>[^'\n]{1,300})'"),
        needle="Unable to load weights from pytorch checkpoint file for '",
        title="A weights file cannot be read",
        cause="{file} is damaged or incomplete, or a Git LFS pointer instead of the weights.",
        fix=(
            "Compare its size with the one on the hub, and copy or download it again (git lfs pull, "
            "hf download)."
        ),
        source="transformers/modeling_utils.py",
        fires=(
            "OSError: Unable to load weights from pytorch checkpoint file for "
            "'/data/m/pytorch_model.bin' at '/data/m/pytorch_model.bin'."
        ),
        spares="INFO loaded weights from pytorch checkpoint file for '/data/m'",
    ),
    Signature(
        id="hub-gated-repo",
        component="python",
        role="cause",
        pattern=(
            r"You are trying to access a gated repo\.(?:\nMake sure to have access to it at "
            "(?P<url>https?://[^\\s'\\\"]{1,200}\\w))?"
        ),
        needle="You are trying to access a gated repo.",
        title="The model is gated: this account has no access to it",
        cause=(
            "The hub gives the files of this model only to accounts that accepted its terms, and a token of "
            "such an account is needed."
        ),
        fix="Accept the terms on the model's page of the hub, and set HF_TOKEN to a token of that account.",
        source="transformers/utils/hub.py",
        fires=(
            "OSError: You are trying to access a gated repo.\nMake sure to have access to it at "
            "https://huggingface.co/acme/m."
        ),
        spares="INFO you have access to the gated repo",
    ),
    Signature(
        id="fsdp-requires-grad",
        component="torch",
        role="cause",
        pattern=("(?:FlatParameter requires uniform|Must flatten tensors with uniform) `?requires_grad`?"),
        needle="requires_grad",
        title="FSDP cannot mix frozen and trainable parameters in one unit",
        cause=(
            "With use_orig_params=False all parameters that are wrapped together must be trainable, "
            "or none; LoRA mixes them."
        ),
        fix=("Set use_orig_params=True (fsdp_use_orig_params), or wrap frozen and trainable modules apart."),
        source="torch/distributed/fsdp/_flat_param.py",
        fires=("ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`"),
        spares="INFO tensors have uniform `requires_grad`",
    ),
    Signature(
        id="embedding-sharded",
        component="torch",
        role="cause",
        pattern="'weight' must be 2-D",
        needle="'weight' must be 2-D",
        title="An embedding's weight is not whole on this rank",
        cause=(
            "DeepSpeed ZeRO-3 or FSDP holds only a part of it, and it is used outside of the wrapped model."
        ),
        fix=(
            "Call the wrapped model instead of its inner module, or gather the weight first "
            "(GatheredParameters, summon_full_params)."
        ),
        source="torch aten/src/ATen/native/Embedding.cpp",
        fires="RuntimeError: 'weight' must be 2-D",
        spares="INFO 'weight' is 2-D",
    ),
    Signature(
        id="optimizer-groups",
        component="torch",
        role="cause",
        pattern=(
            "loaded state dict (?:has a different number of parameter groups|contains a parameter "
            "group that doesn't match the size of optimizer's group)"
        ),
        needle="loaded state dict ",
        title="The checkpoint's optimizer has other parameters than this one",
        cause=("Other layers are trainable than when it was saved, or another optimizer or version is used."),
        fix=("Resume with the same model, LoRA and optimizer options, or load the weights only."),
        source="torch/optim/optimizer.py",
        fires=(
            "ValueError: loaded state dict contains a parameter group that doesn't match the size of "
            "optimizer's group"
        ),
        spares="INFO loaded state dict of the optimizer",
    ),
    Signature(
        id="load-without-gpu",
        component="torch",
        role="cause",
        pattern=(
            r"Attempting to deserialize object on (?:a )?CUDA device(?: (?P<number>\d{1,3}))? but "
            r"torch\.cuda\."
        ),
        needle="Attempting to deserialize object on ",
        title="A file was saved on a GPU that this process does not have",
        cause="torch.load puts tensors back on the device that they came from.",
        fix=(
            "Pass map_location='cpu' to torch.load; if a GPU should be there, check nvidia-smi and "
            "CUDA_VISIBLE_DEVICES."
        ),
        command="nvidia-smi",
        source="torch/serialization.py",
        fires=(
            "RuntimeError: Attempting to deserialize object on a CUDA device but "
            "torch.cuda.is_available() is False."
        ),
        spares="INFO deserialized an object on a CUDA device",
    ),
    Signature(
        id="checkpoint-ranks",
        component="torch",
        role="consequence",
        pattern="CheckpointException ranks:",
        needle="CheckpointException ranks:",
        title="A distributed checkpoint could not be saved or loaded",
        fix="Read the traceback of the rank that it names.",
        source="torch/distributed/checkpoint/utils.py",
        fires=(
            "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0])"
        ),
        spares="INFO the checkpoint is whole on all ranks",
    ),
)
