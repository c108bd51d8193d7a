"""Conditions under which a key is used. Each is a yes-or-no question about a configuration ``c``."""

from __future__ import annotations

from msgspec.structs import replace

from liverl.agents.harbor.config import composed, in_cluster
from liverl.config import sizing, trainer_mode
from liverl.config.carrier import agent_loop, carrier
from liverl.config.schema import RunConfig
from liverl.config.sections.run import HARBOR
from liverl.config.sections.verl import AGENT_LOOPS, OUR_LOOPS
from liverl.engines import ENGINES

AUTO_HOST = "auto"  # of proxy.host: loopback, and the gateway of Docker's bridge where sandboxes need it
ANY_HOST = ("0.0.0.0", "::")  # listen addresses that stand for all addresses of this machine


def always(c: RunConfig) -> bool:
    """For keys that every run uses."""
    return True


def never(c: RunConfig) -> bool:
    """For keys that are used in no further case."""
    return False


def notifies(c: RunConfig) -> bool:
    """Whether anybody is told of the run's events."""
    return bool(c.notify.targets)


def notifies_alerts(c: RunConfig) -> bool:
    """Whether anybody is told of alerts."""
    return notifies(c) and "alert" in c.notify.events


def serves_metrics(c: RunConfig) -> bool:
    """Whether Prometheus can read the run's metrics."""
    return c.observe.metrics_port > 0


def managed(c: RunConfig) -> bool:
    """Whether the run starts its replicas itself."""
    return c.run.topology == "managed"


def through_sessions(c: RunConfig) -> bool:
    """Whether the trials go through sessions, which record them as tokens, and not through LiteLLM."""
    return carrier(c) == "sessions"


def in_workers(c: RunConfig) -> bool:
    """Whether verl's agent-loop workers host the sessions, and the run starts no proxy."""
    return c.run.topology == "in_process"


def session_service(c: RunConfig) -> bool:
    """Whether the sessions are a service of the run."""
    return through_sessions(c) and not in_workers(c)


def our_proxy(c: RunConfig) -> bool:
    """Whether the run starts LiteLLM."""
    return not command(c) and not in_workers(c)


def session_scheduler(c: RunConfig) -> bool:
    """Whether requests of sessions wait while their replica's KV cache is nearly full."""
    return session_service(c) and c.session_proxy.scheduler.enabled


def engine_reads(c: RunConfig, key: str) -> bool:
    """Whether the run starts the replicas itself and their engine uses ``key``."""
    return managed(c) and key in ENGINES[c.run.engine].keys


def needs_gpus(c: RunConfig) -> bool:
    """Whether the run starts replicas on GPUs itself."""
    return managed(c) and bool(ENGINES[c.run.engine].gpus)


def on_cpus(c: RunConfig) -> bool:
    """Nothing of the run computes on GPUs. Of a launch script that is not known."""
    if managed(c):
        return not ENGINES[c.run.engine].gpus
    return verl_trainer(c) and c.verl.device == "cpu"


def fully_async(c: RunConfig) -> bool:
    """Whether verl's fully asynchronous trainer runs."""
    return not managed(c) and trainer_mode.fully_async(c)


def batch_size(c: RunConfig) -> bool:
    """Whether a step is a batch of ``train_batch_size`` prompts."""
    return embedded_or_verl(c) and not fully_async(c)


def embedded_trainer(c: RunConfig) -> bool:
    """Whether liverl's own trainer runs."""
    return c.trainer.kind == "embedded"


def embedded_or_verl(c: RunConfig) -> bool:
    """Whether the embedded trainer or verl is the trainer; the run configures both."""
    return c.trainer.kind in ("embedded", "verl")


def verl_trainer(c: RunConfig) -> bool:
    """Whether the run starts verl itself."""
    return c.trainer.kind == "verl"


def command(c: RunConfig) -> bool:
    """Whether the user's launch script is the trainer."""
    return c.trainer.kind == "command"


def verl_or_command(c: RunConfig) -> bool:
    """Whether verl or the user's launch script is the trainer."""
    return verl_trainer(c) or command(c)


def our_loop(c: RunConfig) -> bool:
    """Whether an agent loop of liverl's runs inside verl."""
    return verl_trainer(c) and agent_loop(c) in OUR_LOOPS


