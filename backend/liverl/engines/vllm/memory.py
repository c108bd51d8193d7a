"""How much memory of a GPU vLLM has left for its KV cache, from numbers alone: pure.

vLLM 0.24, ``v1/worker/gpu_worker.py`` ``determine_available_memory``: requested (``gpu_memory_utilization`` of all
memory) minus the weights, the peak of a run with ``max_num_batched_tokens`` tokens and ``max_num_seqs`` samples, and
what is taken beside torch. That run leaves the attention itself out. All sizes are bytes of one GPU.
"""

from __future__ import annotations

import math

import msgspec

GIB = 1 << 30
# Beside torch: CUDA modules and workspaces; NCCL's and vLLM's own buffers between GPUs. Measured, not documented:
# H200 and H100, vLLM 0.24: 0.41, 0.36 and 0.28 GiB in all with models of 0.03 GiB and less.
_BESIDE, _BESIDE_PARALLEL = int(0.25 * GIB), int(0.4 * GIB)
_CUBLAS = 32 << 20  # its workspace on Hopper, through torch (at::cuda::getChosenWorkspaceSize)
# Graphs: measured on H200, in GiB by layers and sizes: 0.07 (2, 11), 0.17 (4, 51), 0.28 (24, 51), 0.46 (28, 51), 0.53
# (36, 51).
_GRAPHS, _GRAPH = 128 << 20, 96 << 10  # in all, and for each layer and size
_GRAPH_MODES = 2  # piecewise and full (``cudagraph_mode`` FULL_AND_PIECEWISE)
_LARGEST_GRAPH = 512  # tokens (``vllm/config/vllm.py`` ``_set_cudagraph_sizes``)
# Bytes of a logit besides those of its own type. Model Runner V2 makes a copy in float32
# (``v1/worker/gpu/sample/sampler.py``); V1 sorts it as well: values, indices, probabilities, masks.
_LOGIT_V2, _LOGIT_V1 = 4, 24
# vllm/config/vllm.py DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES. Its ``profile_cudagraph_memory`` is 0: the graphs then come
# on top of ``gpu_memory_utilization``.
_V2 = frozenset(
    ("Qwen3ForCausalLM", "DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM")
    + ("LlamaForCausalLM", "MistralForCausalLM")
)
# engine/arg_utils.py get_batch_defaults, for an API server: GPUs from this size on, other than an A100, and the rest.
LARGE_GPU = 70 * GIB
_TOKENS_LARGE, _TOKENS = 8192, 2048
_MOE_CHUNK = 16 << 10  # tokens that the fused experts take at once (VLLM_FUSED_MOE_CHUNK_SIZE)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A model, as its config.json has it. ``intermediate``: of the dense MLP; ``experts`` 0 = none; ``kv_width``:
    numbers that a token keeps in each layer and in each GPU when nothing is split, None = keys and values of the
    heads; ``kv_layers``: layers that keep them for the whole context."""

    architecture: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    kv_width: int | None = None
    kv_layers: int
    context: int | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How vLLM is started. ``total``: memory of a GPU as CUDA reports it; ``width``: bytes of a number (vllm.dtype);
    ``batched_tokens``: None = vLLM's default."""

    total: int
    utilization: float
    tensor: int
    sequences: int
    context: int
    width: int = 2
    eager: bool = False
    chunked: bool = True
    batched_tokens: int | None = None
    a100: bool = False


class KvMemory(msgspec.Struct, frozen=True):
    """Where the memory of one GPU goes. ``graphs``: CUDA graphs, of which vLLM takes ``graphs_counted`` from the KV
    cache; ``token``: one token of a sequence in the KV cache; ``tokens``: that fit in, at once."""

    total: int
    requested: int
    weights: int
    activations: int
    beside: int
    graphs: int
    graphs_counted: bool
    kv_cache: int
    token: int
    context: int

    @property
    def tokens(self) -> int:
        """Tokens of all sequences that fit in at once."""
        return max(0, self.kv_cache) // self.token

    @property
    def whole(self) -> float:
        """How many sequences of full length fit in at once."""
        return self.tokens / self.context


def token_bytes(shape: Shape, tensor: int, width: int) -> int:
    """What one token takes in the KV cache of a GPU. Key-value heads are repeated where there are fewer than GPUs."""
    if shape.kv_width is not None:  # multi-head latent attention: each GPU keeps all of it
        return shape.kv_layers * shape.kv_width * width
    heads = max(1, math.ceil(shape.kv_heads / tensor))
    return max(1, 2 * shape.kv_layers * heads * shape.head_dim * width)


def kv_memory(shape: Shape, weights: int, settings: Settings) -> KvMemory:
    """The estimate. ``weights``: of one GPU."""
    v2 = shape.architecture in _V2
    requested = math.ceil(settings.total * settings.utilization)
    activations = _activations(shape, settings, v2)
    beside = _BESIDE + (_BESIDE_PARALLEL if settings.tensor > 1 else 0)
    graphs = 0 if settings.eager else _graphs(shape, settings)
    left = requested - weights - activations - beside - (0 if v2 else graphs)
    return KvMemory(
        settings.total, requested, weights, activations, beside, graphs, not v2 and not settings.eager, left,
        token_bytes(shape, settings.tensor, settings.width), settings.context,
    )  # fmt: skip


def batched_tokens(settings: Settings) -> int:
    """``max_num_batched_tokens``."""
    if settings.batched_tokens is not None:
        return settings.batched_tokens
    large = settings.total >= LARGE_GPU and not settings.a100
    default = _TOKENS_LARGE if large else _TOKENS
    return default if settings.chunked else max(default, settings.context)


def _activations(shape: Shape, settings: Settings, v2: bool) -> int:
    """The peak of the run that vLLM makes: in the MLP (the residual, its input, both halves of its inner layer, their
    product, its output), or where samples are drawn."""
    tokens, tensor, width = batched_tokens(settings), settings.tensor, settings.width
    inner = 3 * max(shape.intermediate, shape.shared_intermediate) // tensor
    layer = tokens * (3 * shape.hidden + inner) * width
    if shape.experts:
        chunk = min(tokens, _MOE_CHUNK) * shape.experts_per_token
        own = shape.expert_intermediate // tensor
        routed = chunk * (max(2 * own, shape.hidden) + own) * width + tokens * shape.experts * 4
        layer = max(layer, tokens * 3 * shape.hidden * width + routed)
    attention = tokens * (3 * shape.hidden + 2 * shape.heads * shape.head_dim // tensor) * width
    samples = min(settings.sequences, tokens)
    logits = (
        samples * shape.vocabulary * (width * (2 if tensor > 1 else 1) + (_LOGIT_V2 if v2 else _LOGIT_V1))
    )
    sampling = tokens * shape.hidden * width + logits
    return max(layer, attention, sampling) + _CUBLAS


def _graphs(shape: Shape, settings: Settings) -> int:
    """Sizes are 1, 2, 4, then each 8 up to 256, then each 16, to twice the sequences."""
    largest = min(2 * settings.sequences, _LARGEST_GRAPH, batched_tokens(settings))
    sizes = len([n for n in (1, 2, 4) if n <= largest]) + min(largest, 256) // 8 + max(0, largest - 256) // 16
    return _GRAPHS + sizes * shape.layers * _GRAPH_MODES * _GRAPH
