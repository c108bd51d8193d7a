"""Signatures of torch: shapes, devices and types of tensors, gradients, FSDP and DeepSpeed."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="torch-two-devices",
        component="torch",
        role="cause",
        pattern=(
            "Expected all tensors to be on the same device, but (?:found at least two devices, "
            r"(?P<devices>[^\n!]{1,60})|got \w{1,30} is on (?P<other>[^\n]{1,60}))"
        ),
        needle="Expected all tensors to be on the same device, but ",
        title="Tensors of one operation are on different devices",
        cause=(
            "An operation got tensors of several devices (a GPU and the CPU, or two GPUs): code of "
            "the model, of a reward, or offloading."
        ),
        fix=(
            "Read the frame, and move the tensor to the device of the other; do not load with "
            "device_map=auto while training."
        ),
        source="torch TensorIterator",
        fires=(
            "RuntimeError: Expected all tensors to be on the same device, but found at least two "
            "devices, cuda:0 and cpu!"
        ),
        spares="INFO all tensors are on the same device",
    ),
    *family(
        Signature(
            id="torch-dtypes",
            component="torch",
            role="cause",
            pattern=r"expected scalar type (?P<what>[^\n]{1,100})",
            needle="expected scalar type ",
            title="Tensors of one operation have different types",
            cause=(
                "An operation got two types of numbers: {what}. A part of the model was loaded in "
                "another dtype than the rest."
            ),
            fix="Load all of the model in one dtype (vllm.dtype, torch_dtype), or use autocast.",
            source="torch",
            fires="RuntimeError: expected scalar type BFloat16 but found Float",
            spares="INFO all tensors have the same dtype, the expected scalar type",
        ),
        Text(
            id="torch-dtypes-matmul",
            pattern=r"mat1 and mat2 must have the same dtype,? (?P<what>[^\n]{1,100})",
            needle="mat1 and mat2 must have the same dtype",
            fires="RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16",
            spares="INFO mat1 and mat2 have the same dtype",
        ),
    ),
    Signature(
        id="torch-shapes",
        component="torch",
        role="cause",
        pattern=(
            r"mat1 and mat2 shapes cannot be multiplied \((?P<a>\d{1,12}x\d{1,12}) and "
            r"(?P<b>\d{1,12}x\d{1,12})\)"
        ),
        needle="mat1 and mat2 shapes cannot be multiplied (",
        title="Sizes of two layers do not fit: {a} and {b}",
        cause=(
            "A layer got {a} and has weights of {b}: checkpoint, configuration and adapter do not "
            "belong together, or the weights are still packed or sharded."
        ),
        fix=(
            "Compare config.json with the weights, and read the frame; with FSDP do not use "
            "parameters outside of forward."
        ),
        source="torch",
        fires="RuntimeError: mat1 and mat2 shapes cannot be multiplied (4096x896 and 1x0)",
        spares="INFO mat1 and mat2 of these shapes can be multiplied",
    ),
    Signature(
        id="torch-sizes",
        component="torch",
        role="cause",
        pattern=(
            r"The size of tensor a \((?P<a>\d{1,12})\) must match the size of tensor b "
            r"\((?P<b>\d{1,12})\) at non-singleton dimension (?P<dimension>\d{1,3})"
        ),
        needle=") must match the size of tensor b (",
        title="Two tensors have different sizes: {a} and {b}",
        cause=(
            "Tensors of {a} and {b} elements were combined in dimension {dimension}: masks, labels "
            "or positions were cut or padded differently."
        ),
        fix=(
            "Read the frame: compare the lengths of what is combined there (input, mask, labels, old "
            "and new log-probabilities)."
        ),
        source="torch",
        fires=(
            "RuntimeError: The size of tensor a (4096) must match the size of tensor b (8192) at "
            "non-singleton dimension 1"
        ),
        spares="INFO the size of tensor a matches",
    ),
    Signature(
        id="torch-no-grad",
        component="torch",
        role="cause",
        pattern="element 0 of tensors does not require grad and does not have a grad_fn",
        needle="element 0 of tensors does not require grad and does not have a grad_fn",
        title="The loss depends on no trainable parameter",
        cause=(
            "All parameters are frozen, the loss was computed without gradients, or gradient "
            "checkpointing cut the graph."
        ),
        fix=(
            "Check what is trainable; with LoRA and gradient checkpointing call "
            "model.enable_input_require_grads()."
        ),
        source="torch autograd",
        fires=("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"),
        spares="INFO the loss does require grad; element 0 is finite",
    ),
    Signature(
        id="torch-inplace",
        component="torch",
        role="cause",
        pattern=(
            "one of the variables needed for gradient computation has been modified by an inplace operation"
        ),
        needle=(
            "one of the variables needed for gradient computation has been modified by an inplace operation"
        ),
        title="A tensor that the backward pass needs was changed in place",
        cause="Code changed a tensor (+=, masked_fill_ ...) that the gradient needs.",
        fix=(
            "Run once with torch.autograd.set_detect_anomaly(True), which shows the place, and write "
            "it without changing in place."
        ),
        source="torch autograd",
        fires=(
            "RuntimeError: one of the variables needed for gradient computation has been modified by "
            "an inplace operation: [torch.cuda.FloatTensor [4]] is at version 2"
        ),
        spares="INFO no variable for gradient computation was modified",
    ),
    Signature(
        id="torch-backward-twice",
        component="torch",
        role="cause",
        pattern="Trying to backward through the graph a second time",
        needle="Trying to backward through the graph a second time",
        title="The backward pass ran twice through one graph",
        cause="A loss was used again, or keeps a part of the graph of an earlier step.",
        fix="Detach what is kept over steps (.detach(), .item()), or compute the loss again.",
        source="torch autograd",
        fires=(
            "RuntimeError: Trying to backward through the graph a second time (or directly access "
            "saved tensors after they have already been freed)."
        ),
        spares="INFO backward through the graph took a second",
    ),
    Signature(
        id="ddp-unused",
        component="torch",
        role="cause",
        pattern=("Expected to have finished reduction in the prior iteration before starting a new one"),
        needle=("Expected to have finished reduction in the prior iteration before starting a new one"),
        title="Some parameters got no gradient in the last step (DDP)",
        cause=(
            "Not all parameters took part in the loss on all ranks, so that DDP still waits for "
            "their gradients."
        ),
        fix="Use find_unused_parameters=True, or make the loss depend on all parameters.",
        source="torch/nn/parallel/distributed.py",
        fires=(
            "RuntimeError: Expected to have finished reduction in the prior iteration before "
            "starting a new one."
        ),
        spares="INFO finished reduction in the prior iteration",
    ),
    Signature(
        id="nan-logits",
        component="torch",
        role="cause",
        pattern=(
            r"(?:ValueError|RuntimeError): Expected parameter (?P<name>\w{1,40}) \(Tensor of shape "
            r"[^\n]{1,80}\) of distribution \w{1,40}[^\n]{0,120}to satisfy the constraint"
        ),
        needle="to satisfy the constraint",
        title="The model's outputs are NaN or infinite ({name})",
        cause=(
            "A distribution was built from numbers that are not valid: the weights or the loss became NaN."
        ),
        fix=(
            "Look for the first step with a NaN metric; lower the learning rate, clip gradients, and "
            "resume from before it."
        ),
        source="torch/distributions/distribution.py",
        fires=(
            "ValueError: Expected parameter logits (Tensor of shape (4, 32)) of distribution "
            "Categorical(logits: torch.Size([4, 32])) to satisfy the constraint "
            "IndependentConstraint(Real(), 1), but found invalid values"
        ),
        spares="INFO parameter logits of the distribution do satisfy the constraint",
    ),
    Signature(
        id="nan-check-anomaly",
        component="torch",
        role="cause",
        pattern=r"Function '(?P<name>\w{1,80})' returned nan values in its \d{1,3}th output",
        needle="' returned nan values in its ",
        title="The backward pass produced NaN in {name}",
        cause=("The gradient of {name} is not a number: a division by 0, a logarithm of 0, or an overflow."),
        fix=(
            "Look at the forward call that anomaly detection prints above, and guard it (clamp, "
            "eps), or lower the learning rate."
        ),
        source="torch autograd anomaly mode",
        fires="RuntimeError: Function 'LogBackward0' returned nan values in its 0th output.",
        spares="INFO Function 'LogBackward0' returned finite values",
    ),
    Signature(
        id="fsdp-dtypes",
        component="torch",
        role="cause",
        pattern=r"uniform (?:original parameter )?dtype but got (?P<dtypes>[^\n]{1,120})",
        needle="dtype but got ",
        title="FSDP needs one dtype for all parameters: {dtypes}",
        cause=("Parts of the model have different types ({dtypes}), as with adapters or quantized layers."),
        fix="Load all of it in one dtype, or wrap the parts separately.",
        source="torch/distributed/fsdp/_flat_param.py",
        fires=(
            "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"
        ),
        spares="INFO tensors with uniform dtype torch.bfloat16",
    ),
    Signature(
        id="fsdp-wrap",
        component="torch",
        role="cause",
        pattern=(
            r"Could not find the transformer layer class (?:to wrap )?(?P<name>[\w.]{0,80}) ?(?:to "
            "wrap )?in the model"
        ),
        needle="Could not find the transformer layer class ",
        title="The layer class for FSDP does not exist in the model",
        cause="FSDP was told to wrap a class of layers that the model does not have.",
        fix=(
            "Correct wrap_policy or fsdp_transformer_layer_cls_to_wrap: the name of the model's "
            "decoder layer, such as Qwen2DecoderLayer."
        ),
        source="verl/utils/fsdp_utils.py; accelerate utils/dataclasses.py",
        fires="Exception: Could not find the transformer layer class to wrap in the model.",
        spares="INFO found the transformer layer class to wrap in the model",
    ),
    Signature(
        id="deepspeed-batch",
        component="torch",
        role="cause",
        pattern=(
            r"Check batch related parameters\. train_batch_size is not equal to micro_batch_per_gpu "
            r"\* gradient_acc_step \* world_size\s{1,4}(?P<batch>\d{1,9}) != (?P<product>[\d *]{1,60})"
        ),
        needle=(
            "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
            "gradient_acc_step * world_size"
        ),
        title="DeepSpeed's batch sizes do not fit: {batch} is not {product}",
        cause="train_batch_size must be micro batch times accumulation times GPUs.",
        fix=("Correct the three numbers, or set two of them and leave the third to DeepSpeed (auto)."),
        source="deepspeed/runtime/config.py",
        fires=(
            "AssertionError: Check batch related parameters. train_batch_size is not equal to "
            "micro_batch_per_gpu * gradient_acc_step * world_size 256 != 4 * 8 * 1"
        ),
        spares="INFO batch related parameters: train_batch_size 256",
    ),
    Signature(
        id="loss-scale",
        component="torch",
        role="cause",
        pattern="Current loss scale already at minimum - cannot decrease scale anymore",
        needle="Current loss scale already at minimum - cannot decrease scale anymore",
        title="The gradients overflow in float16 at every step",
        cause=(
            "DeepSpeed lowered the loss scale to its minimum, and the gradients are still infinite or NaN."
        ),
        fix=("Train in bfloat16, lower the learning rate, and look for NaN in the data or the loss before."),
        source="deepspeed/runtime/fp16/loss_scaler.py",
        fires=(
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."
        ),
        spares="INFO Current loss scale: 65536, minimum 1",
    ),
)
