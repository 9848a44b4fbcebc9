"""The operator that drains the streams of many servers in one Spark application."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowSkipException, AirflowTaskTimeout

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, SinkConnectionError, from_json
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.hooks.submission import Submission
from airflow_provider_mysql_cdc.operators.arguments import parse_bool, reject_arguments
from airflow_provider_mysql_cdc.operators.asset_events import LockedAccessor, StreamAssets, accessor_of
from airflow_provider_mysql_cdc.operators.common import (
    mask_rendered,
    merge_properties,
    owner_of,
    run_key,
    task_config,
    trigger_properties,
    with_registry,
)
from airflow_provider_mysql_cdc.operators.fleet_arguments import (
    StreamArguments,
    assets_of,
    check_stream_arguments,
    own_properties,
    reference_streams,
    without_same_names,
)
from airflow_provider_mysql_cdc.operators.fleet_outcome import (
    FAILED,
    GAVE_WAY,
    IDLE,
    XCOM_PREFIX,
    StreamOutcome,
    fleet_error,
    fleet_result,
    fleet_summary,
    outcome_table,
)
from airflow_provider_mysql_cdc.operators.fleet_run import FleetRun, FleetStream, StreamLog
from airflow_provider_mysql_cdc.operators.job_run import JobKind, JobRun
from airflow_provider_mysql_cdc.operators.spark_job_operator import MySqlCdcSparkOperator
from airflow_provider_mysql_cdc.operators.task_lineage import FleetLineageMixin, remembers_outcome
from airflow_provider_mysql_cdc.operators.task_result import SUMMARY_KEY, PublishedStream, TaskResult, publishing_each

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

MAX_STREAMS = 200
"""Streams of one task; each has a thread in the driver, a connection to its server and Kafka clients."""
STREAM_FIELD = "{stream}"
"""In ``prometheus_text``: the stream's ``topic.prefix``."""


