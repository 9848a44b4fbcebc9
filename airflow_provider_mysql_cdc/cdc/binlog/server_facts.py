"""What preflight knows about a server and its account: facts, and rules for what the binlog lacks.

How long Amazon RDS and Aurora keep the binlog: a row of a table of theirs, whatever the server's variable says.

Amazon RDS user guide, "Configuring binary log retention": ``binlog retention hours`` is NULL at first, and then a file
is deleted as soon as nothing of RDS needs it. Others set ``binlog_expire_logs_seconds``, or tell nothing in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import SEARCHED_MB, BinlogCoverage, is_replica_updates_logged
from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.dump import RegisteredClient
from airflow_provider_mysql_cdc.cdc.binlog.grants import Grants
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.finding import ERROR, WARNING, Finding
from airflow_provider_mysql_cdc.cdc.model.table import TableId

NATIVE_KEYS_VARIABLE = "innodb_native_foreign_keys"
_QUERY = (
    "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS "
    "WHERE UPDATE_RULE IN ('CASCADE', 'SET NULL') OR DELETE_RULE IN ('CASCADE', 'SET NULL') ORDER BY 1, 2, 3"
)


@dataclass(frozen=True, slots=True)
class CascadingKey:
    """Name a foreign key with ON DELETE or ON UPDATE CASCADE or SET NULL.

    Args:
        table: The table whose rows it changes.
        name: The constraint's name.
    """

    table: TableId
    name: str

    def __str__(self) -> str:
        return f"{self.table} ({self.name})"


def logs_cascades(variables: Mapping[str, str]) -> bool:
    """Return whether the server writes row events for the rows that a foreign key changes.

    InnoDB carries cascades out below the binary log. MySQL 9.6 moved them to the SQL layer, which logs them, unless
    ``innodb_native_foreign_keys`` is ON. Older versions do not have this variable.

    Args:
        variables: Global variables by name.
    """
    return variables.get(NATIVE_KEYS_VARIABLE, "ON").upper() in ("OFF", "0")


def read_cascading_keys(conn: MySqlConnection, captures: Callable[[TableId], bool]) -> tuple[CascadingKey, ...]:
    """Return the foreign keys with cascades of captured tables that the account can see.

    Args:
        conn: An open connection.
        captures: Whether a table is captured.

    Raises:
        SourceError: The server cannot be asked.
    """
    keys = (CascadingKey(TableId(str(db), str(table)), str(name)) for db, table, name in fetch_all(conn, _QUERY))
    return tuple(key for key in keys if captures(key.table))


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Hold what the server says about itself.

    Args:
        address: ``host:port`` for messages.
        variables: Global variables by name; those a version does not have are absent.
        grants: Privileges of the account.
        replicas: Registered replication clients.
        unlogged_keys: Foreign keys of captured tables whose cascades the server does not log.
        account: The account as GRANT takes it.
        all_grants: Its privileges with all its roles active; None where it has none.
        login: User and host of the connection, in the same form.
        coverage: What its binlog does not contain.
        rds_retention_s: Seconds for which Amazon RDS keeps the binlog; None on other servers, and where it is unknown.
    """

    address: str
    variables: Mapping[str, str]
    grants: Grants
    replicas: tuple[RegisteredClient, ...] = ()
    unlogged_keys: tuple[CascadingKey, ...] = ()
    account: str = "the account"
    all_grants: Grants | None = None
    login: str = "the account"
    coverage: BinlogCoverage = field(default_factory=BinlogCoverage)
    rds_retention_s: int | None = None

    @property
    def is_anonymous(self) -> bool:
        """Whether the server has taken the connection for that of an account without a name."""
        return self.account.startswith("''@")

    def is_on(self, name: str) -> bool:
        """Return whether a switch is on."""
        return self.variables.get(name, "").upper() in ("ON", "1")


@dataclass(frozen=True, slots=True)
class RunRequirements:
    """Hold what a run needs.

    Args:
        snapshot: Whether tables will be read, not only the binlog.
        takes_locks: Whether the snapshot takes a lock.
        include_query: Whether ``include.query`` is set.
        server_ids: Replication client ids of the writers.
        client_name: ``topic.prefix``.
        table_locks: Whether the snapshot may lock table by table where the global lock is refused.
        undrained_s: Seconds since the last batch was committed, if there are changes after it; otherwise None.
        captures_database: Whether the lists let a database's tables be captured.
    """

    snapshot: bool
    takes_locks: bool = True
    include_query: bool = False
    server_ids: range = field(default_factory=lambda: range(0))
    table_locks: bool = True
    client_name: str = ""
    undrained_s: float | None = None
    captures_database: Callable[[str], bool] = field(default=lambda _: True, compare=False)

    @classmethod
    def from_config(cls, cfg: ConnectorConfig, *, snapshot: bool, undrained_s: float | None = None) -> RunRequirements:
        """Take from a configuration what matters here."""
        first = cfg.server_id(0)
        return cls(
            snapshot=snapshot,
            takes_locks=cfg[F.SNAPSHOT_LOCKING_MODE].value != "none",
            include_query=cfg[F.INCLUDE_QUERY],
            server_ids=range(first, first + cfg[F.DRAIN_WRITERS]),
            table_locks=cfg[F.SNAPSHOT_LOCKING_MODE].value != "minimal_percona_no_table_locks",
            client_name=cfg.topic_prefix,
            undrained_s=undrained_s,
            captures_database=cfg.captures_database,
        )


