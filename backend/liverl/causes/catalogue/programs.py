"""Signatures of Python programs: imports, syntax, values."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="module-missing",
        component="python",
        role="general",
        pattern=r"ModuleNotFoundError: No module named '(?!flash_attn\.)(?P<module>[\w.]{1,120})'(?!.\))",
        needle="ModuleNotFoundError: No module named '",
        title="The Python module {module} is not installed in this environment",
        cause=(
            "A program imports {module}, and its environment does not have it (transfer_queue comes with "
            "verl[vllm], docker is hidden by a folder of that name on the path)."
        ),
        fix=(
            "Install it into the environment of that service (environments), or put your own module's "
            "folder into agent.path."
        ),
        source="CPython",
        fires="ModuleNotFoundError: No module named 'flash_attn'",
        spares=(
            'UserWarning: veomni engine is not available: ImportError("ModuleNotFoundError: No '
            "module named 'veomni'\")"
        ),
    ),
    Signature(
        id="import-name",
        of_versions=True,
        component="python",
        role="general",
        pattern=(
            r"ImportError: cannot import name '(?!DockerClient')(?P<name>\w{1,120})' from "
            r"(?:partially initialized module "
            r")?'(?P<module>[\w.]{1,160})'"
        ),
        needle="ImportError: cannot import name '",
        title="{module} has no {name}: two packages do not fit together",
        cause="A program wants {name} from {module}, and the installed version does not have it.",
        fix=(
            "Install versions that belong together (environments.verl.requirements, "
            "environments.vllm.requirements); a file of yours may also hide {module}."
        ),
        source="CPython",
        fires="ImportError: cannot import name 'SamplingParams' from 'vllm' (unknown location)",
        spares="INFO optional: cannot import name 'x' from 'vllm', the feature is off",
    ),
    Signature(
        id="unexpected-argument",
        of_versions=True,
        component="python",
        role="general",
        pattern=(
            r"TypeError: (?P<function>[\w.<>]{1,160})\(\) got an unexpected keyword argument "
            r"'(?P<name>\w{1,100})'"
        ),
        needle="got an unexpected keyword argument '",
        title="{function}() does not take the argument {name}",
        cause="The caller was written for another version of the package, or an option has the wrong name.",
        fix=(
            "Install versions that belong together (environments.verl.requirements), or correct the "
            "option in trainer.overrides."
        ),
        source="CPython",
        fires="TypeError: ModelRunnerOutput.__init__() got an unexpected keyword argument 'pooling_output'",
        spares="TypeError: f() missing 1 required positional argument: 'x'",
    ),
    Signature(
        id="syntax-error",
        component="python",
        role="general",
        pattern=(
            r'File "(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,7})\n[^\n]{0,300}\n(?:[^\n]{0,300}\n)?(?:'
            r"SyntaxError|IndentationError|TabError): (?P<why>[^\n]{1,160})"
        ),
        needle='File "',
        title="Line {line} of a Python file is not valid: {why}",
        cause="{file}, line {line}: {why}.",
        fix="Correct that line; if the file is a package's, this Python is too old for it.",
        source="CPython",
        fires=(
            "  File \"/home/u/reward.py\", line 7\n    def score(data\n             ^\nSyntaxError: '(' was "
            "never closed"
        ),
        spares=(
            'Traceback (most recent call last):\n  File "/home/u/reward.py", line 7, in score\nValueError: x'
        ),
    ),
    Signature(
        id="key-error",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^KeyError: (?!'invalid (?:tool call|reasoning) parser"
            r"|'(?:[\w-]{1,60}\.){1,10}(?:\w{0,20}weights?\w{0,30}|bias|\w{1,40}_(?:bias|scale|zero_point|packed|shape"
            r"|inv)|g_idx|qzeros|scales|absmax|lora_[AB])')(?P<key>[^\n]{1,160})"
        ),
        needle="KeyError:",
        title="A table or row has no entry {key} (KeyError)",
        cause="A program looked up {key}, which is not there; in data this is a missing column.",
        fix=(
            "Look at the frame: for rows of data compare the columns of data.train_index, for a reward or agent of "
            "yours correct the lookup; within a library compare the versions of the packages."
        ),
        source="CPython",
        fires="KeyError: 'prompt'",
        spares="KeyError: 'invalid tool call parser: qwen_coder (chose from { hermes })'",
    ),
    Signature(
        id="recursion",
        component="python",
        role="general",
        pattern="RecursionError: maximum recursion depth exceeded",
        needle="RecursionError: maximum recursion depth exceeded",
        title="A program calls itself without end (RecursionError)",
        cause="The traceback repeats the same frames.",
        fix="Correct the function that the repeated frames name.",
        source="CPython",
        fires="RecursionError: maximum recursion depth exceeded while calling a Python object",
        spares="RuntimeError: maximum depth",
    ),
)
