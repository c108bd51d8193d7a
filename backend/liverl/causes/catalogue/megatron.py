"""Signatures of Megatron, TransformerEngine and SGLang."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="megatron-not-initialised",
        component="verl",
        role="cause",
        pattern=r"(?P<group>[\w ]{0,60}parallel group) is not initialized",
        needle="parallel group is not initialized",
        title="Megatron's {group} was not set up in this process",
        cause=(
            "Code of Megatron ran before parallel_state.initialize_model_parallel, or uses another copy or "
            "version of Megatron than the one that was set up."
        ),
        fix=(
            "Install the Megatron (and mbridge) version that the trainer was written for, once; in a program "
            "of yours call initialize_model_parallel first."
        ),
        source="megatron/core/parallel_state.py",
        fires="AssertionError: pipeline_model parallel group is not initialized",
        spares="INFO pipeline_model parallel group is initialized",
    ),
    Signature(
        id="megatron-sequence-parallel",
        component="verl",
        role="cause",
        pattern="First dimension of the tensor should be divisible by tensor parallel size",
        needle="First dimension of the tensor should be divisible by tensor parallel size",
        title="Megatron cannot split a sequence over the tensor-parallel ranks",
        cause=(
            "With sequence parallelism the number of (padded) tokens must be a multiple of "
            "tensor_model_parallel_size."
        ),
        fix=(
            "Choose training.max_prompt_length and training.max_response_length so that their sum is a "
            "multiple of it, pack sequences (use_remove_padding), or use the versions of Megatron and "
            "mbridge that this verl was tested with."
        ),
        source="megatron/core/tensor_parallel",
        fires=("AssertionError: First dimension of the tensor should be divisible by tensor parallel size"),
        spares="INFO First dimension of the tensor: 1024",
    ),
    Signature(
        id="megatron-world-size",
        component="verl",
        role="cause",
        pattern=r"world[_ ]size \((?P<world>\d{1,6})\) is not divisible by (?P<by>[^\n]{1,160})",
        needle=") is not divisible by ",
        title="{world} GPUs cannot be split into Megatron's parallel groups",
        cause="The number of processes, {world}, must be a multiple of {by}.",
        fix=(
            "Change tensor, pipeline, context or expert parallelism (actor.megatron.* in trainer.overrides), "
            "or the number of GPUs (infrastructure.ngpus_per_node, infrastructure.nnodes)."
        ),
        source="megatron/core/parallel_state.py",
        fires="RuntimeError: world_size (8) is not divisible by 16",
        spares="rollout world_size: 8 is not divisible by infer_world_size: 3",
    ),
    *family(
        Signature(
            id="megatron-divide",
            component="verl",
            role="cause",
            pattern=(
                "(?P<what>num_layers|number of layers|num_attention_heads|num_query_groups|num_moe_experts|Number"
                " of (?:experts|layers|attention heads)|decoder_num_layers|hidden_size|num_key_value_heads|num_he"
                r"ads?)(?: \(\d{1,9}\))? (?:must|should|needs to) be divisible by (?:the "
                ")?`?(?P<by>(?:tensor_model|pipeline_model|pipeline|expert_model|expert|context|tp_size|num_virtu"
                r"al)[^\n]{0,100})"
            ),
            needle=" be divisible by ",
            title="Megatron cannot split the model: {what} does not fit",
            cause="{what} of this model must be a multiple of {by}.",
            fix=(
                "Choose a parallel size that divides it (actor.megatron.* in trainer.overrides), or uneven "
                "stages where Megatron offers them."
            ),
            source="megatron/core/transformer/transformer_config.py",
            fires="AssertionError: num_layers should be divisible by pipeline_model_parallel_size",
            spares="INFO num_attention_heads (14) may be divisible by tensor_model_parallel_size",
        ),
        Text(
            id="megatron-multiple",
            pattern=(
                "(?P<what>num_layers|number of layers|num_attention_heads|num_query_groups|num_moe_experts|Number"
                " of (?:experts|layers|attention heads)|decoder_num_layers|hidden_size|num_key_value_heads|num_he"
                r"ads?)(?: \(\d{1,9}\))? (?:must|should|needs to) be a multiple (?:or divisor )?of (?:the "
                ")?`?(?P<by>(?:tensor_model|pipeline_model|pipeline|expert_model|expert|context|tp_size|num_virtu"
                r"al)[^\n]{0,100})"
            ),
            needle=" be a multiple ",
            fires="ValueError: num_attention_heads (14) must be a multiple of tensor_model_parallel_size (4).",
            spares="INFO num_attention_heads (14) is a multiple of tensor_model_parallel_size",
        ),
    ),
    Signature(
        id="megatron-moe-sequence",
        component="verl",
        role="cause",
        pattern=("MoE and tensor parallelism are enabled without also enabling sequence parallelism"),
        needle="enabled without also enabling sequence parallelism",
        title="Megatron wants sequence parallelism for experts with tensor parallelism",
        cause=("Mixture-of-experts layers with tensor_model_parallel_size above 1 need sequence_parallel."),
        fix="Set sequence_parallel=True in actor.megatron (and ref, critic) in trainer.overrides.",
        source="megatron/core/transformer/moe/moe_layer.py",
        fires=(
            "ValueError: During training, performance may degrade if MoE and tensor parallelism are enabled "
            "without also enabling sequence parallelism."
        ),
        spares="INFO sequence parallelism is enabled",
    ),
    Signature(
        id="megatron-checkpoint",
        component="verl",
        role="cause",
        pattern=r"CheckpointingException: (?P<why>[^\n]{1,300})",
        needle="CheckpointingException: ",
        title="Megatron cannot load or save this checkpoint",
        cause="Its reason: {why}.",
        fix=(
            "Check that the folder is a whole distributed checkpoint of the same model and parallel layout; "
            "resume from the one before it, or from the model's weights."
        ),
        source="megatron/core/dist_checkpointing",
        fires=(
            "megatron.core.dist_checkpointing.core.CheckpointingException: Global shape mismatch for loaded "
            "(torch.Size([152064, 3584])) and expected ((151936, 3584)) tensor for key "
            "embedding.word_embeddings.weight"
        ),
        spares="INFO CheckpointingException is handled",
    ),
    Signature(
        id="megatron-extension",
        component="verl",
        role="cause",
        pattern=r"the custom CUDA extension (?P<name>\w{1,80}) module is not found",
        needle="the custom CUDA extension ",
        title="apex's extension {name} is not installed",
        cause=(
            "Megatron's gradient_accumulation_fusion is on, and apex was not built with its CUDA extensions."
        ),
        fix=(
            "Build apex with --cpp_ext --cuda_ext, or switch it off "
            "(+actor_rollout_ref.actor.megatron.override_transformer_config.gradient_accumulation_fusion=Fals"
            "e in trainer.overrides)."
        ),
        source="megatron/core/tensor_parallel/layers.py",
        fires=(
            "RuntimeError: ColumnParallelLinear was called with gradient_accumulation_fusion set to True but "
            "the custom CUDA extension fused_weight_gradient_mlp_cuda module is not found."
        ),
        spares="INFO the custom CUDA extension is loaded",
    ),
    Signature(
        id="te-no-attention",
        component="verl",
        role="cause",
        pattern=("No dot product attention (?:support|backend is available) for the provided inputs"),
        needle="No dot product attention ",
        title="TransformerEngine has no attention for this model or GPU",
        cause=(
            "None of its backends (FlashAttention, cuDNN, unfused) supports these head sizes, masks or "
            "packed sequences here."
        ),
        fix=(
            "Install a flash-attn version that this TransformerEngine supports, or unset NVTE_FLASH_ATTN, "
            "NVTE_FUSED_ATTN and NVTE_UNFUSED_ATTN; NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 shows why each is "
            "refused."
        ),
        source="transformer_engine/pytorch/attention",
        fires=(
            "ValueError: No dot product attention backend is available for the provided inputs. Please run "
            "with NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 to find out the reasons for disabling all backends."
        ),
        spares="INFO dot product attention backend is available",
    ),
    Signature(
        id="sglang-memory",
        component="verl",
        role="cause",
        pattern=r"Not enough memory\. Please try to increase --mem-fraction-static",
        needle="Not enough memory. Please try to increase --mem-fraction-static",
        title="SGLang has no GPU memory left for its KV cache",
        cause="After the weights were loaded, the share of the GPU that SGLang may use is spent.",
        fix=(
            "Give it more (vllm.gpu_memory_utilization, which verl passes on), more GPUs per replica "
            "(vllm.gen_tp), or free the GPU of other processes."
        ),
        command="nvidia-smi",
        gpu_memory=True,
        source="sglang/srt/model_executor/model_runner.py",
        fires="RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        spares="INFO --mem-fraction-static=0.6",
    ),
    Signature(
        id="sglang-unbalanced",
        component="verl",
        role="cause",
        pattern=r"The memory capacity is unbalanced\. Some GPUs may be occupied by other processes",
        needle="The memory capacity is unbalanced.",
        title="Some GPUs are occupied by other processes (SGLang sees unequal free memory)",
        cause="SGLang wants the same free memory on all its GPUs, and one has much less.",
        fix=(
            "See with nvidia-smi who holds it and stop leftovers of this run; under verl's hybrid engine set "
            "SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK=True."
        ),
        command="nvidia-smi",
        gpu_memory=True,
        source="sglang/srt/model_executor/model_runner.py",
        fires=(
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
            "pre_model_load_memory=41.2, local_gpu_memory=78.9"
        ),
        spares="INFO The memory capacity is balanced",
    ),
    Signature(
        id="sglang-child-failed",
        component="verl",
        role="consequence",
        pattern=r"Received sigquit from a child process\. It usually means the child failed",
        needle="Received sigquit from a child process",
        title="A child process of SGLang failed",
        fix="Read the first error of its scheduler or detokenizer above.",
        source="sglang/srt/managers/tokenizer_manager.py",
        fires="Received sigquit from a child process. It usually means the child failed.",
        spares="INFO child process started",
    ),
    Signature(
        id="sglang-scheduler-dead",
        component="verl",
        role="consequence",
        pattern=(r"(?:Rank \d{1,5}|Node) scheduler is dead\. Please check if there are relevant logs"),
        needle=" scheduler is dead",
        title="SGLang's scheduler ended while it started",
        fix=(
            "Read the first error of that scheduler above; without one, look for an out-of-memory kill "
            "(dmesg)."
        ),
        source="sglang/srt/entrypoints/engine.py",
        fires="Rank 0 scheduler is dead. Please check if there are relevant logs.",
        spares="Rank 0 scheduler is ready",
    ),
    Signature(
        id="megatron-model-type",
        component="verl",
        role="cause",
        pattern=r"Unregistered model type: (?P<type>\S{1,80})",
        needle="Unregistered model type: ",
        title="mbridge does not know the model type {type}",
        cause="The installed mbridge has no conversion of {type} for Megatron.",
        fix=(
            "Install a newer mbridge and verl, or train the model with FSDP (actor.strategy=fsdp2 in "
            "trainer.overrides)."
        ),
        source="mbridge core/auto_bridge.py",
        fires=(
            "ValueError: Unregistered model type: qwen3_next, now only support dict_keys(['qwen2', 'qwen3'])"
        ),
        spares="INFO registered model type: qwen3",
    ),
    Signature(
        id="megatron-epoch-samples",
        component="verl",
        role="cause",
        pattern="last epoch number of samples exceeded max value",
        needle="last epoch number of samples exceeded max value",
        title="Megatron's data set is too small for the sequence length",
        cause=("The data has hardly one sample of the sequence length, so Megatron cannot build its index."),
        fix=(
            "Use more data, a shorter sequence length, or a smaller share for validation and test (--split)."
        ),
        source="megatron/core/datasets/gpt_dataset.py",
        fires="AssertionError: last epoch number of samples exceeded max value.",
        spares="INFO last epoch number of samples: 12",
    ),
)
