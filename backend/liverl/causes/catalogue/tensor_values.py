"""Signatures of tensors and arrays whose shapes, number formats or devices do not fit."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="broadcast-index",
        component="torch",
        role="cause",
        pattern=(
            r"shape mismatch: value tensor of shape \[(?P<value>[\d, ]{0,60})\] cannot be broadcast "
            r"to indexing result of shape \[(?P<places>[\d, ]{0,60})\]"
        ),
        needle="shape mismatch: value tensor of shape [",
        title="Values of shape [{value}] do not fit places of shape [{places}]",
        cause=(
            "A program writes [{value}] values into [{places}] places. With pictures or videos the "
            "text holds another number of image tokens than the picture needs: the prompt was cut, "
            "or the processor differs between data and model."
        ),
        fix=(
            "Raise training.max_prompt_length, or filter long prompts (filter_overlong_prompts); "
            "limit the pixels of pictures; use the same processor version everywhere."
        ),
        effect=True,
        source="torch",
        fires=(
            "RuntimeError: shape mismatch: value tensor of shape [3, 465] cannot be broadcast to "
            "indexing result of shape [3, 341]"
        ),
        spares="INFO value tensor of shape [3, 465] fits indexing result",
    ),
    Signature(
        id="broadcast-numpy",
        component="torch",
        role="cause",
        pattern=(
            r"operands could not be broadcast together with (?:remapped )?shapes "
            r"(?P<shapes>[^\n]{1,80})"
        ),
        needle="operands could not be broadcast together with ",
        title="Two arrays have shapes that do not fit: {shapes}",
        cause="A program combines two arrays of numpy, element by element, whose sizes differ.",
        fix=("Look at the line for the two arrays: one of them has another number of samples or tokens."),
        effect=True,
        source="torch",
        fires="ValueError: operands could not be broadcast together with shapes (8,) (4,) ",
        spares="INFO operands could be broadcast together",
    ),
    Signature(
        id="conv-dtypes",
        component="torch",
        role="cause",
        pattern=(
            r"Input type \((?P<has>[\w:.]{1,60})\) and (?:weight|bias) type "
            r"\((?P<wanted>[\w:.]{1,60})\) should be the same"
        ),
        needle="Input type (",
        title="A layer has {wanted} weights and gets {has} input",
        cause=(
            "The input of a layer has another number format, or lies on another device, than its "
            "weights: pictures and other inputs are not converted to the model's format by "
            "themselves."
        ),
        fix=(
            "Convert the input (.to with the dtype and device of the model), or run the forward "
            "pass under autocast; in verl use one dtype for model and data."
        ),
        effect=True,
        source="torch",
        fires="RuntimeError: Input type (float) and bias type (c10::BFloat16) should be the same",
        spares="INFO Input type (float) and weight type (float) agree",
    ),
    Signature(
        id="dtypes-attention",
        component="torch",
        role="cause",
        pattern=(r"Expected query, key, and value to have the same dtype, but got (?P<what>[^\n]{1,120})"),
        needle="Expected query, key, and value to have the same dtype",
        title="The tensors of an attention layer have different number formats",
        cause=(
            "They are: {what}. A part of the model or its cache runs in another precision than the "
            "rest (an adapter in float32, autocast that is off)."
        ),
        fix="Load all parts in one dtype, or run the forward pass under autocast.",
        effect=True,
        source="torch",
        fires=(
            "RuntimeError: Expected query, key, and value to have the same dtype, but got "
            "query.dtype: float key.dtype: float and value.dtype: c10::BFloat16 instead."
        ),
        spares="INFO query, key, and value have the same dtype",
    ),
    Signature(
        id="dtypes-index-put",
        component="torch",
        role="cause",
        pattern=(r"Index put requires the source and destination dtypes match, got (?P<what>[^\n]{1,100})"),
        needle="Index put requires the source and destination dtypes match",
        title="A program writes values of one number format into a tensor of another",
        cause="They are: {what}. One part runs in another precision than the rest.",
        fix=(
            "Convert the values to the dtype of the tensor that they are written to, or load all "
            "parts in one dtype."
        ),
        effect=True,
        source="torch",
        fires=(
            "RuntimeError: Index put requires the source and destination dtypes match, got "
            "BFloat16 for the destination and Float for the source."
        ),
        spares="INFO source and destination dtypes match",
    ),
    Signature(
        id="tensor-truth",
        component="python",
        role="general",
        pattern=(
            r"(?:Boolean value of Tensor with (?:more than one|no) values?|The truth value of an "
            r"array with more than one element) is ambiguous"
        ),
        needle=" is ambiguous",
        title="A tensor or array is used as a condition",
        cause="A program asks whether a tensor or array with several elements is true.",
        fix="Say what is meant: .any(), .all(), len(x), or x is not None.",
        effect=True,
        source="torch",
        fires="RuntimeError: Boolean value of Tensor with more than one value is ambiguous",
        spares="INFO the value is ambiguous",
    ),
    Signature(
        id="tensor-scalar",
        component="python",
        role="general",
        pattern=(
            r"(?:only one element tensors can be|a Tensor with \d{1,12} elements cannot be|only "
            r"(?:length-1|0-dimensional) arrays can be) converted to (?:Python s|S)calar"
        ),
        needle=" converted to ",
        title="A tensor or array with several elements is used as one number",
        cause=(
            "A program wants one number and has a tensor or array with more elements, or none: a "
            "reward or loss that was not reduced."
        ),
        fix="Reduce it first (.mean(), .sum()), or take the element that is meant.",
        effect=True,
        source="torch",
        fires="RuntimeError: a Tensor with 8 elements cannot be converted to Scalar",
        spares="INFO one element tensors can be converted to Python numbers",
    ),
    Signature(
        id="tensor-dimensions",
        component="torch",
        role="cause",
        pattern=(r"Tensors must have same number of dimensions: got (?P<one>\d{1,3}) and (?P<other>\d{1,3})"),
        needle="Tensors must have same number of dimensions: got ",
        title="Tensors of {one} and {other} dimensions are joined",
        cause=(
            "A program joins tensors that do not have the same number of dimensions: one of them "
            "lacks the batch or token dimension."
        ),
        fix=(
            "Look at the line for the tensors, and add the missing dimension (unsqueeze) or leave "
            "out the odd one."
        ),
        effect=True,
        source="torch",
        fires="RuntimeError: Tensors must have same number of dimensions: got 2 and 1",
        spares="INFO Tensors have same number of dimensions",
    ),
    Signature(
        id="dimension-range",
        component="torch",
        role="cause",
        pattern=(
            r"Dimension out of range \(expected to be in range of \[(?P<range>[-\d, ]{1,20})\], but "
            r"got (?P<has>-?\d{1,4})\)"
        ),
        needle="Dimension out of range (expected to be in range of ",
        title="A tensor has no dimension {has}",
        cause=(
            "A program uses dimension {has} of a tensor whose dimensions are [{range}]: the tensor "
            "has fewer dimensions than expected, often since a batch of one lost its own."
        ),
        fix=("Look at the line for the tensor; keep its batch dimension (no squeeze() without a dimension)."),
        effect=True,
        source="torch",
        fires="IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)",
        spares="INFO Dimension out of range is checked",
    ),
    Signature(
        id="split-sizes",
        component="torch",
        role="cause",
        pattern=(
            r"split_with_sizes expects split_sizes to sum exactly to (?P<size>\d{1,12}) \(input "
            r"tensor's size at dimension (?P<axis>-?\d{1,4})\), but got split_sizes=(?P<sizes>\[[\d, "
            r"]{1,80}\])"
        ),
        needle="split_with_sizes expects split_sizes to sum exactly to ",
        title="A tensor of {size} cannot be split into {sizes}",
        cause=(
            "The sizes that a program splits a tensor into do not add up to its size ({size}): the "
            "number of heads or of parallel ranks, or the number of images, does not fit the "
            "weights or data."
        ),
        fix=(
            "Check that the configuration is that of this checkpoint, and tensor parallel divides "
            "its heads; for pictures that each sample has as many as its text says."
        ),
        effect=True,
        source="torch",
        fires=(
            "RuntimeError: split_with_sizes expects split_sizes to sum exactly to 4608 (input "
            "tensor's size at dimension -1), but got split_sizes=[4096, 256, 256, 8]"
        ),
        spares="INFO split_with_sizes expects split_sizes",
    ),
    Signature(
        id="tensordict-batch",
        component="verl",
        role="cause",
        pattern=(
            r"batch dimension mismatch, got self\.batch_size=torch\.Size\(\[(?P<batch>[\d, "
            r"]{0,40})\]\) and value\.shape(?:\[:self\.batch_dims\])?=torch\.Size\(\[(?P<value>[\d, "
            r"]{0,60})\]\)"
        ),
        needle="batch dimension mismatch, got self.batch_size=",
        title="A value of [{value}] rows does not fit a batch of [{batch}]",
        cause=(
            "Something that is put into a batch has another number of rows than the batch: a "
            "function returned a value per prompt and not per reply (rollout.n), or left samples "
            "out."
        ),
        fix=(
            "Return one value for each sample of the batch, in the same order; repeat per-prompt "
            "values rollout.n times."
        ),
        source="tensordict/base.py",
        fires=(
            "RuntimeError: batch dimension mismatch, got self.batch_size=torch.Size([8]) and "
            "value.shape=torch.Size([4, 12])."
        ),
        spares="INFO batch dimension mismatch, none",
    ),
    Signature(
        id="tensor-not-cpu",
        component="python",
        role="general",
        pattern=r"can't convert (?P<device>\w{1,10}:\d{1,3}) device type tensor to numpy",
        needle="device type tensor to numpy",
        title="A tensor on a GPU is used as an array of numpy",
        cause=(
            "A program converts a tensor on {device} to numpy, which only works for tensors in the "
            "host's memory."
        ),
        fix="Use .cpu() (and .float() for bfloat16) before it.",
        effect=True,
        source="torch",
        fires=(
            "TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        ),
        spares="INFO the device type tensor to numpy conversion is off",
    ),
    Signature(
        id="tensor-object",
        component="python",
        role="general",
        pattern=r"can't convert np\.ndarray of type numpy\.(?P<type>object_|str_|bytes_)",
        needle="can't convert np.ndarray of type numpy.",
        title="An array of {type} cannot become a tensor",
        cause=(
            "The array does not hold numbers: its rows have different lengths, or hold texts or "
            "missing values."
        ),
        fix=("Give all rows the same length and numbers only; in verl keep such values as non-tensor data."),
        effect=True,
        source="torch",
        fires=(
            "TypeError: can't convert np.ndarray of type numpy.object_. The only supported types "
            "are: float64, float32."
        ),
        spares="INFO can't convert np.ndarray of type numpy.float64",
    ),
    Signature(
        id="bfloat16-numpy",
        component="python",
        role="general",
        pattern=r"Got unsupported ScalarType (?P<type>\w{1,20})",
        needle="Got unsupported ScalarType ",
        title="A tensor of {type} is used as an array of numpy",
        cause="numpy has no {type}.",
        fix="Use .float() before .numpy().",
        effect=True,
        source="torch",
        fires="TypeError: Got unsupported ScalarType BFloat16",
        spares="INFO unsupported ScalarType none",
    ),
    Signature(
        id="flash-attn-shape",
        component="torch",
        role="cause",
        pattern=(
            r"RuntimeError: (?P<name>cu_seqlens_\w{1,4}|q|k|v|query|key|value|out|dout|block_table|rot"
            r"ary_\w{3}|softmax_lse|leftpad_k|seqused_k) must (?P<want>have (?:shape|dtype|same "
            r"dtype|head)[^\n]{0,80}|be on[^\n]{0,40}|be contiguous[^\n]{0,40}|only [^\n]{1,60})"
        ),
        needle="RuntimeError: ",
        title="flash-attn refuses its input: {name} must {want}",
        cause=(
            "The caller gives flash-attn a tensor {name} that does not fit the others: position "
            "ids or sequence lengths of the packed batch are wrong, or transformers, flash-attn "
            "and the caller's patches are of versions that do not fit."
        ),
        fix=(
            "Install the versions of transformers and flash-attn that verl or the trainer was "
            "tested with; try actor_rollout_ref.model.use_remove_padding=False, or "
            "attn_implementation sdpa, to tell which."
        ),
        command="pip list | grep -iE 'flash|transformers|^verl|^vllm'",
        source="flash-attn csrc/flash_attn/flash_api.cpp",
        fires="RuntimeError: cu_seqlens_q must have shape (batch_size + 1)",
        spares="RuntimeError: q tensors come from the cache",
    ),
    Signature(
        id="flash-attn-dtype",
        component="torch",
        role="cause",
        pattern=(r"FlashAttention only supports? fp16(?:,| and) (?:bf16|and bf16)[^\n]{0,60} data type"),
        needle="FlashAttention only support",
        title="FlashAttention got a number format that it does not have",
        cause=("FlashAttention computes in float16 or bfloat16 only, and the model or its input is float32."),
        fix=(
            "Load the model in bfloat16 (torch_dtype), or run it under autocast; in verl leave "
            "actor.fsdp_config.model_dtype and mixed precision as they are or set bfloat16."
        ),
        source="flash-attn csrc/flash_attn/flash_api.cpp",
        fires="RuntimeError: FlashAttention only support fp16 and bf16 data type",
        spares="RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
    ),
    Signature(
        id="flash-attn-backward-head",
        component="torch",
        role="cause",
        pattern=(r"FlashAttention backward for head dim > (?P<most>\d{1,4}) requires (?P<gpus>[^\n]{1,80})"),
        needle="FlashAttention backward for head dim > ",
        title="FlashAttention cannot train heads of more than {most} on this GPU",
        cause=(
            "The model's heads are larger than {most}, and the backward pass of flash-attn then needs {gpus}."
        ),
        fix="Use attn_implementation sdpa for this model, or such a GPU.",
        source="flash-attn csrc/flash_attn/flash_api.cpp",
        fires=("RuntimeError: FlashAttention backward for head dim > 192 requires A100/A800 or H100/H800"),
        spares="INFO FlashAttention backward for head dim 128",
    ),
)
