"""Signatures of files of weights and checkpoints that are missing, cut or of another kind."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="weights-none",
        component="vllm",
        role="cause",
        pattern=r"Cannot find any model weights with `(?P<path>[^`\n]{1,300})`",
        needle="Cannot find any model weights with `",
        title="There are no weights in {path}",
        cause=("The folder or repository {path} has no .safetensors, .bin or .pt files that vLLM reads."),
        fix=(
            "Check the path (model.model_path) and that the download is complete; a folder of an "
            "adapter or of optimizer states is no model."
        ),
        command="ls -l '{path}'",
        source="vllm/model_executor/model_loader/default_loader.py",
        fires="RuntimeError: Cannot find any model weights with `/data/model`",
        spares="INFO found model weights with `/data/model`",
    ),
    Signature(
        id="weights-file-gone",
        component="python",
        role="cause",
        pattern=(
            "No such file or directory: "
            "[\\\"']?(?P<path>(?:(?!model_world_size_)[^\\\"'\\n]){1,300}\\.(?:safetensors|bin|pt|pth|gguf))\\b"
        ),
        needle="No such file or directory: ",
        title="The weights file {path} is missing",
        cause="The index names {path}, which is not there: the download or copy is incomplete.",
        fix="Download or copy the checkpoint again, all files of it.",
        command="ls -l '{path}'",
        source="safetensors; vllm weight_utils.py",
        fires=(
            'FileNotFoundError: No such file or directory: "/data/model/model-00003-of-00004.safetensors"'
        ),
        spares='INFO directory: "/data/model/model-00003-of-00004.safetensors" found',
    ),
    Signature(
        id="weights-pointer",
        component="python",
        role="cause",
        pattern="UnpicklingError: invalid load key, 'v'",
        needle="UnpicklingError: invalid load key, 'v'",
        title="A weights file is a Git LFS pointer, not the weights",
        cause=(
            "The repository was cloned without Git LFS: the file holds a few lines that begin with "
            "'version', not weights."
        ),
        fix="Run git lfs pull in the folder, or download the model with hf download.",
        command="git lfs pull",
        source="torch.load; pickle",
        fires="_pickle.UnpicklingError: invalid load key, 'v'.",
        spares="_pickle.UnpicklingError: pickle data was truncated; invalid load",
    ),
    Signature(
        id="weights-only",
        component="torch",
        role="cause",
        pattern="Weights only load failed",
        needle="Weights only load failed",
        title="torch refuses to load a file that holds more than weights",
        cause=(
            "torch.load reads only weights by default since 2.6, and this file holds other Python objects."
        ),
        fix=(
            "If you trust the file, load it with weights_only=False, or allow its classes with "
            "torch.serialization.add_safe_globals."
        ),
        source="torch/serialization.py",
        fires=(
            "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do "
            "so you have two options"
        ),
        spares="INFO Weights loaded; only load of 3 s",
    ),
    Signature(
        id="torch-load-forbidden",
        component="python",
        role="cause",
        pattern=(r"we now require users to upgrade torch to at least v2\.6 in order to use the function"),
        needle=("we now require users to upgrade torch to at least v2.6 in order to use the function"),
        title="transformers refuses to read .bin files with this torch (older than 2.6)",
        cause="Reading pickled weights is unsafe in older versions of torch (CVE-2025-32434).",
        fix="Upgrade torch to 2.6 or newer, or use safetensors files of the model.",
        source="transformers utils/import_utils.py",
        fires=(
            "ValueError: Due to a serious vulnerability issue in `torch.load`, even with "
            "`weights_only=True`, we now require users to upgrade torch to at least v2.6 in order to "
            "use the function."
        ),
        spares="INFO users upgrade torch to v2.6 for this function",
    ),
    *family(
        Signature(
            id="weights-cut",
            component="torch",
            role="cause",
            pattern=r"unexpected EOF, expected \d{1,20} more bytes",
            needle="unexpected EOF, expected ",
            title="A checkpoint or data file is cut off",
            cause="The file ends too early: it was cut while it was written, copied or downloaded.",
            fix="Download or copy it again; for a checkpoint resume from the one before.",
            source="torch.load, pickle, zipfile",
            fires=("RuntimeError: unexpected EOF, expected 2371213 more bytes. The file might be corrupted."),
            spares="INFO EOF reached, as expected after 2371213 bytes",
        ),
        Text(
            id="weights-empty",
            pattern="EOFError: Ran out of input",
            needle="EOFError: Ran out of input",
            fires="EOFError: Ran out of input",
            spares="INFO Ran to the end of the input",
        ),
        Text(
            id="weights-pickle-cut",
            pattern="pickle data was truncated",
            needle="pickle data was truncated",
            fires="_pickle.UnpicklingError: pickle data was truncated",
            spares="INFO pickle data was read",
        ),
    ),
    Signature(
        id="download-hash",
        component="python",
        role="cause",
        pattern=r"(?P<file>\S{1,300}) integrity check failed, expected sha256",
        needle=" integrity check failed, expected sha256",
        title="A download is damaged or incomplete: {file}",
        cause=(
            "The checksum of {file} is not what the hub says: the connection broke, several "
            "processes wrote it at once, or the disk is full."
        ),
        fix=(
            "Free space, delete the file and download the model once before the start, then set "
            "model.model_path to its folder."
        ),
        command="df -h",
        source="modelscope hub/file_download.py",
        fires=(
            "modelscope.hub.errors.FileIntegrityError: File /cache/m/model-00001.safetensors "
            "integrity check failed, expected sha256 signature is a1, actual is e3"
        ),
        spares=("INFO /cache/m/model-00001.safetensors integrity check done, sha256 is as expected"),
    ),
    Signature(
        id="download-size",
        component="python",
        role="cause",
        pattern=(
            r"Consistency check failed: file should be of size (?P<wanted>\d{1,20}) but has size "
            r"(?P<has>\d{1,20})"
        ),
        needle="Consistency check failed: file should be of size ",
        title="A download is incomplete: {has} of {wanted} bytes",
        cause=(
            "The file that came from the hub has {has} of {wanted} bytes: the connection broke, or "
            "the disk is full."
        ),
        fix="Free space where HF_HOME lies, delete the file there and download again.",
        command="df -h ~/.cache/huggingface",
        source="huggingface_hub file_download.py",
        fires=(
            "OSError: Consistency check failed: file should be of size 4976698592 but has size "
            "1073741824 (model-00001-of-00002.safetensors)."
        ),
        spares="INFO Consistency check done: file has size 4976698592",
    ),
    Signature(
        id="meta-tensor",
        component="torch",
        role="cause",
        pattern="Cannot copy out of meta tensor; no data",
        needle="Cannot copy out of meta tensor; no data",
        title="A weight was never loaded (it has no data)",
        cause=(
            "The model was built without memory for its weights, and some were not read from the "
            "checkpoint, or memory for all of them was not there."
        ),
        fix=(
            "Check that the checkpoint has all weights of this model; do not move such a model with "
            ".to() but with to_empty()."
        ),
        source="torch/_meta; transformers",
        fires=(
            "NotImplementedError: Cannot copy out of meta tensor; no data! Please use "
            "torch.nn.Module.to_empty()"
        ),
        spares="INFO no meta tensor is left to copy",
    ),
    Signature(
        id="dcp-key",
        component="torch",
        role="cause",
        pattern=r"Missing key in checkpoint state_dict: (?P<key>\S{1,200}?)\.?(?:\s|$)",
        needle="Missing key in checkpoint state_dict: ",
        title="The distributed checkpoint lacks {key}",
        cause=(
            "The model or optimizer to restore has {key}, and the checkpoint does not: it was saved "
            "from another model, another version, or without it."
        ),
        fix=(
            "Resume with the configuration that saved it, or load without what it lacks "
            "(DefaultLoadPlanner(allow_partial_load=True))."
        ),
        source="torch/distributed/checkpoint/default_planner.py",
        fires="RuntimeError: Missing key in checkpoint state_dict: model.2.weight.",
        spares="INFO no key is missing in checkpoint state_dict",
    ),
    Signature(
        id="dcp-size",
        component="torch",
        role="cause",
        pattern=(
            r"Size mismatch between saved (?P<saved>torch\.Size\(\[[\d, ]{0,80}\]\)) and current: "
            r"(?P<mine>torch\.Size\(\[[\d, ]{0,80}\]\)) for (?P<key>\S{1,200})"
        ),
        needle="Size mismatch between saved torch.Size([",
        title="The distributed checkpoint has another shape of {key}",
        cause="{key} was saved as {saved}, and the model wants {mine}: another model.",
        fix="Resume with the model that saved it.",
        source="torch/distributed/checkpoint/default_planner.py",
        fires=(
            "ValueError: Size mismatch between saved torch.Size([10, 4]) and current: "
            "torch.Size([10, 8]) for model.0.weight"
        ),
        spares="INFO no size mismatch between saved and current weights",
    ),
)
