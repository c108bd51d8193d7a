"""Signatures of Ray's actors and objects."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
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
        effect=True,
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
)
