"""Signatures of Ray's actors and objects, its ports and its head."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="ray-given-up-old",
        component="ray",
        role="cause",
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
        fires=("[2022-02-16 12:46:52,789 C 149 149] node_manager.cc:170: This node has beem marked as dead."),
        spares="This node has joined; none marked as dead",
    ),
    Signature(
        id="ray-given-up-heartbeats",
        component="ray",
        role="cause",
        pattern="GCS didn't receive heartbeats (?:from this node )?(?:for|within)",
        needle="GCS didn't receive heartbeats ",
        title="Ray's head got no heartbeats from this node and gave it up",
        cause="The node's raylet was overloaded, stopped, or cut off from the head for too long.",
        fix=(
            "Look at the load and the memory of that host at that time, and at its network; leave it some "
            "CPUs (ray.num_cpus lower)."
        ),
        command="ray status; dmesg -T | tail",
        source="Ray src/ray/raylet/node_manager.cc",
        fires=(
            "[2022-09-16 13:13:46,502 C 2116 2116] (raylet) node_manager.cc:999: [Timeout] Exiting because "
            "this node manager has mistakenly been marked as dead by the GCS: GCS didn't receive heartbeats "
            "from this node for 30000 ms."
        ),
        spares="INFO GCS did receive heartbeats",
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
        id="ray-actor-unschedulable",
        component="ray",
        role="cause",
        pattern=r"The (?:actor|task) is not schedulable: (?P<why>[^\n]{1,200})",
        needle=" is not schedulable: ",
        title="Ray can place an actor nowhere",
        cause="Ray says: {why}",
        fix=(
            "Look with ray list nodes whether its node is gone; start it again, or restart the run on the "
            "nodes that are left."
        ),
        command="ray list nodes; ray status",
        source="Ray python/ray/exceptions.py",
        fires=(
            "ray.exceptions.ActorUnschedulableError: The actor is not schedulable: The node specified via "
            "NodeAffinitySchedulingStrategy doesn't exist any more or is infeasible, and soft=False was "
            "specified."
        ),
        spares="The actor is schedulable: yes",
    ),
    Signature(
        id="ray-actor-node-died",
        component="ray",
        role="consequence",
        pattern=r"The actor died because its node has died\. Node Id: (?P<node>\w{1,80})",
        needle="The actor died because its node has died",
        title="A Ray actor was lost with its node",
        fix=(
            "Look why the node went: its raylet.out, dmesg (memory), the network, or a preemption; ray list "
            "nodes shows which it is."
        ),
        command="ray list nodes",
        source="Ray python/ray/exceptions.py",
        fires="The actor died because its node has died. Node Id: 9773b3cedec83f2a48b6cfe6",
        spares="The actor moved to another node",
    ),
    Signature(
        id="ray-owner-died",
        component="ray",
        role="consequence",
        pattern="The actor is dead because its owner has died",
        needle="The actor is dead because its owner has died",
        title="A Ray actor or object was lost with the process that had made it",
        fix="Look for the first error of that other process, usually the driver or TaskRunner.",
        source="Ray python/ray/exceptions.py",
        fires=(
            "The actor is dead because its owner has died. Owner Id: 02000000ffff Owner Ip address: 10.0.0.4 "
            "Owner worker exit type: INTENDED_USER_EXIT"
        ),
        spares="The actor is alive, its owner died not",
    ),
    Signature(
        id="ray-out-of-scope",
        component="ray",
        role="cause",
        pattern="The actor is dead because all references to the actor were removed",
        needle="all references to the actor were removed",
        title="A Ray actor ended because the program dropped its last handle",
        cause="Nobody held the actor any more, so Ray ended it while somebody still called it.",
        fix=('Keep the actor\'s handle as long as it is used, or create it with lifetime="detached".'),
        source="Ray src/ray/gcs",
        fires=(
            "The actor is dead because all references to the actor were removed including lineage ref count."
        ),
        spares="INFO all references to the object were removed",
    ),
    Signature(
        id="ray-object-lost",
        component="ray",
        role="consequence",
        pattern=(
            r"ray\.exceptions\.(?:ObjectLostError|ObjectReconstructionFailed\w{0,60}|ObjectFetchTimedOutError|"
            "ReferenceCountingAssertionError|ObjectFreedError|OwnerDiedError)"
        ),
        needle="ray.exceptions.",
        title="An object of Ray was lost, with its node or because nobody held it",
        fix=(
            "Look for the node or worker that ended before (ray list nodes, raylet.out), and for full object "
            "stores."
        ),
        command="ray list nodes; ray memory",
        source="Ray python/ray/exceptions.py",
        fires=(
            "ray.exceptions.ObjectLostError: Failed to retrieve object 00ff. To see information about where "
            "this ObjectRef was created in Python, set the environment variable "
            "RAY_record_ref_creation_sites=1"
        ),
        spares="ray.exceptions are listed below",
    ),
    Signature(
        id="ray-get-timeout",
        component="ray",
        role="consequence",
        pattern=r"GetTimeoutError: Get timed out: some object\(s\) not ready",
        needle="GetTimeoutError: Get timed out",
        title="A call to a Ray actor did not return in time",
        fix=(
            "Look what that actor does or waits for (py-spy dump of its pid, ray status), and for errors of "
            "other processes before it."
        ),
        command="ray status",
        source="Ray python/ray/exceptions.py",
        fires="ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.",
        spares="Get returned in time: all objects ready",
    ),
    Signature(
        id="ray-named-actor-missing",
        component="ray",
        role="consequence",
        pattern=r"Failed to look up actor with name '(?P<name>[^'\n]{1,160})'",
        needle="Failed to look up actor with name '",
        title="Ray has no actor named {name} (any more)",
        fix="Look for the error that ended it, or whether it was started in another namespace.",
        command="ray list actors",
        source="Ray python/ray/_private/worker.py",
        fires=(
            "ValueError: Failed to look up actor with name 'global_pool'. This could because 1. You are "
            "trying to look up a named actor you didn't create."
        ),
        spares="Found actor with name 'global_pool'",
    ),
    Signature(
        id="verl-register-center",
        component="verl",
        role="cause",
        pattern=r"Failed to get register_center_actor(?: with name)? (?P<name>\S{1,120})",
        needle="Failed to get register_center_actor",
        title="verl's workers did not find rank 0 in time (register center)",
        cause=(
            "The first worker of the group did not start, or leftovers of an earlier run hold its name or "
            "its resources in this Ray."
        ),
        fix=(
            "Look for errors of the first worker; restart Ray if a run before was killed, or raise "
            "ray_wait_register_center_timeout in verl's trainer section."
        ),
        command="ray list actors; ray status",
        source="verl single_controller/ray/base.py",
        fires=(
            "TimeoutError: Failed to get register_center_actor with name gxgUtgWorkerDict_register_center "
            "from ['a'] for 300 seconds. Ensure that any lingering Ray resources from previous runs are "
            "cleaned up"
        ),
        spares="register_center_actor found",
    ),
    Signature(
        id="native-check-failed",
        component="ray",
        role="cause",
        pattern=(
            r"(?:^|\n|: )[ \t]{0,2}Check failed: (?!server_ Failed to start the grpc|_s\.ok\(\) Bad status: "
            r"IOError: )(?P<what>[^\n]{1,60})"
        ),
        needle="Check failed: ",
        title="A check inside Ray or another native library failed",
        cause=(
            "The check that failed is: {what}. It found a state that should not occur, so the library ended "
            "the process."
        ),
        fix=(
            "Look for an earlier error of its node (a lost raylet, full memory or disk); use the same Ray "
            "version everywhere; if it recurs, it is a bug of that library to report with this line."
        ),
        command="ls -t /tmp/ray/session_latest/logs | head",
        source="Ray src/ray/util/logging.h",
        fires=(
            "(TaskRunner pid=2915) [2025-07-06 07:14:27,052 C 2915 2915] task_receiver.cc:219:  Check "
            "failed: objects_valid "
        ),
        spares="INFO health check: none failed",
    ),
    Signature(
        id="ray-worker-lost-raylet",
        component="ray",
        role="consequence",
        pattern=r"Check failed: _s\.ok\(\) Bad status: IOError: (?P<why>[^\n]{1,80})",
        needle="Check failed: _s.ok() Bad status: IOError: ",
        title="A Ray worker lost its node's raylet or object store ({why})",
        fix=(
            "Look why the raylet of that node ended: raylet.out and raylet.err of its Ray session, dmesg "
            "(memory), and the free space of /dev/shm and Ray's directory."
        ),
        command="tail -30 /tmp/ray/session_latest/logs/raylet.out",
        tells=True,
        source="Ray src/ray/core_worker/store_provider/plasma_store_provider.cc",
        fires=(
            "(raylet) [2023-05-08 23:36:25,536 C 69654 69654] plasma_store_provider.cc:75:  Check failed: "
            "_s.ok() Bad status: IOError: Connection reset by peer"
        ),
        spares="INFO Check passed: _s.ok() Bad status: none",
    ),
    Signature(
        id="ray-workers-unregistered",
        component="ray",
        role="cause",
        pattern=(
            r"Some workers of the worker process\s?\((?P<pid>\d{1,10})\) have not registered to raylet within "
            "timeout"
        ),
        needle="have not registered to raylet within timeout",
        title="Ray's workers do not start in time (pid {pid} and others)",
        cause=(
            "Ray started workers that did not register: too many actors at once for the CPUs, slow imports "
            "from a network file system, or a crash while importing."
        ),
        fix=(
            "Start fewer actors at a time, set ray.num_cpus to what nproc prints, and look into worker-*.err "
            "of the Ray session."
        ),
        command="nproc; ls -t /tmp/ray/session_latest/logs/worker-*.err | head",
        source="Ray src/ray/raylet/worker_pool.cc",
        fires=(
            "(pid=raylet) I0807 17:00:41.812642 71814 71814 worker_pool.cc:265] Some workers of the worker "
            "process(76769) have not registered to raylet within timeout."
        ),
        spares=("INFO workers of the worker process(76769) have registered to raylet within timeout"),
    ),
    Signature(
        id="ray-pending-creation",
        component="ray",
        role="cause",
        pattern=(r"(?P<actor>[\w.:-]{1,100}) (?:is|stays|stayed)(?: still)?(?: in)? PENDING_CREATION"),
        needle=" PENDING_CREATION",
        title="Ray cannot place the actor {actor}: no node has room",
        cause="{actor} waits for CPUs, GPUs or a certain node that is full or gone.",
        fix=(
            "Look with ray status what is free; lower what the run asks for, raise ray.num_cpus, or end "
            "leftovers that hold resources."
        ),
        command="ray status; ray list actors --filter state=PENDING_CREATION",
        source="github.com/verl-project/verl/pull/7382",
        fires=("RuntimeError: Rollout server actor vllm_server_0_0 is still PENDING_CREATION after 600s"),
        spares="INFO actors in PENDING_CREATION: 0",
    ),
    Signature(
        id="ray-unreadable-exception",
        component="ray",
        role="cause",
        pattern="Failed to unpickle serialized exception",
        needle="Failed to unpickle serialized exception",
        title="A worker failed with an exception that cannot be shown here",
        cause=(
            "Its class cannot be made again in this process (another version of a package, or a class that "
            "pickles badly, as torch.compile's BackendCompilerFailed), so the message is lost."
        ),
        fix=(
            "Read the worker's own lines (worker-*.err of its Ray session): they hold the exception. If its "
            "class is of torch.compile, switch compilation off (verl.use_torch_compile)."
        ),
        command="grep -l Error /tmp/ray/session_latest/logs/worker-*.err",
        source="Ray python/ray/exceptions.py",
        fires=("ray.exceptions.RaySystemError: System error: Failed to unpickle serialized exception"),
        spares="INFO unpickle serialized exception: done, none failed",
    ),
    Signature(
        id="ray-train-failed",
        component="ray",
        role="consequence",
        pattern="TrainingFailedError: ",
        needle="TrainingFailedError: ",
        title="Ray Train reports that the run failed",
        fix="Read the first error before it, of the worker that failed.",
        source="Ray python/ray/train",
        fires=(
            "ray.train.base_trainer.TrainingFailedError: The Ray Train run failed. Please inspect the "
            "previous error messages for a cause."
        ),
        spares="INFO TrainingFailedError is handled",
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
)
