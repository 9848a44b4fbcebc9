"""Retry with smaller batches of records when a topic refuses one as too large."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.takeover import join_plan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


def reduce_batch_size(sink: TransactionalWriter, index: int, error: RecordTooLargeError) -> str:
    """Reduce a writer's batch size, and return the line for the log; the writer has to join its plan again.

    Args:
        sink: The writer; nothing of its last transaction is visible.
        index: Its number.
        error: Why the transaction failed.

    Raises:
        RecordTooLargeError: The same error, when smaller batches would not help.
    """
    if (size := sink.shrink_batches()) is None:
        raise error
    return f"writer {index} continues with batches of {size:,} bytes: {error}"


def reduce_and_rejoin(
    cfg: ConnectorConfig, plan: BatchPlan, sink: TransactionalWriter, index: int, error: RecordTooLargeError
) -> str:
    """Reduce the batch size of a writer of chunks, and join its plan again; return the line for the log.

    The driver assigns a chunk once, to one task, so no other copy of the task can have written it meanwhile.

    Args:
        cfg: The connector's configuration.
        plan: The plan that the writer was started with.
        sink: The writer; nothing of its last transaction is visible.
        index: Its number.
        error: Why the transaction failed.

    Raises:
        RecordTooLargeError: The same error, when smaller batches would not help.
        FencedError: Another plan or attempt is in force.
        SinkError: Kafka refuses.
    """
    message = reduce_batch_size(sink, index, error)
    with kafka_clients.ledger(cfg) as ledger:
        join_plan(ledger, plan, sink, index)
    return message
