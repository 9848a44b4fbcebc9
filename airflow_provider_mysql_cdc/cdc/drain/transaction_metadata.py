"""Transaction metadata: BEGIN and END records, and each event's order in its transaction (TXN-01 to TXN-10)."""

from __future__ import annotations

import time

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.emit.heartbeat import transaction_record
from airflow_provider_mysql_cdc.cdc.emit.topic_names import transaction_topic
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord, SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId

PLACEHOLDER = "\0"
"""Placeholder of the transaction block in a decoded value; JSON text never contains this byte, it would be escaped."""
_PLACEHOLDER_BYTES = PLACEHOLDER.encode()


class TransactionMetadata:
    """Number the events of the transaction being read.

    Every writer numbers all captured events, those of other writers' partitions included, so that all writers agree.

    Args:
        cfg: The connector's configuration.
    """

    def __init__(self, cfg: ConnectorConfig) -> None:
        self._cfg = cfg
        self._topic = transaction_topic(cfg[F.TOPIC_PREFIX], cfg[F.TOPIC_TRANSACTION])
        self.open = False
        self._id = ""
        self._counts: dict[str, int] = {}
        self._total = 0

    def begin(self, gtid: str | None, file: str, pos: int) -> None:
        """Begin a transaction.

        Args:
            gtid: Its GTID, or None.
            file: Binlog file.
            pos: Position of its BEGIN, the second half of the id where GTIDs are off (TXN-07).
        """
        self.open = True
        self._id = gtid or f"file={file},pos={pos}"
        self._counts, self._total = {}, 0

    def begin_record(self) -> SideRecord:
        """Return the BEGIN record."""
        return self._record(None)

    def end_record(self) -> SideRecord:
        """Return the END record with the exact counts."""
        return self._record(_java_order(self._counts))

    def end(self) -> None:
        """End the transaction."""
        self.open = False

    def number_records(self, table: TableId, rows: list[RowRecord]) -> list[RowRecord]:
        """Return the records of an event with their transaction blocks; tombstones have none.

        Args:
            table: The event's table.
            rows: What the decoder produced with ``PLACEHOLDER`` as the transaction block.
        """
        name = str(table)
        numbered: list[RowRecord] = []
        order = self._counts.get(name, 0)
        prefix = f'{{"id":"{self._id}","total_order":'
        for key, value, row, record_number, header, partition in rows:
            if value is None:
                numbered.append((key, value, row, record_number, header, partition))
                continue
            order += 1
            self._total += 1
            block = f'{prefix}{self._total},"data_collection_order":{order}}}' if self.open else "null"
            numbered_value = value.replace(_PLACEHOLDER_BYTES, block.encode(), 1)
            numbered.append((key, numbered_value, row, record_number, header, partition))
        if rows:
            self._counts[name] = order
        return numbered

    def _record(self, counts: dict[str, int] | None) -> SideRecord:
        key, value = transaction_record(
            self._id,
            time.time_ns() // 1_000_000,
            counts,
            recent=str(self._cfg[F.EVENT_CONTRACT]) != "1.9",
            key_schema=self._cfg[F.KEY_SCHEMAS_ENABLE],
            value_schema=self._cfg[F.VALUE_SCHEMAS_ENABLE],
        )
        return record_topics.routed_record(self._cfg, self._topic, key, value)


def _java_order(counts: dict[str, int]) -> dict[str, int]:
    """Return the counts in the order of a java.util.HashMap with these keys, in which Debezium lists them."""
    size = 16
    while len(counts) > size * 3 // 4:
        size *= 2

    def bucket(name: str) -> int:
        code = 0
        units = name.encode("utf-16-be")
        for i in range(0, len(units), 2):
            code = (31 * code + int.from_bytes(units[i : i + 2], "big")) & 0xFFFFFFFF
        return (code ^ code >> 16) & size - 1

    return {name: counts[name] for name in sorted(counts, key=bucket)}
