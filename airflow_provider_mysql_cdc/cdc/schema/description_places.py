"""Find the full descriptions in the topic of the schema history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.schema.full_description import complete_descriptions
from airflow_provider_mysql_cdc.cdc.schema.history import read_history_records
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord


@dataclass(frozen=True, slots=True)
class DescriptionPlace:
    """Hold the first record of a full description.

    Args:
        offset: Its offset in the topic.
        record: The record.
    """

    offset: int
    record: HistoryRecord


def description_places(cfg: ConnectorConfig) -> Iterator[DescriptionPlace]:
    """Yield the complete descriptions in the order of the topic.

    Args:
        cfg: The connector's configuration.

    Raises:
        SchemaError: A record is damaged, or another program's (TOPIC-08).
        SinkError: Kafka cannot be read.
    """
    starts: dict[int, DescriptionPlace] = {}

    def records() -> Iterator[HistoryRecord]:
        for offset, record in read_history_records(cfg):
            if record.starts_description:
                starts[id(record)] = DescriptionPlace(offset, record)
            yield record

    for record in complete_descriptions(records()):
        if id(record) in starts:
            yield starts[id(record)]
