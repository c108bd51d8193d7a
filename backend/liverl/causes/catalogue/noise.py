"""Signatures of records that explain nothing."""

from __future__ import annotations

from liverl.causes.signature import Signature

ASKED_TO_STOP = "vllm-asked-to-stop"  # what its processes report of each other from then on is no failure

TASK_RETRIED = "ray-task-retried"  # what is reported of its worker just before ended nothing

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="exit-ignored",
        component="python",
        role="noise",
        pattern="Exception ignored in",
        needle="Exception ignored in",
        title="Python reports an error while it exits",
        source="recordings/cases/25-verl-hydra-renamed-key.log",
        fires="Exception ignored in: <function ResourceTracker.__del__ at 0x7fa19867d940>",
        spares="Exception in thread Thread-1",
    ),
    Signature(
        id="nanobind-leaks",
        component="python",
        role="noise",
        pattern=r"nanobind: leaked \d{1,6} (?:instances|types|functions)",
        needle="nanobind: leaked",
        title="A library reports what it did not free at exit",
        source="recordings/vllm_enginecore_killed.log",
        fires="nanobind: leaked 4 instances!",
        spares="nanobind: loaded",
        recorded=True,
    ),
    Signature(
        id="resource-tracker",
        component="python",
        role="noise",
        pattern=r"resource_tracker: There appear to be \d{1,6} leaked",
        needle="resource_tracker: There appear to be",
        title="Python frees shared memory that a process left behind",
        source="recordings/vllm_fail_kv_too_small.log",
        fires=(
            "UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects to clean "
            "up at shutdown"
        ),
        spares="resource_tracker started",
        recorded=True,
    ),
    Signature(
        id="ray-client-health",
        component="ray",
        role="noise",
        pattern=r"\[proxy\] Failed to put health check on ",
        needle="[proxy] Failed to put health check on ",
        title="Ray's client server cannot reach a cluster that is being stopped",
        source="tests/stack/test_verl_faults.py",
        fires="ERROR server.py:944 -- [proxy] Failed to put health check on 192.0.2.2:58099",
        spares="INFO server.py:913 -- [proxy] put health check on 192.0.2.2:57055",
        recorded=True,
    ),
    Signature(
        id="ray-call-cancelled",
        component="ray",
        role="noise",
        pattern=r"ray\.exceptions\.RpcError: RPC error: CANCELLED",
        needle="RpcError: RPC error: CANCELLED",
        title="A call was cancelled because Ray is being stopped",
        source="tests/stack/test_verl_faults.py",
        fires="ray.exceptions.RpcError: RPC error: CANCELLED",
        spares="ray.exceptions.RpcError: RPC error: Deadline Exceeded rpc_code: 4",
        recorded=True,
    ),
    Signature(
        id="engine-unavailable",
        component="verl",
        role="noise",
        pattern=r"UserWarning: \w{1,40} engine is not available",
        needle="engine is not available",
        title="verl says which training engines are not installed",
        source="recordings/verl_cpu/run6steps.stderr.log",
        fires=(
            "/venv/lib/python3.11/site-packages/verl/workers/engine/__init__.py:41: UserWarning: veomni "
            "engine is not available: ModuleNotFoundError(\"No module named 'veomni'\")"
        ),
        spares="RuntimeError: engine failed",
        recorded=True,
    ),
    Signature(
        id="optional-extension",
        component="vllm",
        role="noise",
        pattern=r"Failed to import from vllm\._(?:qutlass|moe|flashmla\w{0,20})_C",
        needle="Failed to import from vllm._",
        title="An optional extension of vLLM is not in this build",
        source="recordings/h200/vllm_enginecore_killed_exit0.log",
        fires=(
            "WARNING 11-22 08:53:57 [cuda.py:45] Failed to import from vllm._qutlass_C: "
            "ModuleNotFoundError(\"No module named 'vllm._qutlass_C'\")"
        ),
        spares=(
            "WARNING Failed to import from vllm._C with ImportError(\"libc.so.6: version `GLIBC_2.32' not "
            'found")'
        ),
        recorded=True,
    ),
    Signature(
        id=ASKED_TO_STOP,
        component="vllm",
        role="noise",
        pattern=r"\[shutdown\] API server: shutdown triggered",
        needle="[shutdown] API server: shutdown triggered",
        title="vLLM was asked to stop",
        source="tests/data/gpu_logs/sigterm.log",
        fires="INFO 11-24 03:53:08 [launcher.py:100] [shutdown] API server: shutdown triggered",
        spares="INFO 11-24 03:53:08 [core_client.py:655] [shutdown] MPClient: start timeout=0s",
        recorded=True,
    ),
    Signature(
        id="falls-back",
        component="python",
        role="noise",
        pattern=r"(?:^|\n)[^\n]{0,600}\b[Ff]alling back (?:to|on)\b",
        needle="alling back ",
        title="A program does without something that is optional",
        source="vllm/model_executor/layers/rotary_embedding/common.py and others",
        fires="flash_attn rotary import failed; falling back to native rotary. Error: No module named 'flash_attn.ops'",
        spares="ModuleNotFoundError: No module named 'flash_attn.ops'; give it back",
    ),
    Signature(
        id="vllm-input-dump",
        component="vllm",
        role="noise",
        pattern=r"Dumping (?:input data for V1 LLM engine|scheduler (?:output for model execution|stats))",
        needle="Dumping ",
        title="vLLM shows what it worked on when it failed; the error follows",
        source="vllm/v1/engine/core.py dump_input",
        fires="ERROR 07-21 13:02:07 [dump_input.py:69] Dumping input data for V1 LLM engine (v0.9.2) with config: m",
        spares="INFO Dumping torch profiles of the LLM engine",
    ),
    Signature(
        id="open-files-warning",
        component="vllm",
        role="noise",
        pattern=r"Found ulimit of \d{1,12} and failed to automatically increase",
        needle="Found ulimit of",
        title="vLLM warns of a low limit of open files",
        source="recordings/vllm_fail_kv_too_small.log",
        fires=(
            "WARNING 11-20 23:47:09 [system_utils.py:255] Found ulimit of 20000 and failed to "
            "automatically increase with error current limit exceeds maximum limit."
        ),
        spares="INFO Found ulimit of 1048576, nothing to increase",
        recorded=True,
    ),
    Signature(
        id="address-asked-early",
        component="verl",
        role="noise",
        pattern="http server is not launched, port is None",
        needle="http server is not launched, port is None",
        title="A replica's address was asked before its server was up; it is asked again",
        source="verl workers/rollout/vllm_rollout/vllm_async_server.py",
        fires="AssertionError: http server is not launched, port is None",
        spares="INFO http server is launched, port is 41803",
    ),
    Signature(
        id="litellm-cost-map",
        component="litellm",
        role="noise",
        pattern=r"model cost map (?:fetch attempt \d|from https?://)",
        needle="model cost map ",
        title="LiteLLM takes the prices that it brings, since it cannot fetch newer ones",
        source="tests/data/healthy/litellm_offline.log",
        fires=(
            "17:40:07 - LiteLLM:WARNING: get_model_cost_map.py:327 - LiteLLM: model cost map fetch attempt 1/3 failed "
            "(ConnectError fetching https://raw.githubusercontent.com/x.json: [Errno -2] Name or service not known)"
        ),
        spares="LiteLLM: loaded the model cost map",
        recorded=True,
    ),
    Signature(
        id="pip-resolver-note",
        component="python",
        role="noise",
        pattern="pip's dependency resolver does not currently take into account all the packages",
        needle="pip's dependency resolver does not currently take into account",
        title="pip says which packages do not fit what it has installed",
        source="pip",
        fires=(
            "ERROR: pip's dependency resolver does not currently take into account all the packages that are "
            "installed."
        ),
        spares="ERROR: Cannot install a and b: the dependency resolver of pip found no versions",
        recorded=True,
    ),
    Signature(
        id="pip-passed-over",
        component="python",
        role="noise",
        pattern="ERROR: Ignored the following (?:versions|yanked versions)",
        needle="ERROR: Ignored the following ",
        title="pip says which versions it did not consider",
        source="pip, in a public Terminal-Bench run",
        fires=(
            "ERROR: Ignored the following versions that require a different python version: 1.1.0 Requires-Python "
            ">=3.11"
        ),
        spares="ERROR: No version satisfies the following requirement",
    ),
    Signature(
        id="ray-event-report",
        component="ray",
        role="noise",
        pattern="Report event failed: ",
        needle="Report event failed: ",
        title="Ray's agent could not show an event in the dashboard, which is not there",
        source="Ray 2.60 without a dashboard, printed by it",
        fires="2026-11-25 22:22:55,429\tERROR event_agent.py:106 -- Report event failed: ['{}']",
        spares="ERROR event_agent.py:106 -- Report failed: node dead",
        recorded=True,
    ),
    Signature(
        id="no-exception",
        component="python",
        role="noise",
        pattern=r"\ANoneType: None\Z",
        needle="NoneType: None",
        title="An error was logged as an exception, and there was none",
        source="Python logging.Logger.exception",
        fires="NoneType: None",
        spares="TypeError: got NoneType: None has no length",
    ),
    Signature(
        id=TASK_RETRIED,
        component="ray",
        role="noise",
        pattern=r"Task \S{1,200} failed\. There are (?:[1-9]\d{0,8}|infinite) retries remaining",
        needle=" retries remaining",
        title="Ray runs a task again whose worker ended",
        source="Ray 2.60, printed by it",
        fires="(raylet) Task work failed. There are 3 retries remaining, so the task will be retried. Error: ",
        spares="(raylet) Task work failed. There are 0 retries remaining. Error: ",
        recorded=True,
    ),
    Signature(
        id="urllib3-retries",
        component="python",
        role="noise",
        pattern=r"Retrying \(Retry\(total=\d{1,6}, [^\n]{0,200} after connection broken by ",
        needle="Retrying (Retry(total=",
        title="urllib3 tries a connection again; it raises MaxRetryError where it gives up",
        source="urllib3 connectionpool.py",
        fires=(
            "Retrying (Retry(total=3, connect=None, read=None, redirect=None, status=None)) after connection broken by "
            "'ReadTimeoutError(\"HTTPSConnectionPool(host='hub.example', port=443): Read timed out.\")': /api/models"
        ),
        spares="urllib3.exceptions.MaxRetryError: Retrying (Retry(total=0) did not help",
    ),
)
