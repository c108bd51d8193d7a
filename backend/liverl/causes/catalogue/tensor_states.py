"""Signatures of tensors in a state in which an operation cannot use them."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="rows-ragged",
        component="python",
        role="general",
        pattern=(
            r"expected sequence of length (?P<wanted>\d{1,12}) at dim (?P<axis>\d{1,3}) \(got "
            r"(?P<has>\d{1,12})\)"
        ),
        needle="expected sequence of length ",
        title="Rows of different lengths ({wanted} and {has}) cannot become one tensor",
        cause="A program makes a tensor of lists whose lengths differ: rows that were not padded.",
        fix=("Pad or cut the rows to one length first (the tokenizer's padding, or a collate function)."),
        effect=True,
        source="torch",
        fires="ValueError: expected sequence of length 5 at dim 1 (got 4)",
        spares="INFO expected sequence of length 5",
    ),
    Signature(
        id="negative-dimension",
        component="torch",
        role="cause",
        pattern=r"Trying to create tensor with negative dimension (?P<size>-\d{1,12})",
        needle="Trying to create tensor with negative dimension ",
        title="A tensor of size {size} is asked for",
        cause=(
            "A size that was computed is negative: a prompt that is longer than the limit, or a "
            "length that was subtracted from a shorter one."
        ),
        fix=(
            "Look at the line for the lengths; raise training.max_prompt_length or "
            "training.max_response_length, or cut the samples."
        ),
        effect=True,
        source="torch",
        fires="RuntimeError: Trying to create tensor with negative dimension -1: [-1, 8]",
        spares="INFO tensor with dimension 1",
    ),
    Signature(
        id="leaf-inplace",
        component="torch",
        role="cause",
        pattern=(
            r"a leaf Variable that requires grad (?:is being used in an in-place operation|has been "
            r"used in an in-place operation)"
        ),
        needle="a leaf Variable that requires grad ",
        title="A parameter is changed in place while gradients are recorded",
        cause=(
            "torch does not allow an operation in place (+=, copy_, fill_) on a parameter that "
            "requires a gradient."
        ),
        fix="Do it within torch.no_grad(), or on a copy.",
        effect=True,
        source="torch",
        fires=("RuntimeError: a leaf Variable that requires grad is being used in an in-place operation."),
        spares="INFO a leaf Variable that requires no grad",
    ),
    Signature(
        id="tensor-grad-numpy",
        component="python",
        role="general",
        pattern=r"Can't call numpy\(\) on Tensor that requires grad",
        needle="Can't call numpy() on Tensor that requires grad",
        title="A tensor with a gradient is used as an array of numpy",
        cause="torch does not convert tensors that require a gradient.",
        fix="Use .detach() before it.",
        effect=True,
        source="torch",
        fires=(
            "RuntimeError: Can't call numpy() on Tensor that requires grad. Use "
            "tensor.detach().numpy() instead."
        ),
        spares="INFO Tensor that requires grad",
    ),
    Signature(
        id="tensor-integer-grad",
        component="torch",
        role="cause",
        pattern=r"[Oo]nly Tensors of floating point (?:and complex )?dtype can require gradients",
        needle="dtype can require gradients",
        title="A tensor of whole numbers should have a gradient",
        cause=(
            "Only tensors of floating point can be trained: quantized weights, or indices, are "
            "among the parameters."
        ),
        fix=("Train adapters (LoRA) on top of quantized weights, or load the model without quantization."),
        effect=True,
        source="torch",
        fires=("RuntimeError: Only Tensors of floating point and complex dtype can require gradients"),
        spares="INFO dtype can require no gradients",
    ),
    Signature(
        id="tensor-indices",
        component="python",
        role="general",
        pattern=r"tensors used as (?:indices|indexes) must be (?P<kinds>long[\w, ]{0,40}) tensors",
        needle="tensors used as ind",
        title="A tensor that is used as an index holds no whole numbers",
        cause="Indices must be {kinds} tensors, and this one holds other numbers.",
        fix="Convert it with .long(), or .bool() for a mask.",
        effect=True,
        source="torch",
        fires="IndexError: tensors used as indices must be long, int, byte or bool tensors",
        spares="INFO tensors used as indices",
    ),
    Signature(
        id="loss-batch",
        component="torch",
        role="cause",
        pattern=(
            r"Expected input batch_size \((?P<input>\d{1,12})\) to match target batch_size "
            r"\((?P<target>\d{1,12})\)"
        ),
        needle="Expected input batch_size (",
        title="A loss gets {input} predictions and {target} targets",
        cause=(
            "Logits and labels do not have the same number of rows or tokens: one was shifted, cut "
            "or padded in another way."
        ),
        fix="Compare how both are cut and shifted in the frame above.",
        effect=True,
        source="torch",
        fires="ValueError: Expected input batch_size (8) to match target batch_size (4).",
        spares="INFO input batch_size (8)",
    ),
    Signature(
        id="conv-channels",
        component="torch",
        role="cause",
        pattern=(
            r"weight of size \[(?P<weight>[\d, ]{1,60})\], expected input\[(?P<input>[\d, ]{1,60})\] "
            r"to have (?P<wanted>\d{1,9}) channels, but got (?P<has>\d{1,9})"
        ),
        needle="], expected input[",
        title="A convolution expects {wanted} channels and gets {has}",
        cause=(
            "The pictures have another layout than the vision model wants: another processor made "
            "them, or versions of the processor and the model differ."
        ),
        fix=(
            "Use the processor of this checkpoint, and the version of transformers that the model "
            "was made for."
        ),
        effect=True,
        source="torch",
        fires=(
            "RuntimeError: Given groups=1, weight of size [1280, 3, 2, 14, 14], expected input[1, "
            "1176] to have 3 channels, but got 1176 channels instead"
        ),
        spares="INFO expected input[1, 3] to have channels",
    ),
    *family(
        Signature(
            id="dtypes-m1-m2",
            component="torch",
            role="cause",
            pattern=(
                r"expected (?:m1|mat1) and (?:m2|mat2) to have the same dtype, but got: "
                r"(?P<what>[^\n]{1,80})"
            ),
            needle=" to have the same dtype, but got: ",
            title="Two matrices have different number formats: {what}",
            cause=(
                "A part of the model, or its input, runs in another precision than the rest: a value "
                "head, an adapter or a vision tower in float32."
            ),
            fix="Load all parts in one dtype (bfloat16), or run the forward pass under autocast.",
            effect=True,
            source="torch",
            fires=(
                "RuntimeError: expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16"
            ),
            spares="INFO expected m1 and m2 to have the same dtype",
        ),
        Text(
            id="dtypes-mat2",
            pattern=r"self and mat2 must have the same dtype, but got (?P<what>[^\n]{1,80})",
            needle="self and mat2 must have the same dtype, but got ",
            fires="RuntimeError: self and mat2 must have the same dtype, but got BFloat16 and Float",
            spares="INFO self and mat2 must have the same dtype",
        ),
    ),
    Signature(
        id="tensor-not-allocated",
        component="torch",
        role="cause",
        pattern=r"The tensor has a non-zero number of elements, but its data is not allocated yet",
        needle="but its data is not allocated yet",
        title="A tensor is used whose memory was never allocated, or was given back",
        cause=(
            "Weights or a cache are used while they are offloaded, asleep or on the meta device: a "
            "module that FSDP does not gather, or an engine that sleeps."
        ),
        fix=(
            "Wake or load the owner before it is used; try without the patched or fused kernels, "
            "and with parameter offload off."
        ),
        effect=True,
        source="torch",
        fires=(
            "RuntimeError: The tensor has a non-zero number of elements, but its data is not allocated yet."
        ),
        spares="INFO its data is not allocated yet",
    ),
    Signature(
        id="tensor-no-storage",
        component="torch",
        role="cause",
        pattern=r"Cannot access (?:data pointer of|storage of) \w{1,20} that doesn't have storage",
        needle="that doesn't have storage",
        title="A kernel got a tensor without memory (fake, functional or sharded)",
        cause=(
            "A compiled or native kernel is called with a tensor that only stands for one: "
            "torch.compile traces it, or it is a sharded tensor (DTensor)."
        ),
        fix=(
            "Switch torch.compile off for that part (in verl use_torch_compile=False), or "
            "enforce_eager in the engine."
        ),
        effect=True,
        source="torch",
        fires="RuntimeError: Cannot access data pointer of Tensor that doesn't have storage",
        spares="INFO Tensor that doesn't have storage",
    ),
    Signature(
        id="ancdata",
        component="torch",
        role="cause",
        pattern=r"received 0 items of ancdata",
        needle="received 0 items of ancdata",
        title="A process has too many open files, so that a tensor could not be handed over",
        cause=(
            "Processes hand tensors to each other as open files, and the limit of open files "
            "(ulimit -n) is reached."
        ),
        fix=(
            "Raise ulimit -n in the launch script, use fewer data loader workers, or "
            "torch.multiprocessing.set_sharing_strategy('file_system')."
        ),
        command="ulimit -n",
        effect=True,
        source="torch",
        fires="RuntimeError: received 0 items of ancdata",
        spares="INFO received 2 items of ancdata",
    ),
    Signature(
        id="too-many-indices",
        component="python",
        role="general",
        pattern=r"too many indices for (?:tensor of dimension (?P<dimensions>\d{1,3})|array)",
        needle="too many indices for ",
        title="A tensor or array is indexed by more dimensions than it has",
        cause=(
            "The program expects another dimension (often the batch or the token one) that this "
            "tensor or array does not have."
        ),
        fix="Look at the line for the tensor: keep its batch dimension, or leave an index out.",
        effect=True,
        source="torch",
        fires="IndexError: too many indices for tensor of dimension 3",
        spares="INFO too many indices",
    ),
    Signature(
        id="torch-argument-kind",
        component="python",
        role="general",
        pattern=(
            r"(?P<function>[\w.]{1,60})\(\): argument '(?P<name>\w{1,40})' (?:\(position \d{1,3}\) "
            r")?must be (?P<wanted>[\w ,.]{1,60}), not (?P<given>\w{1,60})"
        ),
        needle="(): argument '",
        title="{function}() got a {given} as {name}, and wants {wanted}",
        cause=(
            "An operation of torch is called with a value of another type: the code that calls it "
            "(a model or kernel of the engine, a patch) does not fit this version, or returns "
            "several values where one was expected."
        ),
        fix=(
            "Look at the frame for whose code it is: install versions that belong together "
            "(environments), or correct it if it is yours."
        ),
        effect=True,
        source="torch",
        fires="TypeError: where(): argument 'other' (position 3) must be Tensor, not tuple",
        spares="INFO argument 'other' must be a Tensor",
    ),
    Signature(
        id="ranks-parameters",
        component="torch",
        role="cause",
        pattern=(
            r"params\[(?P<number>\d{1,6})\] in this process with sizes (?P<sizes>\[[\d, ]{0,60}\]) "
            r"appears not to match sizes of the same param in process 0"
        ),
        needle="appears not to match sizes of the same param in process 0",
        title="The ranks do not build the same model",
        cause=(
            "A parameter of size {sizes} has another size on rank 0: the ranks read different "
            "checkpoints or configurations, or one of them changed the vocabulary."
        ),
        fix="Check that all ranks and nodes load the same model path and options.",
        source="torch",
        fires=(
            "RuntimeError: [1]: params[0] in this process with sizes [151936, 1536] appears not to "
            "match sizes of the same param in process 0."
        ),
        spares="INFO param in process 0 matches",
    ),
    Signature(
        id="te-cublas",
        component="cuda",
        role="cause",
        pattern=(r"cublaslt_gemm\.cu:\d{1,6} in function \w{1,40}: cuBLAS Error: (?P<why>[^\n]{1,120})"),
        needle="cuBLAS Error: ",
        title="A matrix product of TransformerEngine failed in cuBLAS",
        cause=(
            "cuBLAS says: {why}. It refuses the product that TransformerEngine asks for: sizes "
            "that are no multiple of 8 or 16 (FP8), another cuBLAS than it was built with, or no "
            "memory for its workspace."
        ),
        fix=(
            "Use the versions of TransformerEngine, CUDA and torch that belong together; switch "
            "FP8 off to tell whether it is that."
        ),
        source="TransformerEngine common/gemm/cublaslt_gemm.cu",
        fires=(
            "RuntimeError: /TransformerEngine/transformer_engine/common/gemm/cublaslt_gemm.cu:276 "
            "in function cublas_gemm: cuBLAS Error: an unsupported value or parameter was passed "
            "to the function"
        ),
        spares="INFO cuBLAS Error: none",
    ),
    Signature(
        id="generator-device",
        component="python",
        role="general",
        pattern=(
            r"Expected a '(?P<wanted>\w{1,20})' device type for generator but found "
            r"'(?P<has>\w{1,20})'"
        ),
        needle="' device type for generator but found '",
        title="A random generator of {has} is used where one of {wanted} is needed",
        cause=(
            "The default device of torch was set (torch.set_default_device, a with torch.device "
            "block) while a data loader or sampler works with a generator on {has}."
        ),
        fix=(
            "Set the default device only around the code that needs it, or give the sampler a "
            "generator of that device."
        ),
        effect=True,
        source="torch",
        fires="RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'",
        spares="INFO device type for generator cuda",
    ),
    Signature(
        id="arrays-joined",
        component="python",
        role="general",
        pattern=(
            r"all the input array dimensions except for the concatenation axis must match exactly, "
            r"but along dimension (?P<axis>\d{1,3}), the array at index \d{1,6} has size "
            r"(?P<one>\d{1,12}) and the array at index \d{1,6} has size (?P<other>\d{1,12})"
        ),
        needle="dimensions except for the concatenation axis must match exactly",
        title="Arrays of sizes {one} and {other} cannot be joined",
        cause=(
            "A program joins arrays of numpy that differ in dimension {axis}: parts of a batch "
            "were padded or cut to different lengths, or made by different workers."
        ),
        fix=(
            "Look at the line for what is joined, and bring all parts to one length, or store them "
            "as arrays of objects."
        ),
        effect=True,
        source="torch",
        fires=(
            "ValueError: all the input array dimensions except for the concatenation axis must "
            "match exactly, but along dimension 1, the array at index 0 has size 5 and the array "
            "at index 1 has size 7"
        ),
        spares="INFO the concatenation axis must match exactly",
    ),
)
