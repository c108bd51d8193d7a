"""Signatures of verl's checkpoints and data."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="verl-state-dict",
        component="torch",
        role="cause",
        pattern=(
            r"Error\(s\) in loading state_dict for (?P<model>[\w.]{1,100}):\s{1,4}(?:size mismatch for "
            r"(?P<weight>\S{1,200}): copying a param with shape (?P<saved>torch\.Size\(\[[\d, "
            r"]{0,80}\]\)) from checkpoint, the shape in current model is (?P<mine>torch\.Size\(\[[\d, "
            r"]{0,80}\]\)))"
        ),
        needle="Error(s) in loading state_dict for",
        title="The checkpoint belongs to another model than this {model}",
        cause=(
            "A weight has {saved} in the checkpoint and {mine} here: the checkpoint is of another model, "
            "or of another size of it."
        ),
        fix=(
            "Check the paths: model.model_path must be the model that the checkpoint was trained from; "
            "or begin a new run (run.name) without the checkpoint."
        ),
        source="recordings/cases/29-verl-checkpoint-size-mismatch.log",
        fires=(
            "RuntimeError: Error(s) in loading state_dict for Qwen2ForCausalLM:\n\tsize mismatch for "
            "model.layers.0.self_attn.o_proj.weight: copying a param with shape torch.Size([896, 896]) "
            "from checkpoint, the shape in current model is torch.Size([3584, 3584])."
        ),
        spares=(
            "RuntimeError: Error(s) in loading state_dict for Qwen2ForCausalLM:\n\tMissing key(s) in "
            'state_dict: "lm_head.weight".'
        ),
    ),
    Signature(
        id="verl-state-dict-keys",
        component="torch",
        role="cause",
        pattern=(
            r"Error\(s\) in loading state_dict for (?P<model>[\w.]{1,100}):\s{1,4}(?:Missing|Unexpected) "
            r"key\(s\) in state_dict"
        ),
        needle="Error(s) in loading state_dict for",
        title="The checkpoint's weights have other names than this {model}",
        cause="The checkpoint is of another architecture, or of another version of the code.",
        fix=(
            "Check the paths: model.model_path must be the model that the checkpoint was trained from; "
            "or begin a new run without it."
        ),
        source="torch nn/modules/module.py",
        fires=(
            "RuntimeError: Error(s) in loading state_dict for Qwen2ForCausalLM:\n\tMissing key(s) in "
            'state_dict: "lm_head.weight".'
        ),
        spares=(
            "RuntimeError: Error(s) in loading state_dict for Qwen2ForCausalLM:\n\tsize mismatch for w: "
            "copying a param"
        ),
    ),
    Signature(
        id="verl-world-size",
        component="verl",
        role="cause",
        pattern=(
            r"FileNotFoundError: \[Errno 2\] No such file or directory: "
            r"'(?P<folder>[^'\n]{1,300})/(?P<file>model_world_size_(?P<world>\d{1,6})_rank_\d{1,6}\.pt)'"
        ),
        needle="FileNotFoundError: [Errno 2] No such file or directory: '",
        title="The checkpoint was saved with another number of GPUs than {world}, or elsewhere",
        cause=(
            "With {world} as the number of GPUs that train, verl looks for {file} in {folder}, which is not there: "
            "the checkpoint was saved with another number, or to another host's local disk."
        ),
        fix=(
            "Resume with the number that saved it, which the names of its files show (world_size_N), by "
            "infrastructure.ngpus_per_node and infrastructure.nnodes; keep checkpoints on shared storage; or merge "
            "it to Hugging Face form and start anew."
        ),
        command="ls {folder}",
        source="recordings/verl_cpu/fail_resume_world_size.log",
        fires=(
            "FileNotFoundError: [Errno 2] No such file or directory: "
            "'/runs/world/checkpoints/global_step_2/actor/model_world_size_1_rank_0.pt'"
        ),
        spares="FileNotFoundError: [Errno 2] No such file or directory: '/data/train.parquet'",
        recorded=True,
    ),
    Signature(
        id="verl-data-missing",
        component="verl",
        role="cause",
        pattern=r"FileNotFoundError: Unable to find '(?P<path>[^'\n]{1,300})'",
        needle="FileNotFoundError: Unable to find '",
        title="The data file {path} does not exist",
        cause="There is no {path} on this host.",
        fix=(
            "Correct data.train_index and data.val_index (or data.data_dir); the file must exist on "
            "every host."
        ),
        command="ls -l '{path}'",
        source="datasets data_files.py",
        fires="FileNotFoundError: Unable to find '/data/train.parquet'",
        spares="FileNotFoundError: [Errno 2] No such file or directory: '/data/x.json'",
    ),
)
