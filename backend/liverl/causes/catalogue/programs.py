"""Signatures of Python programs: imports, syntax, values."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="module-missing",
        component="python",
        role="cause",
        pattern=r"ModuleNotFoundError: No module named '(?P<module>[\w.]{1,120})'(?!.\))",
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
        spares="UserWarning: veomni engine is not available: ModuleNotFoundError(\"No module named 'veomni'\")",
    ),
    Signature(
        id="import-name",
        component="python",
        role="cause",
        pattern=(
            r"ImportError: cannot import name '(?P<name>\w{1,120})' from (?:partially initialized module "
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
        spares="ModuleNotFoundError: No module named 'vllm'",
    ),
    Signature(
        id="unexpected-argument",
        component="python",
        role="cause",
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
        role="cause",
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
        role="cause",
        where="exception",
        pattern=r"^KeyError: (?!'invalid tool call parser)(?P<key>[^\n]{1,160})",
        needle="KeyError:",
        title="A table or row has no entry {key} (KeyError)",
        cause="A program looked up {key}, which is not there; in data this is a missing column.",
        fix=(
            "Look at the frame: for rows of data compare the columns of data.train_index, for a reward "
            "or agent of yours correct the lookup."
        ),
        source="CPython",
        fires="KeyError: 'prompt'",
        spares="KeyError: 'invalid tool call parser: qwen_coder (chose from { hermes })'",
    ),
    Signature(
        id="recursion",
        component="python",
        role="cause",
        pattern="RecursionError: maximum recursion depth exceeded",
        needle="RecursionError: maximum recursion depth exceeded",
        title="A program calls itself without end (RecursionError)",
        cause="The traceback repeats the same frames.",
        fix="Correct the function that the repeated frames name.",
        source="CPython",
        fires="RecursionError: maximum recursion depth exceeded while calling a Python object",
        spares="RuntimeError: maximum depth",
    ),
    Signature(
        id="agent-python-old",
        component="python",
        role="cause",
        pattern=r"python3 is < 3\.12",
        needle="python3 is < 3.12",
        title="The sandbox's Python is older than 3.12, which the agent needs",
        cause="The agent's runtime image is not mounted into the sandbox, so its own Python is used.",
        fix="Set harbor_agent.runtime_image and harbor_agent.runtime_mount_path.",
        source="LiveRL documentation, symptom R7",
        fires="python3 is < 3.12",
        spares="python3 is 3.12.4",
    ),
    Signature(
        id="pod-image",
        component="python",
        role="cause",
        pattern=r'Failed to pull image(?: "(?P<image>[^"\n]{1,200})"|:)',
        needle="Failed to pull image",
        title="A sandbox's image could not be pulled",
        cause="The image does not exist there, the registry is unreachable, or the node does not trust it.",
        fix=(
            "Build and push the image, and let every node reach and trust the registry; Kubernetes never "
            "builds images."
        ),
        source="Kubernetes kubelet; LiveRL documentation, symptom R6",
        fires='Failed to pull image "registry.example/task:1": rpc error: code = NotFound',
        spares='Successfully pulled image "registry.example/task:1"',
    ),
    Signature(
        id="pod-not-ready",
        component="python",
        role="cause",
        pattern=r"Pod not ready after (?P<seconds>\d{1,7}) seconds",
        needle="Pod not ready after",
        title="A sandbox's pod was not ready after {seconds} seconds",
        cause="Starting pods is slow: pulling images, a full disk of the node, or leaked cgroups.",
        fix="Raise k8s.pod_startup_timeout, and look at the node's disk and at kubectl describe pod.",
        severity="warning",
        alive=True,
        source="LiveRL documentation, symptom R11",
        fires="Pod not ready after 1200 seconds",
        spares="Pod ready after 12 seconds",
    ),
    Signature(
        id="pod-exec-timeout",
        component="python",
        role="cause",
        pattern=r"exec command exceeded (?P<seconds>\d{1,7})s timeout in pod",
        needle="exec command exceeded",
        title="A command in a sandbox took longer than {seconds} s",
        cause="The command hangs in the pod, often an installation without a way to the internet.",
        fix="Bake what it installs into the image, or raise harbor_agent.override_timeout_sec.",
        severity="warning",
        alive=True,
        source="LiveRL documentation, symptom R12",
        fires="exec command exceeded 600s timeout in pod",
        spares="exec command finished in pod",
    ),
    Signature(
        id="kubernetes-api",
        component="python",
        role="cause",
        pattern="Transient apiserver 5xx while polling pod",
        needle="Transient apiserver 5xx while polling pod",
        title="The Kubernetes API answers with errors while pods are watched",
        cause="The cluster's API server is overloaded or restarting; after 30 in a row the trial fails.",
        fix=(
            "Check the cluster (kubectl get --raw /readyz), and start fewer pods at once "
            "(harbor_runtime.num_workers)."
        ),
        command="kubectl get --raw /readyz",
        severity="warning",
        alive=True,
        source="LiveRL documentation, symptom R10",
        fires="Transient apiserver 5xx while polling pod",
        spares="apiserver 200 while polling pod",
    ),
    Signature(
        id="grader-missing",
        component="python",
        role="cause",
        pattern="uv: command not found",
        needle="uv: command not found",
        title="The grader cannot run: uv is missing in the sandbox, so rewards are 0",
        cause=(
            "The test script installs uv from the internet, which the sandbox cannot reach; the trial "
            "then counts as failed."
        ),
        fix="Bake uv and the tests' dependencies into the image.",
        alive=True,
        source="LiveRL documentation, symptom V4",
        fires="/tests/test.sh: line 9: uv: command not found",
        spares="uv 0.9.1",
    ),
)
