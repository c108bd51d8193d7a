"""Signatures of tokenizers and configurations that this version of transformers or vLLM does not read."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="tokenizers-old",
        component="python",
        role="cause",
        pattern=r"data did not match any variant of untagged enum (?P<what>\w{1,60})",
        needle="data did not match any variant of untagged enum ",
        title="tokenizer.json was written by a newer version of tokenizers",
        cause=(
            "The installed tokenizers or transformers is older than what wrote tokenizer.json, and "
            "cannot read its {what}."
        ),
        fix="Upgrade transformers and tokenizers in this environment.",
        command="pip install -U transformers tokenizers",
        source="tokenizers (serde)",
        fires=(
            "Exception: data did not match any variant of untagged enum ModelWrapper at line 757479 column 3"
        ),
        spares="INFO data did match a variant of the enum",
    ),
    Signature(
        id="tokenizer-class",
        component="python",
        role="cause",
        pattern=r"Tokenizer class (?P<name>\w{1,80}) does not exist or is not currently imported",
        needle=" does not exist or is not currently imported",
        title="This transformers has no tokenizer class {name}",
        cause=(
            "tokenizer_config.json names {name}, which this version does not have, or which needs "
            "sentencepiece or the model's own code."
        ),
        fix=(
            "Upgrade transformers, install sentencepiece, or allow the model's own code (trust_remote_code)."
        ),
        command="pip install -U transformers sentencepiece",
        source="transformers tokenization_auto.py",
        fires=("ValueError: Tokenizer class PolicyTokenizer does not exist or is not currently imported."),
        spares="INFO Tokenizer class PolicyTokenizer imported",
    ),
    *family(
        Signature(
            id="tokenizer-convert",
            component="python",
            role="cause",
            pattern="Converting from (?:SentencePiece and )?Tiktoken failed",
            needle="Converting from ",
            title="The tokenizer's files cannot be read",
            cause=(
                "A file of the tokenizer is missing, is a Git LFS pointer, or needs sentencepiece or tiktoken."
            ),
            fix=(
                "Check tokenizer.json and tokenizer.model in the model's folder, and install "
                "sentencepiece and tiktoken."
            ),
            command="pip install sentencepiece tiktoken",
            source="transformers convert_slow_tokenizer.py",
            fires=(
                "ValueError: Converting from Tiktoken failed, if a converter for SentencePiece is "
                "available, provide a model path with a SentencePiece tokenizer.model file."
            ),
            spares="INFO Converting from SentencePiece to the backend tokenizer",
        ),
        Text(
            id="tokenizer-backend",
            pattern="Couldn't instantiate the backend tokenizer",
            needle="Couldn't instantiate the backend tokenizer",
            fires=(
                "ValueError: Couldn't instantiate the backend tokenizer from one of: (1) a `tokenizers` "
                "library serialization file"
            ),
            spares="INFO the backend tokenizer is built",
        ),
    ),
    Signature(
        id="tokenizer-attribute",
        component="python",
        role="cause",
        pattern=(
            r"AttributeError: '?(?P<name>\w{0,60}Tokenizer\w{0,20})'? (?:object )?has no attribute "
            r"'?(?P<attribute>\w{1,80})"
        ),
        needle="has no attribute ",
        title="{name} has no {attribute}: versions do not fit",
        cause=(
            "The program was written for another version of transformers, whose tokenizers had {attribute}."
        ),
        fix=("Install the version of transformers that this vLLM or verl asks for (environments)."),
        command="pip list | grep -iE 'transformers|vllm'",
        source="transformers and vLLM issues",
        fires=("AttributeError: 'Qwen2Tokenizer' object has no attribute 'all_special_tokens_extended'"),
        spares="INFO Qwen2Tokenizer: attribute all_special_tokens",
    ),
    Signature(
        id="config-attribute",
        of_versions=True,
        component="python",
        role="cause",
        pattern=(
            r"AttributeError: '(?P<name>\w{1,60}Config)' object has no attribute "
            r"'(?P<attribute>\w{1,80})'"
        ),
        needle="Config' object has no attribute '",
        title="{name} has no {attribute}: versions do not fit",
        cause=(
            "The program reads {attribute} of a {name}, which the installed version, or this checkpoint, does "
            "not have."
        ),
        fix=(
            "Install versions of transformers, vLLM and verl that belong together (environments), or "
            "a newer vLLM for a new model."
        ),
        command="pip list | grep -iE 'transformers|vllm'",
        source="transformers and vLLM issues",
        fires="AttributeError: 'PolicyConfig' object has no attribute 'rope_theta'",
        spares="AttributeError: 'NoneType' object has no attribute 'config'",
    ),
    *family(
        Signature(
            id="rope-scaling",
            component="python",
            role="cause",
            pattern="`?rope_scaling`? (?:must be a dictionary with|should have a 'rope_type' key)",
            needle="rope_scaling",
            title="The model's rope_scaling is not understood by this version",
            cause=(
                "config.json has rope_scaling in a form that this version of transformers or vLLM does not read."
            ),
            fix=(
                "Upgrade transformers and vLLM, or write rope_scaling in the form that this version asks for."
            ),
            source="transformers; vllm/model_executor/layers/rotary_embedding",
            fires=(
                "ValueError: `rope_scaling` must be a dictionary with two fields, `type` and `factor`, "
                "got {'factor': 8.0, 'rope_type': 'llama3'}"
            ),
            spares="INFO rope_scaling is a dictionary with the type llama3",
        ),
        Text(
            id="rope-type",
            pattern=r"Unknown RoPE scaling type (?P<type>\S{1,60})",
            needle="Unknown RoPE scaling type ",
            fires="ValueError: Unknown RoPE scaling type mrope",
            spares="INFO RoPE scaling type: llama3",
        ),
    ),
    Signature(
        id="config-class",
        component="python",
        role="cause",
        pattern=(
            r"Unrecognized configuration class <class '(?P<name>[^'\n]{1,160})'> for this kind of "
            r"AutoModel: (?P<kind>\w{1,60})"
        ),
        needle="Unrecognized configuration class <class '",
        title="{kind} cannot load a model of this kind",
        cause=(
            "The model's configuration is {name}, which {kind} does not know: a vision, reward or "
            "encoder model where a text model is wanted."
        ),
        fix=("Use the right class of model, allow the model's own code, or upgrade transformers."),
        source="transformers auto_factory.py",
        fires=(
            "ValueError: Unrecognized configuration class <class 'transformers.PolicyVLConfig'> for "
            "this kind of AutoModel: AutoModelForCausalLM."
        ),
        spares="INFO configuration class PolicyConfig for AutoModelForCausalLM",
    ),
    Signature(
        id="model-no-implementation",
        component="vllm",
        role="cause",
        pattern=(
            r"(?P<names>\[?'?\w[\w', ]{0,120}\]?) has no vLLM implementation and the Transformers "
            "implementation is not compatible with vLLM"
        ),
        needle=(
            " has no vLLM implementation and the Transformers implementation is not compatible with vLLM"
        ),
        title="This vLLM has no implementation of {names}",
        cause=(
            "The architecture {names} is not in this version of vLLM, and transformers' code of it "
            "does not fit."
        ),
        fix="Use a newer vLLM, or another model.",
        source="vllm/model_executor/models/registry.py",
        fires=(
            "ValueError: PolicyForCausalLM has no vLLM implementation and the Transformers "
            "implementation is not compatible with vLLM. Try setting VLLM_USE_V1=0."
        ),
        spares="INFO PolicyForCausalLM has a vLLM implementation",
    ),
)
