"""Signatures of Ray's runtime environments, jobs and agents."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="ray-runtime-env-pip",
        component="ray",
        role="cause",
        pattern=r"(?:No matching distribution found for (?P<package>[^\n]{1,120}))",
        needle="No matching distribution found for ",
        title="pip does not find the package {package}",
        cause=(
            "No package index that pip asks offers {package} for this Python: a misspelt name, a version "
            "that does not exist, or no network."
        ),
        fix=(
            "Correct it where the packages are listed (Ray's runtime_env pip, requirements.txt); without a "
            "network install it into the environment before."
        ),
        source="pip _internal/resolution",
        fires="ERROR: No matching distribution found for does-not-exist",
        spares="INFO matching distribution found for verl",
    ),
    Signature(
        id="ray-runtime-env-job",
        component="ray",
        role="consequence",
        pattern="runtime_env setup failed: ",
        needle="runtime_env setup failed: ",
        title="Ray could not prepare the runtime environment of the job",
        fix=("Read the lines below it; paths must exist on every node and packages must be reachable."),
        source="Ray dashboard/modules/job",
        fires="Status message: runtime_env setup failed: Failed to set up runtime environment.",
        spares="INFO runtime_env setup finished",
    ),
    Signature(
        id="ray-runtime-env-directory",
        component="ray",
        role="cause",
        pattern=(
            r"Something may have gone wrong while installing the runtime_env `(?P<what>\w{1,20})` packages"
        ),
        needle="Something may have gone wrong while installing the runtime_env",
        title="Ray's {what} packages of the runtime environment are not installed on a node",
        cause=(
            "The folder into which Ray installs them is missing there: the installation failed, or its files "
            "were deleted."
        ),
        fix=(
            "Read runtime_env_setup-*.log of that node's Ray session; installing the packages into the "
            "environment itself is safer than runtime_env."
        ),
        command="tail -50 /tmp/ray/session_latest/logs/runtime_env_setup-*.log",
        source="Ray _private/runtime_env/pip.py",
        fires=(
            "ValueError: Local directory /tmp/ray/session_1/runtime_resources/pip/49 for URI pip://49 does "
            "not exist on the cluster. Something may have gone wrong while installing the runtime_env `pip` "
            "packages."
        ),
        spares="INFO runtime_env `pip` packages are installed",
    ),
    Signature(
        id="ray-runtime-env-raylet",
        component="ray",
        role="consequence",
        pattern="(?:Fails to create or get|Failed to create) runtime env",
        needle=" runtime env",
        title="Ray could not prepare the runtime environment of a worker",
        fix=(
            "Read runtime_env_agent.log and runtime_env_setup-*.log in the logs of that node's Ray session."
        ),
        tells=True,
        source="Ray src/ray/raylet/worker_pool.cc",
        fires=(
            "[2025-12-03 11:16:18,892 E 52 52] (raylet) worker_pool.cc:1550: Fails to create or get runtime "
            "env [Node 10.0.0.8]"
        ),
        spares="INFO Created runtime env in 3 s",
    ),
    Signature(
        id="ray-package-size",
        component="ray",
        role="cause",
        pattern=(
            r"Package size \((?P<size>[\d.]{1,20} ?\w{0,4})\) exceeds the maximum size of "
            r"(?P<most>[\d.]{1,20} ?\w{0,4})"
        ),
        needle="exceeds the maximum size of ",
        title="The working directory ({size}) is too large for Ray to copy",
        cause="Ray copies runtime_env's working_dir to all nodes and takes at most {most}.",
        fix=(
            "Exclude data, checkpoints and .git (runtime_env excludes, .gitignore), or start from a folder "
            "that all nodes share, without working_dir."
        ),
        source="Ray _private/runtime_env/packaging.py",
        fires=(
            "ValueError: Package size (1210.50MiB) exceeds the maximum size of 500.00MiB. You can exclude "
            "large files using the 'excludes' option to the runtime_env"
        ),
        spares="INFO Package size (12.50MiB) is below the maximum size of 500.00MiB",
    ),
    Signature(
        id="ray-jobs-unreachable",
        component="ray",
        role="cause",
        pattern=r"Failed to connect to Ray at address: (?P<address>[^\s]{1,200}?)\.?(?:\s|\Z)",
        needle="Failed to connect to Ray at address: ",
        title="Ray's job server at {address} cannot be reached",
        cause=(
            "No Ray dashboard answers there: the head is not up, another port is used, or a proxy "
            "(http_proxy) takes the request."
        ),
        fix=(
            "Check ray status on the head and the port of its dashboard (8265); set no_proxy for its address."
        ),
        command="curl -sS {address}/api/version",
        source="Ray dashboard/modules/dashboard_sdk.py",
        fires="ConnectionError: Failed to connect to Ray at address: http://127.0.0.1:8265.",
        spares="INFO Connected to Ray at address: http://127.0.0.1:8265",
    ),
    Signature(
        id="ray-job-supervisor",
        component="ray",
        role="cause",
        pattern=(
            r"Job supervisor actor (?P<why>failed to start within (?:[\d.]{1,12}) seconds|could not be "
            "scheduled)"
        ),
        needle="Job supervisor actor ",
        title="Ray did not start the job: its supervisor {why}",
        cause=(
            "The process that runs a job's command needs a free CPU on the head, and did not get it or did "
            "not start."
        ),
        fix=(
            "Look with ray status whether the head has free CPUs (ray start --num-cpus), and read the head's "
            "raylet.out."
        ),
        command="ray status",
        source="Ray dashboard/modules/job/job_manager.py",
        fires="Job supervisor actor failed to start within 900.0 seconds.",
        spares="INFO Job supervisor actor started",
    ),
    Signature(
        id="ray-job-failed",
        component="ray",
        role="consequence",
        pattern=r"Job entrypoint command failed with exit code (?P<code>-?\d{1,4})",
        needle="Job entrypoint command failed with exit code ",
        title="The command of the Ray job exited with code {code}",
        fix=(
            "Read the job's own output above, or ray job logs; a negative code is the signal that ended it."
        ),
        source="Ray dashboard/modules/job/job_supervisor.py",
        fires=(
            "Status message: Job entrypoint command failed with exit code 1, last available logs (truncated "
            "to 20,000 chars):"
        ),
        spares="Job entrypoint command finished",
    ),
    Signature(
        id="ray-job-status",
        component="ray",
        role="consequence",
        pattern=r"Job '(?P<job>[^'\n]{1,120})' failed",
        needle="Job '",
        title="Ray reports that job {job} failed",
        fix="Read the job's own output (ray job logs), above and below.",
        source="Ray dashboard/modules/job/cli.py",
        fires="Job 'raysubmit_fufX4B3GcxYVxBdW' failed",
        spares="0 tasks of Job 'raysubmit_fufX4B3GcxYVxBdW' have failed",
    ),
    Signature(
        id="ray-process-exited",
        component="ray",
        role="consequence",
        pattern=(
            "(?P<process>raylet|gcs_server|dashboard|log_monitor|monitor|ray_client_server|reaper|redis_serve"
            r"r) \[exit code=(?P<code>\d{1,4})\]"
        ),
        needle=" [exit code=",
        title=("Ray's process {process} exited with code {code}, so ray start --block ended the node"),
        fix=(
            "Read {process}.out and {process}.err in the logs of that node's Ray session: a port that is "
            "taken, another Ray on the host, too few resources or an old session are usual."
        ),
        command=(
            "ls -t /tmp/ray/session_latest/logs | head; tail -30 /tmp/ray/session_latest/logs/{process}.*"
        ),
        tells=True,
        source="Ray python/ray/scripts/scripts.py",
        fires="2022-05-06 05:26:10,101 ERR scripts.py:896 -- raylet [exit code=1]",
        spares="raylet exit code",
    ),
    Signature(
        id="ray-processes-exited",
        component="ray",
        role="consequence",
        pattern="Some Ray subpro?cesses exited unexpectedly",
        needle="cesses exited unexpectedly",
        title="A process of Ray's node exited, so ray start --block ended the node",
        fix=(
            "Read the lines that follow for which one, then its .out and .err in the logs of that node's Ray "
            "session."
        ),
        source="Ray python/ray/scripts/scripts.py",
        fires=("2022-05-06 05:26:10,101 ERR scripts.py:889 -- Some Ray subprcesses exited unexpectedly:"),
        spares="INFO all Ray subprocesses exited",
    ),
    Signature(
        id="ray-rest-killed",
        component="ray",
        role="noise",
        pattern="Remaining processes will be killed",
        needle="Remaining processes will be killed",
        title="ray start ends what is left of a node",
        source="Ray python/ray/scripts/scripts.py",
        fires="2022-05-06 05:26:10,101 ERR scripts.py:901 -- Remaining processes will be killed.",
        spares="INFO Remaining processes: 3",
    ),
    Signature(
        id="ray-agent-failed",
        component="ray",
        role="consequence",
        pattern=(
            "The raylet exited immediately because (?:one|the) Ray agent failed(?:, agent_name = "
            r"(?:\w{1,40}))?"
        ),
        needle="The raylet exited immediately because ",
        title="A helper of Ray's node (an agent) ended, and the node with it",
        fix=(
            "Read dashboard_agent.log and runtime_env_agent.log of that node's Ray session: a port that is "
            "taken, a wrong grpcio, or no memory are usual."
        ),
        command=(
            "tail -30 /tmp/ray/session_latest/logs/dashboard_agent.log "
            "/tmp/ray/session_latest/logs/runtime_env_agent.log"
        ),
        tells=True,
        source="Ray src/ray/raylet/agent_manager.cc",
        fires=(
            "(raylet) agent_manager.cc:83: The raylet exited immediately because one Ray agent failed, "
            "agent_name = dashboard_agent/424238335."
        ),
        spares="The raylet exited because the Ray agent stopped",
    ),
    Signature(
        id="ray-metrics-agent",
        component="ray",
        role="noise",
        pattern="Failed to establish connection to the metrics exporter agent",
        needle="Failed to establish connection to the metrics exporter agent",
        title="Ray's metrics are not exported",
        source="Ray src/ray/core_worker/core_worker_process.cc",
        fires=(
            "core_worker_process.cc:837: Failed to establish connection to the metrics exporter agent. "
            "Metrics will not be exported."
        ),
        spares="connection to the metrics exporter agent established",
    ),
)
