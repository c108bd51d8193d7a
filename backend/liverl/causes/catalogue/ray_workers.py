"""Signatures of workers of Ray: their registration, their environment, and what is sent to them."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="ray-unregistered-worker",
        component="ray",
        role="cause",
        pattern=r"(?:Unable|Failed) to register worker (?:with|\w{0,80} ?to) [Rr]aylet",
        needle=" to register worker ",
        title="Ray's workers could not register: too few real CPUs or processes allowed",
        cause=(
            "A worker that Ray started did not reach its raylet: Ray counts more CPUs than Slurm or the "
            "container allows, or a process limit is reached."
        ),
        fix="Set ray.num_cpus to the number of CPUs that nproc prints, and check ulimit -u.",
        command="nproc; ulimit -u",
        source="github.com/ray-project/ray/issues/21479",
        fires=(
            "core_worker.cc:451: Failed to register worker "
            "01000000ffffffffffffffffffffffffffffffffffffffffffffffff to Raylet. IOError: [RayletClient] "
            "Unable to register worker with raylet. Unknown error"
        ),
        spares="(raylet) Registered worker 01000000 with raylet",
    ),
    Signature(
        id="ray-worker-registration-timeout",
        component="ray",
        role="waits",
        pattern=(
            r"Some workers of the worker process\s?\((?P<pid>\d{1,10})\) have not registered within the "
            r"timeout\. (?P<state>The process is [^\n]{1,80})"
        ),
        needle="have not registered within the timeout",
        title="A Ray worker (pid {pid}) did not start in time",
        cause="Ray started worker {pid}, and it did not register. {state}",
        fix=(
            "Look in the Ray session's worker-*.err for what stopped it: slow imports from a network "
            "file system, too few CPUs (ray.num_cpus), or a crash while importing."
        ),
        command="ls -t /tmp/ray/session_latest/logs/worker-*.err | head",
        source="github.com/RLinf/RLinf/issues/227",
        fires=(
            "(raylet) [2025-10-31 17:10:05,847 E 24507 24507] (raylet) worker_pool.cc:586: Some workers "
            "of the worker process(27991) have not registered within the timeout. The process is dead, "
            "probably it crashed during start."
        ),
        spares="(raylet) worker_pool.cc:265: Starting worker process with pid 27991",
    ),
    Signature(
        id="ray-unpicklable",
        component="ray",
        role="cause",
        pattern=r"Could not serialize the (?:function|actor class|argument) (?P<what>[^\n]{1,120})",
        needle="Could not serialize the",
        title="Ray cannot send an object to a worker: it cannot be copied",
        cause=(
            "{what} holds something that cannot be copied to another process, such as a lock, a socket "
            "or an open file."
        ),
        fix="Create that object inside the worker instead of passing it.",
        source="Ray python/ray/_private/serialization.py",
        fires=(
            "TypeError: Could not serialize the argument <__main__.Agent object at 0x7f> for a task or "
            "actor __main__.run:"
        ),
        spares="DEBUG serialization.py:12 -- serialize the function __main__.run: 1204 bytes",
    ),
    Signature(
        id="ray-runtime-env",
        component="ray",
        role="cause",
        pattern="RuntimeEnvSetupError: Failed to set up runtime environment",
        needle="RuntimeEnvSetupError: Failed to set up runtime environment",
        title="Ray could not prepare the runtime environment of a worker",
        cause=(
            "Ray's runtime_env (working directory, pip packages, variables) could not be made on a node; "
            "the lines below say why."
        ),
        fix="Read the lines below it; paths must exist on every node and packages must be reachable.",
        source="Ray python/ray/exceptions.py",
        fires=(
            "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.\nCould not create "
            "the actor because its associated runtime env failed to be created."
        ),
        spares="INFO runtime_env_agent.py:88 -- Set up runtime environment in 1.2 seconds",
    ),
    Signature(
        id="ray-actor-killed",
        component="ray",
        role="cause",
        pattern=(
            r"class_name: (?P<actor>\S{1,120})\n[\s\S]{0,400}?The actor is dead because it was killed by `ray\.kill`"
        ),
        needle="The actor is dead because it was killed by `ray.kill`",
        title="A program ended the Ray actor {actor} on purpose (ray.kill)",
        cause="Something called ray.kill for {actor}; Ray does not say who, and what waits for the actor fails.",
        fix=(
            "Look what was done to the run at that time (a supervisor, an own script, a restart of replicas), and "
            "start the run again: training goes on from its newest checkpoint."
        ),
        source="recordings/verl_cpu/fail_server_actor_killed.stderr.log",
        fires=(
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: "
            "FakeVLLMHttpServer\n\tactor_id: 14632583196e1f02c71d378601000000\n\tpid: 10486\n\tname: vllm_server_0_0\n"
            "\tnamespace: liverl\n\tip: 192.0.2.2\nThe actor is dead because it was killed by `ray.kill`."
        ),
        spares=(
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: "
            "FakeVLLMHttpServer\n\tactor_id: 14632583196e1f02c71d378601000000\nThe actor is dead because its worker "
            "process has died."
        ),
        recorded=True,
    ),
)
