"""What doctor says of the logs that Ray's own processes keep: of actors and nodes that ended, as meant or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.offline.doctor.examine import examine
from liverl.offline.doctor.report import as_text

# Shortened lines of Ray 2.60: an actor killed by SIGKILL, one whose last handle was dropped, one killed by ray.kill,
# one whose __init__ raised, and a raylet killed or stopped on one of two nodes.
HEAD = (
    "[2026-11-30 22:38:20,101 I 19 19] core_worker_process.cc:107: Constructing CoreWorkerProcess. pid: 19\n"
)
WORKER_LOST = (
    "[2026-11-30 22:38:23,371 I 54 54] (raylet) node_manager.cc:1477: Disconnecting worker, graceful=false, "
    "disconnect_type=0, has_creation_task_exception=false worker_id=97d7d8c5f732 job_id=01000000\n"
    "[2026-11-30 22:38:25,937 I 54 54] (raylet) node_manager.cc:1477: Disconnecting worker, graceful=true, "
    "disconnect_type=1, has_creation_task_exception=false worker_id=af070efd1628 job_id=01000000\n"
)
DEAD = (
    "[2026-11-30 22:38:23,375 I 19 63] actor_manager.cc:236: received notification on actor, state: DEAD, ip address: "
    "192.0.2.2, port: 36265, num_restarts: 0, death context type=ActorDiedErrorContext actor_id=163d5fb388c4\n"
    "[2026-11-30 22:38:23,375 I 19 63] actor_task_submitter.cc:429: Failing pending tasks for actor because the actor "
    "is already dead. actor_id=163d5fb388c4\n"
)
TASK = (
    "[2026-11-30 22:38:23,375 I 19 63] task_manager.cc:1649: Task failed: {}: Type=ACTOR_TASK, Language=PYTHON, "
    "Resources: {{CPU: 1, }}, function_descriptor={{type=PythonFunctionDescriptor, module_name=train, "
    "class_name=WorkerDict, function_name=update_actor, function_hash=}}, task_id=e0dc174c8359, job_id=01000000\n"
)
ATTEMPT = (
    "[2026-11-30 22:46:19,153 W 19 63] task_manager.cc:1678: Task attempt c2668a65bda6 failed with error ACTOR_DIED "
    "Fail immediately? 0, status IOError: The actor was restarted, error info actor_died_error {{\n"
    '  {} {{\n    error_message: "{}"\n    class_name: "WorkerDict"\n  }}\n}}\n'
    'error_message: "{}"\nerror_type: ACTOR_DIED\n\n'
)
NODE = (
    "The actor died because its node has died. Node Id: 4091710fdfe3\\n\\tthe actor\\'s node was terminated"
)
RAISED = (
    'Traceback (most recent call last):\\n  File \\"train.py\\", line 15, in __init__\\nValueError: no model'
)
KILLED = "The actor is dead because it was killed by `ray.kill`."
TOLD = (
    "[2026-11-30 22:40:21,767 I 23480 23595] core_worker_shutdown_executor.cc:152: Executing worker exit: "
    "INTENDED_SYSTEM_EXIT - Worker exits because the actor is killed. The actor is dead because all references to the "
    "actor were removed. (timeout: -1ms)\n"
)
RAYLET_GONE = (
    "[2026-11-30 22:40:55,219 W 24084 24297] core_worker.cc:1075: Shutting down the core worker because the local "
    "raylet failed. Check out the raylet.out log file. Raylet pid: 23921\n"
)
REFUSED = (
    "[2026-11-30 22:40:53,851 W 23669 23669] (gcs_server) gcs_health_check_manager.cc:209: Health check failed for "
    "node 59b8b78a008f, remaining checks 4, status 14, response status 0, status message failed to connect to all "
    "addresses; last error: UNKNOWN: ipv4:192.0.2.2:41813: Failed to connect to remote host: Connection refused, "
    "status details \n"
)
ACTOR_FAILED = (
    "[2026-11-30 22:46:19,141 I 12 12] (gcs_server) gcs_actor_manager.cc:1515: Actor is failed on worker 27ec214ac1a1 "
    "at node 4091710fdfe3, need_reschedule = 1, death context type = ActorDiedErrorContext, remaining_restarts = {}, "
    "num_restarts = 0, num_restarts_due_to_node_preemption = 0, preempted = 0 job_id=01000000\n"
)
NODE_GONE = (
    "[2026-11-30 22:46:19,146 I 19 63] accessor.cc:475: Received address and liveness notification for node, "
    "IsAlive = 0 node_id=4091710fdfe3\n"
)
UNTOLD = "no failure was found; actors or nodes of Ray ended, meant to or not (see the notes)"
ONLY = "no failure was found; only logs of Ray itself were read (see the notes)"
# Ray 2.60: the raylet of a driver was killed; the driver called an actor, an idle one called a task later.
OWNER_GONE = (
    "The actor is dead because its owner has died. Owner Id: 01000000ffff Owner Ip address: 192.0.2.2 Owner worker "
    "exit type: SYSTEM_ERROR Worker exit detail: Owner\\'s node has crashed."
)
UNAVAILABLE = (
    "[2026-12-01 03:07:07,278 W 5687 5992] normal_task_submitter.cc:459: The worker failed to receive a response from "
    "the local raylet because the raylet is unavailable (crashed). Error: Disconnected: GRPC client is shut down.\n"
)
PARTED = (
    "[2026-12-01 03:05:31,292 I 19 19] core_worker.cc:758: Sending disconnect message to the local raylet.\n"
    "[2026-12-01 03:05:31,292 W 19 19] core_worker.cc:764: Failed to disconnect from the local raylet: IOError: Broken "
    "pipe\n"
)
BEFORE = "cause unknown: Ray's process on this node (the raylet) ended before this program"
CORE, DRIVER = "python-core-worker-97d7_19366.log", "python-core-driver-0100_19019.log"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("raylet.out", WORKER_LOST, "cause unknown: A Ray worker's process ended from outside or crashed"),
        (DRIVER, DEAD, UNTOLD),
        (
            DRIVER,
            DEAD + TASK.format("RpcError: RPC error: Socket closed rpc_code: 14"),
            "cause unknown: A call of WorkerDict.update_actor failed: its process had ended",
        ),
        (DRIVER, DEAD + TASK.format("IOError: The actor was restarted"), UNTOLD),
        (
            DRIVER,
            ATTEMPT.format("actor_died_error_context", NODE, NODE),
            "cause unknown: A Ray actor was lost with its node",
        ),
        (
            DRIVER,
            ATTEMPT.format("creation_task_failure_context", RAISED, RAISED),
            "cause unknown: A Ray actor failed while it started",
        ),
        (DRIVER, DEAD + ATTEMPT.format("actor_died_error_context", KILLED, KILLED), UNTOLD),
        (DRIVER, NODE_GONE, UNTOLD),
        (CORE, TOLD, UNTOLD),
        (
            CORE,
            RAYLET_GONE,
            "cause unknown: Ray's process on this node (the raylet) ended before its workers",
        ),
        (
            "gcs_server.out",
            REFUSED,
            "cause unknown: Ray's process on node 192.0.2.2 (the raylet) had ended",
        ),
        (
            "gcs_server.out",
            ACTOR_FAILED.format(0),
            "cause unknown: A Ray actor ended without being asked to",
        ),
        (
            DRIVER,
            DEAD + ATTEMPT.format("actor_died_error_context", OWNER_GONE, OWNER_GONE) + PARTED,
            "cause unknown: A Ray actor was lost with the node of the program that owned it",
        ),
        (DRIVER, NODE_GONE + UNAVAILABLE + PARTED, BEFORE),
        (DRIVER, NODE_GONE + PARTED, BEFORE),
        (DRIVER, PARTED.partition("\n")[0] + "\n", ONLY),
        ("gcs_server.out", ACTOR_FAILED.format(2), ONLY),  # Ray starts it again
        (CORE, "", ONLY),
    ],
)
def test_an_end_in_a_log_of_ray_itself_is_told(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(HEAD + text)
    found = examine([tmp_path / name])
    assert as_text(found, 999).partition("\n")[0] == says
    assert found.found == says.startswith("cause")


@pytest.mark.parametrize("name", ["train.log", "worker-97d7-01000000-19366.err"])
def test_beside_the_log_of_a_program_those_of_ray_are_clean(tmp_path: Path, name: str) -> None:
    (tmp_path / CORE).write_text(HEAD)
    (tmp_path / name).write_text("the training has begun\n")
    said = as_text(examine([tmp_path / CORE, tmp_path / name]), 999)
    assert said.startswith("nothing wrong was found\n") and "Ray itself" not in said


def test_what_raised_in_a_worker_comes_before_what_ray_says_of_its_end(tmp_path: Path) -> None:
    (tmp_path / "gcs_server.out").write_text(HEAD + ACTOR_FAILED.format(0))
    (tmp_path / DRIVER).write_text(
        HEAD + DEAD + TASK.format("RpcError: RPC error: Socket closed rpc_code: 14")
    )
    (tmp_path / "worker-97d7-01000000-19366.err").write_text(
        ":actor_name:WorkerDict\nTraceback (most recent call last):\n"
        '  File "/verl/dp_actor.py", line 8, in update_policy\n    loss = self.loss(batch)\n'
        "ValueError: the masks are empty\n"
    )
    cause = examine([tmp_path]).verdict.cause
    assert cause is not None and "the masks are empty" in cause.evidence[0].text
