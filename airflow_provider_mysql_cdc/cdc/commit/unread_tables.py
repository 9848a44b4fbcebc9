"""Tables of which something is left to do: earlier rows in no record, structures to be compared with the server's.

Captured tables whose earlier rows are in no record, and the lists under which the last batch captured tables.

A table that joins the lists of a running stream has rows that no event tells of. The ledger holds a record for each,
until a snapshot has read the table, it has lost these rows, it has left the lists again, or a person dismisses it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CAPTURED_LISTS_KEY, UNCHECKED_PREFIX, UNREAD_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import NewTablesMode, SnapshotMode
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, Record
from airflow_provider_mysql_cdc.cdc.model.table import TableId

LIST_FIELDS = (
    F.DATABASE_INCLUDE_LIST,
    F.DATABASE_EXCLUDE_LIST,
    F.TABLE_INCLUDE_LIST,
    F.TABLE_EXCLUDE_LIST,
    F.TABLE_IGNORE_BUILTIN,
)
"""The properties that ``ConnectorConfig.captures`` reads."""
JOINED = "it joined the lists of captured tables"
UNREAD_SUFFIX = " (captured and never read)"
"""Behind the name of a table that a drain has counted."""


@dataclass(frozen=True, slots=True)
class NeverReadTable(Record):
    """Hold one captured table that was not read since its changes are.

    Args:
        table: The table.
        where: ``file:position`` from which on its changes are read.
        why: Why it has earlier rows, as a clause.
    """

    table: TableId
    where: str
    why: str

    def ledger_key(self) -> str:
        """Return the key of its ledger record."""
        return unread_key(self.table)

    def line(self, mode: NewTablesMode) -> str:
        """Return the line of the log.

        Args:
            mode: What is done about it.
        """
        remedy = (
            f"{F.SNAPSHOT_NEW_TABLES.name}={mode} reads it with an incremental snapshot, unless its signal was refused "
            "or stopped, or it has no key"
            if mode is NewTablesMode.INCREMENTAL
            else f"read it with the DAG mysql_cdc_adhoc_snapshot (tables: {self.table}) or the signal execute-snapshot"
        )
        return (
            f"WARNING: {self.table} is captured and was never read: {remedy} (without a key: a blocking snapshot). "
            f"{self.why[:1].upper()}{self.why[1:]}, so its rows from before {self.where} are in no record. "
            f"If they are not wanted, run: mysql-cdc unread --dismiss {self.table}"
        )


def unread_key(table: TableId) -> str:
    """Return the key of an unread table's ledger record."""
    return UNREAD_PREFIX + table.path()


def unread_tables(ledger: LedgerState) -> dict[TableId, NeverReadTable]:
    """Return the captured tables that were never read, in order.

    Args:
        ledger: The ledger.
    """
    records = (value for key, value in ledger.other_records.items() if key.startswith(UNREAD_PREFIX))
    return {
        each.table: each for each in sorted(map(NeverReadTable.from_json, records), key=lambda unread: unread.table)
    }


def is_to_be_read(cfg: ConnectorConfig, table: TableId) -> bool:
    """Return whether a captured table is one that the stream reads: whoever snapshots no rows wants no earlier ones.

    Args:
        cfg: The connector's configuration.
        table: The table.
    """
    no_rows = cfg[F.SNAPSHOT_MODE] in (SnapshotMode.NEVER, SnapshotMode.NO_DATA)
    return not no_rows and cfg.captures(table) and cfg.snapshots_rows(table)


def lists_record(cfg: ConnectorConfig) -> dict[str, str]:
    """Return the value of the ledger record of the lists; it is packed, because they may name thousands of tables.

    Args:
        cfg: The connector's configuration.
    """
    packed = zlib.compress(json.dumps(_list_texts(cfg)).encode(), 9)
    return {"lists": base64.b64encode(packed).decode()}


def earlier_lists(cfg: ConnectorConfig, ledger: LedgerState) -> ConnectorConfig | None:
    """Return the configuration with the lists of the last batch; None where they are the same, or not known.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.
    """
    record = ledger.other_records.get(CAPTURED_LISTS_KEY)
    if record is None:
        return None
    texts: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(Members(record).text("lists"))))
    if texts == _list_texts(cfg):
        return None
    others = {name: value for name, value in cfg.values.items() if name not in {field.name for field in LIST_FIELDS}}
    return replace(cfg, values=others | {name: F.BY_NAME[name].parse(text) for name, text in texts.items()})


def _list_texts(cfg: ConnectorConfig) -> dict[str, str]:
    return {field.name: cfg.texts[field.name] for field in LIST_FIELDS if field.name in cfg.texts}


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
