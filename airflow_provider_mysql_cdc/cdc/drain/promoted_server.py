"""Ask a server to which a stream is to move whether it can have all changes of the captured tables, under their names.

GTIDs do not tell: what a replica's filters leave out is executed as an empty transaction with the same GTID, and a
server with another ``lower_case_table_names`` logs the same rows under other names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.refused_server import refused_server, reset_remedy
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord

_MAX_TABLES_NAMED = 5
_FILTER_TABLES = ("replication_applier_global_filters", "replication_applier_filters")


@dataclass(frozen=True, slots=True)
class ReplicationFilters:
    """Hold the replication filters of a server, by their names (``REPLICATE_DO_DB`` and so on).

    Args:
        rules: Name and rule of each, as ``performance_schema`` shows them.
    """

    rules: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, conn: Any) -> ReplicationFilters:
        """Read those of all channels, and those for channels to come; the latter stay when a replica is promoted.

        Args:
            conn: An open connection.

        Raises:
            SourceConnectionError: The connection breaks.
        """
        rules: list[tuple[str, str]] = []
        for table in _FILTER_TABLES:
            try:
                found = fetch_all(conn, f"SELECT FILTER_NAME, FILTER_RULE FROM performance_schema.{table}")
            except SourceConnectionError:
                raise
            except SourceError:
                continue  # MySQL 5.7 has no such tables; or the account may not read them
            # MySQL 9.7.4 shows a filter that was set to nothing with the rule of the row before it.
            before = ("", *(rule for _, rule in found))
            rules += [
                (str(name).upper(), str(rule))
                for (name, rule), last in zip(found, before, strict=False)
                if rule != last
            ]
        return cls(tuple(dict.fromkeys(rules)))

    def leaves_out(self, table: TableId) -> bool:
        """Return whether a filter leaves changes of a table out; one that is not known does.

        Args:
            table: The table.
        """
        matched: dict[str, bool] = {}
        for name, rule in self.rules:
            effect, matches = _KINDS.get(name, (_IGNORES, _is_anything))
            matched[effect] = matched.get(effect, False) or any(matches(entry, table) for entry in _entries(rule))
        return any(found is (effect == _IGNORES) for effect, found in matched.items())

    def __str__(self) -> str:
        return ", ".join(f"{name.lower()}={rule}" for name, rule in self.rules)


def _entries(rule: str) -> Iterable[str]:
    """Return the entries of a rule; pairs of REPLICATE_REWRITE_DB are in parentheses."""
    return (entry.strip(" ()") for entry in rule.split(","))


def _is_database(rule: str, table: TableId) -> bool:
    return rule == table.db


def _is_table(rule: str, table: TableId) -> bool:
    return rule == f"{table.db}.{table.table}"


def _is_like(rule: str, table: TableId) -> bool:
    pattern = re.sub(r"\\(.)|(.)", lambda m: re.escape(m[1]) if m[1] else _LIKE.get(m[2], re.escape(m[2])), rule)
    return re.fullmatch(pattern, f"{table.db}.{table.table}", re.DOTALL) is not None


def _is_anything(_: str, __: TableId) -> bool:
    return True


_LIKE = {"%": ".*", "_": "."}
_DATABASES, _TABLES, _IGNORES = "only these databases", "only these tables", "not these"
_KINDS: dict[str, tuple[str, Callable[[str, TableId], bool]]] = {
    "REPLICATE_DO_DB": (_DATABASES, _is_database),
    "REPLICATE_DO_TABLE": (_TABLES, _is_table),
    "REPLICATE_WILD_DO_TABLE": (_TABLES, _is_like),
    "REPLICATE_IGNORE_DB": (_IGNORES, _is_database),
    "REPLICATE_IGNORE_TABLE": (_IGNORES, _is_table),
    "REPLICATE_WILD_IGNORE_TABLE": (_IGNORES, _is_like),
    "REPLICATE_REWRITE_DB": (_IGNORES, _is_database),
}


def require_fit_server(cfg: ConnectorConfig, conn: Any, offset: BinlogOffset, epoch: int) -> None:
    """Refuse a server whose binlog may lack changes of captured tables, or has them under other names.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the server to which the stream is to move.
        offset: Where the stream stands, in the binlog of the former server.
        epoch: Epoch of the batch that begins there.

    Raises:
        ServerChangedError: It is not fit; nothing is written.
        SchemaError: The schema history cannot be read.
    """
    letter_cases: list[int] = []

    def note(record: HistoryRecord) -> None:
        letter_cases.append(record.context.lower_case_table_names)

    state = load_schema_state(cfg, until=offset, epoch=epoch, on_record=note)
    here = int(fetch_all(conn, "SELECT @@lower_case_table_names")[0][0])
    # Records that the product wrote itself have the default, 0.
    former = max(letter_cases, default=here)
    if former != here:
        raise refused_server(
            conn,
            offset,
            f"its lower_case_table_names is {here}, and that of the former server is {former}: tables have "
            "other names in its binlog than in the schema history",
            "let database.hostname lead to a server with the same lower_case_table_names; or begin a new stream with "
            "another topic.prefix",
        )
    filters = ReplicationFilters.read(conn)
    left_out = [table for table in state.tables if cfg.captures(table) and filters.leaves_out(table)]
    if left_out:
        names = ", ".join(map(str, left_out[:_MAX_TABLES_NAMED]))
        more = f" and {len(left_out) - _MAX_TABLES_NAMED} more" if len(left_out) > _MAX_TABLES_NAMED else ""
        raise refused_server(
            conn,
            offset,
            f"it has replication filters ({filters}) that leave out changes of captured tables ({names}{more}): they "
            "are missing in its tables and in its binlog, although it has executed their GTIDs",
            "let database.hostname lead to a server without these filters; or, if its tables are the ones that count "
            f"now, {reset_remedy(GtidSet.parse(offset.gtids or ''))}",
        )
