"""Signatures of services and harnesses of sandboxes: Daytona, Modal, E2B, Harbor, SWE-bench, SWE-ReX, OpenHands."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="sandbox-quota",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=(
                r"Total (?P<what>CPU|memory|disk|GPU) limit exceeded\. Maximum allowed: "
                r"(?P<most>[\w.]{1,20}?)\.?(?:\s|$|['\"])"
            ),
            needle=" limit exceeded. Maximum allowed: ",
            title="The sandbox service's quota is used up: {what}, at most {most}",
            cause="All sandboxes of the account together may not have more, and left over ones count too.",
            fix="Delete sandboxes of earlier runs, run fewer at once or smaller ones, or ask for a higher quota.",
            source="Daytona",
            fires=(
                "daytona.common.errors.DaytonaError: Failed to create sandbox: Total CPU limit exceeded. Maximum "
                "allowed: 4500."
            ),
            spares="INFO Total CPU limit: 4500",
        ),
        Text(
            "sandbox-quota-e2b",
            "you have reached the maximum number of concurrent E2B sandboxes",
            r"you have reached the maximum number of (?P<what>concurrent E2B sandboxes) \((?P<most>\d{1,9})\)",
            "429: Rate limit exceeded - you have reached the maximum number of concurrent E2B sandboxes (20)",
            "INFO the maximum number of concurrent E2B sandboxes (20)",
            "E2B",
        ),
        Text(
            "sandbox-quota-count",
            "Sandbox resource limit reached (",
            r"(?P<what>Sandbox) resource limit reached \((?P<most>\d{1,9})\)",
            "Sandbox resource limit reached (16), please try again later.",
            "INFO no Sandbox resource limit reached (16",
        ),
    ),
    *family(
        Signature(
            id="sandbox-expired",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"The sandbox was not found",
            needle="The sandbox was not found",
            title="A sandbox is gone: its time limit is over, or it was ended",
            cause=(
                "The service ends a sandbox after its timeout, which counts from its start or the last "
                "set_timeout."
            ),
            fix=(
                "Start it with a timeout longer than the whole trial (or extend it at each step), and handle its "
                "loss."
            ),
            source="E2B",
            fires=(
                "e2b.exceptions.TimeoutException: The sandbox was not found: This error is likely due to sandbox "
                "timeout."
            ),
            spares="INFO The sandbox was found",
        ),
        Text(
            "sandbox-expired-modal",
            "modal.exception.Sandbox",
            r"modal\.exception\.Sandbox(?:Timeout|Terminated)Error\b",
            "modal.exception.SandboxTimeoutError",
            "INFO modal.exception is imported",
            "Modal",
        ),
        Text(
            "sandbox-expired-modal-ended",
            "Sandbox has already ",
            r"Sandbox has already (?:shut down|completed|finished|terminated)",
            "modal.exception.ConflictError: Sandbox has already shut down",
            "INFO no Sandbox has already begun",
            "Modal",
        ),
    ),
    *family(
        Signature(
            id="sandbox-login",
            component="host",
            role="cause",
            pattern=r"modal\.exception\.AuthError: (?P<why>[^\n]{1,160})",
            needle="modal.exception.AuthError: ",
            title="The sandbox service does not know this login",
            cause="Its token is missing here, wrong or expired.",
            fix=(
                "Set its token in the environment of the process that starts sandboxes (MODAL_TOKEN_ID, "
                "E2B_API_KEY, DAYTONA_API_KEY)."
            ),
            command="env | grep -E 'MODAL|E2B|DAYTONA' | cut -d= -f1",
            source="Modal",
            fires="modal.exception.AuthError: Token missing. Could not authenticate client.",
            spares="INFO no modal.exception.AuthError",
        ),
        Text(
            "sandbox-login-e2b",
            "e2b.exceptions.AuthenticationException: ",
            r"e2b\.exceptions\.AuthenticationException: (?P<why>[^\n]{1,160})",
            (
                "e2b.exceptions.AuthenticationException: API key is required, please visit the Team tab at "
                "https://e2b.dev"
            ),
            "INFO no e2b.exceptions.AuthenticationException",
            "E2B",
        ),
        Text(
            "sandbox-login-daytona",
            "Failed to create sandbox: Invalid ",
            r"Failed to create sandbox: (?P<why>Invalid (?:credentials|API key))",
            "daytona.common.errors.DaytonaError: Failed to create sandbox: Invalid credentials",
            "INFO no sandbox failed: Failed to create sandbox: none",
            "Daytona",
        ),
    ),
    *family(
        Signature(
            id="sandbox-image-build",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"Image build for (?P<image>im-\w{1,60}) (?:failed|terminated)[^\n]{0,200}",
            needle="Image build for ",
            title="The sandbox service could not build the image {image}",
            cause="A step of the image's definition failed there.",
            fix="Read the build's log in the service; build the same Dockerfile locally to see the step.",
            source="Modal",
            fires="modal.exception.RemoteError: Image build for im-1f2e failed. See build logs for more details.",
            spares="INFO Image build for im-1f2e done",
        ),
        Text(
            "sandbox-image-build-daytona",
            "Failed to create snapshot",
            r"Failed to create snapshot[^\n]{0,20}?(?P<image>[\w./:-]{0,100})",
            "daytona.common.errors.DaytonaError: Failed to create snapshot: build failed",
            "INFO no snapshot failed to create",
            "Daytona",
        ),
    ),
    Signature(
        id="sandbox-resources-with-snapshot",
        component="host",
        role="cause",
        pattern=r"Cannot specify Sandbox resources when using a snapshot",
        needle="Cannot specify Sandbox resources when using a snapshot",
        title="Daytona takes no CPU, memory or disk together with a snapshot",
        cause="A snapshot has its own resources.",
        fix="Leave cpu, memory and disk out of the request, or make the sandbox from an image.",
        source="Daytona",
        fires="400: Cannot specify Sandbox resources when using a snapshot",
        spares="INFO specify Sandbox resources when using a snapshot",
    ),
    Signature(
        id="sandbox-time-too-long",
        component="host",
        role="cause",
        pattern=r"Timeout cannot be greater than (?P<most>[\w ]{1,30})",
        needle="Timeout cannot be greater than ",
        title="The sandbox service allows no sandbox longer than {most}",
        cause="The wanted timeout is above the limit of the account's plan.",
        fix="Ask for at most {most}, and extend it while it runs if the plan allows that.",
        source="E2B",
        fires="e2b.exceptions.SandboxException: 400: Timeout cannot be greater than 1 hours",
        spares="INFO Timeout is 1 hours",
    ),
    Signature(
        id="evaluation-image-missing",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"Environment image (?P<image>\S{1,200}) not found for (?P<task>\S{1,200})",
        needle="Environment image ",
        title="SWE-bench has no environment image for {task}",
        cause="The image {image} was not built: its own build failed before, or it was removed.",
        fix=(
            "See logs/build_images/env for its build; build it again with --force_rebuild, or use "
            "--namespace swebench."
        ),
        source="swebench/harness/docker_build.py",
        fires="Environment image sweb.env.arm64.2baa:latest not found for django__django-11133",
        spares="INFO Environment image sweb.env.arm64.2baa:latest found",
    ),
    Signature(
        id="evaluation-patch",
        component="shell",
        role="cause",
        alive=True,
        pattern=r">>>>> Patch Apply Failed",
        needle=">>>>> Patch Apply Failed",
        title="SWE-bench could not apply the model's patch",
        cause="The patch is malformed, or made against another commit: the task counts as not resolved.",
        fix="Nothing is wrong with the harness; see the patch, and let the agent write it with git diff.",
        source="swebench/harness/run_evaluation.py",
        fires=">>>>> Patch Apply Failed:",
        spares=">>>>> Applied Patch",
    ),
    Signature(
        id="evaluation-timeout",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"Test timed out after (?P<seconds>\d{1,7}) seconds",
        needle="Test timed out after ",
        title="The tests of a task did not end in {seconds} s",
        cause="The patch made them hang, or the host is too busy for the limit.",
        fix="Run fewer at once (--max_workers), or raise --timeout.",
        source="swebench/harness/run_evaluation.py",
        fires="EvaluationError: django__django-11133: Test timed out after 1800 seconds.",
        spares="INFO Test done after 18 seconds",
    ),
    Signature(
        id="trial-time-over",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"(?P<what>Agent|Verifier)TimeoutError: (?P<why>[^\n]{1,160})",
        needle="TimeoutError: ",
        title="A trial of Harbor ran out of time ({what})",
        cause="{why}.",
        fix="Raise the task's timeout (timeout_multiplier), or look why the model server or sandbox is slow.",
        source="harbor/trial/trial.py",
        fires="AgentTimeoutError: Agent execution timed out after 900.0 seconds",
        spares="asyncio.TimeoutError: Agent",
    ),
    *family(
        Signature(
            id="trial-no-reward",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"RewardFile(?P<what>NotFound|Empty)Error",
            needle="RewardFile",
            title="A trial has no reward: its tests wrote no reward file",
            cause="The test script of the task failed before it wrote /logs/verifier/reward.txt.",
            fix="Read the verifier's output of that trial (test-stdout.txt): mostly a download or a missing program.",
            source="harbor/verifier/verifier.py",
            fires="RewardFileNotFoundError: No reward file found at /logs/verifier/reward.txt",
            spares="INFO RewardFile found",
        ),
        Text(
            "trial-agent-failed",
            "NonZeroAgentExitCodeError",
            r"(?P<what>NonZero)AgentExitCodeError: ",
            "NonZeroAgentExitCodeError: Command failed (exit 1): claude --verbose",
            "INFO NonZeroAgentExitCodeError is a name",
        ),
    ),
    *family(
        Signature(
            id="sandbox-session-ended",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"Container process terminated",
            needle="Container process terminated",
            title="The connection to a sandbox's runtime was lost",
            cause="The container ended (out of memory, out of time, removed), or its server inside died.",
            fix="See how the container ended (docker ps -a, OOMKilled), and give it more memory or time.",
            command="docker ps -a --latest; docker inspect --format '{{{{.State}}}}' CONTAINER",
            source="SWE-ReX",
            fires="RuntimeError: Container process terminated.",
            spares="INFO the Container process is running",
        ),
        Text(
            "sandbox-session-runtime",
            "AgentRuntime",
            r"AgentRuntime(?:Disconnected|Unavailable|NotFound|NotReady)Error",
            "AgentRuntimeDisconnectedError: 502 Server Error",
            "INFO AgentRuntime is ready",
            "OpenHands",
        ),
        Text(
            "sandbox-session-not-started",
            "DeploymentNotStartedError: ",
            r"DeploymentNotStartedError: ",
            "swerex.exceptions.DeploymentNotStartedError: Deployment not started",
            "INFO DeploymentNotStartedError is a name",
        ),
    ),
    *family(
        Signature(
            id="tmux-no-server",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"no server running on (?P<path>\S{1,200})",
            needle="no server running on ",
            title="No tmux runs here ({path})",
            cause=(
                "Its last session ended (the command in it exited), it was killed, or another user's tmux is "
                "meant."
            ),
            fix="Start the session anew, and keep a shell in it so that it outlives the command.",
            command="tmux ls; ls -l /tmp/tmux-*",
            source="tmux",
            fires="no server running on /tmp/tmux-0/default",
            spares="INFO a server running on /tmp/tmux-0/default",
        ),
        Text(
            "tmux-no-socket",
            "error connecting to ",
            r"error connecting to (?P<path>/\S{1,200}) \((?:No such file or directory|Connection refused)\)",
            "error connecting to /tmp/tmux-1000/default (No such file or directory)",
            "INFO no error connecting to /tmp/tmux-1000/default",
        ),
        Text(
            "tmux-no-session",
            "can't find ",
            r"can't find (?:session|pane|window): ?(?P<path>[\w.%@-]{0,100})",
            "can't find session: agent",
            "INFO can find session: agent",
        ),
    ),
)
