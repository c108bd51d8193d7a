"""Signatures of sandboxes: pods, containers, graders."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
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
        request=True,
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
        request=True,
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
        request=True,
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
        request=True,
        source="LiveRL documentation, symptom V4",
        fires="/tests/test.sh: line 9: uv: command not found",
        spares="/tests/test.sh: line 9: uv: command found at /usr/bin/uv",
    ),
    Signature(
        id="kubernetes-api-error",
        component="python",
        role="cause",
        pattern=r"Kubernetes API error: (?P<why>[^\n]{1,160})",
        needle="Kubernetes API error:",
        title="The Kubernetes API refused a request of the sandboxes",
        cause="The cluster's API server answered: {why}.",
        fix="Check the cluster (kubectl get --raw /readyz), k8s.kubeconfig and the rights of its account.",
        command="kubectl get --raw /readyz",
        severity="warning",
        alive=True,
        request=True,
        source="LiveRL documentation, symptom R10",
        fires="Kubernetes API error: (500) Reason: Internal Server Error",
        spares="Kubernetes API: 3 pods created, 0 errors",
    ),
    Signature(
        id="pod-unschedulable",
        component="python",
        role="cause",
        pattern=r"0/(?P<nodes>\d{1,6}) nodes are available: (?P<why>[^\n]{1,200})",
        needle=" nodes are available:",
        title="No node of the cluster takes a sandbox's pod (0 of {nodes})",
        cause="Kubernetes cannot place the pod: {why}",
        fix=(
            "Free disk or memory on the nodes that it names, or remove the taint; kubectl describe node says "
            "which condition a node has."
        ),
        command="kubectl describe nodes | grep -A8 Conditions",
        severity="warning",
        alive=True,
        request=True,
        source="Kubernetes scheduler, event FailedScheduling; LiveRL documentation, symptom R8",
        fires=(
            "Warning  FailedScheduling  0/4 nodes are available: 4 node(s) had untolerated taint "
            "{node.kubernetes.io/disk-pressure: }. preemption: 0/4 nodes are available"
        ),
        spares=(
            "Normal  Scheduled  Successfully assigned default/task-1 to node-3; 4/4 nodes are available: all"
        ),
    ),
    Signature(
        id="node-not-ready",
        component="python",
        role="cause",
        pattern=r"Node (?P<node>\S{1,120}) status is now: NodeNotReady",
        needle="status is now: NodeNotReady",
        title="Node {node} of the sandboxes stopped answering",
        cause=(
            "The node's kubelet is gone, often since a pod without a memory limit took all of its memory."
        ),
        fix=(
            "Set harbor_agent.environment_override_memory_mb so that pods have a limit, and restart or "
            "replace {node}."
        ),
        command="kubectl describe node {node}",
        severity="warning",
        alive=True,
        gone=True,
        source="Kubernetes node controller; LiveRL documentation, symptom R9",
        fires="Warning  NodeNotReady  Node worker-7 status is now: NodeNotReady",
        spares="Normal  NodeReady  Node worker-7 status is now: NodeReady",
    ),
    Signature(
        id="pod-container-missing",
        component="python",
        role="cause",
        pattern=r"container not found \(\\?\"(?P<container>[\w.-]{1,80})",
        needle="container not found (",
        title="A sandbox's container {container} never started",
        cause=(
            "A command was sent to a pod whose container {container} does not run: its image could not "
            "be pulled."
        ),
        fix=(
            "Look at kubectl describe pod for the reason (usually the image), and make the image available to "
            "every node."
        ),
        command="kubectl get pods; kubectl describe pods | grep -A5 Events",
        alive=True,
        request=True,
        source="kubelet, remote command; LiveRL documentation, symptom V3",
        fires='container not found ("main")',
        spares='pod not found ("task-1")',
    ),
    Signature(
        id="docker-unreachable",
        component="python",
        role="cause",
        pattern=(
            r"Cannot connect to the Docker daemon at (?P<address>[^\s]{1,200}?)\. Is the docker daemon "
            r"running"
        ),
        needle="Cannot connect to the Docker daemon at",
        title="The Docker daemon of the sandboxes does not answer",
        cause=(
            "Nothing answers at {address}: the daemon is down, a firewall is between, or the address is "
            "wrong."
        ),
        fix=(
            "Start it, or set harbor_agent.docker_host to one that answers (docker info tells); over the "
            "network it listens on 2376 with TLS."
        ),
        command="docker info",
        alive=True,
        request=True,
        source="docker CLI; LiveRL documentation, symptom R15",
        fires=("Cannot connect to the Docker daemon at tcp://10.0.0.9:2376. Is the docker daemon running?"),
        spares="Connected to the Docker daemon at tcp://10.0.0.9:2376",
    ),
    Signature(
        id="docker-compose-missing",
        component="python",
        role="cause",
        pattern=r"docker: (?:'compose' is not a docker command|unknown command: docker compose)",
        needle="docker: ",
        title="Docker has no compose command here, which the sandboxes need",
        cause="The Compose V2 plugin is not installed for this docker CLI.",
        fix=(
            "Install docker-compose-plugin (or put it into ~/.docker/cli-plugins); docker compose "
            "version must work."
        ),
        command="docker compose version",
        alive=True,
        request=True,
        source="docker CLI; LiveRL documentation, symptom R14",
        fires="docker: 'compose' is not a docker command.\nSee 'docker --help'",
        spares="docker: 'compose' is a docker command since 2022",
    ),
    Signature(
        id="docker-shadowed",
        component="python",
        role="cause",
        pattern=r"ImportError: cannot import name 'DockerClient' from 'docker'",
        needle="cannot import name 'DockerClient'",
        title="A folder named docker hides Python's docker package",
        cause=(
            "Python found a folder docker/ on its path before the docker SDK, or the SDK is not installed."
        ),
        fix="Install the package docker in that environment, and start where no folder docker/ lies.",
        command="python -c 'import docker; print(docker.__path__)'",
        source="CPython; LiveRL documentation, symptom R13",
        fires="ImportError: cannot import name 'DockerClient' from 'docker' (unknown location)",
        spares="ImportError: cannot import name 'SamplingParams' from 'vllm' (unknown location)",
    ),
    Signature(
        id="grader-parsers-missing",
        component="python",
        role="cause",
        pattern=r"rebench-[Vv]2(?: parsers not found|/lib/agent/log_parsers\.py[^\n]{0,60}No such file)",
        needle="rebench-",
        title="The grader's parsers are missing in the sandbox, so every reward is 0",
        cause=(
            "The task's image clones SWE-rebench-V2 from the internet while it runs, and the sandbox "
            "cannot reach it."
        ),
        fix=(
            "Clone it once to shared storage and mount it read-only at /opt/rebench-v2 "
            "(harbor_agent.host_path_mounts)."
        ),
        alive=True,
        request=True,
        source="LiveRL documentation, symptom R1",
        fires="SWE-rebench-V2 parsers not found",
        spares="SWE-rebench-V2 results starts here",
    ),
    Signature(
        id="agent-not-installed",
        component="python",
        role="cause",
        pattern=(
            r"bash: (?P<command>mini|claude|codex|gemini|qwen|opencode|openhands|aider|goose|sweagent|cursor-agent): "
            "command not found"
        ),
        needle=": command not found",
        title="The agent {command} is not installed in a sandbox, so its reward is 0",
        cause="The installation of {command} in the sandbox failed, and the trial went on without it.",
        fix=(
            "Read what its installation printed above; bake the agent into the image, or install it into a virtual "
            "environment where pip is externally managed."
        ),
        alive=True,
        request=True,
        source="transcripts of a public Terminal-Bench run",
        fires="bash: mini: command not found",
        spares="run.sh: line 3: mini: command not found",
    ),
    Signature(
        id="sandbox-runtime-start",
        component="python",
        role="cause",
        pattern=r"TimeoutError: Runtime did not start within (?P<seconds>[\d.]{1,10})",
        needle="Runtime did not start within",
        title="A sandbox's runtime did not start within {seconds} s",
        cause="SWE-ReX started the container, and its server in the sandbox never answered.",
        fix=(
            "Read the container's output above: the image needs Python and swe-rex (swerex-remote), or a way "
            "to install them."
        ),
        alive=True,
        request=True,
        source="SWE-ReX deployment; SWE-agent issue 996",
        fires="TimeoutError: Runtime did not start within 180.0s",
        spares="INFO Runtime did start within 4.2s",
    ),
)
