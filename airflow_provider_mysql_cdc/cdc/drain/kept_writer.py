"""What a writer keeps from one batch to the next, and for how long.

=========================  ========================================================================================
What                       Until
=========================  ========================================================================================
Kafka producer, with its   any error; a batch that does not follow the one that it wrote last; anybody who takes the
transactional id           id over, which ends it at its next commit; a thousand tables (``producer_renewal``)
ledger, as read so far     the end of the task
dump connection            any error; a batch that does not begin where the connection stands; another server
decoders and formats of    any error; another structure of the table, other TABLE_MAP metadata, another share of the
tables                     topic
=========================  ========================================================================================

An error ends the task, except one: a record that is too large for the producer's batches, which begins the batch again
with nothing kept but the producer's settings.
"""

from __future__ import annotations

import contextlib

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.takeover import join_plan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.kept_parts import KeptParts
from airflow_provider_mysql_cdc.cdc.drain.producer_renewal import knows_many
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import begin_batch, with_chain
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.schema_ids import ask_driver
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


class KeptWriter:
    """Hold what one writer keeps from batch to batch.

    Args:
        cfg: The connector's configuration.
        index: The writer's index.
        channel: Calls to the driver.
        sink: Its transactional producer, not yet initialised, which the caller closes; None for one of its own.
    """

    def __init__(
        self, cfg: ConnectorConfig, index: int, channel: CoordinatorClient, sink: TransactionalWriter | None = None
    ) -> None:
        self.cfg, self.index, self.channel = cfg, index, channel
        self.formats = RecordFormats.from_config(cfg, ask_driver(channel))
        self.parts = KeptParts()
        self._written: BatchPlan | None = None
        with contextlib.ExitStack() as opened:
            self.sink = sink or opened.enter_context(
                contextlib.closing(with_chain(cfg, kafka_clients.record_writer(cfg, index), ask_driver(channel)))
            )
            # Open until the end: a writer that meets thousands of tables joins the plan many times
            # (``producer_renewal``), and reads only newer ledger records then.
            self.ledger = opened.enter_context(kafka_clients.ledger(cfg))
            self._opened = opened.pop_all()

    def join(self, plan: BatchPlan) -> LedgerState:
        """Take part in a plan, and return the ledger as it is then.

        After the batch before, the transactional id is still this writer's: whoever takes it over ends this writer at
        its next commit. So only the plan is compared, and the id is not taken over again, unless the client has met so
        many tables that another one is cheaper.

        Args:
            plan: The plan.

        Raises:
            FencedError: Another plan or attempt is in force.
            SinkError: Kafka refuses.
        """
        written, self._written = self._written, None
        if knows_many(self.parts.met_tables):
            self.parts.met_tables.clear()
            self.sink.renew()
            written = None
        if written is None or written.epoch + 1 != plan.epoch:
            state = join_plan(self.ledger, plan, self.sink, self.index)
        else:
            state = self.ledger.peek()
            state.require_plan(plan)
        begin_batch(self.sink, plan, state.topics)
        return state

    def complete(self, plan: BatchPlan) -> None:
        """Note that a batch is written to its end, so that the next one can be joined with what is kept.

        Args:
            plan: The batch.
        """
        self._written = plan

    def forget(self) -> None:
        """Drop what is kept of earlier batches; the producer has to take over its transactional id again."""
        self._written = None
        self.parts.dump.close()
        self.parts = KeptParts()

    def close(self) -> None:
        """Close all connections."""
        self.parts.dump.close()
        self._opened.close()