def runs_programs(c: RunConfig) -> bool:
    """Whether rows may be run by the program ``agent.command``."""
    return our_loop(c) and bool(c.agent.command)


def harbor(c: RunConfig) -> bool:
    """Whether rows may be run by Harbor: rows of its tasks, or those that name it."""
    return our_loop(c) and (c.agent.kind == "harbor" or HARBOR in c.environments)


def harbor_class(c: RunConfig) -> bool:
    """Whether a class of the user's makes the sandboxes of Harbor's trials."""
    return harbor(c) and bool(c.harbor_agent.environment_import_path)


def harbor_docker(c: RunConfig) -> bool:
    """Whether Harbor's trials use Docker, or a class of the user's that may."""
    return harbor_class(c) or (harbor(c) and (c.harbor_agent.environment_type or "docker") == "docker")


def compose_sandboxes(c: RunConfig) -> bool:
    """Whether Harbor makes the sandboxes of its trials by Docker's Compose, with its own class."""
    return harbor(c) and composed(c.harbor_agent.environment_type, c.harbor_agent.environment_import_path)


def bridged(c: RunConfig) -> bool:
    """Whether the sessions also listen at the gateway of Docker's bridge, for agents in sandboxes."""
    return c.proxy.host == AUTO_HOST and session_service(c) and compose_sandboxes(c)


def labelled_sandboxes(c: RunConfig) -> bool:
    """Whether these sandboxes have the run's labels."""
    return compose_sandboxes(c) and c.sandboxes.labels


def swept_sandboxes(c: RunConfig) -> bool:
    """Whether the run removes what its trials left in Docker or Kubernetes."""
    return sweepable_sandboxes(c) and c.sandboxes.sweep


def sweepable_sandboxes(c: RunConfig) -> bool:
    """Whether it is known which containers or pods are the run's."""
    return labelled_sandboxes(c) or pods(c)


def pods(c: RunConfig) -> bool:
    """Whether the sandboxes of Harbor's trials are pods of a cluster, as far as the configuration tells."""
    agent = c.harbor_agent
    return harbor(c) and in_cluster(agent.environment_type, agent.environment_import_path, c.k8s.kubeconfig)


def harbor_cluster(c: RunConfig) -> bool:
    """Whether Harbor's trials use a cluster that takes a namespace, or a class of the user's that may."""
    return harbor_class(c) or (harbor(c) and c.harbor_agent.environment_type in ("ack", "openshift"))


def harbor_limits(c: RunConfig) -> bool:
    """Whether the sandboxes of Harbor's trials have limits of their own."""
    return harbor(c) and c.harbor_agent.environment_type != "local"


def harbor_image(c: RunConfig) -> bool:
    """Whether Harbor mounts an image with the agent's runtime."""
    return harbor(c) and bool(c.harbor_agent.runtime_image)


def own_agent_loop(c: RunConfig) -> bool:
    """Whether an agent loop that the user wrote runs inside verl."""
    return verl_trainer(c) and c.verl.agent_loop not in AGENT_LOOPS


def reads_variables(c: RunConfig) -> bool:
    """Whether code outside of liverl and verl (a launch script, the user's agent loop) gets LiveRL's variables. Every
    key that is exported as a variable then counts as used."""
    return command(c) or own_agent_loop(c)


def embedded_or_reads_variables(c: RunConfig) -> bool:
    """Whether the embedded trainer runs, or code outside of liverl and verl gets LiveRL's variables."""
    return embedded_trainer(c) or reads_variables(c)


def limits_trials(c: RunConfig) -> bool:
    """Whether liverl or a launch script or agent loop of the user's uses the timeout of a trial."""
    return our_loop(c) or embedded_or_reads_variables(c)


def logs_to_wandb(c: RunConfig) -> bool:
    """Whether a trainer that can log to wandb runs and wandb is not disabled. A launch script has its own mode."""
    return command(c) or (verl_trainer(c) and c.credentials.wandb_mode != "disabled")


