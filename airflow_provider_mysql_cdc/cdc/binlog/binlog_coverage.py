"""What a server leaves out of its binlog: databases that its options exclude, and changes that it replicates itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all, fetch_dicts
from airflow_provider_mysql_cdc.cdc.binlog.position import binlog_status
from airflow_provider_mysql_cdc.cdc.errors import SourceError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_SYNTAX_ERROR = "error 1064"
_STATUS_STATEMENTS = ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")  # the first came with 8.0.22
_FILTERS = (
    "Replicate_Do_DB", "Replicate_Ignore_DB", "Replicate_Do_Table", "Replicate_Ignore_Table",
    "Replicate_Wild_Do_Table", "Replicate_Wild_Ignore_Table", "Replicate_Rewrite_DB",
)  # fmt: skip
_TABLES = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' ORDER BY 1, 2"


@dataclass(frozen=True, slots=True)
class ReplicaChannel:
    """Describe a channel through which the server replicates from another one.

    Args:
        name: The channel's name; empty for the default one.
        source: ``host:port`` of the other server.
        applies: Whether changes are applied at present.
        delay_s: Seconds by which they are delayed on purpose.
        filters: Filters that leave changes out, as ``option=value``.
        source_uuid: server_uuid of the other server; empty before the first connection to it.
    """

    name: str
    source: str
    applies: bool
    delay_s: int = 0
    filters: tuple[str, ...] = ()
    source_uuid: str = ""

    def __str__(self) -> str:
        return f"{self.source}, channel {self.name!r}" if self.name else self.source


@dataclass(frozen=True, slots=True)
class BinlogCoverage:
    """Hold what the binlog of a server does not contain.

    Args:
        do_db: The only databases that are written to it, where ``binlog_do_db`` is set.
        ignore_db: Databases that are not (``binlog_ignore_db``).
        left_out: Captured tables whose rows these options leave out.
        channels: The server's replication channels; empty for one that is no replica.
    """

    do_db: frozenset[str] = frozenset()
    ignore_db: frozenset[str] = frozenset()
    left_out: tuple[TableId, ...] = ()
    channels: tuple[ReplicaChannel, ...] = ()

    def options(self) -> str:
        """Return the options that leave databases out, as in the server's configuration."""
        named = {"binlog_do_db": self.do_db, "binlog_ignore_db": self.ignore_db}
        return " and ".join(f"{name}={','.join(sorted(names))}" for name, names in named.items() if names)


def read_coverage(conn: Any, captures: Callable[[TableId], bool]) -> BinlogCoverage:
    """Ask a server what it leaves out of its binlog.

    Args:
        conn: An open connection (REPLICATION CLIENT).
        captures: Whether a table is captured.

    Raises:
        SourceError: The server cannot be asked.
    """
    status = (binlog_status(conn) or [{}])[0]
    do_db, ignore_db = database_names(status.get("Binlog_Do_DB")), database_names(status.get("Binlog_Ignore_DB"))
    left_out: tuple[TableId, ...] = ()
    if do_db or ignore_db:
        tables = (TableId(str(db), str(table)) for db, table in fetch_all(conn, _TABLES))
        left_out = tuple(t for t in tables if is_left_out(t.db, do_db, ignore_db) and captures(t))
    return BinlogCoverage(do_db, ignore_db, left_out, tuple(replica_channels(conn)))


def database_names(text: object) -> frozenset[str]:
    """Return the databases of a column of ``SHOW BINARY LOG STATUS``.

    Args:
        text: Names with commas between them.
    """
    return frozenset(name for name in str(text or "").split(",") if name)


def is_left_out(database: str, do_db: frozenset[str], ignore_db: frozenset[str]) -> bool:
    """Return whether the rows of a database are not written to the binlog.

    With row events the database of the table counts; ``binlog_ignore_db`` is not looked at where ``binlog_do_db`` is
    set (MySQL manual, "Evaluation of Database-Level Replication and Binary Logging Options").

    Args:
        database: Its name.
        do_db: Databases of ``binlog_do_db``.
        ignore_db: Databases of ``binlog_ignore_db``.
    """
    return database not in do_db if do_db else database in ignore_db


def replica_channels(conn: Any) -> Iterator[ReplicaChannel]:
    """Yield the channels through which a server replicates.

    Args:
        conn: An open connection (REPLICATION CLIENT).

    Raises:
        SourceError: The server cannot be asked.
    """
    for row in _replica_status(conn):
        values = {_current_name(name): value for name, value in row.items()}
        yield ReplicaChannel(
            str(values.get("Channel_Name") or ""),
            f"{values.get('Source_Host')}:{values.get('Source_Port')}",
            str(values.get("Replica_SQL_Running")) == "Yes",
            int(values.get("SQL_Delay") or 0),
            tuple(f"{name}={values[name]}" for name in _FILTERS if values.get(name)),
            str(values.get("Source_UUID") or ""),
        )


def _replica_status(conn: Any) -> list[dict[str, Any]]:
    try:
        return fetch_dicts(conn, _STATUS_STATEMENTS[0])
    except SourceError as error:
        if _SYNTAX_ERROR not in error.why:
            raise
    return fetch_dicts(conn, _STATUS_STATEMENTS[1])


def _current_name(name: str) -> str:
    return name.replace("Master_", "Source_").replace("Slave_", "Replica_")


def is_replica_updates_logged(variables: Mapping[str, str]) -> bool:
    """Return whether a replica writes what it applies into its own binlog.

    Args:
        variables: Global variables by name.
    """
    value = variables.get("log_replica_updates", variables.get("log_slave_updates", "ON"))
    return value.upper() in ("ON", "1")
