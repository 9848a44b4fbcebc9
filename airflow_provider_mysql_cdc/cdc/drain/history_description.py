"""Write a full description into the schema history after many statements, between two batches.

The driver writes it when a batch is complete: no writer is running, every record of the batch is before it in the
topic, and Kafka lets no older driver commit. All of it becomes visible or nothing; if the driver is killed before, a
later batch writes it.
"""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.unchecked_tables import unchecked_tables
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.emit.topic_names import schema_change_topic
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_log import JobLog
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.schema.full_description import describe_all, description_size, replays_to
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state

_SIZE_SHARE = 10
"""A description of that many records is written after one statement: it is larger than what it replaces otherwise."""


def describe_if_due(cfg: ConnectorConfig, job: JobLedger, plan: BatchPlan, counts: dict[str, int], log: JobLog) -> None:
    """Write a full description if enough statements came since the last one.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        plan: The batch; it is complete.
        counts: Records by topic of the batch.
        log: The job's log.

    Raises:
        SchemaError: The schema history cannot be read.
        SinkError: Kafka cannot be read or written.
    """
    statements = cfg[F.HISTORY_DESCRIPTION_STATEMENTS]
    if not statements or (job.history_cache.statements < statements and not _may_have_statements(cfg, counts)):
        return
    ledger = job.latest()
    end = ledger.end()
    # A structure behind a skipped statement may be wrong until it is compared with the server's.
    if end is None or any(unchecked.skipped for unchecked in unchecked_tables(ledger).values()):
        return
    state = load_schema_state(cfg, until=end, epoch=plan.epoch + 1, cache=job.history_cache)
    if job.history_cache.statements >= max(statements, description_size(state) // _SIZE_SHARE):
        _describe(cfg, job, state, end, plan.epoch, log)


def _may_have_statements(cfg: ConnectorConfig, counts: dict[str, int]) -> bool:
    """Return whether a batch may have added to the history; such a statement mostly has a schema change record."""
    changes = cfg.route_topic(schema_change_topic(cfg[F.TOPIC_PREFIX])).topic
    return bool(counts.get(changes)) or not cfg[F.INCLUDE_SCHEMA_CHANGES]


def _describe(
    cfg: ConnectorConfig, job: JobLedger, state: SchemaState, end: BinlogOffset, epoch: int, log: JobLog
) -> None:
    values = [record.to_bytes() for record in describe_all(cfg, state, end, epoch)]
    if not replays_to(cfg, values, state, end):
        log.once(
            "WARNING: the schema history gets no full description, because the structures cannot be described without "
            "a difference; each start reads all its statements. Please report this"
        )
        return
    records = [SideRecord(cfg.history_topic, None, value) for value in values]
    try:
        job.commit(records, check=lambda: fault_point("description.before_commit"))
    except RecordTooLargeError as error:
        log.once(
            f"WARNING: the schema history gets no full description, and each start reads all its statements: {error}"
        )
        return
    fault_point("description.after_commit")
    log(f"the schema history has a full description of {len(state.tables) + len(state.unparsed)} tables at {end}")
