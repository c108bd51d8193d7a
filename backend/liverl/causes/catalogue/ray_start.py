"""Signatures of Ray's start: its ports, its head, its nodes."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="ray-given-up-old",
            component="ray",
            role="waits",
            pattern="This node has bee[mn] marked as dead",
            needle="This node has bee",
            title="Ray's head got no heartbeats from this node and gave it up",
            cause="The node's raylet was overloaded, stopped, or cut off from the head for too long.",
            fix=(
                "Look at the load and the memory of that host at that time, and at its network; leave it some "
                "CPUs (ray.num_cpus lower)."
            ),
            command="ray status; dmesg -T | tail",
            source="Ray src/ray/raylet/node_manager.cc",
            fires=(
                "[2022-02-16 12:46:52,789 C 149 149] node_manager.cc:170: This node has beem marked as dead."
            ),
            spares="This node has joined; none marked as dead",
        ),
        Text(
            id="ray-given-up-heartbeats",
            pattern="GCS didn't receive heartbeats (?:from this node )?(?:for|within)",
            needle="GCS didn't receive heartbeats ",
            fires=(
                "[2022-09-16 13:13:46,502 C 2116 2116] (raylet) node_manager.cc:999: [Timeout] Exiting because "
                "this node manager has mistakenly been marked as dead by the GCS: GCS didn't receive heartbeats "
                "from this node for 30000 ms."
            ),
            spares="INFO GCS did receive heartbeats",
        ),
    ),
    Signature(
        id="ray-grpc-port",
        component="ray",
        role="cause",
        pattern=r"Failed to start the grpc server\. The specified port is (?P<port>\d{1,5})",
        needle="Failed to start the grpc server. The specified port is ",
        title="Ray's port {port} is taken by another process",
        cause="A Ray process could not listen on port {port}: another Ray or program uses it.",
        fix=("Stop the leftover that holds it if it is yours (ss -ltnp), or start Ray with other ports."),
        command="ss -ltnp 'sport = :{port}'",
        patch={"infrastructure.ray_port": "0"},
        source="Ray src/ray/rpc/grpc_server.cc",
        fires=(
            "grpc_server.cc:120:  Check failed: server_ Failed to start the grpc server. The specified port "
            "is 6379. This means that Ray's core components will not be able to function correctly."
        ),
        spares="grpc_server.cc:140: GcsServer server started, listening on port 6379.",
    ),
    Signature(
        id="ray-port-conflict",
        component="ray",
        role="cause",
        pattern=(
            r"Ray component (?P<name>\w{1,60}) is trying to use a port number (?P<port>\d{1,5}) that is used "
            "by other components"
        ),
        needle="is trying to use a port number ",
        title="Two parts of Ray are given the same port {port}",
        cause=(
            "{name} wants port {port}, which another option of ray start or the range of worker ports holds."
        ),
        fix="Give {name} another port, or move --min-worker-port and --max-worker-port.",
        source="Ray _private/parameter.py",
        fires=(
            "ValueError: Ray component metrics_export is trying to use a port number 8080 that is used by "
            "other components."
        ),
        spares="Ray component metrics_export uses port number 8080",
    ),
    Signature(
        id="ray-session-mismatch",
        component="ray",
        role="cause",
        pattern=(r"Session name (?P<session>\S{1,120}) does not match persisted value (?P<other>\S{1,120})"),
        needle=" does not match persisted value ",
        title="This node would join another Ray than its head's",
        cause=(
            "Session {session} is wanted, and the head at that address has {other}: an old Ray still runs "
            "there, or two were started at the same time."
        ),
        fix="Stop the old Ray on these hosts, then start the head first and the others after it.",
        command="ray status",
        source="Ray python/ray/_private/node.py",
        fires=(
            "RuntimeError: Session name session_2025-01-01_1 does not match persisted value "
            "b'session_2024-12-31_9'. Perhaps there was an error connecting to Redis."
        ),
        spares="Session name matches persisted value",
    ),
    Signature(
        id="ray-head-unreachable",
        component="ray",
        role="cause",
        pattern=(
            r"Unable to connect to GCS(?: \(ray head\))? at (?P<address>[\w.:\[\]-]{1,100}?)\. Check that"
        ),
        needle="Unable to connect to GCS",
        title="Ray's head at {address} cannot be reached",
        cause=(
            "No Ray head answers at {address}: it is not up, its address is wrong, or a firewall is between."
        ),
        fix="Start the head first, check ray.address, and that port 6379 is open from this host.",
        command="ray status --address {address}",
        source="Ray python/ray/_private/services.py",
        fires=(
            "Unable to connect to GCS at 10.0.0.1:6379. Check that (1) Ray GCS with matching version started "
            "successfully at the specified address, and (2) there is no firewall setting preventing access."
        ),
        spares="INFO able to connect to GCS at 10.0.0.1:6379",
    ),
    Signature(
        id="ray-twice",
        component="ray",
        role="cause",
        pattern=r"Maybe you called ray\.init twice by accident\?",
        needle="Maybe you called ray.init twice by accident?",
        title="The program starts Ray twice",
        cause=(
            "Ray was initialised while Ray was already connected: two parts of the program call it, or a "
            "library called Ray before (which starts it by itself)."
        ),
        fix="Call it once, before all other Ray calls, or with ignore_reinit_error set.",
        source="Ray python/ray/_private/worker.py",
        fires=(
            "RuntimeError: Maybe you called ray.init twice by accident? This error can be suppressed by "
            "passing in 'ignore_reinit_error=True' or by calling 'ray.shutdown()' prior to 'ray.init()'."
        ),
        spares="INFO ray.init was called once",
    ),
    Signature(
        id="ray-no-agent",
        component="ray",
        role="cause",
        pattern="No available agent to submit job",
        needle="No available agent to submit job",
        title="Ray has no node whose agent takes the job",
        cause=(
            "The dashboard agents of the nodes do not run or have not registered: process limits (ulimit "
            "-u), a port that is taken, or nodes that have just started."
        ),
        fix=(
            "Wait until ray status shows the nodes, raise ulimit -u before ray start, and read "
            "dashboard_agent.log of the head's Ray session."
        ),
        command="ulimit -u; tail -30 /tmp/ray/session_latest/logs/dashboard_agent.log",
        source="Ray dashboard/modules/job/job_head.py; github.com/verl-project/verl/issues/768",
        fires=(
            "RuntimeError: Request failed with status code 500: No available agent to submit job, please try "
            "again later.."
        ),
        spares="INFO agent to submit job: available",
    ),
    Signature(
        id="ray-client-unreachable",
        component="ray",
        role="cause",
        pattern="ConnectionError: ray client connection timeout",
        needle="ConnectionError: ray client connection timeout",
        title="Ray's client server cannot be reached (ray://)",
        cause=(
            "The program connects with ray://, and nothing answers there: the head is down, port 10001 is "
            "not open, or another port is used."
        ),
        fix=(
            "Check the address and port, and that the head was started with --ray-client-server-port; on a "
            "node of the cluster use the address without ray://."
        ),
        command="ray status",
        source="Ray python/ray/util/client/worker.py",
        fires="ConnectionError: ray client connection timeout",
        spares="INFO ray client connection made",
    ),
    Signature(
        id="ray-redis",
        component="ray",
        role="cause",
        pattern=r"Could not establish connection to Redis (?P<address>[\w.-]{1,120}:\d{1,5})",
        needle="Could not establish connection to Redis ",
        title="Ray's head cannot reach its Redis at {address}",
        cause=("The head keeps its state in Redis (fault tolerance), and {address} does not answer."),
        fix="Start Redis, correct RAY_REDIS_ADDRESS, or start the head without it.",
        command="redis-cli -u redis://{address} ping",
        source="Ray src/ray/gcs/redis_context.cc",
        fires=(
            "[2025-02-01 10:00:00,200 E 30 30] (gcs_server) redis_context.cc:450: Failed to connect to Redis "
            "due to: Could not establish connection to Redis redis-svc:6379 (context.err = 1)."
        ),
        spares="INFO established connection to Redis redis-svc:6379",
    ),
    Signature(
        id="ray-dashboard-failed",
        component="ray",
        role="noise",
        pattern=(
            r"Failed to start the dashboard|Error should be written to 'dashboard\.log'|Couldn't read "
            r"dashboard\.log file|Failed to read dashboard\.err file"
        ),
        needle="",
        title="Ray's dashboard did not start; Ray goes on without it",
        source="Ray python/ray/_private/services.py",
        fires="2023-09-16 11:23:17,382 ERROR services.py:1207 -- Failed to start the dashboard ",
        spares="INFO the dashboard is up",
    ),
    Signature(
        id="ray-no-node-file",
        component="ray",
        role="cause",
        pattern=r"Can't find a `node_ip_address\.json` file from (?P<session>\S{1,200})",
        needle="Can't find a `node_ip_address.json` file",
        title="No Ray runs on this host, though the program wants to join one",
        cause=(
            "The head of the address belongs to {session}, and this host has no node of that Ray: it was not "
            "started here, or its temporary directory is another one."
        ),
        fix=(
            "Run ray start --address on this host first (with the same --temp-dir), or set ray.address to "
            "the Ray of this host; stop what is left of an older Ray."
        ),
        command="ray status; ls -d /tmp/ray/session_*",
        source="Ray python/ray/_private/node.py",
        fires=(
            "RuntimeError: Can't find a `node_ip_address.json` file from "
            "/tmp/ray/session_2025-07-31_22-00-00_1_1 for 60 seconds. A ray instance hasn't started."
        ),
        spares="INFO found the `node_ip_address.json` file from /tmp/ray/session_1",
    ),
)
