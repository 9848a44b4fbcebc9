"""That a setting reaches what carries it out, and nothing else changes with it."""

from __future__ import annotations

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.drain import batch_planner as batch
from airflow_provider_mysql_cdc.cdc.job import topic_guard
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.schema import history
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo


@for_each(
    ("most", "file"),
    [(0, None), (1, 2), (300, 2), (301, 3), (1300, 3), (1301, 4), (1399, 4), (1400, None)],
)
def test_a_batch_ends_with_the_file_that_makes_it_large_enough(
    monkeypatch: pytest.MonkeyPatch, most: int, file: int | None
) -> None:
    """Transactions never span files; what lies before the start is not counted, and the last file has no end yet."""
    here = BinlogOffset("binlog.000004", 500, "s:1-9", "s")
    files = [("binlog.000000", 5000), ("binlog.000001", 1000), ("binlog.000002", 1000), ("binlog.000003", 99)]
    monkeypatch.setattr(batch, "current_offset", lambda conn: here)
    monkeypatch.setattr(batch, "binary_logs", lambda conn: [*reversed(files), ("binlog.000004", 9000)])
    end = batch.choose_end(None, BinlogOffset("binlog.000001", 700, "s:1-3", "s"), most)
    assert end == (here if file is None else BinlogOffset(f"binlog.00000{file}", 4, None, "s"))


INFO = TopicInfo(1, "id", 1)


@pytest.mark.parametrize("verified", [False, True])
def test_topic_settings_that_a_person_has_verified_need_not_be_readable(
    monkeypatch: pytest.MonkeyPatch, verified: bool
) -> None:
    looked: list[tuple[str, bool]] = []
    for module in (topic_guard, history):
        monkeypatch.setattr(module, "make_admin", lambda settings: None)
        monkeypatch.setattr(
            module, "require_settings", lambda admin, topic, rule, verified: looked.append((topic, verified))
        )
    monkeypatch.setattr(topic_guard, "describe_topics", lambda admin, topics, at: dict.fromkeys(topics, INFO))
    monkeypatch.setattr(topic_guard, "broker_ids", lambda admin: (1,))
    monkeypatch.setattr(history, "existing_topics", lambda admin, topics: dict.fromkeys(topics, INFO))
    monkeypatch.setattr(history, "first_offsets", lambda admin, topic, partitions: {0: 0})
    cfg = config(topic__settings__verified=str(verified).lower())
    topic_guard.require_durable_topics(cfg, pytest.fail)
    history.require_history(cfg)
    assert looked == [(cfg.ledger_topic, verified), (cfg.history_topic, verified), (cfg.history_topic, verified)]
    assert kafka_clients.ledger(cfg)._verified is verified