def counts_replicas(c: RunConfig) -> bool:
    """Whether ``trainer.overrides`` change the number of replicas that a launch script is expected to start. The script
    itself does not receive them."""
    without = replace(c, trainer=replace(c.trainer, overrides={}))
    return command(c) and sizing.expected_replicas(c) != sizing.expected_replicas(without)


def trains(c: RunConfig) -> bool:
    """Whether the run has a trainer."""
    return c.trainer.kind != "none"


def vllm_in_verl(c: RunConfig) -> bool:
    """Whether verl's vLLM processes, a launch script or the user's agent loop get the variables for vLLM."""
    return (verl_trainer(c) and c.verl.device == "cuda") or reads_variables(c)


def our_ray(c: RunConfig) -> bool:
    """Whether the run starts verl itself, and Ray unless ``ray.address`` names a cluster."""
    return not managed(c) and verl_trainer(c)


def our_head(c: RunConfig) -> bool:
    """Whether the run starts its own Ray head."""
    return our_ray(c) and not c.ray.address


def our_sessions(c: RunConfig) -> bool:
    """Whether the run starts sessions: as a service, or in verl's workers."""
    return through_sessions(c) and not command(c)


def sessions_or_reads_variables(c: RunConfig) -> bool:
    """Whether the run starts sessions, or code outside of liverl and verl gets LiveRL's variables."""
    return our_sessions(c) or reads_variables(c)


def run_key(c: RunConfig) -> bool:
    """Whether agents need the run's key: LiteLLM asks for it, or a launch script gets it."""
    return our_proxy(c) or command(c)


def restarts_services(c: RunConfig) -> bool:
    """Whether the run starts a service that is restarted when it fails."""
    return our_proxy(c) or (not command(c) and c.trainer.restart == "from_checkpoint")


def several_hosts(c: RunConfig) -> bool:
    """Whether the run starts verl on more than this host."""
    return our_ray(c) and c.infrastructure.nnodes > 1


def joined_hosts(c: RunConfig) -> bool:
    """Whether other hosts join the Ray head that the run starts."""
    return our_head(c) and several_hosts(c)


def node0_ip(c: RunConfig) -> bool:
    """Whether ``infrastructure.node0_ip`` is used: as a variable, in the URLs of sessions that listen on all
    addresses, or by the other hosts of a run on several."""
    everywhere = c.proxy.host in ANY_HOST and not c.proxy.advertise
    return reads_variables(c) or (session_service(c) and everywhere) or several_hosts(c)


def litellm_port(c: RunConfig) -> bool:
    """Whether ``infrastructure.litellm_port`` is used: by LiteLLM, or as a variable."""
    return our_proxy(c) or reads_variables(c)


def ray_port(c: RunConfig) -> bool:
    """Whether ``infrastructure.ray_port`` is used, by our Ray head or as a variable."""
    return our_head(c) or reads_variables(c)


def ray_dashboard_port(c: RunConfig) -> bool:
    """Whether ``infrastructure.ray_dashboard_port`` is used: of our Ray head, of an existing cluster whose dashboard
    address is not given, or as a variable."""
    return ray_port(c) or (our_ray(c) and not c.ray.dashboard_address)


def any_ray(c: RunConfig) -> bool:
    """Whether replicas are looked up in a Ray cluster, whoever started it."""
    return our_ray(c) or (not managed(c) and command(c))


def foreign_head(c: RunConfig) -> bool:
    """Whether replicas are looked up in a Ray cluster that the run did not start."""
    return any_ray(c) and (bool(c.ray.address) or command(c))


def cpu_replicas(c: RunConfig) -> bool:
    """Whether verl runs with liverl's own replicas on the CPU."""
    return our_ray(c) and c.verl.device == "cpu"


def not_command(c: RunConfig) -> bool:
    """Whether the run starts its services itself, the proxy included, and so can restart them."""
    return not command(c)


def verl_venv(c: RunConfig) -> bool:
    """Whether ``environment.venv_path`` is used: as verl's environment unless ``environments.verl`` names one, or as a
    variable."""
    return reads_variables(c) or (verl_trainer(c) and not c.environments["verl"].venv_path)


def late_replica(c: RunConfig) -> bool:
    """Whether the fault ``embedded.faults.late_replica`` is on."""
    return c.embedded.faults.late_replica.seconds > 0
