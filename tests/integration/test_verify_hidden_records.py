"""Records behind an open transaction of another producer cannot be seen: their tables are named, and not repaired."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from kit.repairs import repair_records, verdict
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.sink import topic_settings
from airflow_provider_mysql_cdc.cdc.verify import compared_topics
from airflow_provider_mysql_cdc.cdc.verify.repair import listed_keys
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import NotCompared, RepairMode, VerifyRequest

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
REPAIR = VerifyRequest(repair=RepairMode.YES)


class OpenTransaction:
    """Hold a transaction open in a topic; its one record is none of the stream's."""

    def __init__(self, pipeline: Pipeline, topic: str) -> None:
        servers = pipeline.properties["kafka.bootstrap.servers"]
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": f"other-{topic}"})
        self._producer.init_transactions(20)
        self._producer.begin_transaction()
        self._producer.produce(topic, key=b'{"id":99}', value=b"of another", partition=0)
        assert self._producer.flush(10) == 0

    def end(self) -> None:
        """Abort it."""
        self._producer.abort_transaction(10)


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    def soon(admin: Any, topics: Any) -> topic_settings.CommittedEnds:
        return topic_settings.committed_ends(admin, topics, wait_s=1.0)

    for module in (compared_topics, listed_keys):
        monkeypatch.setattr(module, "committed_ends", soon)
    execute(
        root,
        f"CREATE TABLE `{database}`.orders (id INT PRIMARY KEY, n INT)",
        f"CREATE TABLE `{database}`.log (line VARCHAR(9))",
        f"INSERT INTO `{database}`.orders VALUES (1, 1), (2, 2)",
        f"INSERT INTO `{database}`.log VALUES ('a')",
    )
    found = Pipeline(properties | PLAIN | {"provide.transaction.metadata": "true"})
    found.snapshot()
    execute(root, f"UPDATE `{database}`.orders SET n = 7")
    found.drain()
    return found


@pytest.mark.days("odd")
def test_rows_whose_events_are_hidden_are_not_missing(pipeline: Pipeline, root: Any, database: str) -> None:
    other = OpenTransaction(pipeline, pipeline.table_topic("orders"))
    execute(root, f"UPDATE `{database}`.orders SET n = 8", f"INSERT INTO `{database}`.orders VALUES (3, 3)")
    execute(root, f"INSERT INTO `{database}`.log VALUES ('b')")
    requests = (REPAIR, VerifyRequest(checksums=False))
    for request in requests:
        result = pipeline.verify(request)
        found = verdict(result, "orders")
        assert found.not_compared is NotCompared.UNREAD and not found.findings and result.verdict != "equal", (
            request,
            found,
        )
        assert "an open transaction of another producer hides records of its topic, from offset" in found.unknown[0]
        assert verdict(result, "log").verdict == "equal" and not repair_records(pipeline, "log"), request
    other.end()
    for request in requests:
        assert pipeline.verify(request).verdict == "equal", request
    assert not repair_records(pipeline, "orders")


@pytest.mark.days("even")
def test_what_becomes_hidden_behind_the_comparison_is_not_repaired(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[OpenTransaction] = []
    judged = listed_keys.committed_ends

    def open_first(admin: Any, topics: Any) -> topic_settings.CommittedEnds:
        opened.extend([] if opened else [OpenTransaction(pipeline, pipeline.table_topic("log"))])
        return judged(admin, topics)

    monkeypatch.setattr(listed_keys, "committed_ends", open_first)
    execute(root, "SET sql_log_bin = 0", f"INSERT INTO `{database}`.log VALUES ('a')", "SET sql_log_bin = 1")
    found = verdict(pipeline.verify(REPAIR), "log")
    assert opened and found.findings == {Kind.MISSING: 1} and not found.repaired
    assert any("an open transaction of another producer" in text for text in found.unknown), found
    opened[0].end()
    assert not repair_records(pipeline, "log")
    assert verdict(pipeline.verify(REPAIR), "log").repaired == {Kind.MISSING: 1}
    assert pipeline.verify().verdict == "equal"


@pytest.mark.exhaustive
def test_hidden_records_of_the_transaction_topic_are_named(pipeline: Pipeline) -> None:
    other = OpenTransaction(pipeline, f"{pipeline.properties['topic.prefix']}.transaction")
    with pytest.raises(SinkConnectionError, match="an open transaction of another producer hides records") as error:
        pipeline.verify(VerifyRequest(history=True))
    assert error.value.retriable
    other.end()
    assert pipeline.verify(VerifyRequest(history=True)).verdict == "equal"
