"""What can be judged of a table: kinds of differences that the configuration or the topic's retention makes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.ticdc_fields import rule_for
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import value_columns
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState, read_incremental_state
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import PartitionRule
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import NO_TIMES_REASON, ROWS_ONLY_REASON
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable

_SKIPPED_KINDS: Mapping[str, DifferenceKind] = {
    "r": DifferenceKind.MISSING,
    "c": DifferenceKind.MISSING,
    "u": DifferenceKind.DIFFERING,
    "d": DifferenceKind.GHOST,
}
"""The difference that an operation leads to which the stream leaves out (skipped.operations)."""


def unfinished_tables(ledger: LedgerState) -> dict[TableId, str]:
    """Return the tables whose rows a snapshot is still to read, an interrupted one or an ad-hoc one, with the reason.

    Raises:
        DamagedRecordError: A record of a snapshot is not valid.
    """
    state = read_incremental_state(ledger).with_advanced_cursors()
    how = "a resume-snapshot signal lets it go on" if state.paused else "drains finish it"
    reason = f"a snapshot has not read all rows of the table yet{' and is paused' if state.paused else ''}; {how}"
    return {scan.table: reason for scan in state.active_scans if scan.condition is None}


def ad_hoc_views(state: IncrementalState) -> dict[TableId, list[tuple[int, int]]]:
    """Return the times of the views in which ad-hoc snapshots have read tables: the first and the last of each."""
    found = dict[TableId, list[tuple[int, int]]]()
    for scan in state.scans.values():
        found.setdefault(scan.table, []).append((scan.first_view_ms, scan.last_view_ms))
    for done in state.done_ranges:
        found.setdefault(done.key_range.table, []).append((done.view_ms, done.view_ms))
    return {table: [times for times in of_table if times[1]] for table, of_table in found.items()}


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Hold what decides which events a topic still has.

    Args:
        lost_records: Records at the beginning of its partitions that are no longer there.
        deletes: Whether its settings delete old records; True where that is not known.
        shares_keys: Whether compaction may leave one record of several rows, whose key message.key.columns chooses.
    """

    lost_records: int
    deletes: bool
    shares_keys: bool = False


def deletes_old_records(config: Mapping[str, str]) -> bool:
    """Return whether the brokers delete old records of a topic; otherwise they were deleted by hand."""
    limits = (config.get("retention.ms"), config.get("retention.bytes"))
    return "delete" in config.get("cleanup.policy", "delete") and limits != ("-1", "-1")


def unjudged_kinds(
    cfg: ConnectorConfig, table: TableId, topic: TopicFacts, scanned: Mapping[TableId, str] = MappingProxyType({})
) -> dict[DifferenceKind, str]:
    """Return the kinds of differences that cannot be judged for a table, with the reason as the end of a sentence."""
    unjudged: dict[DifferenceKind, str] = {}
    if (reason := scanned.get(table)) is not None:
        unjudged[DifferenceKind.MISSING] = reason
    for kind, reason in _reasons(cfg, table, topic):
        unjudged.setdefault(kind, reason)
    return unjudged


def chooses_partition_by_key(cfg: ConnectorConfig, compared: ComparedTable) -> bool:
    """Return whether the records of a row are in one partition as long as it has its key, or equal rows without one."""
    if not cfg.is_ticdc:
        return compared.own_key or not compared.identity.key_fields
    rules = cfg[F.DISPATCHERS]
    rule = rule_for(rules, compared.table.id).partition if rules else PartitionRule()
    return rule.name in ("default", "table") or (rule.name == "index-value" and not rule.index)


def shows_whole_rows(cfg: ConnectorConfig, table: Table) -> bool:
    """Return whether records have all columns of a table as they are, so that each change makes another record."""
    options = table_options.table_options(cfg, table)
    columns = value_columns(table, options)
    as_they_are = all(options.treatment(c).change is None and options.custom(c) is None for c in columns)
    return as_they_are and len(columns) == len(table.columns)


def unchecked_histories(cfg: ConnectorConfig, tables: Collection[int]) -> dict[int, str]:
    """Return what histories of keys cannot show, one sentence for each table."""
    if not cfg.is_ticdc:
        return {}
    return dict.fromkeys(tables, ROWS_ONLY_REASON if cfg[F.TIDB_EXTENSION] else NO_TIMES_REASON)


def _reasons(cfg: ConnectorConfig, table: TableId, topic: TopicFacts) -> Iterator[tuple[DifferenceKind, str]]:
    if not cfg[F.SNAPSHOT_MODE].reads_rows:
        yield DifferenceKind.MISSING, f"snapshot.mode={cfg[F.SNAPSHOT_MODE]} reads no rows"
    if not cfg.snapshots_rows(table):
        yield DifferenceKind.MISSING, "the snapshot does not read the rows of this table"
    if cfg.select_override(table) is not None:
        yield DifferenceKind.MISSING, "a statement of snapshot.select.statement.overrides chooses the rows"
    if topic.shares_keys:
        yield (
            DifferenceKind.MISSING,
            "message.key.columns chooses keys that several rows may have, and compaction keeps one record of each",
        )
    if topic.lost_records and topic.deletes:
        yield (
            DifferenceKind.MISSING,
            f"the first {topic.lost_records:,} records of the topic are gone (retention, or records deleted by hand)",
        )
    skipped = table_options.decoder_options(cfg).skipped_ops
    for operation in sorted(skipped):
        if operation in _SKIPPED_KINDS:
            yield _SKIPPED_KINDS[operation], f"skipped.operations leaves out {operation}"
