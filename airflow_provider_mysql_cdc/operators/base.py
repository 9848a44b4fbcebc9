"""What the snapshot and the drain operator share: plan, submit, settle."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowTaskTimeout
from airflow.sdk import Asset

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.operators.arguments import reject_arguments
from airflow_provider_mysql_cdc.operators.asset_events import add_run_events
from airflow_provider_mysql_cdc.operators.common import (
    MaskedPropertiesMixin,
    Properties,
    airflow_error,
    merge_properties,
    owner_of,
    parse_seconds,
    run_key,
    with_registry,
)
from airflow_provider_mysql_cdc.operators.deferrable_job import DeferrableJobOperator
from airflow_provider_mysql_cdc.operators.job_result import JobResult
from airflow_provider_mysql_cdc.operators.offset_asset import (
    DEFAULT_ASSET,
    OffsetAssetMixin,
    accessor_of,
    reference_asset,
)
from airflow_provider_mysql_cdc.operators.offset_follower import following_ledger

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
    from airflow_provider_mysql_cdc.cdc.operate.job_lifecycle import PreparedJob
    from airflow_provider_mysql_cdc.cdc.operate.job_outcome import JobOutcome

IDLE_POLL_S = 5.0


class MySqlCdcSparkOperator(OffsetAssetMixin, MaskedPropertiesMixin, DeferrableJobOperator):
    """Run one bounded CDC job on Spark and move the Airflow-managed offset when it is done.

    The steps: read configuration and stored offset, reconcile with the ledger and plan (in this process), hand the
    plan to a Spark job through a file that only this account can read, wait, then learn the outcome from the ledger.
    So a retry is always safe: it goes on where Kafka's committed markers say, also after this process, the driver or
    Airflow died. For the same reason the job is never re-attached (``durable`` is off); an older driver that still runs
    is fenced by the new one.

    Args:
        mysql_cdc_conn_id: Connection of type ``mysql_cdc``. (templated)
        kafka_conn_id: Connection of type ``kafka``; None when the first connection's extra names Kafka. (templated)
        schema_registry_conn_id: Connection of type ``schema_registry``, for Avro; None when the first connection's
            extra names it, or properties say where the registry is. (templated)
        spark_conn_id: Connection of type ``spark``; it must exist and name a master. (templated)
        master: Spark master; wins over the connection, which may then be missing. (templated)
        properties: Connector properties that win over the connections: a mapping, its JSON text, or a list of these
            where later ones win and empty values are left out. No secrets; Airflow shows them. (templated)
        offset_asset: Asset in whose state the offset is kept; it becomes an inlet of the task. When something happened
            there are events: of this asset, of the pipeline's, and of those of the tables (``assets.mysql_cdc``).
        offset_conn_id: Connection of a database to keep the offset in instead. (templated)
        run_for: How long to go on batch after batch, as timedelta or seconds; 0 does one batch. (templated)
        writers: Number of writers (Spark tasks that write to Kafka); None leaves it to the properties. (templated)
        conf: Spark configuration, a mapping or its JSON text; wins over the connection's. (templated)
        env_vars: Environment variables for the driver, a mapping or its JSON text; the driver does not get the Airflow
            task's own. (templated)
        application: Path of the Spark application; None takes the one of this provider. (templated)
        name: Name of the Spark application; None makes one of DAG, task, run and try. (templated)
        kwargs: Arguments of ``SparkSubmitOperator``; its cores, memory, executors, queue and deploy mode are templated
            here too. Those that have no effect (``arguments.REJECTED_ARGUMENTS``) are refused.

    Raises:
        TypeError: An argument has no effect, or offset_asset is not known when the DAG is read.
        AirflowFailException: A retry will not help; the text names the error and what to do.
        AirflowException: A retry can help.
    """

    template_fields: Sequence[str] = (
        *DeferrableJobOperator.template_fields,
        "mysql_cdc_conn_id",
        "kafka_conn_id",
        "schema_registry_conn_id",
        "offset_conn_id",
        "properties",
        "run_for",
        "writers",
        "deferrable",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"properties": "json", "conf": "json", "env_vars": "json"}
    ui_color = "#d7ebdd"

    mode: ClassVar[str]

    def __init__(
        self,
        *,
        mysql_cdc_conn_id: str = MySqlCdcHook.default_conn_name,
        kafka_conn_id: str | None = None,
        schema_registry_conn_id: str | None = None,
        spark_conn_id: str = "spark_cdc",
        master: str | None = None,
        properties: Properties | Sequence[Properties] | None = None,
        offset_asset: Asset | str = DEFAULT_ASSET,
        offset_conn_id: str | None = None,
        run_for: timedelta | float | str = 0,
        writers: int | str | None = None,
        conf: Mapping[str, Any] | None = None,
        env_vars: Mapping[str, str] | None = None,
        application: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.offset_asset = reference_asset(offset_asset, kwargs)
        super().__init__(
            application=application,
            conf=conf,
            env_vars=env_vars,
            name=name,
            spark_conn_id=spark_conn_id,
            master=master,
            **kwargs,
        )
        self.mysql_cdc_conn_id = mysql_cdc_conn_id
        self.kafka_conn_id = kafka_conn_id
        self.schema_registry_conn_id = schema_registry_conn_id
        self.properties = properties
        self.offset_conn_id = offset_conn_id
        self.run_for = run_for
        self.writers = writers
        self._reported_run: tuple[ConnectorConfig, RunTally] | None = None

    @classmethod
    def partial(cls, **arguments: Any) -> Any:
        """Return the operator with some arguments given, to be expanded; see ``BaseOperator.partial``.

        Args:
            arguments: Arguments that are the same for all mapped tasks; ``offset_asset`` is always one of them.

        Raises:
            TypeError: As for the operator.
        """
        reject_arguments(cls.__name__, arguments, cls.rejected_arguments)
        return super().partial(**arguments)

    def prepare(self, cfg: ConnectorConfig, store: OffsetStore, owner: str, run_for_s: float) -> PreparedJob | None:
        """Plan the job, or return None when there is nothing to do.

        Args:
            cfg: The connector's configuration.
            store: Where the offset is kept.
            owner: ``dag_id/run_id/task_id/map_index``.
            run_for_s: Seconds that are left of ``run_for``.
        """
        raise NotImplementedError

    def execute(self, context: Any) -> dict[str, Any]:
        """Plan, run the Spark job and settle.

        Returns:
            ``complete``, ``offset``, ``counts`` (records per topic) and ``tables`` (records of row events per table)
            of all ``batches`` of this task, also pushed as XCom.
        """
        try:
            self._read_arguments(context)
            result = self._run(context)
            self._mark_reported(context)
            return result
        except CdcError as error:
            raise airflow_error(error) from error
        except AirflowTaskTimeout:
            self._timed_out = True  # Airflow calls on_kill next
            raise

    def _run(self, context: Any) -> dict[str, Any]:
        cfg, store = self._config_and_store(context)
        deadline = time.monotonic() + parse_seconds(self.run_for)
        self._check_spark()
        return self._run_task(cfg, store, context, deadline)

    def _run_task(self, cfg: ConnectorConfig, store: OffsetStore, context: Any, deadline: float) -> dict[str, Any]:
        """Do what the task is for; configuration and Spark are known to be usable."""
        deferred = self._should_defer()
        if deferred:
            self._follow_earlier_driver(cfg, context)
        result = self._run_job(cfg, store, context, deadline, deferred=deferred)
        if result is not None:
            return result
        self.log.info("Nothing to do.")
        return self._idle_result(cfg, store, context)

    def _idle_result(self, cfg: ConnectorConfig, store: OffsetStore, context: Any) -> dict[str, Any]:
        """Return the result of a try that has started no job; what earlier tries and ended runs wrote is told now."""
        from airflow_provider_mysql_cdc.cdc.operate.ledger_follower import tally_of, tally_of_ended_run

        state = store.load()
        offset = state.committed.to_json() if state and state.committed else None
        tally = tally_of(cfg, run_key(context)) if getattr(context["ti"], "try_number", 1) > 1 else None
        if tally is None and offset is not None:
            tally = tally_of_ended_run(cfg, owner_of(context))
        return self._report_result(cfg, context, offset, {} if tally is None else dict(tally.counts), tally)

    def _config_and_store(self, context: Any) -> tuple[ConnectorConfig, OffsetStore]:
        cfg, hook = self._config(), MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id)
        accessor = accessor_of(context, self.offset_asset)
        return cfg, hook.get_offset_store(cfg, accessor=accessor, offset_conn_id=self.offset_conn_id)

    def _config(self) -> ConnectorConfig:
        return MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id).get_config(self._properties())

    def _run_job(
        self, cfg: ConnectorConfig, store: OffsetStore, context: Any, deadline: float, *, deferred: bool = False
    ) -> dict[str, Any] | None:
        """Plan, run and settle one job; return None when there was nothing to do until the deadline."""
        job = self._prepare(cfg, store, owner_of(context), deadline)
        self._stop_if_killed()
        if job is None:
            return None
        spec = replace(job.spec, run=run_key(context))
        if deferred:
            return self._run_detached(cfg, store, spec, context)
        with following_ledger(cfg, store, self.log.info) if spec.mode == "drain" else nullcontext():
            failure = self._submit(spec, context)
        self._stop_if_killed()
        return self._finish_job(cfg, store, spec, failure, context)

    def _properties(self) -> dict[str, Any]:
        merged = merge_properties(with_registry(self.properties, self.schema_registry_conn_id))
        if self.writers not in (None, "", "None"):
            merged["drain.writers"] = self.writers
        return merged

    def _prepare(self, cfg: ConnectorConfig, store: OffsetStore, owner: str, deadline: float) -> PreparedJob | None:
        """Plan the job; with ``run_for``, wait for something to do until the deadline."""
        while True:
            remaining_s = max(0.0, deadline - time.monotonic())
            job = self.prepare(cfg, store, owner, remaining_s)
            if job is not None or remaining_s == 0 or self._killed:
                return job
            self._wait_for_work(cfg, store, owner, deadline)

    def _wait_for_work(self, cfg: ConnectorConfig, store: OffsetStore, owner: str, deadline: float) -> None:
        """Look for something to do until there may be something, or until the deadline."""
        from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import may_have_work

        remaining_s = deadline - time.monotonic()
        self.log.info("Nothing to do yet; looking every %s s for up to %.0f s.", IDLE_POLL_S, remaining_s)
        with suppress(CdcError):  # planning names what is wrong
            while remaining_s > 0 and not self._killed:
                time.sleep(min(IDLE_POLL_S, remaining_s))
                if may_have_work(cfg, store, owner):
                    return
                remaining_s = deadline - time.monotonic()

    def _settle(self, cfg: ConnectorConfig, store: OffsetStore, spec: JobSpec) -> JobOutcome:
        from airflow_provider_mysql_cdc.cdc.operate.job_lifecycle import settle_offset

        return settle_offset(cfg, store, self.log.info, spec)

    def _finish_job(
        self, cfg: ConnectorConfig, store: OffsetStore, spec: JobSpec, failure: Exception | None, context: Any
    ) -> dict[str, Any]:
        """Settle whatever the job ended with, and return what it has done or raise what it ended with."""
        try:
            outcome = self._settle(cfg, store, spec)
        except CdcError as error:
            raise self._job_result(failure).unsettled_exception(error) from (failure or error)
        if (exception := self._job_result(failure).exception(outcome)) is not None:
            raise exception from failure
        if failure is not None:
            self.log.warning("spark-submit failed after everything had been committed: %s", failure)
        self.log.info("Done: %s records, offset %s.", sum(outcome.counts.values()), outcome.offset)
        return self._report_result(cfg, context, outcome.offset, outcome.counts, outcome.tally)

    def _job_result(self, failure: Exception | None) -> JobResult:
        return JobResult(failure, self._hook.driver_error() if self._hook else None)

    def _report_result(
        self,
        cfg: ConnectorConfig,
        context: Any,
        offset: dict[str, Any] | None,
        counts: dict[str, int],
        tally: RunTally | None,
    ) -> dict[str, Any]:
        """Return the task's result, and add the events that go with it."""
        result: dict[str, Any] = {"complete": True, "offset": offset, "counts": counts}
        if tally is None:
            return result
        add_run_events(context, cfg, self.offset_asset, offset, tally)
        self._reported_run = (cfg, tally)
        return result | {"batches": tally.batches, "tables": dict(tally.tables)} | tally.native.members()

    def _mark_reported(self, context: Any) -> None:
        """Write down that the task, which succeeds now, has told of what was written."""
        from airflow_provider_mysql_cdc.cdc.operate.ledger_follower import mark_reported

        if self._reported_run is not None and self._reported_run[1].batches:
            mark_reported(*self._reported_run, run_key(context), self.log.info)
