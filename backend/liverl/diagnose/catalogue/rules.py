"""All rules for a run in progress, with how long each must hold and may linger.

A rule is a pure function of a snapshot (and the one before) that yields symptoms. It uses only its own evidence, and
yields nothing where another rule reports the cause: rewards that are all zero are no symptom of their own where no
trial called a tool.
"""

from __future__ import annotations

from liverl.causes.verdict.ray_shortage import ID as RAY_SHORTAGE
from liverl.diagnose.catalogue import (
    agents,
    asynchronous,
    batch_ends,
    boot,
    clients,
    disks,
    files,
    gone_astray,
    gradients,
    learning,
    live_logs,
    load,
    memory,
    metrics,
    notifying,
    off_policy,
    pods,
    processes,
    progress,
    ray_waits,
    responses,
    rows,
    sampling,
    sandboxes,
    services,
    serving,
    sessions,
    step_times,
)
from liverl.diagnose.tracker import Rule

UNLISTED_S = 30.0  # a ready replica waits for weights and for the proxy's new list: seconds, seldom more
LACKING_S = 7.0  # a proxy that was told of its new list has loaded it in one or two seconds
RESTARTED_S = 60.0  # a service that stays up for so long has recovered
MISSING_S = 10.0  # Ray reports the exit of verl's replicas some seconds before their trainer exits
LATE_S = 600.0  # a large model is loaded within ten minutes
PAUSED_S = 300.0  # between two rollouts, an idle or slow replica cannot be detected
SLOW_S = 75.0  # longer than the minute over which answers are averaged: no single answer can hold it
RECOVERED_S = 120.0  # two minutes without it: between two rollouts a cache is empty
STEPS_S = 600.0  # a share that differs from step to step is one alert, not many
RECENT_S = 600.0  # for rules that count new requests: cleared after so long without one

