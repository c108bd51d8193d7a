"""Signatures of models: checkpoints, tokenizers, the Hugging Face hub."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="model-type-unknown",
        component="python",
        role="cause",
        pattern=(
            r"The checkpoint you are trying to load has model type `(?P<type>[^`\n]{1,80})` but "
            "Transformers does not recognize this architecture"
        ),
        needle="The checkpoint you are trying to load has model type `",
        title="transformers does not know the model type {type}: it is too old",
        cause="The installed transformers is too old for a model of type {type}.",
        fix=(
            "Upgrade transformers, or vLLM and verl with it (environments.vllm.requirements, "
            "environments.verl.requirements)."
        ),
        command="pip install --upgrade transformers",
        source="recordings/cases/10-vllm010-model-type-unknown.log",
        fires=(
            "  Value error, The checkpoint you are trying to load has model type `qwen3_vl` but "
            "Transformers does not recognize this architecture."
        ),
        spares=(
            "ValueError: Unrecognized model in /data/m. Should have a `model_type` key in its config.json."
        ),
    ),
    Signature(
        id="model-config-unrecognized",
        component="python",
        role="cause",
        pattern=r"Unrecognized model in (?P<path>[^\n]{1,300}?)\. Should have a `model_type` key",
        needle="Unrecognized model in",
        title="The model's folder has no usable config.json",
        cause=(
            "The config.json in {path} names no model_type: the folder is not a checkpoint, or is incomplete."
        ),
        fix="Set model.model_path to the folder with config.json and the weights of the model.",
        source="transformers models/auto/configuration_auto.py",
        fires=(
            "ValueError: Unrecognized model in /data/ckpt/global_step_40. Should have a `model_type` key "
            "in its config.json."
        ),
        spares="ValueError: The checkpoint you are trying to load has model type `x`",
    ),
    Signature(
        id="model-path-wrong",
        component="python",
        role="cause",
        pattern=(
            r"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '(?P<path>[^'\n]{1,300})'"
        ),
        needle="Repo id must be in the form",
        title="There is no model at {path}",
        cause=(
            "The folder {path} does not exist on this host, so it was taken for a name on the Hugging "
            "Face hub."
        ),
        fix="Set model.model_path to a folder that exists on every host.",
        command="ls -ld '{path}'",
        source="recordings/vllm_fail_bad_model_path.log",
        fires=(
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
            "'namespace/repo_name': '/opt/run/models/none'. Use `repo_type` argument if needed."
        ),
        spares="INFO Repo id 'Qwen/Qwen3-8B' has the form 'namespace/repo_name'",
        recorded=True,
    ),
    Signature(
        id="model-unknown",
        component="python",
        role="cause",
        pattern=r"(?P<model>\S{1,200}) is not a local folder and is not a valid model identifier listed on",
        needle="is not a local folder and is not a valid model identifier listed on",
        title="There is no model {model}, here or on the hub",
        cause=(
            "{model} is no folder of this host, and the hub has no such model or does not show it "
            "without a token."
        ),
        fix="Correct model.model_path; for a private model set HF_TOKEN.",
        source="transformers utils/hub.py",
        fires=(
            "OSError: acme/polcy-8b is not a local folder and is not a valid model identifier listed on "
            "'https://huggingface.co/models'"
        ),
        spares="INFO /models/policy-8b is a local folder and a valid model",
    ),
    Signature(
        id="model-not-found-hub",
        component="python",
        role="cause",
        pattern=r"Repository Not Found for url: (?P<url>\S{1,300}?)\.(?:\s|$)",
        needle="Repository Not Found for url:",
        title="The hub has no such repository, or does not show it without a token",
        cause="The hub answered 401 or 404 for {url}.",
        fix="Correct the name in model.model_path; for a private repository set HF_TOKEN.",
        source="huggingface_hub utils/_http.py",
        fires=(
            "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: "
            "Root=1-abc)\n\nRepository Not Found for url: https://huggingface.co/api/models/acme/polcy-8b."
        ),
        spares="Entry Not Found for url: https://huggingface.co/acme/m/resolve/main/x.json.",
    ),
    Signature(
        id="model-gated",
        component="python",
        role="cause",
        pattern=(
            r"Cannot access gated repo for url (?P<url>https?://[^/\s]{1,100}/(?:api/models/)?(?P<repo>[^/"
            r"\s]{1,100}/[^/\s]{1,100}?))(?:[/\s]|\.\s|\.$|$)"
        ),
        needle="Cannot access gated repo for url",
        title="The model {repo} is gated: access must be granted first",
        cause="The hub refuses {repo} to this account, or no token was sent.",
        fix=(
            "Ask for access on the model's page, set HF_TOKEN, or download it once and set "
            "model.model_path to the folder."
        ),
        source="huggingface_hub errors.py GatedRepoError",
        fires=(
            "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: "
            "ViT1Bf7O_026LGSQuVqfa)\n\nCannot access gated repo for url "
            "https://huggingface.co/api/models/ardent-figment/gated-model.\nAccess to model "
            "ardent-figment/gated-model is restricted"
        ),
        spares=(
            "INFO access granted to the gated repo acme/policy-8b for url "
            "https://huggingface.co/acme/policy-8b"
        ),
    ),
    Signature(
        id="hub-unreachable",
        component="python",
        role="cause",
        pattern=r"We couldn't connect to '(?P<url>[^'\n]{1,200})' to load (?:the|this) files?",
        needle="We couldn't connect to '",
        title="{url} cannot be reached, and the model is not in the cache",
        cause="There is no way to {url} from this host, and the files are not in the local cache.",
        fix=(
            "Download the model where there is internet, and set model.model_path to its folder; "
            "HF_HUB_OFFLINE=1 stops the attempts."
        ),
        source="transformers utils/hub.py",
        fires=(
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't "
            "find them in the cached files."
        ),
        spares="INFO We could connect to 'https://huggingface.co' to load the files",
    ),
    Signature(
        id="model-remote-code",
        component="python",
        role="cause",
        pattern="Please pass the argument `trust_remote_code=True` to allow custom code to be run",
        needle="Please pass the argument `trust_remote_code=True`",
        title="The model brings its own code, which must be allowed",
        cause="The checkpoint contains Python code that transformers runs only with trust_remote_code.",
        fix=(
            'If you trust it, set "actor_rollout_ref.model.trust_remote_code": true in '
            "trainer.overrides, and --trust-remote-code for vllm serve."
        ),
        source="transformers dynamic_module_utils.py",
        fires=(
            "ValueError: The repository /data/m contains custom code which must be executed to correctly "
            "load the model. You can inspect the repository content at /data/m.\nPlease pass the argument "
            "`trust_remote_code=True` to allow custom code to be run."
        ),
        spares="INFO trust_remote_code=True",
    ),
    Signature(
        id="weights-missing",
        component="python",
        role="cause",
        pattern=(
            r"Error no file named (?P<file>[\w.-]{1,100})[^\n]{0,300} found in directory "
            r"(?P<path>\S{1,300})"
        ),
        needle="Error no file named",
        title="The model's folder holds no weights ({file})",
        cause=(
            "{path} has a configuration and no weights: the download is incomplete, or it holds sharded "
            "training state."
        ),
        fix=(
            "Finish the download, or merge a training checkpoint to Hugging Face form first, then set "
            "model.model_path to it."
        ),
        source="transformers modeling_utils.py",
        fires=(
            "OSError: Error no file named model.safetensors, or pytorch_model.bin, found in directory "
            "/data/ckpt/global_step_40/actor."
        ),
        spares="INFO found model.safetensors in directory /data/m",
    ),
    Signature(
        id="safetensors-damaged",
        component="python",
        role="cause",
        pattern=r"SafetensorError: (?P<why>Error while deserializing header: \w{1,60})",
        needle="SafetensorError: Error while deserializing header:",
        title="A weights file is damaged or incomplete",
        cause=(
            "A .safetensors file cannot be read ({why}): its download or copy was cut off, or it is a "
            "Git LFS pointer."
        ),
        fix="Download or copy the model again, and compare the sizes of its files.",
        source="safetensors",
        fires=(
            "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer"
        ),
        spares="INFO deserializing header of model-00001-of-00004.safetensors: 291 tensors",
    ),
    Signature(
        id="no-chat-template",
        component="python",
        role="cause",
        pattern=r"Cannot use chat template functions because tokenizer\.chat_template is not set",
        needle="Cannot use chat template functions because tokenizer.chat_template is not set",
        title="The model's tokenizer has no chat template",
        cause=(
            "Prompts are rendered with the tokenizer's chat template, and this one (usual for base "
            "models) has none."
        ),
        fix=(
            "Use the instruct model (model.model_path), or add a chat_template to its tokenizer_config.json."
        ),
        source="transformers tokenization_utils_base.py",
        fires=(
            "ValueError: Cannot use chat template functions because tokenizer.chat_template is not set "
            "and no template argument was passed!"
        ),
        spares="INFO chat_template loaded",
    ),
    Signature(
        id="no-pad-token",
        component="python",
        role="cause",
        pattern="Asking to pad but the tokenizer does not have a padding token",
        needle="Asking to pad but the tokenizer does not have a padding token",
        title="The model's tokenizer has no padding token",
        cause="Batches must be padded, and the tokenizer names no pad_token.",
        fix="Set pad_token in the model's tokenizer_config.json, for example to the eos_token.",
        source="transformers tokenization_utils_base.py",
        fires=(
            "ValueError: Asking to pad but the tokenizer does not have a padding token. Please select a "
            "token to use as `pad_token`"
        ),
        spares="UserWarning: tokenizer.pad_token is None. Now set to <|endoftext|>",
    ),
    Signature(
        id="tokenizer-remote-code",
        component="vllm",
        role="cause",
        pattern=r"Failed to load the tokenizer\. If the tokenizer is a custom tokenizer",
        needle="Failed to load the tokenizer. If the tokenizer is a custom tokenizer",
        title="The model's tokenizer is not known to the installed transformers",
        cause=(
            "The tokenizer's class is newer than the installed transformers, or comes with the model as code."
        ),
        fix=(
            "Install a newer transformers in that environment; if the model brings its own code and you trust it, "
            "add --trust-remote-code."
        ),
        source="vllm/tokenizers/hf.py; vllm issue on Qwen3.5",
        fires=(
            "RuntimeError: Failed to load the tokenizer. If the tokenizer is a custom tokenizer not yet available "
            "in the HuggingFace transformers library, consider setting `trust_remote_code=True` in LLM or using "
            "the `--trust-remote-code` flag in the CLI."
        ),
        spares="INFO Loaded the tokenizer; the tokenizer is a custom tokenizer of the model",
    ),
    Signature(
        id="hub-unauthorized",
        component="python",
        role="cause",
        pattern=(
            r"\A(?![\s\S]*Cannot access gated repo for url)[\s\S]*?401 Client Error: Unauthorized for url: "
            r"(?P<url>https?://[^\s'\"]{1,300})"
        ),
        needle="401 Client Error: Unauthorized for url:",
        title="The hub refuses the download: no token, or one that is not valid",
        cause="The model is private or gated, or its name is misspelt; the hub answered 401 for {url}.",
        fix=(
            "Set HF_TOKEN, correct the name, or download the model once and set model.model_path to the folder "
            "(HF_HUB_OFFLINE=1 then)."
        ),
        source="requests HTTPError, as huggingface_hub raises it",
        fires=(
            "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: "
            "https://huggingface.co/acme/private-model/resolve/main/config.json"
        ),
        spares=(
            "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: "
            "https://huggingface.co/acme/m"
        ),
    ),
    Signature(
        id="weights-no-weights",
        component="python",
        role="cause",
        pattern=r"UnpicklingError: invalid load key, '(?P<key>(?!v')[^'\n]{1,4})'",
        needle="UnpicklingError: invalid load key,",
        title="A file of weights is no such file (it begins with {key})",
        cause="The file is something else: with < a web page that was saved instead, with a brace a JSON file.",
        fix="Fetch the real file: hf download; compare its size with the one on the hub.",
        command="head -c 200 FILE",
        source="CPython pickle",
        fires="_pickle.UnpicklingError: invalid load key, '<'.",
        spares="UnpicklingError handled: load key 'v'",
    ),
)
