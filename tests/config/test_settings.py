"""No setting is accepted and ignored: of each topic and broker key a test sees the effect, or it is refused by name.

`SEEN` names that test. The test has to exist and to name the key, as it is or as an attribute (`log_dirs`). The broker-wide
synonym of a topic key is seen by the same test, since all inherit alike (`test_effective.py`).
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from kraftlab.config.config_key import ConfigType
from kraftlab.config.errors import ConfigError
from kraftlab.config.models import load_broker
from kraftlab.config.topic_configs import BROKER_KEYS, TOPIC_KEYS, ineffective_broker_value, validate_topic_value
from kraftlab.config.unused_keys import ONLY_FOR_ALL, ONLY_IN_FILES, UNUSED

TESTS = Path(__file__).resolve().parents[1]
KEYS = BROKER_KEYS | TOPIC_KEYS

SEEN: dict[str, dict[str, tuple[str, ...]]] = {
    "broker/upkeep/test_cleaner.py": {
        "test_a_cleaner_that_is_switched_off_compacts_nothing": ("log.cleaner.enable",),
        "test_a_throttled_cleaner_reads_and_writes_no_faster_than_the_limit": ("log.cleaner.io.max.bytes.per.second",),
        "test_as_many_logs_as_there_are_cleaner_threads_are_compacted_at_a_time": ("log.cleaner.threads",),
        "test_both_policies_together_compact_and_delete": ("cleanup.policy",),
        "test_cleaners_share_the_memory_for_keys_and_for_records": (
            "log.cleaner.dedupe.buffer.size",
            "log.cleaner.io.buffer.load.factor",
            "log.cleaner.io.buffer.size",
        ),
        "test_the_cleaner_looks_for_logs_as_often_as_its_back_off_says": ("log.cleaner.backoff.ms",),
    },
    "broker/api/test_delete_records.py": {
        "test_retention_looks_for_old_segments_as_often_as_the_file_says": ("log.retention.check.interval.ms",),
        "test_segments_that_lie_below_go_from_the_disk": ("segment.bytes",),
    },
    "broker/test_directory_failures.py": {
        "test_a_broker_asks_for_a_controlled_shutdown_unless_the_file_forbids_it": ("controlled.shutdown.enable",),
        "test_high_watermarks_are_written_as_often_as_the_file_says": ("replica.high.watermark.checkpoint.interval.ms",),
    },
    "broker/test_metrics.py": {
        "test_series_of_partitions_and_topics_can_be_left_out": ("metrics.partitions",),
    },
    "broker/replication/test_fetch_lanes.py": {
        "test_a_fetch_is_given_up_after_the_sockets_timeout": ("replica.socket.timeout.ms",),
        "test_a_leader_waits_for_enough_bytes_but_not_longer_than_asked": ("replica.fetch.min.bytes",),
        "test_a_parked_fetch_waits_as_long_as_configured": ("replica.fetch.wait.max.ms",),
        "test_pauses_after_errors_grow_up_to_the_configured_one": ("replica.fetch.backoff.ms",),
        "test_the_bytes_of_a_partition_and_of_an_answer_are_bounded": (
            "replica.fetch.max.bytes",
            "replica.fetch.response.max.bytes",
        ),
        "test_the_number_of_fetchers_changes_while_replicas_are_copied": ("num.replica.fetchers",),
    },
    "broker/api/test_topic_creation.py": {
        "test_a_topic_that_a_client_asks_for_is_created_unless_that_is_switched_off": ("auto.create.topics.enable",),
    },
    "gateway/test_secured_listener.py": {
        "test_a_failed_login_is_answered_after_a_delay": ("connection.failed.authentication.delay.ms",),
    },
    "gateway/test_listener.py": {
        "test_an_address_can_have_a_limit_of_its_own": ("max.connections.per.ip.overrides",),
        "test_an_idle_connection_is_closed": ("connections.max.idle.ms",),
        "test_bytes_that_are_no_request_end_their_connection_only": ("socket.request.max.bytes",),
        "test_connections_are_limited_per_address": ("max.connections.per.ip",),
        "test_more_connections_than_the_limit_are_closed": ("max.connections",),
    },
    "broker/control/test_lifecycle.py": {
        "test_a_broker_that_cannot_report_a_failed_directory_in_time_stops": ("log.dir.failure.timeout.ms",),
        "test_the_file_says_how_long_a_broker_tries_to_register": ("initial.broker.registration.timeout.ms",),
        "test_the_file_says_how_often_a_broker_sends_a_heartbeat": ("broker.heartbeat.interval.ms",),
    },
    "broker/moves/test_moves.py": {
        "test_as_many_replicas_are_copied_at_a_time_as_there_are_threads": ("num.replica.alter.log.dirs.threads",),
    },
    "broker/moves/test_placing.py": {
        "test_limits_of_the_brokers_own_file_hold_for_logs_that_were_there_at_the_start": (
            "log.retention.bytes",
            "replica.alter.log.dirs.io.max.bytes.per.second",
        ),
    },
    "broker/replication/test_reassignment_traffic.py": {
        "test_a_replica_whose_throttle_goes_does_not_wait_until_its_debt_is_paid": ("follower.replication.throttled.replicas",),
        "test_lifting_the_throttle_takes_effect_at_once": (
            "follower.replication.throttled.rate",
            "leader.replication.throttled.rate",
        ),
        "test_the_throttle_holds_over_a_small_copy": ("leader.replication.throttled.replicas",),
    },
    "broker/replication/test_replication.py": {
        "test_a_topic_stores_the_time_of_the_producer_or_of_the_leader": ("message.timestamp.type",),
        "test_acks_all_is_refused_with_too_few_in_sync_and_acks_one_is_not": ("min.insync.replicas",),
        "test_the_leaders_file_says_how_long_a_follower_may_lag": ("replica.lag.time.max.ms",),
        "test_producers_expire_as_configured_now": ("producer.id.expiration.ms",),
    },
    "broker/log/test_compacting.py": {
        "test_a_log_is_due_by_its_dirty_ratio_or_its_age": (
            "max.compaction.lag.ms",
            "min.cleanable.dirty.ratio",
        ),
        "test_nothing_above_the_high_watermark_or_within_the_lag_is_compacted": ("min.compaction.lag.ms",),
    },
    "broker/log/test_compaction_filter.py": {
        "test_a_tombstone_goes_after_its_delete_horizon": ("delete.retention.ms",),
    },
    "broker/log/test_flushing.py": {
        "test_flush_messages_flushes_within_the_append_that_reaches_the_number": ("flush.messages",),
        "test_flush_ms_is_seen_to_at_every_look": ("flush.ms", "log.flush.scheduler.interval.ms"),
        "test_num_recovery_threads_per_data_dir_logs_are_opened_at_a_time": ("num.recovery.threads.per.data.dir",),
    },
    "broker/log/test_indexes.py": {
        "test_the_interval_of_entries_is_the_topics": ("index.interval.bytes",),
    },
    "broker/log/test_partition_log.py": {
        "test_retention_by_size_and_by_time_spares_what_is_above_the_high_watermark": (
            "retention.bytes",
            "retention.ms",
        ),
    },
    "broker/log/test_recompression.py": {
        "test_a_higher_level_makes_smaller_batches": (
            "compression.gzip.level",
            "compression.zstd.level",
        ),
        "test_a_leader_stores_the_topics_codec_whatever_the_producers": ("compression.type",),
    },
    "broker/log/test_record_checks.py": {
        "test_a_batch_may_be_as_large_as_the_topic_takes": ("max.message.bytes",),
        "test_keys_and_timestamps_are_read_whatever_the_codec": (
            "message.timestamp.after.max.ms",
            "message.timestamp.before.max.ms",
        ),
    },
    "broker/log/test_segment_rules.py": {
        "test_a_segment_ends_when_a_batch_comes_segment_ms_after_its_first": ("segment.ms",),
        "test_a_segment_ends_when_an_index_is_full": ("segment.index.bytes",),
        "test_deleted_segments_are_removed_after_the_topics_delay": ("file.delete.delay.ms",),
        "test_jitter_shortens_the_time_of_a_segment_by_a_part_that_depends_on_its_name": ("segment.jitter.ms",),
    },
    "config/test_access.py": {
        "test_kafkas_authorizer_switches_the_rules_on": ("allow.everyone.if.no.acl.found",),
        "test_users_authenticate_and_their_passwords_are_never_shown": ("listener.name.grpc.users",),
    },
    "config/test_effective.py": {
        "test_of_keys_in_several_units_the_finest_counts": (
            "log.retention.hours",
            "log.retention.minutes",
            "log.retention.ms",
            "log.roll.hours",
            "log.roll.jitter.hours",
        ),
        "test_the_rate_of_moves_has_two_names": ("intra.broker.throttled.rate",),
    },
    "config/test_listener_security.py": {
        "test_tls_is_as_each_key_says": (
            "ssl.allow.dn.changes",
            "ssl.allow.san.changes",
            "ssl.cipher.suites",
            "ssl.client.auth",
            "ssl.enabled.protocols",
            "ssl.endpoint.identification.algorithm",
            "ssl.key.password",
            "ssl.keystore.certificate.chain",
            "ssl.keystore.key",
            "ssl.keystore.location",
            "ssl.keystore.password",
            "ssl.keystore.type",
            "ssl.principal.mapping.rules",
            "ssl.truststore.certificates",
            "ssl.truststore.location",
            "ssl.truststore.password",
            "ssl.truststore.type",
        ),
        "test_logins_have_mechanisms_passwords_and_sessions": (
            "connections.max.reauth.ms",
            "sasl.enabled.mechanisms",
            "sasl.jaas.config",
            "sasl.server.max.receive.size",
        ),
        "test_tokens_are_judged_as_each_key_says": (
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
        ),
        "test_nodes_have_other_principals_if_the_file_says_so": ("kraftlab.node.principals",),
    },
    "config/test_models.py": {
        "test_a_broker_file_becomes_typed_values": ("log.dirs",),
        "test_a_broker_finds_the_controllers_either_way": (
            "controller.quorum.bootstrap.servers",
            "controller.quorum.voters",
        ),
        "test_a_controller_file_becomes_typed_values": (
            "metadata.log.dir",
            "node.id",
        ),
        "test_a_faulty_file_is_refused_with_key_value_and_advice": (
            "broker.id",
            "controller.listener.names",
            "listener.security.protocol.map",
            "listeners",
            "log.dir",
        ),
        "test_the_listener_of_brokers_has_one_name": ("inter.broker.listener.name",),
        "test_the_role_of_a_file_decides_its_model": ("process.roles",),
    },
    "broker/groups/test_coordinator.py": {
        "test_a_group_has_at_most_its_size": ("group.max.size",),
        "test_notes_have_a_limit": ("offset.metadata.max.bytes",),
        "test_offsets_expire_after_their_retention": ("offsets.retention.check.interval.ms", "offsets.retention.minutes"),
        "test_the_first_members_wait_for_more": ("group.initial.rebalance.delay.ms",),
        "test_the_session_timeout_has_bounds": ("group.max.session.timeout.ms", "group.min.session.timeout.ms"),
        "test_the_topic_is_created_once_when_a_client_looks_for_its_coordinator": (
            "offsets.topic.num.partitions",
            "offsets.topic.replication.factor",
        ),
    },
    "controller/security/test_access.py": {
        "test_before_the_first_complete_state_only_super_users_are_answered": ("super.users",),
    },
    "controller/cluster/test_brokers.py": {
        "test_where_unclean_elections_are_allowed_a_lost_directory_leads_to_one_at_once": ("unclean.leader.election.enable",),
    },
    "controller/configs/test_configs.py": {
        "test_a_policy_of_the_server_may_refuse": ("alter.config.policy.class.name",),
    },
    "controller/engine/test_exactly_once_calls.py": {
        "test_a_caller_without_rights_is_refused_and_not_remembered": ("authorizer.class.name",),
    },
    "controller/test_main.py": {
        "test_leaders_are_not_balanced_if_the_file_says_so": ("auto.leader.rebalance.enable",),
        "test_the_quorum_runs_by_the_settings_of_the_file": (
            "controller.quorum.election.timeout.ms",
            "controller.quorum.fetch.timeout.ms",
            "kraftlab.trace.file",
            "metadata.log.max.record.bytes.between.snapshots",
            "metadata.log.max.snapshot.interval.ms",
        ),
        "test_the_state_machine_runs_by_the_settings_of_the_file": (
            "broker.session.timeout.ms",
            "controller.quota.window.num",
            "controller.quota.window.size.seconds",
            "leader.imbalance.check.interval.seconds",
            "metadata.max.idle.interval.ms",
            "unclean.leader.election.interval.ms",
        ),
    },
    "controller/reassignment/test_move_queue.py": {
        "test_caps_hold_while_everything_is_moved": ("reassignment.max.moves.per.cluster",),
        "test_only_the_last_plans_are_kept": ("reassignment.plans.kept",),
        "test_the_listing_names_the_reason_to_wait": ("reassignment.max.moves.per.broker",),
        "test_the_smallest_starts_first_once_leaders_have_said_how_large_they_are": ("reassignment.queue.order",),
    },
    "controller/reassignment/test_moves.py": {
        "test_the_cluster_can_forbid_changes_of_the_replication_factor": ("reassignment.replication.factor.change.enable",),
    },
    "controller/topics/test_topics.py": {
        "test_a_policy_of_the_server_refuses_topics_one_by_one": ("create.topic.policy.class.name",),
        "test_brokers_whose_directories_are_all_cordoned_get_replicas_only_if_assigned": ("cordoned.log.dirs",),
        "test_deletion_can_be_disabled": ("delete.topic.enable",),
        "test_placement_uses_defaults_of_the_controller_and_spreads": (
            "default.replication.factor",
            "num.partitions",
        ),
    },
    "controller/test_voting_advice.py": {
        "test_a_controller_that_joins_by_itself_gets_no_advice": ("controller.quorum.auto.join.enable",),
    },
    "gateway/test_consumer_groups.py": {
        "test_the_topic_of_offsets_is_compacted_with_the_settings_of_brokers": ("offsets.topic.segment.bytes",),
    },
    "node/test_log_lines.py": {
        "test_the_error_that_ends_a_node_is_a_line_of_a_json_log": ("log.format",),
        "test_with_a_file_the_error_stands_in_it_and_on_standard_error": ("log.file",),
    },
    "lab/test_layout.py": {
        "test_a_node_behind_a_proxy_is_known_by_the_ports_that_it_had": ("advertised.listeners",),
        "test_what_is_written_is_what_nodes_read": ("broker.rack",),
    },
}
"""Module under tests/ → test → keys whose effect it sees."""
SEEN_BY = {key: (path, test) for path, tests in SEEN.items() for test, keys in tests.items() for key in keys}


@cache
def texts_of(path: str) -> dict[str, str]:
    """Text of each test of a module, with the module's constants and helpers that it names."""
    text = (TESTS / path).read_text()
    lines = text.splitlines()
    parts: dict[str, str] = {}
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            case ast.Assign(targets=[ast.Name(id=name)]):
                first = node.lineno
            case _:
                continue
        parts[name] = "\n".join(lines[first - 1 : node.end_lineno])
    helpers = {name: part for name, part in parts.items() if not name.startswith("test")}
    return {
        name: "\n".join([part, *(helper for named, helper in helpers.items() if named in part)])
        for name, part in parts.items()
        if name.startswith("test")
    }


