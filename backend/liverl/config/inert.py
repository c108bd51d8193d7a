"""Why a key is inert: the reasons shown to a user who set it."""

from __future__ import annotations

from collections.abc import Callable

from liverl.config import conditions as when
from liverl.config.env_vars import variables_set
from liverl.config.schema import RunConfig
from liverl.config.trainer_mode import trainer_mode
from liverl.engines import ENGINES
from liverl.model import MIRRORED

Why = Callable[[RunConfig], str]


def never(c: RunConfig) -> str:
    """No reason of its own: the key is always used, or ``unread`` gives the reason."""
    return ""


def sentence(text: str) -> Why:
    """A reason that is the same in every configuration."""
    return lambda c: text


def trial_key(embedded: str, verl: str = "") -> Why:
    """The reason for a key of training, depending on the trainer. ``embedded`` and ``verl``: the reason under that one;
    "" where the key is used there or ``unread`` gives the reason."""

    def why(c: RunConfig) -> str:
        if c.trainer.kind == "none":
            return "trainer.kind is none: no trainer runs"
        if c.trainer.kind == "command":
            return MIRRORED
        return verl if c.trainer.kind == "verl" else embedded

    return why


def vllm_key(c: RunConfig) -> str:
    """The reason for a key of vLLM."""
    if when.managed(c):
        return f"{ENGINES[c.run.engine].title} is not vLLM"
    if when.verl_trainer(c):
        return "verl.device is cpu: the replicas are not vLLM"
    return MIRRORED


def embedded_engine_key(what: str) -> Why:
    """The reason for a key of the embedded engine. ``what``: ``setting`` or ``fault``."""
    return lambda c: f"only the embedded engine has this {what}: run.engine is {c.run.engine}"


def wandb_key(c: RunConfig) -> str:
    """The reason for wandb's API key."""
    if when.verl_or_command(c):
        return "credentials.wandb_mode is disabled"
    return NO_WANDB(c)


def restart_key(c: RunConfig) -> str:
    """The reason for ``trainer.restart``."""
    return "trainer.kind is none: no trainer runs" if c.trainer.kind == "none" else STARTED_ONCE


def fully_async_key(c: RunConfig) -> str:
    """The reason for a key of verl's fully asynchronous trainer."""
    if not when.our_ray(c):
        return ray_key("")(c)
    return f"verl.trainer_mode is {trainer_mode(c)}, not fully_async"


def verl_key(c: RunConfig) -> str:
    """The reason for a key of verl's own rows, tools and rewards."""
    return trial_key("the embedded trainer has its own tasks and rewards")(c)


def agent_key(c: RunConfig) -> str:
    """The reason for a key of ``agent``."""
    if not when.verl_trainer(c):
        return verl_key(c)
    if not when.our_loop(c):
        return f"verl.agent_loop {c.verl.agent_loop} is not liverl's"
    return "agent.command is not set"


def reward_key(c: RunConfig) -> str:
    """The reason for ``reward.kwargs``."""
    return "reward.function is not set" if when.verl_trainer(c) else verl_key(c)


def harbor_key(
    c: RunConfig, embedded: str = "the embedded trainer uses its own agent and tools, not Harbor's"
) -> str:
    """The reason for a key of Harbor's trials. ``embedded``: the one under the embedded trainer."""
    reason = f"no row is run by Harbor: agent.kind is {c.agent.kind}, and environments.harbor is not set"
    if when.verl_trainer(c) and not when.our_loop(c):
        reason = f"verl.agent_loop {c.verl.agent_loop} is not liverl's"
    return trial_key(embedded, reason)(c)


def _of_harbor(reason: str) -> Why:
    return lambda c: reason if when.harbor(c) else harbor_key(c)


def _of_sandboxes(reason: str) -> Why:
    pods = "embedded trials run in local directories, not in pods"
    return lambda c: reason if when.harbor(c) else harbor_key(c, pods)


