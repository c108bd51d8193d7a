"""Signatures of checkpoints whose weights do not fit the model, the GPUs or the quantization."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="weight-unknown",
        component="vllm",
        role="cause",
        where="exception",
        pattern=(
            "^KeyError: "
            r"'(?P<weight>(?:[\w-]{1,60}\.){1,10}(?:\w{0,20}weights?\w{0,30}|bias|\w{1,40}_(?:bias|scale|zero_point|packed|shape|inv)|g_idx|qzeros|scales|absmax|lora_[AB]))'"
        ),
        needle="KeyError: '",
        title="The model does not know the weight {weight}",
        cause=(
            "The code of the model has no parameter {weight}: the checkpoint is quantized or adapted "
            "in a way that this version does not read, or belongs to another architecture."
        ),
        fix=(
            "Check quantization_config and architectures in the checkpoint's config.json, use a "
            "version of vLLM that supports this kind of checkpoint, or another format of the model."
        ),
        source="vllm/model_executor/models, load_weights",
        fires="KeyError: 'layers.0.mlp.down_proj.weight_scale'",
        spares="KeyError: 'reward.weights.today'",
    ),
    Signature(
        id="weight-no-module",
        component="vllm",
        role="cause",
        pattern=(r"There is no module or parameter named '(?P<weight>[^'\n]{1,200})' in (?P<model>\w{1,80})"),
        needle="There is no module or parameter named '",
        title="The checkpoint has a weight that {model} does not know",
        cause=(
            "{model} has no {weight}: the checkpoint, or what the trainer sends, belongs to another architecture or "
            "kind of quantization, to an adapter (LoRA, a value head), or to another version of vLLM."
        ),
        fix=(
            "Check architectures and quantization_config in config.json, and use a version of vLLM "
            "that supports this checkpoint."
        ),
        source="vllm/model_executor/models/utils.py",
        fires=(
            "ValueError: There is no module or parameter named 'model.visual.merger' in PolicyForCausalLM"
        ),
        spares="INFO a module or parameter named 'lm_head' is in PolicyForCausalLM",
    ),
    Signature(
        id="weight-not-loaded",
        component="vllm",
        role="cause",
        pattern=(r"Following weights were not initialized from checkpoint: \{?(?P<weights>[^\n]{1,160})"),
        needle="Following weights were not initialized from checkpoint: ",
        title="The checkpoint lacks weights of the model",
        cause="vLLM found no values for {weights}",
        fix=(
            "Check that all files of the checkpoint are there and that it belongs to this "
            "architecture (a base model, not an adapter)."
        ),
        source="vllm/model_executor/model_loader/default_loader.py",
        fires=("ValueError: Following weights were not initialized from checkpoint: {'lm_head.weight'}"),
        spares="INFO all weights were initialized from checkpoint",
    ),
    *family(
        Signature(
            id="weight-shape",
            component="vllm",
            role="cause",
            pattern=(
                r"Attempted to load weight \((?P<saved>[^()\n]{0,40}(?:\([^()\n]{0,60}\))?)\) into (?:a "
                r")?parameter \((?P<mine>[^()\n]{0,40}(?:\([^()\n]{0,60}\))?)\)"
            ),
            needle="Attempted to load weight (",
            title="A weight of the checkpoint has another shape than the model's",
            cause=(
                "The checkpoint's sizes differ from what config.json and the number of GPUs say: another "
                "model, changed vocabulary, or a kind of quantization that is not set."
            ),
            fix=(
                "Compare config.json with the weights (vocab_size, hidden_size, quantization_config), "
                "and try vllm.gen_tp 1."
            ),
            source="vllm/model_executor/model_loader/weight_utils.py",
            fires=(
                "AssertionError: Attempted to load weight (torch.Size([151936, 896])) into parameter "
                "(torch.Size([151680, 896]))"
            ),
            spares="INFO loaded weight of shape torch.Size([151936, 896]) into parameter",
        ),
        Text(
            id="weight-shape-assert",
            pattern=r"assert param(?:_data|\.data)?\.(?:shape|size\(\)) == loaded_weight\.",
            needle=" == loaded_weight.",
            fires="    assert param_data.shape == loaded_weight.shape",
            spares="    param_data.copy_(loaded_weight) if shape matches",
        ),
    ),
    Signature(
        id="quantization-target",
        component="vllm",
        role="cause",
        pattern=(r"Unable to find matching target for (?P<layer>\S{1,200}) in the compressed-tensors config"),
        needle="Unable to find matching target for ",
        title="The checkpoint's quantization leaves out {layer}",
        cause=(
            "The targets of quantization_config in config.json do not cover {layer} (vLLM joins q, k "
            "and v, or gate and up, into one layer)."
        ),
        fix=(
            "Correct targets and ignore in the checkpoint's config.json (use the joined names, or a "
            "pattern), or quantize it again with a newer llm-compressor."
        ),
        source="vllm compressed_tensors/utils.py",
        fires=(
            "ValueError: Unable to find matching target for model.layers.0.self_attn.qkv_proj in the "
            "compressed-tensors config."
        ),
        spares="INFO found a matching target for model.layers.0 in the compressed-tensors config",
    ),
    Signature(
        id="quantization-unknown",
        component="vllm",
        role="cause",
        pattern=r"Unknown quantization method: (?P<method>\S{1,60}?)\.? Must be one of",
        needle="Unknown quantization method: ",
        title="This vLLM does not know the quantization {method}",
        cause=("The checkpoint is quantized by {method}, which this version of vLLM does not read."),
        fix="Use another version of vLLM, or another format of the model.",
        source="vllm/config/model.py",
        fires=("ValueError: Unknown quantization method: higgs. Must be one of ['awq', 'gptq', 'fp8']."),
        spares="INFO quantization method: awq",
    ),
    Signature(
        id="quantization-gpu",
        component="vllm",
        role="cause",
        pattern=(
            r"quantization method (?P<method>\S{1,60}) is not supported for the current GPU\. Minimum "
            r"capability: (?P<least>\d{1,4})\. Current capability: (?P<has>\d{1,4})"
        ),
        needle=" is not supported for the current GPU. Minimum capability: ",
        title="This GPU is too old for {method}: capability {has}, and {least} is needed",
        cause="The kernels of {method} need compute capability {least}, and this GPU has {has}.",
        fix="Use another format of the model (AWQ, GPTQ, or not quantized), or a newer GPU.",
        command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
        source="vllm/model_executor/model_loader/weight_utils.py",
        fires=(
            "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum "
            "capability: 80. Current capability: 75."
        ),
        spares="INFO quantization method fp8, capability: 90",
    ),
    Signature(
        id="quantization-dtype",
        component="vllm",
        role="cause",
        pattern=(
            r"(?P<dtype>torch\.\w{1,20}) is not supported for quantization method "
            r"(?P<method>\S{1,60}?)\. Supported dtypes: (?P<dtypes>\[[^\]\n]{1,80}\])"
        ),
        needle=" is not supported for quantization method ",
        title="{method} does not work with {dtype}; it needs {dtypes}",
        cause=(
            "The quantized checkpoint is computed in {dtypes}, and vllm.dtype or config.json says {dtype}."
        ),
        fix="Set vllm.dtype to float16.",
        patch={"vllm.dtype": "float16"},
        source="vllm/model_executor/model_loader/weight_utils.py",
        fires=(
            "ValueError: torch.bfloat16 is not supported for quantization method awq. Supported "
            "dtypes: [torch.float16]"
        ),
        spares="INFO torch.bfloat16 is supported for quantization method fp8",
    ),
    Signature(
        id="quantization-differs",
        component="vllm",
        role="cause",
        pattern=(
            r"Quantization method specified in the model config \((?P<has>[^)\n]{1,60})\) does not "
            "match the quantization method specified in the `quantization` argument "
            r"\((?P<wanted>[^)\n]{1,60})\)"
        ),
        needle=(") does not match the quantization method specified in the `quantization` argument ("),
        title="The checkpoint is quantized by {has}, and vLLM was told {wanted}",
        cause=("--quantization {wanted} does not fit the checkpoint, whose config.json says {has}."),
        fix="Take --quantization away: vLLM reads it from config.json.",
        source="vllm/config/model.py",
        fires=(
            "ValueError: Quantization method specified in the model config (compressed-tensors) does "
            "not match the quantization method specified in the `quantization` argument (fp8)."
        ),
        spares="INFO Quantization method specified in the model config: awq",
    ),
    *family(
        Signature(
            id="quantization-tp",
            component="vllm",
            role="cause",
            pattern=(
                "is not divisible by (?:weight quantization block_[nk]|min_thread_[nk]) = "
                r"(?P<block>\d{1,6})"
            ),
            needle="is not divisible by ",
            title="vllm.gen_tp cuts the quantized weights into pieces that are too small",
            cause=(
                "Each GPU gets a part of each weight, and a part is no multiple of the quantization's blocks."
            ),
            fix=("Choose a smaller vllm.gen_tp, or --enable-expert-parallel for a model with experts."),
            source="vllm quantization/gptq.py, fp8.py, marlin_utils.py",
            fires=(
                "ValueError: The output_size of gate's and up's weight = 192 is not divisible by weight "
                "quantization block_n = 128."
            ),
            spares="INFO the weight of size 256 is divisible by block_n = 128",
        ),
        Text(
            id="quantization-tp-input",
            pattern="The input size is not aligned with the quantized weight shape",
            needle="The input size is not aligned with the quantized weight shape",
            fires=(
                "ValueError: The input size is not aligned with the quantized weight shape. This can be "
                "caused by too large tensor parallel size."
            ),
            spares="INFO the input size is aligned with the quantized weight",
        ),
    ),
    Signature(
        id="not-divisible",
        component="vllm",
        role="cause",
        pattern=r"AssertionError: (?P<a>\d{1,9}) is not divisible by (?P<b>\d{1,6})",
        needle=" is not divisible by ",
        title="vllm.gen_tp {b} does not divide a size of the model ({a})",
        cause="A layer of size {a} (heads, also of a vision part) is divided among {b} GPUs.",
        fix="Choose a vllm.gen_tp that divides {a}, or use pipeline parallelism.",
        source="vllm/distributed/utils.py ensure_divisibility",
        fires="AssertionError: 25 is not divisible by 4",
        spares="INFO 24 is divisible by 4; no AssertionError",
    ),
    Signature(
        id="kv-heads-divisible",
        component="vllm",
        role="cause",
        pattern=r"assert self\.total_num_(?:kv_)?heads % \w{1,40} == 0",
        needle="assert self.total_num_",
        title="vllm.gen_tp does not divide the model's attention heads",
        cause="The number of attention or key/value heads is no multiple of vllm.gen_tp.",
        fix=("Choose a vllm.gen_tp that divides num_attention_heads and num_key_value_heads of config.json."),
        source="vllm/model_executor/models",
        fires="    assert self.total_num_kv_heads % tp_size == 0",
        spares="    self.total_num_kv_heads = config.num_heads",
    ),
    Signature(
        id="experts-divisible",
        component="vllm",
        role="cause",
        pattern=(
            r"(?P<what>n_\w{1,40}experts|num_experts|Number of experts) ?=? ?\(?(?P<value>\d{1,6})\)? "
            r"must be divisible by (?P<by>\w{1,20}) ?=? ?\(?(?P<size>\d{1,6})"
        ),
        needle=" must be divisible by ",
        title="{by} {size} does not divide the model's {value} experts",
        cause="The experts are spread over {size} ranks, and {value} is no multiple of it.",
        fix=(
            "Choose a number of GPUs that divides {value}, or set --num-redundant-experts so that "
            "the sum is a multiple."
        ),
        source="vllm/model_executor/models/deepseek",
        fires=(
            "AssertionError: n_physical_experts=256 must be divisible by ep_size=3. Adjust "
            "num_redundant_experts."
        ),
        spares="INFO n_physical_experts=256, divisible by ep_size=4",
    ),
)