def other_value(name: str) -> str:
    """A valid value of an unused key that is not the accepted one."""
    key, accepted = KEYS[name], KEYS[name].default
    if key.choices:
        return next(choice for choice in key.choices if choice != accepted)
    match key.type:
        case ConfigType.BOOLEAN:
            return "true" if accepted == "false" else "false"
        case ConfigType.STRING | ConfigType.LIST | ConfigType.CLASS | ConfigType.PASSWORD:
            return "something"
        case _:
            number = int(accepted or 0)
            return next(str(value) for value in (number + 1, number - 1) if key.fault(str(value)) is None)


def test_of_every_key_a_test_sees_the_effect_or_it_is_refused() -> None:
    seen = {*SEEN_BY}
    inherited = {key.synonym for key in TOPIC_KEYS.values() if key.synonym is not None and key.name in seen}
    assert not {*UNUSED} & (seen | inherited)
    assert {*UNUSED} | seen | inherited == {*KEYS}


@pytest.mark.parametrize("name", sorted(SEEN_BY))
def test_the_test_that_sees_the_effect_names_the_key(name: str) -> None:
    path, test = SEEN_BY[name]
    text = texts_of(path)[test]
    assert name in text or name.replace(".", "_") in text


@pytest.mark.parametrize("name", sorted(UNUSED))
def test_an_unused_key_accepts_its_default_only(name: str, broker_file) -> None:
    value, accepted = other_value(name), KEYS[name].default
    shown = "" if KEYS[name].is_sensitive else f"={value}"
    refusals = []
    if name in TOPIC_KEYS:
        refusals.append(validate_topic_value(name, value))
        assert accepted is not None and validate_topic_value(name, accepted) is None
    if name in BROKER_KEYS:
        refusals.append(ineffective_broker_value(name, value, is_for_all=True))
        with pytest.raises(ConfigError) as raised:
            load_broker(broker_file({name: value}))
        refusals.append(str(raised.value).partition(".properties: ")[2])
        load_broker(broker_file({name: accepted}))
    for refusal in refusals:
        assert refusal is not None and refusal.startswith(f"{name}{shown} has no effect: {UNUSED[name]}; remove it")


def test_keys_that_act_only_in_one_place_are_used() -> None:
    assert {*ONLY_IN_FILES, *ONLY_FOR_ALL} <= {*KEYS} - {*UNUSED}
    for name in ONLY_IN_FILES:
        assert ineffective_broker_value(name, "PEER://h:1", is_for_all=False) is not None
    for name in ONLY_FOR_ALL:
        assert ineffective_broker_value(name, KEYS[name].default or "", is_for_all=True) is None
        assert ineffective_broker_value(name, KEYS[name].default or "", is_for_all=False) is not None