_SAMPLED = "the trainer decides how replies are sampled, whatever an agent asks for"
temperature_key = trial_key(
    f"{_SAMPLED}: algorithm.temperature",
    f"{_SAMPLED}: algorithm.temperature, and algorithm.val_temperature in validations",
)
image_key = _of_harbor("harbor_agent.runtime_image is not set")
pod_key = _of_sandboxes("only a class of your own reads it: harbor_agent.environment_import_path is not set")
cluster_key = _of_sandboxes(
    "harbor_agent.environment_type is none of ack and openshift, and harbor_agent.environment_import_path is not set"
)
limits_key = _of_sandboxes("environment_type local limits neither CPUs nor memory")
docker_key = _of_sandboxes("harbor_agent.environment_type is not docker")
container_key = _of_sandboxes("harbor_agent.environment_type makes neither containers nor pods")


def sweep_key(c: RunConfig) -> str:
    """The reason for a key about what trials leave in Docker or Kubernetes."""
    if when.sweepable_sandboxes(c):
        return "sandboxes.sweep is false"
    return "sandboxes.labels is false" if when.compose_sandboxes(c) else container_key(c)


def notify_key(c: RunConfig) -> str:
    """The reason for a key of ``notify``."""
    return "notify.events has no alert" if when.notifies(c) else "notify.targets is empty: nothing is sent"


def started_once(c: RunConfig) -> str:
    """The reason for a key of restarts in a run whose services are started once."""
    return (
        STARTED_ONCE if when.command(c) else "no service of this run is restarted: trainer.restart is never"
    )


def late_replica_key(c: RunConfig) -> str:
    """The reason for ``embedded.faults.late_replica.index``."""
    return ENGINE_ONLY(c) if c.run.engine != "embedded" else "embedded.faults.late_replica.seconds is 0"


def venv_key(c: RunConfig) -> str:
    """The reason for ``environment.venv_path``."""
    if when.managed(c):
        return "only verl runs in this environment; topology managed uses environments.proxy and environments.vllm"
    return "environments.verl.venv_path overrides it"


def no_ray(attached: str = "") -> Why:
    """The reason for a key of the Ray head. ``attached``: the reason in a run that uses an existing cluster."""
    return lambda c: "topology managed does not start Ray" if when.managed(c) else attached


def ray_key(ours: str) -> Why:
    """The reason for a key of Ray or verl. ``ours``: the reason in a run that starts them itself."""

    def why(c: RunConfig) -> str:
        if c.run.topology == "managed":
            return "topology managed does not start Ray or verl"
        return "your launch script starts Ray and verl" if when.command(c) else ours

    return why


def no_sessions(c: RunConfig) -> str:
    """The reason for a key of the sessions."""
    if when.command(c):
        return "your launch script starts the proxy"
    if when.in_workers(c):
        return WORKERS_LISTEN
    return f"the trials go through LiteLLM: proxy.trials_through is {c.proxy.trials_through}"


def scheduler_key(c: RunConfig) -> str:
    """The reason for a key of ``session_proxy.scheduler``."""
    return "session_proxy.scheduler.enabled is false" if when.session_service(c) else no_sessions(c)


def no_proxy(c: RunConfig) -> str:
    """The reason for a key of LiteLLM, or of what carries the trials."""
    return "your launch script starts the proxy" if when.command(c) else WORKERS_LISTEN


WORKERS_LISTEN = "in topology in_process verl's agent-loop workers host the sessions, each on a free port"
STARTED_ONCE = "your launch script is not restarted"
RAY_RUNS = "ray.address names an existing cluster"
NO_WANDB = trial_key("the embedded trainer does not log to wandb")
NO_DATA = trial_key("the embedded trainer has its own training tasks and reads no data files")
NO_VALIDATION = trial_key("the embedded trainer runs no validation")
NO_GPU_TRAINING = trial_key("the embedded policy is a small table without this setting")
NO_ALGORITHM = trial_key("the embedded trainer is GRPO with a clipped token ratio, without this setting")
NO_METRICS = sentence("no metrics are served: observe.metrics_port is 0")
ENGINE_ONLY = embedded_engine_key("fault")
TRAINER_ONLY = sentence("only the embedded trainer has this fault: trainer.kind is not embedded")

CPU_ONLY = ray_key("only replicas with verl.device cpu have this fault")


def unread(config: RunConfig, key: str) -> str:
    """The reason for a key that is only exported as variables, with their names."""
    names = ", ".join(variables_set(config, key))
    nothing = f"nothing under trainer.kind {config.trainer.kind} reads it"
    return f"exported as {names}; {nothing}" if names else nothing