class MySqlCdcFleetDrainOperator(FleetLineageMixin, MySqlCdcSparkOperator):
    """Drain the streams of many servers in one Spark application.

    Each connection is a stream with its own ``topic.prefix`` (in the connection's extra), plan, ledger, lock, offset,
    metrics, result and asset events, as with an operator of its own. A stream that is slow, whose server is down, or
    that the server refuses keeps no other from committing. The task fails when a stream has failed, after all others
    are drained; its error has the error of each failed stream, and a retry does only what is left, because each stream
    continues from its own stored offset.

    Args:
        mysql_cdc_conn_ids: Connections of type ``mysql_cdc``, a list or its JSON text; at most ``MAX_STREAMS``.
            (templated)
        skip_when_nothing_new: Whether a task that finds no new events in any stream is skipped. (templated)
        stream_arguments: What single streams have of their own, by connection: ``properties``, which win over those of
            the operator; ``asset_events`` and ``asset_alias``, as names; ``pipeline``, the name of the ``cdc_pipeline``
            whose DAGs an error of the stream names. The author of the DAG sets them, no run.
        kwargs: As for ``MySqlCdcSparkOperator``, without ``mysql_cdc_conn_id`` and ``run_for``; they hold for every
            stream. The name of a ``prometheus_text`` contains ``{stream}``.

    Raises:
        TypeError: An argument has no effect.
        AirflowFailException: Streams have failed, and a retry helps none of them.
        AirflowException: Streams have failed, and a retry can help at least one of them.
    """

    template_fields: Sequence[str] = (
        *(name for name in MySqlCdcSparkOperator.template_fields if name not in ("mysql_cdc_conn_id", "run_for")),
        "mysql_cdc_conn_ids",
        "skip_when_nothing_new",
        "stream_arguments",
    )
    author_arguments = MySqlCdcSparkOperator.author_arguments | {"stream_arguments"}
    rejected_arguments: ClassVar[Mapping[str, str]] = {
        **MySqlCdcSparkOperator.rejected_arguments,
        "mysql_cdc_conn_id": "mysql_cdc_conn_ids names the connections",
        "run_for": "a writer that lives for the whole run keeps its slot from the other streams; schedule the DAG",
    }
    job_kind = JobKind("fleet", "drain_fleet.py", lambda task, run: {})

    def __init__(
        self,
        *,
        mysql_cdc_conn_ids: Sequence[str] | str,
        skip_when_nothing_new: bool | str = False,
        stream_arguments: StreamArguments | None = None,
        **kwargs: Any,
    ) -> None:
        reject_arguments(type(self).__name__, kwargs, self.rejected_arguments)
        reference_streams(check_stream_arguments(stream_arguments), kwargs)
        super().__init__(**kwargs)
        self.mysql_cdc_conn_id = ""
        self.mysql_cdc_conn_ids = mysql_cdc_conn_ids
        self.skip_when_nothing_new = skip_when_nothing_new
        self.stream_arguments = stream_arguments or {}
        self._kept: Mapping[str, Any] = {}
        if self.metrics_file and STREAM_FIELD not in self.metrics_file:
            raise TypeError(f"metrics_file of a fleet has a file for each stream: its name contains {STREAM_FIELD}")

    @classmethod
    def partial(cls, **arguments: Any) -> Any:
        """Return the operator with some of its arguments, to be expanded; see ``BaseOperator.partial``.

        Args:
            arguments: Arguments that are the same for all mapped tasks; ``stream_arguments`` is always one of them.

        Raises:
            TypeError: As for the operator.
        """
        reference_streams(check_stream_arguments(arguments.get("stream_arguments")), arguments)
        return super().partial(**arguments)

    @remembers_outcome
    def execute(self, context: Any) -> dict[str, Any]:
        """Plan each stream, run the Spark application and settle each stream.

        Returns:
            ``complete``, ``counts`` (records per topic) and ``streams`` (state, records and offset of each). The XCom
            ``stream_<topic.prefix>`` has the whole result of a stream, or its error; ``summary`` says it in a sentence.
        """
        try:
            with self.naming_errors():
                self._read_arguments(context)
                self._check_spark()
                fleet = self._fleet(context)
                with self._publishing_metrics(fleet):
                    return self._end(context, fleet, fleet.drain(self._keep))
        except AirflowTaskTimeout:
            self._driver_handle.timed_out = True  # Airflow calls on_kill next
            raise

    @remembers_outcome
    def resume(self, context: Any, event: Mapping[str, Any]) -> dict[str, Any]:
        """Settle each stream when the driver has ended.

        Args:
            context: Airflow's context.
            event: The trigger's event, with what is known of the streams that were not in the job.

        Returns:
            As ``execute``.
        """
        with self.naming_errors():
            if event["status"] == "failed":
                raise from_json(event["error"])
            self._kept, fleet = event.get("kept") or {}, self._fleet(context)
            with self._publishing_metrics(fleet):
                return self._end(context, fleet, self._settle(context, fleet, event))

    def _settle(self, context: Any, fleet: FleetRun, event: Mapping[str, Any]) -> list[StreamOutcome]:
        """Settle each stream; defer again where the driver still runs: a stream may have begun after the others."""
        from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
        from airflow_provider_mysql_cdc.cdc.operate.end_run import any_driver_running

        earlier = Submission.from_context(context)
        if earlier is not None:
            earlier = replace(earlier, shown=int(event.get("shown", 0)))
            self.links.show_application(earlier.application())
        with suppress(CdcError):  # of the servers; the ledgers say how the streams ended
            if (earlier is not None and earlier.find_pid()) or any_driver_running(fleet.cfgs, owner_of(context)):
                self._defer(earlier, context)
        id_ = ""
        if earlier is not None:
            id_, self._driver_handle.output_error = earlier.job, earlier.relay_output(self.log.info)
        return fleet.resume(JobSpec("drain", {}, {}, owner_of(context), id=id_, run=run_key(context)), self._kept)

    def _end(self, context: Any, fleet: FleetRun, outcomes: Sequence[StreamOutcome]) -> dict[str, Any]:
        """Report all streams, and end the task with their errors if there are any.

        Raises:
            StreamsFailedError: Streams have failed.
            AirflowSkipException: The task is to be skipped, because no stream had anything to do.
        """
        outcomes = [self._naming_dags(outcome) for outcome in outcomes]
        cfgs = {stream.conn_id: stream.run.cfg for stream in fleet.streams}
        self.lineage_streams = [(outcome, cfgs.get(outcome.conn_id)) for outcome in outcomes]
        result, summary = fleet_result(outcomes), fleet_summary(outcomes)
        self.log.info("%s\n%s", summary, "\n".join(outcome_table(outcomes)))
        if self.do_xcom_push:
            for outcome in outcomes:
                context["ti"].xcom_push(key=f"{XCOM_PREFIX}{outcome.stream}", value=outcome.to_json())
            context["ti"].xcom_push(key=SUMMARY_KEY, value=summary)
        if (error := fleet_error(outcomes)) is not None:
            raise error  # Airflow makes no asset events of a failed try; the retry, or the next run, reports all
        fleet.mark_reported()
        states = {outcome.state for outcome in outcomes}
        if states == {GAVE_WAY} or (
            states <= {GAVE_WAY, IDLE} and parse_bool(self.skip_when_nothing_new, "skip_when_nothing_new")
        ):
            context["ti"].xcom_push(key="return_value", value=result)
            raise AirflowSkipException(summary)
        return result

    def _naming_dags(self, outcome: StreamOutcome) -> StreamOutcome:
        """Return an outcome whose error names the DAGs of the stream's own pipeline."""
        pipeline = self.stream_arguments.get(outcome.conn_id, {}).get("pipeline")
        if outcome.error is None or not pipeline:
            return outcome
        return replace(outcome, error=outcome.error.with_dags_of(str(pipeline)))

    def _fleet(self, context: Any) -> FleetRun:
        """Read the configuration of each stream; what is wrong with one is its outcome."""
        streams: list[FleetStream] = []
        unread: list[StreamOutcome] = []
        for conn_id in self._conn_ids():
            try:
                streams.append(FleetStream(conn_id, self._stream_run(conn_id, context)))
            except CdcError as error:
                unread.append(StreamOutcome(conn_id, conn_id, FAILED, error=error))
        known, same = without_same_names(streams)
        return FleetRun(known, [*unread, *same])

    def _stream_run(self, conn_id: str, context: Any) -> JobRun:
        cfg = self._stream_config(conn_id)
        assets = assets_of(self.stream_arguments.get(conn_id, {}), StreamAssets(self.offset_asset, self.asset_alias))
        accessor = accessor_of(context, assets.offset)
        hook = MySqlCdcHook(conn_id, self.kafka_conn_id)
        locked = None if accessor is None else LockedAccessor(accessor)
        store = hook.get_offset_store(cfg, accessor=locked, offset_conn_id=self.offset_conn_id)
        log = StreamLog(self.log, cfg.topic_prefix)
        run = self._job_run(cfg, store, context)
        return replace(run, logger=log, task_result=TaskResult(context, assets, log.info))

    def _stream_config(self, conn_id: str) -> ConnectorConfig:
        own = merge_properties(own_properties(self.stream_arguments, conn_id))
        return task_config(self, {**self._properties(), **own}, conn_id)

    def _conn_ids(self) -> list[str]:
        """Return the connections.

        Raises:
            ConfigError: They are no list of names, one is named twice, or there are none or too many.
        """
        given = self.mysql_cdc_conn_ids
        try:
            names = json.loads(given) if isinstance(given, str) else list(given)
        except ValueError:
            names = None
        known = names if isinstance(names, list) and all(isinstance(name, str) and name for name in names) else []
        if not known or len(set(known)) < len(known) or len(known) > MAX_STREAMS:
            raise ConfigError(
                "the connections of the fleet are not a list of different names",
                where="mysql_cdc_conn_ids",
                why=f"{len(known)} names, {len(set(known))} different" if known else f"it is {str(given)[:200]!r}",
                remedy=f"name from 1 to {MAX_STREAMS} connections, each once; more streams need a second task",
            )
        return known

    def _all_configs(self) -> Sequence[ConnectorConfig]:
        return self._readable_configs() or [self._config()]

    def _readable_configs(self) -> list[ConnectorConfig]:
        """Return the configurations that can be read; the others have no driver."""
        configs: list[ConnectorConfig] = []
        for conn_id in self._conn_ids():
            with suppress(CdcError):
                configs.append(self._stream_config(conn_id))
        return configs

    def _config(self) -> ConnectorConfig:
        return self._stream_config(self._conn_ids()[0])

    def _publishing_metrics(self, fleet: FleetRun) -> AbstractContextManager[None]:
        """Publish the metrics of each stream at the end, as its own operator would."""

        def streams() -> list[PublishedStream]:
            ended = [outcome for outcome, _ in self.lineage_streams]
            lost = {outcome.conn_id for outcome in ended if isinstance(outcome.error, SinkConnectionError)}
            return [
                PublishedStream(
                    partial(_identity, stream.run.cfg),
                    self.metrics_file and self.metrics_file.replace(STREAM_FIELD, stream.name),
                    lost_kafka=stream.conn_id in lost,
                )
                for stream in fleet.streams
            ]

        return publishing_each(streams, self.log.info)

    def _do_render_template_fields(self, parent: Any, template_fields: Any, context: Any, *more: Any) -> None:
        super()._do_render_template_fields(parent, template_fields, context, *more)
        for own in self.stream_arguments.values():
            mask_rendered(own.get("properties"))

    def _keep(self, kept: Mapping[str, Any]) -> None:
        self._kept = kept

    def _defer(self, submission: Submission | None, context: Any) -> None:
        from airflow_provider_mysql_cdc.triggers.fleet import MySqlCdcFleetTrigger

        if submission is not None:
            submission = submission.mark_worked(context)
            self.links.show_application(submission.application())
        self.log.info("The driver runs on its own. The task is deferred until it has ended.")
        conn_ids = self._conn_ids()
        properties = with_registry(self.properties, self.schema_registry_conn_id)
        self.defer(
            trigger=MySqlCdcFleetTrigger(
                mysql_cdc_conn_ids=conn_ids,
                kept=self._kept,
                owner=owner_of(context),
                submission=submission.to_json() if submission is not None else None,
                kafka_conn_id=self.kafka_conn_id or None,
                properties=trigger_properties(properties, ", ".join(conn_ids[:3])),
                stream_properties={
                    conn_id: trigger_properties(own, conn_id)
                    for conn_id in conn_ids
                    if (own := own_properties(self.stream_arguments, conn_id))
                },
                poll_interval=max(float(self.poll_interval), 0.1),
            ),
            method_name="resume",
            timeout=self.execution_timeout,
        )


def _identity(cfg: ConnectorConfig) -> ConnectorConfig:
    return cfg
