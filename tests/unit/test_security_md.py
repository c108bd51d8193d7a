"""Each sentence of SECURITY.md names the tests that prove it, or says that there is nothing to prove.

To add a sentence: add a line to ``CLAIMS``, whose key is the sentence's beginning (as many words as tell it from the
others) and whose value the tests, as ``file::test`` below ``tests``. Sentences that promise nothing go to ``NO_CHECK``.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from pathlib import Path

import pytest
from kit.sentences import sentences

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
TRUST = "process/test_trust.py::"
GUARD = "unit/test_token_guard.py::"
WEB = "process/test_web.py::"
SENDER = "process/test_notify_sender.py::"
HOSTILE = "process/test_hostile_files.py::"
OUTLETS = "unit/test_secrets_leave_no_outlet.py::"

CLAIMS: dict[str, tuple[str, ...]] = {
    "On several hosts (`infrastructure.nnodes` > 1) all of Ray's ports": (
        "unit/test_plan_hosts.py::test_the_head_of_several_hosts_listens_where_they_reach_it",
        "unit/test_plan_hosts.py::test_one_host_stays_on_loopback",
    ),
    "They are `infrastructure.ray_port` and `ray_dashboard_port` on the first": (
        "unit/test_plan_hosts.py::test_the_head_of_several_hosts_listens_where_they_reach_it",
    ),
    # Ports
    "`infrastructure.litellm_port` 8002": ("unit/test_plan_services.py::test_the_proxy",),
    "`session_proxy.port` any": (
        "unit/test_plan_services.py::test_sessions_are_planned_where_they_carry_the_trials",
        "process/test_sessions_service.py::test_agents_get_the_address_for_sandboxes_and_both_serve",
    ),
    "sessions in topology `in_process` any": ("unit/test_verl_engine.py::test_a_trial_in_a_worker",),
    "`infrastructure.ray_port`, `ray_dashboard_port` 6379": (
        "unit/test_plan_hosts.py::test_the_head_of_several_hosts_listens_where_they_reach_it",
        "unit/test_plan_hosts.py::test_one_host_stays_on_loopback",
    ),
    "`observe.metrics_port` off": ("unit/test_exposition.py::test_only_the_loopback_address_is_listened_on",),
    "`liverl-tui web --port` 8420": (f"{WEB}test_it_listens_on_the_loopback_address_only",),
    "`liverl-tui join` executes what": (
        "process/test_join.py::test_what_cannot_be_joined",
        "process/test_join.py::test_a_directory_that_others_could_have_changed_is_refused",
    ),
    "With `auto`, a run whose trials have sandboxes in Docker": (
        "unit/test_preflight_sandbox_address.py::test_the_ports_of_the_sessions",
        "process/test_sessions_service.py::test_agents_get_the_address_for_sandboxes_and_both_serve",
        "docker/test_reach.py::test_a_container_of_the_image_says_whether_it_reaches_the_gateway",
    ),
    "With a daemon on another host it listens at": (
        "unit/test_docker_endpoint.py::test_a_daemon_on_another_host_is_told_from_one_here",
        "unit/test_preflight_sandbox_address.py::test_the_daemon_runs_on_another_host",
        "docker/test_remote_tls.py::test_a_daemon_on_another_host",
    ),
    # What is trusted
    "a launch script under `trainer.kind: command` it inherits": (
        "unit/test_plan_inherit.py::test_a_launch_script_inherits_everything_but_our_own_variables",
    ),
    "Of liverl-tui and of LiteLLM's environment a lock names": (
        "unit/test_packaging.py::test_every_package_of_a_lock_has_hashes_and_nothing_of_a_machine",
        "unit/test_packaging.py::test_readme_and_contributing_install_with_hashes",
        "unit/test_environment_lock.py::test_the_shipped_lock_is_that_of_the_default_configuration",
        "process/test_environments_build.py::test_a_lock_decides_and_its_hashes_are_checked",
    ),
    "Of other environments the requirements alone": (
        "unit/test_environment_lock.py::test_envs_says_what_pins_each",
    ),
    "`liverl-tui envs` says which is which": (
        "unit/test_environment_lock.py::test_envs_says_what_pins_each",
        "process/test_environments_build.py::test_upgrade_writes_a_lock_that_the_next_build_uses",
    ),
    # Another user
    "With umask 022, the usual one,": ("unit/test_modes.py::test_a_new_run_is_not_writable_by_others",),
    "`umask 077` in the shell before `up`": (
        "unit/test_modes.py::test_directories_are_made_with_all_their_parents",
        "unit/test_modes.py::test_a_new_run_is_not_writable_by_others",
        f"{TRUST}test_what_the_backend_writes_is_not_writable_by_others_and_services_keep_the_umask",
    ),
    "Files with keys are for you alone": (
        "unit/test_proxy_config.py::test_keys_are_made_once_and_are_ours_alone",
        "process/test_second_user.py::test_what_a_second_user_can_reach",
    ),
    # Secrets
    "Keys of your shell, such as `WANDB_API_KEY`": (
        "unit/test_plan_inherit.py::test_the_trainer_inherits_the_secrets_that_it_needs",
        "unit/test_plan_inherit.py::test_a_launch_script_inherits_everything_but_our_own_variables",
        "unit/test_plan_inherit.py::test_no_secret_is_inherited",
        "unit/test_plan_inherit.py::test_pass_env_adds_names_and_beginnings_but_secrets_only_in_full",
        "unit/test_plan_inherit.py::test_the_plan_names_what_is_withheld_and_never_its_value",
    ),
    "write what a run creates:": (
        f"{TRUST}test_what_the_backend_writes_is_not_writable_by_others_and_services_keep_the_umask",
        f"{TRUST}test_below_a_default_access_control_list_another_user_can_write_nothing_of_a_run",
        "unit/test_modes.py::test_a_new_run_is_not_writable_by_others",
        "unit/test_modes.py::test_directories_are_made_with_all_their_parents",
        "unit/test_proxy_config.py::test_keys_are_made_once_and_are_ours_alone",
        "process/test_second_user.py::test_what_a_second_user_can_reach",
    ),
    "Directories have mode 0755": (
        "unit/test_modes.py::test_a_new_run_is_not_writable_by_others",
        "unit/test_modes.py::test_directories_are_made_with_all_their_parents",
        "unit/test_proxy_config.py::test_keys_are_made_once_and_are_ours_alone",
    ),
    "Below a folder with a default access control list": (
        f"{TRUST}test_below_a_default_access_control_list_another_user_can_write_nothing_of_a_run",
    ),
    "Files that services write themselves follow": (
        f"{TRUST}test_what_the_backend_writes_is_not_writable_by_others_and_services_keep_the_umask",
    ),
    "control a run:": (
        "process/test_control.py::test_another_user_is_refused",
        "process/test_second_user.py::test_what_a_second_user_can_reach",
    ),
    "`up`, `stop`, `start`, `restart`, `scale`": (
        f"{TRUST}test_root_does_not_act_on_the_run_of_another_user",
        f"{TRUST}test_another_user_does_not_act_on_a_run_of_a_third_one",
        f"{TRUST}test_a_run_below_a_directory_of_another_user_is_not_executed",
        f"{TRUST}test_what_every_user_can_write_is_not_executed",
        f"{TRUST}test_what_another_user_can_write_by_an_access_control_list_is_not_executed",
        "unit/test_trust.py::test_each_file_that_a_backend_reads_or_writes_is_looked_at",
        "unit/test_trust.py::test_each_directory_above_is_looked_at",
    ),
    "That is one whose directory, a file in it": (
        f"{TRUST}test_what_another_user_can_write_by_an_access_control_list_is_not_executed",
        "unit/test_trust.py::test_each_file_that_a_backend_reads_or_writes_is_looked_at",
    ),
    "Above the run directory the sticky bit": ("unit/test_trust.py::test_each_directory_above_is_looked_at",),
    "The backend checks again": (f"{TRUST}test_the_backend_itself_refuses_too",),
    "What a group can write": (f"{TRUST}test_a_group_that_can_write_is_warned_about",),
    "`--trust DIR` and `supervise.trusted_roots`": (
        f"{TRUST}test_trust_is_the_way_out_for_up_and_stop",
        f"{TRUST}test_the_users_configuration_is_read_and_the_runs_own_is_not",
    ),
    "use a replica or the proxy:": (
        f"{GUARD}test_every_route_needs_the_token",
        f"{GUARD}test_a_server_of_ours_refuses_every_route_the_same_way",
        "unit/test_proxy_auth.py::test_no_key_is_refused_except_for_liveness",
        "unit/test_sessions_server.py::test_keys_and_ids",
        "unit/test_verl_engine.py::test_requests_without_the_sessions_key_are_refused",
    ),
    "`up` names them": (f"{TRUST}test_up_names_the_ports_that_it_cannot_guard",),
    "The embedded engine, and verl's replicas": (
        "unit/test_policy_changed.py::test_other_weights_take_it_off_the_list_until_it_is_restarted",
        "unit/test_policy_changed.py::test_the_alert_names_the_replica_and_the_restart",
        "unit/test_embedded_weights.py::test_the_digest_is_that_of_the_logits",
    ),
    "Digests are read every": (
        "unit/test_policy_changed.py::test_while_the_trainer_sends_weights_a_difference_is_none",
    ),
    "`vllm serve` has no digest:": (
        f"{GUARD}test_requests_that_can_change_weights_are_counted_in_the_metrics",
        "unit/test_policy_changed.py::test_the_alert_of_vllm_serve_names_what_was_asked_and_when",
    ),
    # A sandbox
    "A sandbox gets a key for inference": (
        "unit/test_proxy_auth.py::test_the_run_key_opens_the_inference_routes",
        "unit/test_proxy_auth.py::test_the_run_key_opens_nothing_else",
        "process/test_inherited_variables.py::test_secrets_of_the_caller_reach_only_who_needs_them",
    ),
    "Sessions give each trial a key": (
        "unit/test_sessions_server.py::test_keys_and_ids",
        "unit/test_sessions_server.py::test_a_session_that_ended_as_the_service_did_is_ended_for_good",
    ),
    "It cannot use the proxy's administration routes": (
        "unit/test_proxy_auth.py::test_the_run_key_opens_nothing_else",
        "unit/test_proxy_auth.py::test_a_valid_trial_is_a_plain_folder_name",
        "unit/test_proxy_auth.py::test_a_link_in_place_of_the_file_is_not_followed",
        "stack/test_proxy.py::test_replicas_see_no_key_of_ours",
        f"{GUARD}test_what_is_not_exactly_the_token_is_refused",
    ),
    "The built-in sandbox limits": ("unit/test_embedded_model.py::test_tools_stay_inside_the_sandbox",),
    # The receiver of a notification
    "They leave the host without control characters": (
        "unit/test_notify_message.py::test_what_leaves_the_host_is_printable_short_and_without_keys",
    ),
    "The address is a secret:": (
        f"{SENDER}test_a_file_that_must_not_be_used",
        f"{SENDER}test_what_is_no_file_and_what_is_another_users",
    ),
    "It is read at each delivery, and is in no file": (
        "process/test_notify.py::test_the_end_of_a_run_waits_for_its_message_and_no_secret_is_written",
        "process/test_notify.py::test_the_address_is_on_no_command_line",
    ),
    "Redirects are not followed;": (f"{SENDER}test_an_answer_that_is_no_success",),
    "A command in `notify.targets` is executed only": (
        "process/test_notify_cli.py::test_the_targets_of_a_run_are_told_only_if_nobody_else_could_have_named_them",
        "process/test_notify_cli.py::test_without_the_option_nobody_is_told",
    ),
    "It gets `PATH` and `HOME`": (
        f"{SENDER}test_a_command_gets_the_message_and_two_variables",
        f"{SENDER}test_nothing_of_a_command_outlives_its_time",
        "process/test_notify.py::test_a_program_that_hangs_is_ended_with_all_that_it_started",
    ),
    "`watch`, `doctor` and `attach` never execute": (
        "process/test_watch.py::test_the_interface_is_read_only",
        "process/test_second_user.py::test_what_only_shows_executes_nothing_of_a_run",
    ),
    # Text
    "It is shown with control characters": (
        "ui/test_hostile_text.py::test_no_screen_lets_it_through",
        "ui/test_hostile_text.py::test_a_trajectory_lets_nothing_through",
        "ui/test_hostile_text.py::test_nor_does_a_run_without_a_backend",
        "unit/test_visible.py::test_no_command_lets_it_through",
    ),
    # Files of a run directory
    "Reading is bounded and waits for no writer;": (
        "unit/test_file_calls.py::test_files_are_opened_by_the_helpers_only",
        "unit/test_regular_file.py::test_a_fifo_is_refused_without_waiting_for_its_other_end",
        f"{HOSTILE}test_files_without_end_are_named_by_their_size",
        f"{HOSTILE}test_a_log_replaced_by_a_fifo_is_named_and_the_run_goes_on",
    ),
    "No file keeps `stop` from ending": (
        f"{HOSTILE}test_each_way_to_end_a_run_ends_one_with_fifos",
        "process/test_damaged_journal.py::test_stop_needs_no_file_of_the_run",
        "process/test_slow_files.py::*",
    ),
    "`up` refuses a run whose keys": (
        f"{HOSTILE}test_a_key_that_is_no_file_is_named_and_the_run_can_be_stopped",
    ),
    "A changed `plan.json` is executed": (
        "unit/test_trust.py::test_each_file_that_a_backend_reads_or_writes_is_looked_at",
    ),
    "Files that the interface writes": (
        "unit/test_trust.py::test_what_the_interface_writes_does_not_follow_a_link_in_the_run_of_another_user",
        "ui/test_actions.py::test_a_read_only_interface_puts_its_pictures_elsewhere",
    ),
    # Links, floods, decoding
    "have a file of yours written or read through a link:": (
        "unit/test_checked_path.py::test_whose_link_to_whose_file",
        "unit/test_checked_path.py::test_nothing_is_written_through_another_users_link",
        "unit/test_file_users.py::test_a_writer_writes_no_file_of_others",
        "unit/test_file_users.py::test_a_reader_reads_no_file_of_others",
    ),
    "What is opened is what was checked.": (
        "unit/test_checked_path.py::test_what_was_reached_once_is_checked_again_when_its_links_have_changed",
    ),
    "New files are made beside the old one": (
        "unit/test_checked_path.py::test_a_file_of_another_user_is_not_appended_to",
        "unit/test_checked_path.py::test_a_second_name_of_a_file_is_not_appended_to_where_all_can_write",
        "unit/test_checked_path.py::test_a_resolved_path_is_written_through_no_link",
    ),
    "have a row of the run ledger": (
        "process/test_archive.py::test_another_user_cannot_have_a_ledger_or_an_archive_written_elsewhere",
        "unit/test_ledger.py::test_nothing_is_written_where_another_user_could_have_changed_it",
    ),
    "`artifacts/`, its files and its `archives/`": (
        "unit/test_ledger.py::test_nothing_is_written_where_another_user_could_have_changed_it",
        "unit/test_environments.py::test_nothing_is_built_where_another_user_could_put_files",
    ),
    "No link out of `artifacts/` is followed": (
        "unit/test_ledger.py::test_links_of_the_user_lead_out_of_a_ledger_that_was_named_only",
    ),
    "Where the rule does not hold, the run ends": (
        "process/test_archive.py::test_another_user_cannot_have_a_ledger_or_an_archive_written_elsewhere",
        "unit/test_environments.py::test_nothing_is_built_where_another_user_could_put_files",
    ),
    "read the metrics that a run serves": (
        "unit/test_exposition.py::test_it_answers_those_who_have_the_token",
        "unit/test_exposition.py::test_a_bad_token_file_is_named_and_nothing_is_served",
        "unit/test_exposition.py::test_only_the_loopback_address_is_listened_on",
        "process/test_metrics_port.py::test_a_run_is_scraped",
    ),
    "see a run in your browser:": (f"{WEB}test_nothing_is_answered_without_the_token",),
    "`liverl-tui web` listens on 127.0.0.1": (
        f"{WEB}test_nothing_is_answered_without_the_token",
        f"{WEB}test_it_listens_on_the_loopback_address_only",
        f"{WEB}test_the_demo_in_a_browser_and_what_it_says_on_the_command_line",
    ),
    "The page loads nothing from another host,": (f"{WEB}test_the_page_loads_nothing_from_another_host",),
    "Browsers can change a run only": (f"{WEB}test_browsers_change_a_run_only_if_that_is_allowed",),
    "An agent that asks over MCP": (
        "process/test_mcp.py::test_a_run_of_another_user_is_refused",
        "process/test_mcp.py::test_nothing_is_changed_by_any_question",
    ),
    "What it gets has no secrets": (
        "process/test_mcp.py::test_text_of_logs_is_escaped_cut_without_secrets_and_called_untrusted",
        "process/test_mcp.py::test_long_texts_and_lists_are_cut",
    ),
    "On all of them a client gets 10 seconds": (
        "unit/test_http_servers.py::test_every_rule_holds_for_every_server",
        "unit/test_proxy_limits.py::test_an_address_without_a_key_has_few_connections_and_with_one_it_is_not_counted",
        "stack/test_proxy_abuse.py::test_half_open_connections_leave_the_others_served",
        "stack/test_proxy_abuse.py::test_a_body_that_does_not_come_is_answered_with_408",
    ),
    "With a key an address is not limited": (
        "unit/test_proxy_limits.py::test_an_address_without_a_key_has_few_connections_and_with_one_it_is_not_counted",
        "unit/test_http_servers.py::test_agents_behind_one_address_are_served_all_at_once",
    ),
    "For the run 128 descriptors are kept": (
        "unit/test_http_servers.py::test_every_rule_holds_for_every_server",
        "unit/test_diagnose_clients.py::test_a_flood_is_named_with_its_number_and_its_address",
    ),
    "A key is looked at before a body": (
        "stack/test_proxy_abuse.py::test_a_key_is_asked_for_before_a_body",
        "unit/test_http_servers.py::test_every_rule_holds_for_every_server",
    ),
    "`status`, `logs`, `events`, `wait`, `ls` and": (
        f"{TRUST}test_anybodys_run_can_be_read",
        f"{TRUST}test_a_live_run_of_another_user_can_be_read_and_not_joined",
        f"{TRUST}test_the_interface_opens_the_run_of_another_user_for_reading_only",
        "ui/test_actions.py::test_a_read_only_interface_changes_nothing",
        "process/test_second_user.py::test_what_only_shows_executes_nothing_of_a_run",
    ),
    "A live backend answers only its own user": (
        "process/test_control.py::test_another_user_is_refused",
        "process/test_second_user.py::test_what_a_second_user_can_reach",
    ),
    "`up` of another user's live run is refused.": (
        f"{TRUST}test_a_live_run_of_another_user_can_be_read_and_not_joined",
        "process/test_second_user.py::test_what_a_second_user_can_reach",
    ),
    "A link in a trial is never followed": (
        "process/test_archive.py::test_an_archive_has_nothing_that_a_link_in_a_trial_or_a_printed_line_names",
        "unit/test_regular_file.py::test_no_link_is_followed_inside_a_directory",
        "unit/test_sessions_links.py::test_nothing_is_written_through_it_and_no_row_is_lost",
        "unit/test_proxy_auth.py::test_a_link_in_place_of_the_file_is_not_followed",
    ),
    "The trial's directory is remembered without links": (
        "unit/test_sessions_links.py::test_nothing_is_written_through_it_and_no_row_is_lost",
        "unit/test_sessions_links.py::test_the_rows_of_another_trial_are_not_given_out",
    ),
    "Believed are only paths that": (
        "unit/test_external_outputs.py::test_a_printed_line_is_believed_below_the_places_of_the_run",
        "unit/test_external_outputs.py::test_a_printed_line_names_no_folder_of_everybody",
        "unit/test_external_outputs.py::test_a_printed_line_names_no_private_file",
        "unit/test_external_outputs.py::test_a_script_that_runs_in_a_folder_of_everybody_names_nothing_else_there",
    ),
    "Never believed are": (
        "unit/test_external_outputs.py::test_a_printed_line_names_no_folder_of_everybody",
        "unit/test_external_outputs.py::test_a_printed_line_names_no_private_file",
    ),
    "Such a file is shown, and is in no archive.": (
        "process/test_archive.py::test_an_archive_has_nothing_that_a_link_in_a_trial_or_a_printed_line_names",
    ),
    "All of it goes through one decoder": (
        "unit/test_decode.py::test_everything_is_decoded_by_the_helper",
        "unit/test_decode.py::test_the_depth_is_bounded_where_a_type_does_not_bound_it",
        "unit/test_decode.py::test_anything_is_decoded_or_refused_as_json",
        "unit/test_decode.py::test_anything_is_decoded_or_refused_as_yaml_and_toml",
    ),
    "A recording for `demo --run` holds at most": (
        "unit/test_replay_archive.py::test_what_is_deep_huge_or_no_time_is_refused",
        "unit/test_replay_archive.py::test_a_bomb_is_refused_before_it_is_unpacked",
        "process/test_demo.py::test_a_recording_that_cannot_be_played_ends_in_words",
    ),
    "What `doctor` unpacks is bounded": (
        "unit/test_doctor.py::test_logs_together_are_unpacked_up_to_a_bound",
        "process/test_doctor_unpacking.py::test_a_signal_leaves_nothing",
        "process/test_doctor_unpacking.py::test_what_a_killed_one_left_is_removed_by_the_next",
    ),
    "A line of a journal, of events, metrics": ("unit/test_append_whole.py::*",),
    "One module opens files for all others;": (
        "unit/test_file_calls.py::test_files_are_opened_by_the_helpers_only",
        "unit/test_file_users.py::test_the_table_has_no_empty_cell",
    ),
    # Secrets
    "Secrets are in no plan": (
        "unit/test_config_secrets.py::test_secrets_are_not_serialised",
        "unit/test_config_secrets.py::test_files_that_are_refused",
        "unit/test_plan_trainers.py::test_a_secret_does_not_get_onto_verls_command_line",
        "unit/test_plan_values.py::test_a_secret_in_an_override_is_on_no_command_line",
        "unit/test_plan_golden.py::test_the_machine_the_environment_and_the_secrets_are_in_no_plan",
    ),
    "In everything that leaves the run, a secret": (
        f"{OUTLETS}test_no_form_of_a_secret_passes_any_way_out",
        "unit/test_replay_pack.py::test_secrets_are_nowhere_in_a_recording",
        "process/test_secret_reports.py::test_a_crash_of_the_interface_is_reported_without_secrets",
        "process/test_stacks.py::test_py_spy_shows_where_a_process_hangs_and_no_local_variable",
    ),
    "A secret is recognised by its name": (
        f"{OUTLETS}test_no_form_of_a_secret_passes_any_way_out",
        f"{OUTLETS}test_what_is_no_secret_passes",
        "unit/test_redact.py::test_commands_hide_values",
    ),
}

# Sentences that promise no protection: what the paper is about, what is trusted or not protected, advice.
NO_CHECK: tuple[str, ...] = (
    # The summary; what it says has its tests below
    "Telemetry: ",
    "Ports: ",
    "Those of verl's vLLM replicas on GPUs ask for none:",
    "Keys: ",
    "A colleague: ",
    "Sandboxes: ",
    "Not protected: ",
    "take a port away from the agents:",
    "Its mounts cannot be changed",  # of Harbor's environment without containers
    "This machine and all containers of that daemon",
    "Ray asks for the run's token, whose file",
    "port default who listens",
    "replicas that the run starts any",
    "replicas of verl any",  # see "Ports that vLLM, verl, torch and Ray open"
    "`ray.worker_ports` 20000-20999",  # seen with Ray 2.60 on one host, by ss
    "NCCL, gloo, torch any",
    "Any: ",
    "liverl-tui has no telemetry",
    "What else is known to leave:",
    "vLLM sends usage statistics",
    "`check` and `up` ask the model hub",
    "the build of an environment asks",
    "wandb gets metrics",
    "receivers in `notify.targets` get",
    "what your agents, tools",
    "start a node of a run on several hosts",  # Ray's own check; seen with Ray 2.60 on two hosts
    "What an agent does with such text",
    "liverl-tui runs as one ordinary user",
    "It protects a run and its user",
    "It does not protect a user from",
    "trusted because",
    "you and root both",
    "your configuration, environment variables",
    "the packages that are installed",
    "a model's weights, tokenizer",
    "a run directory that only you",
    "Everything else is untrusted:",
    "Another user of the host can see command lines",
    "`chmod 700` on its directory",  # the system's own
    "They cannot:",
    "have you execute their plan:",
    "Ports that vLLM, verl, torch and Ray open",
    "Whoever reaches them",
    "change weights unseen",
    "It can send requests to the proxy",
    "LiteLLM's key is the same",
    "Neither is `harbor_agent.environment_type",
    "How well a container",
    "The receiver of a notification gets",
    "A log line, a trajectory or",
    "Facts that rules find in a log",
    "A file in the run directory of your own",
    "Somebody with a copy of a run",
    "The replicas' key is also",
    "Give away a copy",
    "What a service itself prints",
    "A secret that has neither",
    "A trial's own files",
    "One user's runs from",
    "A host on which others share",
    "The weights of vLLM replicas that",
    "Nor, in `vllm serve`",
    "Traffic on the network:",
    "Keep `proxy.host`",
    "Availability against a user",
    "Report it privately",
    "Say the version",
    "Please leave out",
    "A link of your own to a file of another user",
    "Nor is a directory of `agent.command`:",
    "A program that runs as your user can still move",
    "It is used as a path in one case:",
    "JSON, YAML or TOML from anybody",
    "The keeper and the proxy run without our package",
)


def paper() -> list[str]:
    return sentences((ROOT / "SECURITY.md").read_text("utf-8"))


def without_a_line(said: list[str], known: tuple[str, ...]) -> list[str]:
    """Sentences that begin as no line of the tables, and those that begin as two."""
    return [s for s in said if sum(s.startswith(beginning) for beginning in known) != 1]


@functools.cache
def names_in(file: str) -> frozenset[str]:
    path = TESTS / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text("utf-8"))
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(f.name for f in functions if f.name.startswith("test"))


def missing(name: str) -> bool:
    """Whether there is no such test. ``*``: the whole file, which has one."""
    file, _, test = name.partition("::")
    return not names_in(file) if test == "*" else test not in names_in(file)


def test_every_sentence_names_its_tests_or_promises_nothing() -> None:
    wrong = without_a_line(paper(), (*CLAIMS, *NO_CHECK))
    assert not wrong, f"add to CLAIMS or NO_CHECK of {Path(__file__).name}:\n" + "\n".join(wrong)


def test_every_line_of_the_tables_is_a_sentence_of_the_paper() -> None:
    said = paper()
    gone = [beginning for beginning in (*CLAIMS, *NO_CHECK) if not any(s.startswith(beginning) for s in said)]
    assert not gone, f"SECURITY.md does not say this any more: {gone}"
    assert [key for key, count in Counter((*CLAIMS, *NO_CHECK)).items() if count > 1] == []


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_tests_of_a_sentence_exist(claim: str) -> None:
    assert CLAIMS[claim] and not [name for name in CLAIMS[claim] if missing(name)]


def test_a_new_sentence_and_a_test_that_is_gone_are_found() -> None:
    said = sentences(
        "# T\n\nA lock holds. A door\nholds too.\n\n- a point: one;\n- **two**\n\n| a | b |\n|--|--|\n"
    )
    assert said == ["A lock holds.", "A door holds too.", "a point: one;", "two", "a b"]
    assert without_a_line(said, ("A lock", "A", "a point", "two", "a b")) == ["A lock holds."]
    assert without_a_line(said, ("A lock", "A door", "a point", "two")) == ["a b"]
    assert missing("unit/test_security_md.py::test_nothing") and missing("unit/test_no_file.py::test_x")
    assert missing("unit/test_no_file.py::*") and not missing("unit/test_trust.py::*")
    assert not missing("unit/test_security_md.py::test_the_tests_of_a_sentence_exist")
    assert not missing("process/test_control.py::test_another_user_is_refused")
