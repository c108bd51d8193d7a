"""Signatures of the model hub, and of folders that are no model."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="hub-not-cached",
        component="python",
        role="cause",
        pattern=r"LocalEntryNotFoundError: (?P<why>[^\n]{1,300})",
        needle="LocalEntryNotFoundError: ",
        title="The model is not in the local cache, and the hub is not reached",
        cause=(
            "The files were looked for in the cache only (offline, or no way to the hub), and are not there."
        ),
        fix=(
            "Download the model where there is internet, and set model.model_path to its folder; "
            "HF_HUB_OFFLINE=1 stops the attempts."
        ),
        command="ls ~/.cache/huggingface/hub; echo $HF_HOME $HF_HUB_OFFLINE",
        source="huggingface_hub errors.py",
        fires=(
            "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to "
            "locate the files on the Hub and we cannot find the appropriate snapshot folder for the "
            "specified revision on the local disk."
        ),
        spares="INFO LocalEntryNotFoundError is handled: the files come from the hub",
    ),
    Signature(
        id="hub-offline",
        component="python",
        role="cause",
        pattern=(
            r"(?:OfflineModeIsEnabled: )?Cannot reach (?P<url>https?://\S{1,300}?): offline mode is "
            "enabled"
        ),
        needle=": offline mode is enabled",
        title="{url} is needed, and offline mode is on",
        cause="HF_HUB_OFFLINE is set, and the files are not in the cache.",
        fix=(
            "Download the model once with HF_HUB_OFFLINE unset, or set model.model_path to a folder "
            "that has it."
        ),
        command="echo $HF_HOME $HF_HUB_OFFLINE",
        source="huggingface_hub utils/_http.py",
        fires=(
            "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach "
            "https://huggingface.co/api/models/acme/m: offline mode is enabled. To disable it, "
            "please unset the `HF_HUB_OFFLINE` environment variable."
        ),
        spares="INFO offline mode is enabled; https://huggingface.co is not asked",
    ),
    Signature(
        id="hub-rate-limit",
        component="python",
        role="cause",
        pattern="429 Client Error: Too Many Requests for url: (?P<url>https?://[^\\s'\\\"]{1,300})",
        needle="429 Client Error: Too Many Requests for url: http",
        title="The hub refuses further downloads for a while (429)",
        cause="Too many requests came from this address or token.",
        fix=(
            "Wait, set HF_TOKEN, and download the model once into a folder (model.model_path) that "
            "all processes use."
        ),
        source="requests HTTPError, as huggingface_hub raises it",
        fires=(
            "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: "
            "https://huggingface.co/api/models/acme/m"
        ),
        spares=(
            "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: "
            "https://huggingface.co/api/models/acme/m"
        ),
    ),
    Signature(
        id="hub-entry",
        component="python",
        role="cause",
        pattern=(
            r"404 Client Error\.[^\n]{0,120}\s{1,4}Entry Not Found for url: "
            r"(?P<url>\S{1,300}?)\.?(?:\s|$)"
        ),
        needle="Entry Not Found for url: ",
        title="The model's repository lacks a file that is asked for",
        cause="There is no {url}: another format, or a name that changed.",
        fix=("Look which files the repository has, and use a model of the format that is asked for."),
        source="huggingface_hub errors.py EntryNotFoundError",
        fires=(
            "huggingface_hub.errors.EntryNotFoundError: 404 Client Error. (Request ID: Root=1-6f)\n\n"
            "Entry Not Found for url: https://huggingface.co/acme/m/resolve/main/model.safetensors."
        ),
        spares=(
            "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.\n\nRepository is "
            "missing for url: https://huggingface.co/api/acme"
        ),
    ),
    Signature(
        id="hub-revision",
        component="python",
        role="cause",
        pattern=r"Revision Not Found for url: (?P<url>\S{1,300}?)\.?(?:\s|$)",
        needle="Revision Not Found for url: ",
        title="The repository has no such revision",
        cause="The branch, tag or commit that is asked for is not in the repository: {url}",
        fix="Correct the revision.",
        source="huggingface_hub errors.py RevisionNotFoundError",
        fires=(
            "huggingface_hub.errors.RevisionNotFoundError: 404 Client Error.\n\nRevision Not Found for "
            "url: https://huggingface.co/api/models/acme/m/revision/v9."
        ),
        spares="INFO Revision main for url https://huggingface.co/acme/m",
    ),
    Signature(
        id="model-file-missing",
        component="python",
        role="cause",
        pattern=(
            r"(?P<model>\S{1,300}) does not appear to have (?:a file named|files named) "
            r"(?P<file>[^\n]{1,120}?)\. (?:Checkout|Check)"
        ),
        needle=" does not appear to have ",
        title="{model} has no {file}",
        cause="The folder or repository {model} is no complete model: {file} is missing.",
        fix=(
            "Check the path (model.model_path): it must be the folder with config.json, tokenizer "
            "and weights; merge an adapter, or convert a training checkpoint first."
        ),
        source="transformers utils/hub.py",
        fires=(
            "OSError: /data/ckpt/global_step_40 does not appear to have a file named config.json. "
            "Checkout 'https://huggingface.co//data/ckpt/tree/None' for available files."
        ),
        spares="INFO /data/model appears to have a file named config.json",
    ),
    Signature(
        id="model-path-config",
        component="python",
        role="cause",
        pattern=(
            "Can't load (?:the )?(?:configuration of|config for|image processor for|feature "
            r"extractor for|tokenizer for) '(?P<model>[^'\n]{1,300})'"
        ),
        needle="Can't load ",
        title="{model} has no configuration or tokenizer that can be loaded",
        cause=("transformers found neither a folder {model} with these files nor such a repository."),
        fix=(
            "Check the path or name (model.model_path), and that no folder of the same name is in "
            "the working directory; copy the tokenizer's files to a converted checkpoint."
        ),
        source="transformers configuration_utils.py",
        fires=(
            "OSError: Can't load the configuration of '/data/model'. If you were trying to load it "
            "from 'https://huggingface.co/models', make sure you don't have a local directory with "
            "the same name."
        ),
        spares="INFO can load the configuration of '/data/model'",
    ),
    Signature(
        id="model-path-id",
        component="python",
        role="cause",
        pattern=r"Incorrect path_or_model_id: '(?P<model>[^'\n]{1,300})'",
        needle="Incorrect path_or_model_id: '",
        title="There is no folder {model}, and it is no name of a repository",
        cause=(
            "The path does not exist on this host (or in this container), so it was taken for a name "
            "on the hub."
        ),
        fix=("Check model.model_path on every host, and that the folder is mounted into the container."),
        command="ls -ld '{model}'",
        source="transformers utils/hub.py",
        fires=(
            "OSError: Incorrect path_or_model_id: '/data/modell'. Please provide either the path to "
            "a local folder or the repo_id of a model on the Hub."
        ),
        spares="INFO path_or_model_id: '/data/model'",
    ),
    Signature(
        id="model-path-vllm",
        component="vllm",
        role="cause",
        pattern=r"Invalid repository ID or local directory specified: '(?P<model>[^'\n]{1,300})'",
        needle="Invalid repository ID or local directory specified: '",
        title="There is no model at {model}",
        cause="vLLM found neither a folder with config.json nor a repository of this name.",
        fix=(
            "Check model.model_path on every host, and that the folder is mounted into the container "
            "and has config.json."
        ),
        command="ls -l '{model}'",
        source="vllm/transformers_utils/config.py",
        fires="ValueError: Invalid repository ID or local directory specified: '/data/modell'.",
        spares="INFO local directory specified: '/data/model'",
    ),
    Signature(
        id="config-json",
        component="python",
        role="cause",
        pattern=(r"It looks like the config file at '(?P<path>[^'\n]{1,300})' is not a valid JSON file"),
        needle="It looks like the config file at '",
        title="{path} is not valid JSON",
        cause="The file is cut off, empty, or was edited wrongly (a comma too many).",
        fix="Download or copy it again, or correct it: python -m json.tool shows the place.",
        command="python -m json.tool '{path}'",
        source="transformers configuration_utils.py",
        fires=(
            "OSError: It looks like the config file at '/data/model/config.json' is not a valid JSON file."
        ),
        spares="INFO the config file at '/data/model/config.json' is valid",
    ),
    Signature(
        id="remote-code-option",
        component="python",
        role="cause",
        pattern=(
            "requires you to execute (?:the (?:configuration|configuration file|modeling "
            r"file|code|model file|tokenizer file)|custom code)[^\n]{0,200}"
        ),
        needle="requires you to execute ",
        title="The model brings code of its own, which is not allowed to run",
        cause=(
            "The repository has Python code (configuration or model) that transformers must run, and "
            "trust_remote_code is off."
        ),
        fix=(
            "If you trust it, allow it: trust_remote_code=True (vLLM: --trust-remote-code; verl: "
            "actor_rollout_ref.model.trust_remote_code in trainer.overrides)."
        ),
        source="transformers dynamic_module_utils.py",
        fires=(
            "ValueError: Loading /data/model requires you to execute the configuration file in that "
            "repo on your local machine. Make sure you have read the code there"
        ),
        spares="INFO Loading /data/model executes no code; it requires nothing",
    ),
    Signature(
        id="model-needs-packages",
        component="python",
        role="cause",
        pattern=(
            "This modeling file requires the following packages that were not found in your "
            r"environment: (?P<packages>[^\n]{1,120}?)\. Run"
        ),
        needle=(
            "This modeling file requires the following packages that were not found in your environment: "
        ),
        title="The model's code needs packages that are missing: {packages}",
        cause="The model brings code of its own, which imports {packages}.",
        fix="Install them in this environment: pip install {packages}.",
        command="pip install {packages}",
        source="transformers dynamic_module_utils.py",
        fires=(
            "ImportError: This modeling file requires the following packages that were not found in "
            "your environment: einops. Run `pip install einops`"
        ),
        spares="INFO the packages of this modeling file were found in your environment",
    ),
)
