"""Check before a snapshot that the lists of tables match what the account may see and read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.expression import Expression
from airflow_provider_mysql_cdc.cdc.model.finding import WARNING, Finding, error_finding
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import (
    ACCESS_DENIED,
    MAX_SHOWN_NAMES,
    base_tables,
    require_readable_names,
    select_grants,
)

_MAX_TRIED = 1_000
"""Tables that are tried; each takes a fifth of a millisecond."""
_LOCK_TIMEOUT = 1205
_MAX_UNMATCHED = 10
"""Entries without a match that are looked for; each takes a tenth of a second where there are 10,000 tables."""


def table_findings(conn: MySqlConnection, cfg: ConnectorConfig) -> list[Finding]:
    """Return what keeps a snapshot from reading the tables that the lists name, errors first.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.

    Raises:
        SourceError: A query fails.
    """
    visible = base_tables(conn)
    captured = [table for table in visible if cfg.captures(table)]
    findings = [*_unreadable(conn, captured), *_not_visible(conn, cfg, captured), *_unmatched(conn, cfg, visible)]
    if not captured and not any(finding.error for finding in findings):
        findings.append(error_finding(no_table_error()))
    return sorted(findings, key=lambda finding: finding.error is None)


def no_table_error() -> ConfigError:
    """Return the error of lists that match no table at all."""
    return ConfigError(
        "no table is captured",
        where="table.include.list, database.include.list",
        why="no base table the account can see matches the include and exclude lists",
        remedy="check the lists (regular expressions on database.table) and the account's SELECT grant",
    )


def _unreadable(conn: MySqlConnection, captured: Sequence[TableId]) -> Iterator[Finding]:
    if denied := _denied_tables(conn, captured[:_MAX_TRIED]):
        yield error_finding(
            SourcePrivilegeError(
                f"the account may not read {len(denied)} captured table(s)",
                where=_names([str(table) for table in denied]),
                why="it has another privilege on them, so that they are listed, but not SELECT on the whole table",
                remedy=select_grants(conn, denied),
            )
        )


def _denied_tables(conn: MySqlConnection, tables: Sequence[TableId]) -> list[TableId]:
    denied = []
    before = fetch_all(conn, "SELECT @@SESSION.lock_wait_timeout")[0][0]
    with conn.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = 1")
        try:
            for table in tables:
                try:
                    cursor.execute(f"SELECT 1 FROM {table.quoted()} LIMIT 0")
                    # With privileges on single columns only, a table can be read and not be shown.
                    cursor.execute(f"SHOW CREATE TABLE {table.quoted()}")
                except pymysql.MySQLError as error:
                    code = error.args[:1][0]
                    if code in ACCESS_DENIED:
                        denied.append(table)
                    elif code == _LOCK_TIMEOUT:
                        break  # somebody has locked it; privileges are checked before locks
        finally:
            cursor.execute(f"SET SESSION lock_wait_timeout = {before}")
    return denied


def _not_visible(conn: MySqlConnection, cfg: ConnectorConfig, captured: Sequence[TableId]) -> Iterator[Finding]:
    try:
        require_readable_names(conn, cfg, captured)
    except SourcePrivilegeError as error:
        yield error_finding(error)


def _unmatched(conn: MySqlConnection, cfg: ConnectorConfig, visible: Sequence[TableId]) -> Iterator[Finding]:
    """Yield the entries of the include lists that match nothing that the account can see."""
    databases = sorted({table.db for table in visible})
    lists = (
        (F.TABLE_INCLUDE_LIST, [str(table) for table in visible], "table"),
        (F.DATABASE_INCLUDE_LIST, databases, "database with a table"),
    )
    for field, names, kind in lists:
        entries = list(islice(_without_match(cfg[field].compiled, names), _MAX_UNMATCHED))
        if entries:
            yield Finding(
                WARNING,
                f"entries of {field.name} match no {kind}: {_names(entries)}",
                f"no {kind} has such a name, or the account has no privilege on it",
                "correct the entry (a regular expression on the whole name), or grant SELECT; nothing, if it is to be "
                "created later",
            )
    if unused := sorted(cfg.families.select_overrides.keys() - {str(table) for table in visible}):
        yield Finding(
            WARNING,
            f"{F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name} names what is no table: {_names(unused)}",
            "names are compared with those of the server, letter case included; a table under another name is read as "
            "a whole",
            "write the name as SHOW TABLES shows it; nothing, if the table is to be created later",
        )


def _without_match(entries: Iterable[Expression], names: Sequence[str]) -> Iterator[str]:
    # Most entries are names; an expression takes ten microseconds for each table.
    lower = {name.lower() for name in names}
    for entry in entries:
        if entry.text.replace("\\.", ".").lower() not in lower and not any(map(entry.fullmatch, names)):
            yield entry.text


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN_NAMES} more" if len(names) > MAX_SHOWN_NAMES else ""
    return ", ".join(names[:MAX_SHOWN_NAMES]) + more
