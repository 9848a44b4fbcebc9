"""What the tasks of a verification are started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.checksum_tables import DifferingKeys
from airflow_provider_mysql_cdc.cdc.verify.kept_batches import KeptBatch
from airflow_provider_mysql_cdc.cdc.verify.row_comparison import ComparedColumns


@dataclass(frozen=True, slots=True)
class VerifyInputs:
    """Hold what the tasks of a verification need.

    Args:
        writer: What they need as writers of the batch that ends at the verification's position.
        tables: Names of the tables to compare, in the order of their numbers.
        buckets: Number of buckets.
        sample_percent: Share of the keys to compare.
        rows_per_second: Most rows that all tasks together read from the source in a second; 0 for no limit.
        tasks: Number of tasks.
        history_tables: Numbers of the tables whose events are also checked one after the other.
        transaction_topic: The topic with which the events of transactions are compared; empty if they are not.
        batches: The batches by which records are counted.
        columns: Columns of the tables, by number, as those have them who compare the rows.
        checksum_buckets: Buckets of keys of the tables that are compared by checksums, by number.
        differing: Of the others, which keys are looked at, where a round by checksums was before; all of those that are
            not in it.
        sums_in_sql: Whether the server may add up the checksums of rows; otherwise tasks encode the rows.
    """

    writer: WriterInputs
    tables: tuple[TableId, ...]
    buckets: int
    sample_percent: float
    rows_per_second: int
    tasks: int
    history_tables: frozenset[int] = frozenset()
    columns: Mapping[int, ComparedColumns] = field(default_factory=dict)
    transaction_topic: str = ""
    checksum_buckets: Mapping[int, int] = field(default_factory=dict)
    differing: Mapping[TableId, DifferingKeys] = field(default_factory=dict)
    batches: tuple[KeptBatch, ...] = ()
    sums_in_sql: bool = True
