"""Signatures of Ray's cluster: nodes, connections, workers."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="ray-no-node-type",
        component="ray",
        role="cause",
        pattern=(
            r"No available node types can fulfill resource request (?:defaultdict\(<class 'float'>, "
            r")?\{(?P<asked>[^{}\n]{1,200})\}"
        ),
        needle="No available node types can fulfill resource request",
        title="Ray has no node that offers {asked}",
        cause=(
            "Something asks for {asked} at once, and no node of this Ray cluster has that much, so it "
            "waits for ever."
        ),
        fix=(
            "Ask for less or give more: infrastructure.ngpus_per_node (verl's trainer.n_gpus_per_node) "
            "and ray.num_cpus must fit the cluster; check that CUDA_VISIBLE_DEVICES does not hide GPUs."
        ),
        command="ray status",
        source="recordings/cases/37-ray-placement-pending-then-interrupted.log",
        fires=(
            "Error: No available node types can fulfill resource request defaultdict(<class 'float'>, "
            "{'CPU': 8.0, 'GPU': 8.0}). Add suitable node types to this cluster to resolve this issue."
        ),
        spares="Adding 1 node(s) of type worker.",
    ),
    Signature(
        id="ray-cannot-schedule",
        component="ray",
        role="cause",
        pattern=(
            r"The actor or task with ID (?P<id>\w{1,80}) cannot be scheduled right now\. It requires "
            r"(?P<asked>\{[^\n]{1,200}?\}) for placement"
        ),
        needle="cannot be scheduled right now",
        title="A Ray actor waits for {asked}, which no node has free",
        cause="An actor asks for {asked}, and no node of the cluster has that much free.",
        fix="Stop what holds the resources, or ask for less: infrastructure.ngpus_per_node, ray.num_cpus.",
        command="ray status",
        severity="warning",
        alive=True,
        source="Ray src/ray/raylet/node_manager.cc",
        fires=(
            "The actor or task with ID ffffffffffffffff63964fa4841d4a2ecb45751801000000 cannot be "
            "scheduled right now. It requires {GPU: 1.000000}, {CPU: 1.000000} for placement, but this "
            "node only has remaining {23.000000/24.000000 CPU}"
        ),
        spares="The actor with name TaskRunner was scheduled on node 8a",
    ),
    Signature(
        id="ray-node-dead",
        component="ray",
        role="waits",
        effect=True,
        pattern=(
            r"The node with node id: (?P<id>\w{1,80}) and address: (?P<node>\S{1,80}) and node name: "
            r"\S{1,80} has been marked dead because the detector has missed too many heartbeats from it"
        ),
        needle="has been marked dead because the detector has missed too many heartbeats",
        title="Ray lost node {node}: it no longer answers",
        cause=(
            "Node {node} sent no heartbeats: its raylet was killed, the host is overloaded or down, or "
            "the network is cut."
        ),
        fix=(
            "Check the host (memory, dmesg, network) and its raylet.out; restart Ray there and then the "
            "run, or leave the node out (infrastructure.nnodes)."
        ),
        command="ray list nodes",
        source="Ray gcs_node_manager.cc, published as an error to the driver",
        fires=(
            "The node with node id: 5d2a49fdc3e8 and address: 10.0.0.9 and node name: 10.0.0.9 has been "
            "marked dead because the detector has missed too many heartbeats from it. This can happen "
            "when a \t(1) raylet crashes unexpectedly (OOM, etc.) \n\t(2) raylet has lagging heartbeats due "
            "to slow network or busy workload."
        ),
        spares=(
            "The node with node id: 5d2a49fdc3e8 and address: 10.0.0.9 and node name: 10.0.0.9 was added"
        ),
    ),
    Signature(
        id="ray-part-exited",
        component="ray",
        role="cause",
        pattern=r"(?:^|\n) {0,8}(?P<part>\w{2,40}) \[exit code=(?P<code>-\d{1,3})[\] ]",
        needle=" [exit code=",
        title="Ray's {part} was killed or crashed (exit code {code}), and Ray ended",
        cause=(
            "ray start --block watches Ray's processes, and ends all of them when one exits unexpectedly. A code of -9 "
            "is a SIGKILL: of the kernel for memory, or of somebody."
        ),
        fix=(
            "Read the end of {part}.out and {part}.err in the logs of the Ray session; for code -9 look for an "
            "out-of-memory kill (dmesg, memory.events). Then start Ray again, and resume the run."
        ),
        source="tests/stack/test_verl_faults.py; Ray python/ray/scripts/scripts.py",
        fires="raylet [exit code=-9]",
        spares="----- BEGIN raylet.out tail (exit code(s)=-9 (signal 9)) -----",
        recorded=True,
    ),
    Signature(
        id="ray-not-running",
        component="ray",
        role="cause",
        pattern="ConnectionError: Could not find any running Ray instance",
        needle="Could not find any running Ray instance",
        title="There is no running Ray to connect to",
        cause=(
            'The program expected a running Ray (RAY_ADDRESS or address="auto"), and there is none on '
            "this host."
        ),
        fix=(
            "Start Ray first, or set ray.address to host:port of its head; an empty ray.address lets the "
            "run start its own."
        ),
        command="ray status",
        source="Ray python/ray/_private/services.py",
        fires=(
            "ConnectionError: Could not find any running Ray instance. Please specify the one to connect "
            "to by setting `--address` flag or `RAY_ADDRESS` environment variable."
        ),
        spares="INFO scripts.py:1200 -- Found a running Ray instance at 10.0.0.4:6379",
    ),
    Signature(
        id="ray-gcs-unreachable",
        component="ray",
        role="waits",
        effect=True,
        pattern=(
            r"Failed to connect to GCS(?: within (?P<seconds>\d{1,6}) seconds| at address "
            r"(?P<address>\S{1,80})|\. Please check)"
        ),
        needle="Failed to connect to GCS",
        title="Ray's head (GCS) cannot be reached",
        cause="The process that holds Ray's state is down, or a firewall or a wrong address is between.",
        fix=(
            "Check ray.address and that the head runs (ray status there), and that port 6379 is open "
            "from this host."
        ),
        command="ray status",
        source="Ray gcs_rpc_client.h and python/ray/_private/state.py",
        fires=(
            "ray.exceptions.RaySystemError: System error: Failed to connect to GCS. Please check if the "
            "GCS server is running and if this node can connect to the head node."
        ),
        spares="INFO gcs_utils.py:99 -- connect to GCS at address 10.0.0.4:6379: done in 2 seconds",
    ),
    Signature(
        id="ray-version-mismatch",
        component="ray",
        role="cause",
        pattern=(
            r"Version mismatch: The cluster was started with:\s{1,20}Ray: "
            r"(?P<cluster>\S{1,40})\s{1,20}Python: (?P<python>\S{1,40})\s{1,20}This process on "
            r"[^\n]{1,120} was started with:\s{1,20}Ray: (?P<ray>\S{1,40})\s{1,20}Python: "
            r"(?P<mine>\S{1,40})"
        ),
        needle="Version mismatch: The cluster was started with:",
        title="Ray {ray} (Python {mine}) cannot join a cluster of Ray {cluster} ({python})",
        cause=(
            "The cluster runs Ray {cluster} with Python {python}, and this process has Ray {ray} with "
            "Python {mine}."
        ),
        fix="Use the same environment on all hosts: the same Ray and Python, see environments.verl.",
        source="Ray python/ray/_private/utils.py check_version_info",
        fires=(
            "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: "
            "3.11.9\nThis process on node 10.0.0.5 was started with:\n    Ray: 2.49.1\n    Python: 3.11.9\n"
        ),
        spares=(
            "WARNING utils.py:1434 -- Python patch version mismatch: The cluster was started with:\n    "
            "Ray: 2.60.0"
        ),
    ),
    Signature(
        id="ray-cpus-with-cluster",
        component="ray",
        role="cause",
        pattern=(
            "When connecting to an existing cluster, (?P<what>num_cpus and "
            r"num_gpus|resources|object_store_memory|_\w{1,60}) must not be provided"
        ),
        needle="When connecting to an existing cluster,",
        title="{what} are given for a Ray that already runs",
        cause=(
            "A Ray is running (RAY_ADDRESS or ray start), and the program wants to set {what}, which "
            "only the start of Ray can."
        ),
        fix=(
            "Remove ray_kwargs.ray_init.num_cpus from trainer.overrides and set ray.num_cpus instead, or "
            "unset RAY_ADDRESS."
        ),
        source="Ray python/ray/_private/worker.py",
        fires=(
            "ValueError: When connecting to an existing cluster, num_cpus and num_gpus must not be provided."
        ),
        spares="INFO worker.py:1841 -- Connecting to existing Ray cluster at address: 10.0.0.4:6379...",
    ),
    Signature(
        id="ray-already-running",
        component="ray",
        role="cause",
        pattern=(
            r"Ray is trying to start at (?P<address>\S{1,80}), but is already running at "
            r"(?P<running>\S{1,80})\."
        ),
        needle="Ray is trying to start at",
        title="A Ray already runs at {running}",
        cause="The run wants to start its own Ray at {address}, and one runs there already.",
        fix="Use it (ray.address), stop it if it is a leftover of yours, or take another port.",
        patch={"infrastructure.ray_port": "0"},
        source="Ray python/ray/scripts/scripts.py",
        fires=(
            "ConnectionError: Ray is trying to start at 10.0.0.4:6379, but is already running at "
            "10.0.0.4:6379. Please specify a different port using the `--port` flag of `ray start` "
            "command."
        ),
        spares="INFO Ray is trying to start at 10.0.0.4:6379",
    ),
    Signature(
        id="ray-node-start-timeout",
        component="ray",
        role="waits",
        pattern=r"The current node timed out during startup\. This could happen because",
        needle="The current node timed out during startup",
        title="Ray did not start in time on this host",
        cause="Ray's raylet did not come up: it crashed while it started, or the head is overloaded.",
        fix=(
            "Read raylet.out and gcs_server.out in the logs of the Ray session; a leftover Ray or too "
            "few file handles are usual."
        ),
        command="ls -t /tmp/ray/session_latest/logs | head",
        source="Ray python/ray/_private/node.py",
        fires=(
            "Exception: The current node timed out during startup. This could happen because some of the "
            "raylet failed to startup or the GCS has become overloaded."
        ),
        spares="INFO node.py:420 -- Node started.",
    ),
    Signature(
        id="ray-nodes-missing",
        component="ray",
        role="cause",
        pattern=r"\[FATAL\] only (?P<has>\d{1,5})/(?P<wanted>\d{1,5}) nodes joined",
        needle="nodes joined",
        title="Only {has} of {wanted} nodes joined Ray",
        cause=(
            "The other nodes were not started, cannot reach the head (MASTER_ADDR), or the count is wrong."
        ),
        fix=(
            "Run the same command on every node, and check that infrastructure.nnodes is the number of "
            "training and rollout nodes and infrastructure.node0_ip the head's address."
        ),
        command="ray status",
        source="LiveRL documentation, symptom B11",
        fires="[FATAL] only 3/4 nodes joined after 300s",
        spares="[HEAD] 4/4 nodes joined",
    ),
    Signature(
        id="ray-placement-impossible",
        component="vllm",
        role="cause",
        pattern=(
            r"Cannot provide a placement group (?:requiring|of) (?P<asked>[^\n]{1,200}?) within "
            r"(?P<seconds>\d{1,7}) seconds"
        ),
        needle="Cannot provide a placement group",
        title="Ray had no room for vLLM's GPUs within {seconds} seconds",
        cause="vLLM asked Ray for {asked}, and no node had it free.",
        fix=(
            "Look with ray status who holds the GPUs (a job that was killed keeps its placement group until Ray "
            "is restarted), or lower vllm.gen_tp."
        ),
        command="ray status; ray list placement-groups",
        source="vllm/v1/executor/ray_utils.py",
        fires=(
            "ValueError: Cannot provide a placement group requiring 2.0 GPUs (placement_group_specs=[{'GPU': "
            "1.0}, {'GPU': 1.0}]) within 1800 seconds."
        ),
        spares="INFO [ray_utils.py:225] Created a placement group of 2.0 GPUs within 3 seconds",
    ),
    Signature(
        id="ray-wrong-token",
        component="ray",
        role="cause",
        pattern=r"InvalidAuthToken: Authentication token is missing or incorrect",
        needle="InvalidAuthToken: Authentication token is missing or incorrect",
        title="Ray refuses this process: it has no token, or not the cluster's",
        cause="The cluster was started with token authentication, and this process sent none or another one.",
        fix=(
            "Give it the cluster's token: ray.auth_token_file, or RAY_AUTH_TOKEN_PATH in the environment of the "
            "process; on one host both read ~/.ray/auth_token."
        ),
        command="export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=~/.ray/auth_token",
        source="tests/data/recordings/verl_cpu/fail_ray_no_token.log",
        fires=(
            "[2026-11-21 15:15:42,844 W 15453 15453] gcs_client.cc:210: Failed to get cluster ID from GCS server: "
            "Unauthenticated: RPC error: InvalidAuthToken: Authentication token is missing or incorrect"
        ),
        spares=(
            "2026-11-21 00:01:06,898 WARNING authentication_token_setup.py:85 -- Token authentication is enabled for "
            "this Ray cluster. Set RAY_AUTH_MODE=disabled to opt out."
        ),
        recorded=True,
    ),
    Signature(
        id="ray-node-given-up",
        component="ray",
        role="cause",
        pattern=(
            r"\[Timeout\] Exiting because this node manager has mistakenly been marked as dead by the GCS: GCS failed "
            r"to check the health of this node for (?P<times>\d{1,5}) times"
        ),
        needle="this node manager has mistakenly been marked as dead by the GCS",
        title="Ray's head could not reach this node and gave it up",
        cause=(
            "{times} health checks of the head failed: it cannot reach the node's address (another interface or a "
            "firewall), or the node was overloaded."
        ),
        fix=(
            "Check from the head that the node's ports answer at the address which it joined with; give ray start "
            "--node-ip-address of the right interface."
        ),
        command="ip -br address; ray status",
        source="shared/multi-node/recordings/ray_join_wrong_interface.log",
        fires=(
            "[2026-11-22 07:44:47,701 C 358 358] (raylet) node_manager.cc:971: [Timeout] Exiting because this node "
            "manager has mistakenly been marked as dead by the GCS: GCS failed to check the health of this node for 5 "
            "times. This is likely because the machine or raylet has become overloaded."
        ),
        spares=(
            "[2026-11-22 07:44:47,701 I 358 358] (raylet) node_manager.cc:971: This node manager has been marked as "
            "alive by the GCS"
        ),
        recorded=True,
    ),
)
