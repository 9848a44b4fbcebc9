from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.read import row_records

pytestmark = pytest.mark.quick

CFG = ConnectorConfig.from_properties(
    {
        "topic.prefix": "s",
        "database.hostname": "h",
        "database.user": "u",
        "database.password": "p",
        "kafka.bootstrap.servers": "k:9092",
    }
)


def test_brokers_that_stop_giving_records_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def stalled(*args: Any, **kwargs: Any) -> Iterator[TopicRecord]:
        yield TopicRecord(0, 3, b"k", b"v")
        raise HiddenByTransaction("partition 0: 4 of 9")

    monkeypatch.setattr(row_records, "read_between", stalled)
    records = row_records.read_records(CFG, "s.shop.orders", {0: (3, 9)})
    assert next(records).offset == 3
    with pytest.raises(SinkConnectionError, match="partition 0: 4 of 9") as raised:
        next(records)
    assert raised.value.can_retry and raised.value.where == "topic s.shop.orders at k:9092"