def error_finding(cls: type[CdcError], facts: ServerFacts, what: str, why: str, fix: str) -> Finding:
    """Return a finding that ends the run.

    Args:
        cls: The class of its error.
        facts: The server.
        what: What is wrong.
        why: Why that matters.
        fix: What to do.
    """
    return Finding(ERROR, what, why, fix, cls(what, where=facts.address, why=why, remedy=fix))


_EXISTS = (
    "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME = 'rds_configuration'"
)
_HOURS = "SELECT value FROM mysql.rds_configuration WHERE name = 'binlog retention hours'"
_FIX = "CALL mysql.rds_set_configuration('binlog retention hours', 168)"


def read_rds_retention(conn: MySqlConnection) -> int | None:
    """Return for how many seconds Amazon RDS keeps the binlog: 0 for not at all, None where nothing says so.

    Args:
        conn: An open connection; its account sees the table if it may SELECT everywhere, or from that table.

    Raises:
        SourceError: The server cannot be asked.
    """
    if not fetch_all(conn, _EXISTS)[0][0]:
        return None
    try:
        found = fetch_all(conn, _HOURS)
    except SourceError as error:
        if error.can_retry:
            raise
        return None  # the account may see the table and not read it
    return int(float(found[0][0] or 0) * 3600) if found else None


def rds_deletes_binlog(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    """Yield that Amazon RDS deletes binlog files as soon as it does not need them itself (SETUP-18, FAULT-11)."""
    if facts.rds_retention_s == 0:
        yield Finding(
            WARNING,
            "Amazon RDS deletes the server's binlog files as soon as it can",
            "'binlog retention hours' is not set, so the position of the stream is gone after any pause, and a new "
            "snapshot is needed",
            _FIX,
        )


_MAX_TABLES_NAMED = 10
_VERIFY = "verify and repair the tables (mysql_cdc_verify) if rows changed meanwhile"


def left_out_databases(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    """Yield what ``binlog_do_db`` and ``binlog_ignore_db`` leave out."""
    coverage = facts.coverage
    if coverage.left_out:
        yield error_finding(
            SourceSettingError,
            facts,
            f"changes of captured tables are not written to the binlog: {_named(coverage.left_out)}",
            f"the server was started with {coverage.options()}",
            "remove the option from the server's configuration, restart it, and take a snapshot of these tables; or "
            "exclude them (database.exclude.list, table.exclude.list)",
        )
    if coverage.doubtful:
        yield error_finding(
            SourceSettingError,
            facts,
            f"it cannot be told whether changes of captured tables are written to the binlog: "
            f"{_named(coverage.doubtful)}",
            unclear_options(coverage.options()),
            "change a row of a table of each of these databases and run the task again, which then finds it in the "
            "binlog; if it fails as before, nothing of them is logged: give the option once for each database, restart "
            "the server, and take a snapshot of these tables; or exclude them (database.exclude.list, "
            "table.exclude.list)",
        )
    if coverage.options() and not coverage.left_out and not coverage.doubtful:
        yield Finding(
            WARNING,
            f"the server was started with {coverage.options()}",
            "a DDL statement is left out of the binlog by the database that its session had chosen (USE), not by that "
            "of its table, so ALTER TABLE of a captured table may be missing",
            "run DDL of captured tables with a database chosen that is logged, or remove the option",
        )


def unclear_options(options: str) -> str:
    """Return why it cannot be told what options leave out.

    Args:
        options: The options as the server shows them.
    """
    return (
        f"the server shows {options}, which may be several databases, or one whose name contains a comma (the option "
        "takes one name each time it is given); and no row of these databases was logged since the server was started, "
        f"as far as its binlog was searched ({SEARCHED_MB} MB)"
    )


def _named(tables: Sequence[TableId]) -> str:
    more = f" and {len(tables) - _MAX_TABLES_NAMED} more" if len(tables) > _MAX_TABLES_NAMED else ""
    return ", ".join(map(str, tables[:_MAX_TABLES_NAMED])) + more


def unlogged_replication(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    """Yield the channels whose changes the server applies and does not log."""
    channels = facts.coverage.channels
    if not channels or is_replica_updates_logged(facts.variables):
        return
    yield error_finding(
        SourceSettingError,
        facts,
        "the server is a replica that does not log what it replicates",
        f"log_replica_updates is OFF, so its binlog lacks all changes that come from {channels[0]}",
        "start it with log_replica_updates=ON and take a snapshot, or connect to its source; if it is no replica any "
        f"more, run RESET REPLICA ALL, and {_VERIFY}",
    )


def replica_channels(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    """Yield what keeps changes of the other server from this one, or delays them."""
    for channel in facts.coverage.channels:
        if channel.lists.texts:
            yield Finding(
                WARNING,
                f"the server replicates from {channel} with filters: {channel.lists.shown('replicate')}",
                "its tables and its binlog lack the changes that the filters leave out",
                "nothing, if no captured table is among them; otherwise connect to the other server",
            )
        if not channel.applies:
            yield Finding(
                WARNING,
                f"the server is a replica of {channel} and does not apply changes at present",
                "there is nothing new to capture until it does",
                "look at SHOW REPLICA STATUS; START REPLICA",
            )
        elif channel.delay_s:
            yield Finding(
                WARNING,
                f"the server is a replica of {channel}, {channel.delay_s} s behind it on purpose",
                "events arrive later by that time (SOURCE_DELAY)",
                "nothing, or connect to a replica without a delay",
            )
