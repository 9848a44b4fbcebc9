"""What the ledger and the schema history must be set to, and what is said of topics that die with a broker."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.errors import SinkAuthorizationError, SinkError
from airflow_provider_mysql_cdc.cdc.sink import topic_settings
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import (
    HISTORY_RULE,
    LEDGER_RULE,
    TopicSettingsRule,
    durability_warnings,
    require_settings,
)
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def check(
    monkeypatch: pytest.MonkeyPatch, rule: TopicSettingsRule, config: dict[str, str] | None, verified: bool = False
) -> Any:
    monkeypatch.setattr(topic_settings, "topic_config", lambda admin, topic: config)
    admin: Any = None
    return require_settings(admin, "t", rule, verified=verified)


@pytest.mark.req("SCH-06")
@for_each(
    ("rule", "config", "named"),
    [
        (LEDGER_RULE, {"cleanup.policy": "delete"}, "cleanup.policy=delete"),
        (LEDGER_RULE, {"cleanup.policy": "compact,delete"}, "cleanup.policy=compact,delete"),
        (HISTORY_RULE, KEPT | {"retention.ms": "604800000"}, "retention.ms=604800000"),
        (HISTORY_RULE, KEPT | {"retention.bytes": "1000000"}, "retention.bytes=1000000"),
        (HISTORY_RULE, KEPT | {"cleanup.policy": "compact"}, "cleanup.policy=compact"),
    ],
)
@for_each("verified", [False, True])
def test_settings_that_lose_records_are_refused_whoever_has_looked(
    monkeypatch: pytest.MonkeyPatch, rule: TopicSettingsRule, config: dict[str, str], named: str, verified: bool
) -> None:
    with pytest.raises(SinkError, match="would lose records") as caught:
        check(monkeypatch, rule, config, verified)
    assert named in caught.value.why and "kafka-configs.sh" in caught.value.remedy and not caught.value.can_retry


def test_settings_that_keep_everything_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(monkeypatch, HISTORY_RULE, KEPT) == KEPT
    assert check(monkeypatch, HISTORY_RULE, KEPT | {"retention.ms": str(2**63 - 1)})
    assert check(monkeypatch, LEDGER_RULE, {"cleanup.policy": "compact", "retention.ms": "604800000"})


def test_settings_that_may_not_be_read_are_refused_unless_a_person_has_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SinkAuthorizationError, match=r"topic\.settings\.verified=true"):
        check(monkeypatch, HISTORY_RULE, None)
    assert check(monkeypatch, HISTORY_RULE, None, verified=True) is None


@for_each(
    ("replicas", "brokers", "config", "said"),
    [
        (1, 3, {}, ["one replica"]),
        (1, 1, {}, []),
        (3, 3, {"min.insync.replicas": "1"}, ["min.insync.replicas=1"]),
        (3, 3, {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}, []),
        (2, 3, {"min.insync.replicas": "1"}, []),
        (1, 3, {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}, ["one replica", "unclean"]),
    ],
)
def test_what_a_failing_broker_takes_along_is_said_in_one_line_each(
    replicas: int, brokers: int, config: dict[str, str], said: list[str]
) -> None:
    lines = list(durability_warnings("t", TopicInfo(1, "id", replicas), config, brokers))
    assert len(lines) == len(said) and all(part in line for part, line in zip(said, lines, strict=True))
