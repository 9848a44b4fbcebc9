"""The warnings about topics in a job's log."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkAuthorizationError
from airflow_provider_mysql_cdc.cdc.operate import findings


def test_topics_that_may_not_be_described_keep_no_job_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topics are those of the last batch; the account may have lost one that this job does not write."""

    def refuse(*_: Any) -> Any:
        raise SinkAuthorizationError("the account may not describe a topic", where="topic shop.t")

    monkeypatch.setattr(findings, "make_admin", lambda _: None)
    monkeypatch.setattr(findings, "broker_ids", lambda _: (1,))
    monkeypatch.setattr(findings, "describe_topics", refuse)
    cfg = ConnectorConfig.from_properties(
        {
            "database.hostname": "mysql",
            "database.user": "cdc",
            "database.password": "x",
            "topic.prefix": "shop",
            "kafka.bootstrap.servers": "kafka:9092",
        }
    )
    (warning,) = findings.topic_warnings(cfg, ["shop.t"])
    assert (warning.level, warning.error) == (findings.WARNING, None)
    assert "the account may not describe a topic" in warning.why
