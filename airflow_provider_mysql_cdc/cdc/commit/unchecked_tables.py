"""Tables that a statement touched since their structures were last compared with the server's, in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import UNCHECKED_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record
from airflow_provider_mysql_cdc.cdc.model.table import TableId


@dataclass(frozen=True, slots=True)
class UncheckedTable(Record):
    """Hold one table whose structure is not compared with the server's yet.

    Args:
        table: The table.
        where: ``file:position`` of the first statement that touched it.
        has_rows: Whether rows without names of columns came after it.
        skipped: Whether that statement was not understood and skipped, so that the structure may be wrong.
        server_uuid: The server whose binlog a skipped statement stands in; empty where that is not known.
    """

    table: TableId
    where: str
    has_rows: bool = False
    skipped: bool = False
    server_uuid: str = ""

    def ledger_key(self) -> str:
        """Return the key of its ledger record."""
        return UNCHECKED_PREFIX + self.table.path()


def unchecked_tables(ledger: LedgerState) -> dict[TableId, UncheckedTable]:
    """Return the tables that are not compared yet.

    Args:
        ledger: The ledger.
    """
    records = (value for key, value in ledger.other_records.items() if key.startswith(UNCHECKED_PREFIX))
    return {each.table: each for each in map(UncheckedTable.from_json, records)}


def unchecked_records(
    ledger_topic: str, ledger: LedgerState, tables: Iterable[TableId], where: str
) -> Iterator[SideRecord]:
    """Yield the ledger records of tables that are to be compared, except of those that have one.

    Args:
        ledger_topic: The topic of the ledger.
        ledger: The ledger.
        tables: The tables.
        where: ``file:position`` of what gave rise to it.
    """
    known = unchecked_tables(ledger)
    for table in sorted(set(tables) - known.keys()):
        unchecked = UncheckedTable(table, where)
        yield SideRecord(ledger_topic, unchecked.ledger_key().encode(), encode(unchecked.to_json()))
