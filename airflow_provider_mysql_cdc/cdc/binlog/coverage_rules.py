"""Rules of preflight for what a server leaves out of its binlog: such changes would be lost without a word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import is_replica_updates_logged
from airflow_provider_mysql_cdc.cdc.binlog.logged_tables import SEARCHED_MB
from airflow_provider_mysql_cdc.cdc.binlog.server_facts import RunRequirements, ServerFacts, error_finding
from airflow_provider_mysql_cdc.cdc.errors import SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.finding import WARNING, Finding
from airflow_provider_mysql_cdc.cdc.model.table import TableId

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
