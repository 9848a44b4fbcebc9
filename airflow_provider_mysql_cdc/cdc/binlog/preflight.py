"""Check before a run that server and account are fit for it (SETUP-02 to SETUP-25)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import read_coverage
from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.dump import is_own_client, registered_clients
from airflow_provider_mysql_cdc.cdc.binlog.grants import Grants, read_account, read_login
from airflow_provider_mysql_cdc.cdc.binlog.login import is_mariadb, mariadb_error
from airflow_provider_mysql_cdc.cdc.binlog.server_facts import (
    NATIVE_KEYS_VARIABLE,
    RunRequirements,
    ServerFacts,
    error_finding,
    left_out_databases,
    logs_cascades,
    rds_deletes_binlog,
    read_cascading_keys,
    read_rds_retention,
    replica_channels,
    unlogged_replication,
)
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import (
    ServerIdInUseError,
    SourceAuthError,
    SourcePrivilegeError,
    SourceSettingError,
)
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.finding import ERROR, WARNING, Finding
from airflow_provider_mysql_cdc.cdc.model.table import quote_name

_SHORT_RETENTION_S = 24 * 3600
_SHORT_WAIT_TIMEOUT_S = 3600
_SMALL_PACKET = 16 << 20
_LAG_FACTOR = 2
"""The binlog should be kept for this many times the age of the stored position."""
_UTC_NAMES = ("UTC", "+00:00", "-00:00", "GMT", "ETC/UTC", "UCT", "ZULU", "ETC/GMT")
_MAX_KEYS_NAMED = 10
_VARIABLES = (
    "log_bin", "binlog_format", "binlog_row_image", "binlog_row_value_options", "binlog_rows_query_log_events",
    "binlog_expire_logs_seconds", "expire_logs_days", "gtid_mode", "server_id", "version", "wait_timeout",
    "binlog_row_metadata", "max_allowed_packet", "time_zone", "system_time_zone", NATIVE_KEYS_VARIABLE,
    "log_replica_updates", "log_slave_updates", "binlog_error_action",
)  # fmt: skip


def preflight(
    conn: MySqlConnection, cfg: ConnectorConfig, *, snapshot: bool, undrained_s: float | None = None
) -> list[Finding]:
    """Check server and account; return everything found, errors first.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.
        snapshot: Whether tables will be read, not only the binlog.
        undrained_s: Seconds since the last batch was committed, if there are changes after it; otherwise None.

    Raises:
        SourceError: The server cannot be asked.
    """
    address = cfg.connection_settings().address()
    facts = replace(read_facts(conn, address), rds_retention_s=read_rds_retention(conn))
    if facts.grants.has("REPLICATION CLIENT") and facts.is_on("log_bin"):
        facts = replace(facts, coverage=read_coverage(conn, cfg.connection_settings(), cfg.captures))
    if snapshot and not logs_cascades(facts.variables):
        facts = replace(facts, unlogged_keys=read_cascading_keys(conn, cfg.captures))
    return find_problems(facts, RunRequirements.from_config(cfg, snapshot=snapshot, undrained_s=undrained_s))


def read_facts(conn: MySqlConnection, address: str) -> ServerFacts:
    """Ask the server about itself.

    Args:
        conn: An open connection.
        address: ``host:port`` for messages.

    Raises:
        SourceError: The server cannot be asked.
    """
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    variables = dict(fetch_all(conn, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    grants = Grants.read(conn)
    replicas = registered_clients(conn) if grants.has("REPLICATION SLAVE") else ()
    return ServerFacts(
        address,
        variables,
        grants,
        replicas,
        account=read_account(conn),
        all_grants=grants.with_roles(conn),
        login=read_login(conn),
    )


def find_problems(facts: ServerFacts, requirements: RunRequirements) -> list[Finding]:
    """Hold facts against a demand; return everything found, errors first."""
    findings = [finding for rule in _RULES for finding in rule(facts, requirements)]
    return sorted(findings, key=lambda f: f.error is None)


# -- rules ----------------------------------------------------------------------------------------------------------


def _grant(facts: ServerFacts, privilege: str) -> str:
    return f"GRANT {privilege} ON *.* TO {facts.account};"


def _missing_privilege(facts: ServerFacts, privileges: str, phase: str, purpose: str) -> Finding:
    names, why = privileges.split(" or "), f"it is needed {phase}: {purpose}"
    fix = _grant(facts, names[0])
    if facts.all_grants is not None and any(map(facts.all_grants.has_in_any_scope, names)):
        why += "; a role has it that the account was granted, and that is not active"
        fix = f"SET DEFAULT ROLE ALL TO {facts.account};"
    return error_finding(SourcePrivilegeError, facts, f"the account lacks {privileges}", why, fix)


def _anonymous(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    if facts.is_anonymous:
        yield error_finding(
            SourceAuthError,
            facts,
            f"MySQL takes {facts.login} for the anonymous account {facts.account}",
            "of the accounts that fit, the one with the more specific host counts before the one with a name",
            f"DROP USER {facts.account}; or create {facts.login} as an account of its own, with the privileges of "
            "docs/install.md",
        )


def _mariadb(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    # A proxy may greet with another version than that of the server behind it.
    version = facts.variables.get("version", "")
    if is_mariadb(version):
        error = mariadb_error(facts.address, version)
        yield Finding(ERROR, error.what, error.why, error.remedy, error)


def _log_bin(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    if not facts.is_on("log_bin"):
        yield error_finding(
            SourceSettingError,
            facts,
            "binary logging is off",
            "without a binlog there are no changes to read",
            "start the server with log_bin, server-id, binlog_format=ROW and binlog_row_image=FULL",
        )


def _log_errors(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    if facts.variables.get("binlog_error_action", "").upper() == "IGNORE_ERROR":
        yield Finding(
            WARNING,
            "binlog_error_action is IGNORE_ERROR",
            "when the server cannot write its binlog (disk full), it goes on without one until its next start; what "
            "changes meanwhile is in no event, and nothing shows that afterwards",
            "SET PERSIST binlog_error_action = 'ABORT_SERVER' (the default); verify and repair (mysql_cdc_verify) if "
            "the server's error log says that binary logging was turned off",
        )


def _row_format(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    # Absent where ROW is the only format left.
    value = facts.variables.get("binlog_format", "ROW")
    if value.upper() != "ROW":
        yield error_finding(
            SourceSettingError,
            facts,
            f"binlog_format is {value}",
            "only the format ROW holds the changed rows",
            "SET PERSIST binlog_format = 'ROW'; sessions that are open keep the old format until they reconnect",
        )


def _row_image(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    value = facts.variables.get("binlog_row_image", "FULL")
    if value.upper() != "FULL":
        yield Finding(
            WARNING,
            f"binlog_row_image is {value}",
            "events of updates and deletes hold unavailable.value.placeholder for values that the binlog leaves out, "
            "and rows with such values of other types fail",
            "SET PERSIST binlog_row_image = 'FULL'; sessions that are open keep the old value until they reconnect",
        )


def _row_metadata(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    value = facts.variables.get("binlog_row_metadata")
    if value is None:
        yield Finding(
            WARNING,
            f"MySQL {facts.variables.get('version', '')} has no binlog_row_metadata",
            "row events contain no names, signs, character sets or members of columns, which are known from DDL "
            "statements only; a change of a table outside the binlog (SET sql_log_bin=0, a restored backup) may show "
            "at its next DDL statement only",
            "nothing; MySQL 8.0.1 and later have it",
        )
    elif value.upper() != "FULL":
        yield Finding(
            WARNING,
            f"binlog_row_metadata is {value}",
            "row events contain neither the names of columns nor members of ENUM and SET columns nor the primary key, "
            "which are then known from DDL statements only; with FULL they are taken from the events",
            "SET PERSIST binlog_row_metadata = 'FULL' (some bytes for each table of each transaction)",
        )


def _partial_json(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    if "PARTIAL_JSON" not in facts.variables.get("binlog_row_value_options", "").upper():
        return
    if facts.variables.get("binlog_row_image", "FULL").upper() == "FULL":
        yield Finding(
            WARNING,
            "binlog_row_value_options contains PARTIAL_JSON",
            "the new document is computed from the one before the update and the logged change, which costs time for "
            "large documents",
            "nothing; SET PERSIST binlog_row_value_options = '' if updates of JSON columns are slow",
        )
    else:
        yield Finding(
            WARNING,
            "binlog_row_value_options contains PARTIAL_JSON while binlog_row_image is not FULL",
            "a logged change of a JSON document cannot be applied where the before image lacks the document; such rows "
            "fail",
            "SET PERSIST binlog_row_value_options = '' or binlog_row_image = 'FULL'",
        )


def _privileges(facts: ServerFacts, requirements: RunRequirements) -> Iterator[Finding]:
    grants = facts.grants
    if facts.is_anonymous:
        return
    if not grants.has("REPLICATION SLAVE"):
        yield _missing_privilege(facts, "REPLICATION SLAVE", "always", "to read the binlog")
    if not grants.has("REPLICATION CLIENT"):
        yield _missing_privilege(facts, "REPLICATION CLIENT", "always", "to ask for the binlog's position and files")
    if not requirements.snapshot:
        return
    if not grants.has_in_any_scope("SELECT"):
        yield _missing_privilege(facts, "SELECT", "by snapshots", "to read rows")
    elif not grants.has("SELECT"):
        yield Finding(
            WARNING,
            "SELECT is granted for some databases or tables only",
            "tables without it are invisible to the snapshot",
            "make sure that every captured table is among them",
        )
    if not grants.has("SHOW DATABASES"):
        yield Finding(
            WARNING,
            "the account lacks SHOW DATABASES",
            "snapshots list only databases on which the account has another privilege",
            _grant(facts, "SHOW DATABASES"),
        )


def _partial_revokes(facts: ServerFacts, requirements: RunRequirements) -> Iterator[Finding]:
    names = [name for name in facts.grants.unreadable_databases if requirements.captures_database(name)]
    if requirements.snapshot and names:
        grants = " ".join(f"GRANT SELECT ON {quote_name(name)}.* TO {facts.account};" for name in names)
        yield Finding(
            WARNING,
            f"SELECT is revoked on databases that may be captured: {', '.join(names)}",
            "their tables are invisible to the snapshot, and the stream has their changes",
            f"{grants} or database.exclude.list",
        )


def _locks(facts: ServerFacts, requirements: RunRequirements) -> Iterator[Finding]:
    grants = facts.grants
    if not requirements.snapshot or not requirements.takes_locks or grants.has("RELOAD", "FLUSH_TABLES"):
        return
    if facts.is_anonymous:
        return
    if not requirements.table_locks:
        yield _missing_privilege(facts, "RELOAD", "by snapshots", "snapshot.locking.mode allows no table locks")
    elif grants.has_in_any_scope("LOCK TABLES"):
        yield Finding(
            WARNING,
            "the account may not take a global read lock",
            "it lacks RELOAD, so the snapshot locks table by table",
            f"{_grant(facts, 'RELOAD')} (where the provider allows it)",
        )
    else:
        purpose = "for the lock that makes all tables one consistent view"
        yield _missing_privilege(facts, "RELOAD or LOCK TABLES", "by snapshots", purpose)


def _server_ids(facts: ServerFacts, requirements: RunRequirements) -> Iterator[Finding]:
    ids = requirements.server_ids
    if not ids:
        return
    span = str(ids[0]) if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
    fix = "set database.server.id to a number that is free, with as many after it as there are writers"
    if int(facts.variables.get("server_id", 0)) in ids:
        yield error_finding(
            ServerIdInUseError, facts, "the server itself has one of our server ids", f"ours are {span}", fix
        )
    for client in facts.replicas:
        # The server ends the connection of an earlier run of this stream by its next heartbeat, or when we connect.
        if client.server_id in ids and not is_own_client(client, requirements.client_name):
            what = f"a replication client with our server id {client.server_id} is registered"
            yield error_finding(ServerIdInUseError, facts, what, f"it reports the host {client.host!r}", fix)


def _recommended_settings(facts: ServerFacts, requirements: RunRequirements) -> Iterator[Finding]:
    if requirements.include_query and not facts.is_on("binlog_rows_query_log_events"):
        yield Finding(
            WARNING,
            "include.query is set, but binlog_rows_query_log_events is OFF",
            "the binlog does not hold the statements, so source.query stays null",
            "SET PERSIST binlog_rows_query_log_events = ON",
        )
    if facts.variables.get("gtid_mode", "OFF").upper() != "ON":
        yield Finding(
            WARNING,
            "GTIDs are off",
            "stored positions hold on this very server only",
            "set gtid_mode and enforce_gtid_consistency to ON if capture should survive a failover",
        )
    retention = _retention_s(facts)
    if 0 < retention <= _SHORT_RETENTION_S:
        yield Finding(
            WARNING,
            f"the server keeps its binlog for {retention} s only",
            "after a longer pause the stored position is gone and a new snapshot is needed",
            "raise binlog_expire_logs_seconds",
        )
    elif requirements.undrained_s is not None and 0 < retention < _LAG_FACTOR * requirements.undrained_s:
        yield Finding(
            WARNING,
            f"the last batch was committed {requirements.undrained_s:.0f} s ago, and the server keeps its binlog for "
            f"{retention} s",
            "when the file with the stored position is purged, a new snapshot is needed",
            "drain more often, or raise binlog_expire_logs_seconds",
        )
    wait_timeout = int(facts.variables.get("wait_timeout", 0))
    if requirements.snapshot and 0 < wait_timeout < _SHORT_WAIT_TIMEOUT_S:
        yield Finding(
            WARNING,
            f"wait_timeout is {wait_timeout} s",
            "the server may close an idle connection of a long snapshot",
            "raise wait_timeout",
        )
    packet = int(facts.variables.get("max_allowed_packet", 0))
    if requirements.snapshot and 0 < packet < _SMALL_PACKET:
        yield Finding(
            WARNING,
            f"max_allowed_packet is {packet} bytes",
            "the server sends no row of a result that is longer, so a snapshot fails at such a row",
            f"SET PERSIST max_allowed_packet = {_SMALL_PACKET} or more, unless all rows are shorter",
        )


def _time_zone(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    zone = facts.variables.get("time_zone", "UTC")
    zone = facts.variables.get("system_time_zone", "UTC") if zone.upper() == "SYSTEM" else zone
    if zone.upper() not in _UTC_NAMES:
        yield Finding(
            WARNING,
            f"the server's time zone is {zone}",
            "events have TIMESTAMP values in UTC; DATETIME values have no zone and stand in events as they are stored, "
            "so those that were filled by NOW() or from a TIMESTAMP are in the zone of the session that did it",
            "nothing, if consumers know it; otherwise use TIMESTAMP columns, or UTC in the server and its sessions",
        )


def _cascades(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    keys = facts.unlogged_keys
    if not keys:
        return
    names = ", ".join(str(key) for key in keys[:_MAX_KEYS_NAMED])
    more = f" and {len(keys) - _MAX_KEYS_NAMED} more" if len(keys) > _MAX_KEYS_NAMED else ""
    yield Finding(
        WARNING,
        f"foreign keys change rows of captured tables by CASCADE or SET NULL: {names}{more}",
        "the server writes no row events for these changes: InnoDB makes them below the binary log, before MySQL 9.6 "
        "and with innodb_native_foreign_keys=ON",
        "delete and update the child rows by statements of their own, or read these tables again with incremental "
        "snapshots, or use MySQL 9.6 or later with innodb_native_foreign_keys=OFF",
    )


def _retention_s(facts: ServerFacts) -> int:
    if facts.rds_retention_s is not None:
        return facts.rds_retention_s
    seconds = int(facts.variables.get("binlog_expire_logs_seconds", 0))
    return seconds or 86400 * int(facts.variables.get("expire_logs_days", 0))


_RULES: tuple[Callable[[ServerFacts, RunRequirements], Iterator[Finding]], ...] = (
    _mariadb,
    _log_bin,
    _log_errors,
    _row_format,
    _row_image,
    _row_metadata,
    _partial_json,
    rds_deletes_binlog,
    left_out_databases,
    unlogged_replication,
    replica_channels,
    _anonymous,
    _privileges,
    _partial_revokes,
    _locks,
    _server_ids,
    _recommended_settings,
    _time_zone,
    _cascades,
)
