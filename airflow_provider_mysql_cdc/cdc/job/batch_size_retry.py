"""What a task does where a topic takes no batches as large as it has written: it begins anew with smaller ones."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.takeover import join_plan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


def reduce_batch_size(sink: TransactionalWriter, index: int, error: RecordTooLargeError) -> str:
    """Have a writer write smaller batches, and return the line that says so; it joins its plan next.

    Args:
        sink: The writer; nothing of its last transaction is visible.
        index: Its number.
        error: Why the transaction has failed.

    Raises:
        RecordTooLargeError: The same; smaller batches would not help.
    """
    if (size := sink.shrink_batches()) is None:
        raise error
    return f"writer {index} goes on with batches of {size:,} bytes: {error}"


def reduce_and_rejoin(
    cfg: ConnectorConfig, plan: BatchPlan, sink: TransactionalWriter, index: int, error: RecordTooLargeError
) -> str:
    """Have a writer of chunks write smaller batches and join its plan again; return the line that says so.

    The driver gives a chunk to one task once, so that no other copy of the task can have written it meanwhile.

    Args:
        cfg: The connector's configuration.
        plan: The plan that the writer was started with.
        sink: The writer; nothing of its last transaction is visible.
        index: Its number.
        error: Why the transaction has failed.

    Raises:
        RecordTooLargeError: The same; smaller batches would not help.
        FencedError: Another plan or attempt is in force.
        SinkError: Kafka refuses.
    """
    message = reduce_batch_size(sink, index, error)
    with kafka_clients.ledger(cfg) as ledger:
        join_plan(ledger, plan, sink, index)
    return message