# These need only a run's files; the others need the facts of its backend.
FILE_RULES = (
    Rule(services.service_down, linger=0.0, alerts=services.DOWN_ALERTS),
    Rule(files.file_unreadable, linger=0.0),
    Rule(agents.zero_tool_calls, linger=60.0),
    Rule(agents.trials_failed, linger=60.0),
    Rule(sandboxes.sandbox_build_failed, linger=60.0),
    Rule(sandboxes.trials_fail_in_setup, linger=60.0),
    Rule(agents.trials_not_trained, linger=60.0),
    Rule(rows.rows_damaged, linger=60.0, alerts=rows.DAMAGES),
    Rule(agents.trained_past_the_proxy, linger=0.0),
    Rule(sampling.sampled_otherwise, linger=60.0),
    Rule(learning.rewards_equal),
    Rule(learning.groups_equal),
    Rule(learning.groups_mostly_equal, linger=STEPS_S),
    Rule(learning.rollout_mismatch),
    Rule(learning.learning_rate_zero),
    Rule(learning.trajectories_dropped),
    Rule(metrics.metrics_not_finite, linger=0.0),
    Rule(metrics.reward_flat),
    Rule(metrics.gradient_zero, linger=0.0),
    Rule(metrics.gradient_starved, linger=0.0),
    Rule(metrics.entropy_collapsed, linger=0.0),
    Rule(metrics.kl_exploded, linger=0.0),
    Rule(metrics.turns_collapsed, linger=0.0),
    Rule(asynchronous.waits_for_the_other, linger=0.0, alerts=asynchronous.IDLES),
    Rule(asynchronous.samples_dropped, linger=0.0),
    Rule(metrics.critic_collapsed, linger=0.0),
    Rule(gone_astray.entropy_rises, linger=0.0),
    Rule(gone_astray.length_explodes, linger=0.0),
    Rule(gone_astray.reward_fell, linger=0.0),
    Rule(gradients.gradient_grows, linger=0.0),
    Rule(gradients.gradient_spikes, linger=0.0),
    Rule(off_policy.weights_not_delivered, linger=0.0),
    Rule(off_policy.sample_size_low, linger=0.0),
    Rule(off_policy.rollouts_partial, linger=0.0),
    Rule(responses.truncated_share, linger=0.0),
    Rule(responses.responses_aborted, linger=0.0),
    Rule(step_times.steps_slow_down, linger=0.0),
    Rule(sessions.rewrites_jump),
    Rule(sessions.sub_agents_dominate),
    Rule(sessions.asides_dominate),
)
RULES = (
    *FILE_RULES,
    Rule(services.run_failed, linger=0.0),
    Rule(processes.process_stopped, linger=0.0, stands=True),
    Rule(processes.process_blocked, linger=0.0, stands=True),
    Rule(progress.trainer_stalled, linger=0.0, stands=True),
    Rule(services.proxy_down, linger=0.0),
    Rule(services.service_backing_off, linger=RESTARTED_S),
    Rule(services.service_restarted, linger=0.0),
    Rule(serving.policy_changed, linger=0.0),
    Rule(serving.weights_requested, linger=0.0),
    Rule(serving.replica_missing, hold=MISSING_S, linger=0.0),
    Rule(boot.replica_boots_late, linger=0.0, alerts={"replica_late": ""}),
    Rule(serving.replica_late, hold=LATE_S, linger=0.0),
    Rule(serving.replica_idle, linger=PAUSED_S),
    Rule(serving.replica_slow, hold=SLOW_S, linger=PAUSED_S),
    Rule(load.prefix_cache_thrashes, hold=load.HOLD_S, linger=RECOVERED_S),
    Rule(load.kv_cache_below_demand, hold=load.HOLD_S, linger=RECOVERED_S),
    Rule(load.replicas_unbalanced, hold=load.HOLD_S, linger=0.0),
    Rule(load.replica_sleeps, hold=load.HOLD_S, linger=load.BURST_S, gap=load.BURST_S),
    Rule(load.gpus_loaded_but_idle, hold=load.HOLD_S, linger=load.BURST_S, gap=load.BURST_S),
    Rule(serving.replica_unlisted, hold=UNLISTED_S, linger=0.0),
    Rule(serving.proxy_lacks_replica, hold=LACKING_S, linger=0.0, alerts={"replica_unlisted": ""}),
    Rule(serving.proxy_cooled_down),
    Rule(agents.agents_silent, hold=agents.SILENT_S, linger=0.0),
    Rule(agents.trials_do_not_begin, linger=0.0),
    Rule(sessions.session_silent, linger=0.0),
    Rule(sessions.tokens_differ, linger=60.0),
    Rule(sessions.session_process_ended, linger=0.0),
    Rule(sandboxes.sandboxes_unreachable, hold=sandboxes.AWAY_S, linger=0.0),
    Rule(sandboxes.sandboxes_address_gone, hold=sandboxes.AWAY_S, linger=0.0),
    Rule(sandboxes.sandbox_networks_used_up, linger=30.0),
    Rule(sandboxes.sandboxes_left, hold=sandboxes.LEFT_S, linger=0.0),
    Rule(sandboxes.sandbox_oom, linger=RECENT_S),
    Rule(pods.pods_in_trouble, linger=60.0, alerts=pods.IN_TROUBLE),
    Rule(pods.pods_slow_start, linger=0.0),
    Rule(pods.pods_refused_by_quota, linger=60.0),
    Rule(pods.kubeconfig_readable, linger=0.0),
    Rule(agents.trials_unattributed, linger=RECENT_S),
    Rule(agents.model_unknown, linger=RECENT_S),
    Rule(agents.key_refused, linger=RECENT_S),
    Rule(agents.request_too_large, linger=RECENT_S),
    Rule(agents.records_lost, linger=RECENT_S),
    Rule(serving.proxy_descriptors, linger=60.0),
    Rule(serving.proxy_clients, linger=RECENT_S),
    Rule(clients.connection_flood, linger=60.0),
    Rule(clients.sessions_descriptors, linger=60.0),
    Rule(disks.disk_low),
    Rule(batch_ends.batch_end_unsaved, linger=0.0),
    Rule(notifying.notify_failing, linger=0.0),
    Rule(memory.memory_fills),
    Rule(ray_waits.group_waits, hold=ray_waits.GROUP_HOLD_S, linger=0.0, alerts={RAY_SHORTAGE: ""}),
    Rule(ray_waits.actor_waits, hold=ray_waits.HOLD_S, linger=0.0, alerts={RAY_SHORTAGE: ""}),
    Rule(live_logs.logged, alerts={"log": ""}),
    Rule(live_logs.requests_fail, alerts={"responses_*": ""}),
    Rule(live_logs.requests_undated, alerts={"requests_undated": ""}),
    Rule(live_logs.log_flood, linger=0.0),
)
