"""Note which captured tables statements touch, until their structures are compared with the server's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.commit.unchecked_tables import UncheckedTable
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId


class TouchedTables:
    """Write a ledger record for each table that a statement touched, with the next commit of writer 0.

    A record that is written again by a retry of the batch is the same.

    Args:
        ledger_topic: The topic of the ledger.
        unchecked: Tables that earlier batches have touched.
        side_records: Gets the records.
        server_uuid: The server that the batch is read from; empty where that is not known.
    """

    def __init__(
        self,
        ledger_topic: str,
        unchecked: Mapping[TableId, UncheckedTable],
        side_records: list[SideRecord],
        server_uuid: str = "",
    ) -> None:
        self._topic, self._tables, self._side_records = ledger_topic, dict(unchecked), side_records
        self._server_uuid = server_uuid

    def on_statement(self, tables: Iterable[TableId], where: str, *, skipped: bool = False) -> None:
        """Note the tables that a statement touched.

        Args:
            tables: The tables.
            where: ``file:position`` of the statement.
            skipped: Whether it was not understood and skipped.
        """
        for table in tables:
            known = self._tables.get(table)
            if known is None:
                known = UncheckedTable(table, where, skipped=skipped, server_uuid=self._server_uuid if skipped else "")
                self._put(known)
            elif skipped and not known.skipped:
                self._put(replace(known, where=where, skipped=True, server_uuid=self._server_uuid))

    def on_rows(self, table: TableId) -> None:
        """Note that rows of a table come, whose events do not contain the names of its columns.

        Args:
            table: The table.
        """
        unchecked = self._tables.get(table)
        if unchecked is not None and not unchecked.has_rows:
            self._put(replace(unchecked, has_rows=True))

    def _put(self, unchecked: UncheckedTable) -> None:
        self._tables[unchecked.table] = unchecked
        self._side_records.append(SideRecord(self._topic, unchecked.ledger_key().encode(), encode(unchecked.to_json())))
