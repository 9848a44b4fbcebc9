"""The base of the operators that run Spark jobs: their arguments, and what Airflow and the Spark provider call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowTaskTimeout
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import TaskDeferralTimeout

from airflow_provider_mysql_cdc.cdc.errors import CdcError, from_json
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook, application_path
from airflow_provider_mysql_cdc.hooks.spec_delivery import deliver_spec
from airflow_provider_mysql_cdc.hooks.submission import Submission
from airflow_provider_mysql_cdc.operators.arguments import (
    AUTHOR_SPARK_ARGUMENTS,
    OPENED_BY_AUTHOR,
    REJECTED_ARGUMENTS,
    Properties,
    application_name,
    parse_text_map,
    reject_arguments,
    reject_unknown_arguments,
)
from airflow_provider_mysql_cdc.operators.asset_events import (
    DEFAULT_ALIAS,
    DEFAULT_ASSET,
    StreamAssets,
    accessor_of,
    reference_alias,
    reference_asset,
    with_offset_asset,
)
from airflow_provider_mysql_cdc.operators.common import (
    MaskedPropertiesMixin,
    merge_properties,
    owner_of,
    run_key,
    task_config,
    trigger_properties,
    with_registry,
)
from airflow_provider_mysql_cdc.operators.detached_driver import (
    DriverHandle,
    SparkJobActions,
    end_earlier_driver,
    follow_again,
    resolve_deferrable,
)
from airflow_provider_mysql_cdc.operators.extra_links import PipelineLink, RunbookLink, SparkLink, TopicLink
from airflow_provider_mysql_cdc.operators.job_run import JobKind, JobRun, build_hook
from airflow_provider_mysql_cdc.operators.task_lineage import TaskLineageMixin, remembers_outcome
from airflow_provider_mysql_cdc.operators.task_result import TaskResult, publishing_metrics

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec


class MySqlCdcSparkOperator(TaskLineageMixin, MaskedPropertiesMixin, SparkSubmitOperator):  # type: ignore[misc]
    """Run one bounded CDC job on Spark and move the Airflow-managed offset when it is done.

    The steps: read configuration and stored offset, reconcile with the ledger and plan (in this process), pass the
    plan to a Spark job through a file that only this account can read, wait, then read the outcome from the ledger.
    So a retry is always safe: it continues from Kafka's committed markers, also after this process, the driver or
    Airflow died. For the same reason a retry does not re-attach to the job (``durable`` is off); an older driver that
    still runs is fenced by the new one.

    Args:
        mysql_cdc_conn_id: Connection of type ``mysql_cdc``. (templated)
        kafka_conn_id: Connection of type ``kafka``; None when the first connection's extra names Kafka. (templated)
        schema_registry_conn_id: Connection of type ``schema_registry``, for Avro; None when the first connection's
            extra names it, or properties configure the registry. (templated)
        spark_conn_id: Connection of type ``spark``; it must exist and name a master. (templated)
        master: Spark master; overrides the connection, which may then be missing. (templated)
        properties: Connector properties that override the connections: a mapping, its JSON text, or a list of these
            where later ones win and empty values are left out. No secrets: Airflow shows them. Values that a template
            takes from the run, or from another task, are the run's: it may set only some properties. (templated)
        run_properties: Names of properties that a run may set beside those that every run may set (docs/properties.md).
        run_arguments: Names of arguments that a run may set through templates and results of other tasks, of those that
            decide where the job runs: master, conf, env_vars ... (``run_arguments.AUTHOR_SPARK_ARGUMENTS``).
        offset_asset: Asset whose state stores the offset; it becomes an inlet of the task. When records were written
            there are events of this asset, of the pipeline's and of the tables' (``assets.mysql_cdc``).
        asset_alias: Alias of these events, an outlet of the task; one for each stream (docs/airflow.md).
        offset_conn_id: Connection of a database that stores the offset instead. (templated)
        run_for: How long to drain batch after batch, as timedelta or seconds; 0 drains one batch. (templated)
        writers: Number of writers (Spark tasks that write to Kafka); None uses the properties. (templated)
        conf: Spark configuration, a mapping or its JSON text; overrides the connection's. (templated)
        env_vars: Environment variables for the driver, a mapping or its JSON text; the driver does not inherit the
            Airflow task's own. (templated)
        application: Path of the Spark application; None uses the one of this provider. (templated)
        name: Name of the Spark application; None builds one from DAG, task, run and try. (templated)
        deferrable: Whether to defer the task while the driver runs; None uses ``[operators] default_deferrable`` where
            it is possible. (templated)
        poll_interval: Seconds between two polls of the triggerer.
        metrics_file: File on the worker that gets the stream's metrics as text for Prometheus at the end of each try
            (docs/metrics.md); None writes none. The author of the DAG sets it, no run.
        kwargs: Arguments of ``SparkSubmitOperator``; its cores, memory, executors, queue and deploy mode are templated
            here too. Those that have no effect (``arguments.REJECTED_ARGUMENTS``) are refused.

    Raises:
        TypeError: An argument has no effect, or offset_asset is not known when the DAG is parsed.
        AirflowFailException: A retry will not help; the text names the error and what to do.
        AirflowException: A retry can help.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "spark_conn_id",
        "master",
        "_deploy_mode",
        "_driver_memory",
        "_executor_cores",
        "_executor_memory",
        "_num_executors",
        "_total_executor_cores",
        "_yarn_queue",
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
    operator_extra_links = (PipelineLink(), SparkLink(), TopicLink(), RunbookLink())

    rejected_arguments: ClassVar[Mapping[str, str]] = REJECTED_ARGUMENTS
    author_arguments = AUTHOR_SPARK_ARGUMENTS | OPENED_BY_AUTHOR
    job_kind: ClassVar[JobKind]
    application: str
    name: str | None
    conf: Any
    env_vars: Any
    files: str | None
    _hook: CdcSparkSubmitHook | None

    def __init__(
        self,
        *,
        mysql_cdc_conn_id: str = MySqlCdcHook.default_conn_name,
        kafka_conn_id: str | None = None,
        schema_registry_conn_id: str | None = None,
        spark_conn_id: str = "spark_cdc",
        master: str | None = None,
        properties: Properties | Sequence[Properties] | None = None,
        run_properties: Sequence[str] = (),
        run_arguments: Sequence[str] = (),
        offset_asset: Asset | str = DEFAULT_ASSET,
        asset_alias: AssetAlias | str = DEFAULT_ALIAS,
        offset_conn_id: str | None = None,
        run_for: timedelta | float | str = 0,
        writers: int | str | None = None,
        conf: Mapping[str, Any] | None = None,
        env_vars: Mapping[str, str] | None = None,
        application: str | None = None,
        name: str | None = None,
        deferrable: bool | str | None = None,
        poll_interval: float = 10.0,
        metrics_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.offset_asset = reference_asset(offset_asset, kwargs)
        self.asset_alias = reference_alias(asset_alias, kwargs)
        reject_arguments(type(self).__name__, kwargs, self.rejected_arguments)
        reject_unknown_arguments(run_arguments)
        # An argument may be the result of another task, which cannot be read before it is rendered.
        super().__init__(
            application=application,
            conf=conf,
            env_vars=env_vars,
            name=name,
            conn_id=spark_conn_id,
            durable=False,
            **kwargs,
        )
        self.mysql_cdc_conn_id = mysql_cdc_conn_id
        self.kafka_conn_id = kafka_conn_id
        self.schema_registry_conn_id = schema_registry_conn_id
        self.spark_conn_id = spark_conn_id
        self.master = master
        self.properties = properties
        self.run_properties = run_properties
        self.run_arguments = run_arguments
        self.offset_conn_id = offset_conn_id
        self.run_for = run_for
        self.writers = writers
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.metrics_file = metrics_file
        self._driver: DriverHandle | None = None

    @classmethod
    def partial(cls, **arguments: Any) -> Any:
        """Return the operator with some of its arguments, to be expanded; see ``BaseOperator.partial``.

        Args:
            arguments: Arguments that are the same for all mapped tasks; ``asset_events`` is always one of them.

        Raises:
            TypeError: As for the operator.
        """
        reject_arguments(cls.__name__, arguments, cls.rejected_arguments)
        return super().partial(**with_offset_asset(arguments))

    @remembers_outcome
    def execute(self, context: Any) -> dict[str, Any]:
        """Plan, run the Spark job and settle.

        Returns:
            ``complete``, ``offset``, ``counts`` (records per topic) and ``tables`` (records of row events per table)
            of all ``batches`` of this task, also pushed as XCom; the XCom ``summary`` says it in a sentence.
        """
        try:
            with self.naming_errors():
                self._read_arguments(context)
                cfg, store = self._config_and_store(context)
                self._check_spark()
                with publishing_metrics(lambda: cfg, self.metrics_file, self.log.info):
                    run = self._job_run(cfg, store, context)
                    return self._report(run, self.job_kind.run(self, run))
        except AirflowTaskTimeout:
            self._driver_handle.timed_out = True  # Airflow calls on_kill next
            raise

    @remembers_outcome
    def resume(self, context: Any, event: Mapping[str, Any]) -> dict[str, Any]:
        """Settle when the driver has ended.

        Args:
            context: Airflow's context.
            event: The trigger's event.

        Returns:
            As ``execute``.
        """
        with self.naming_errors(), publishing_metrics(self._config, self.metrics_file, self.log.info):
            return self._resume(context, event)

    def _resume(self, context: Any, event: Mapping[str, Any]) -> dict[str, Any]:
        if event["status"] == "failed":
            raise from_json(event["error"])
        from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec

        run = self._job_run(*self._config_and_store(context), context)
        earlier = Submission.from_context(context)
        if earlier is not None:
            earlier = replace(earlier, shown=int(event.get("shown", 0)))
            self.links.show_application(earlier.application())
        if self.job_kind.mode == "verify":
            follow_again([run.cfg], run.owner, earlier, run.spark, self.log.info)
        id_ = ""
        if earlier is not None:
            id_, self._driver_handle.output_error = earlier.job, earlier.relay_output(self.log.info)
        spec = JobSpec(self.job_kind.mode, {}, {}, owner_of(context), id=id_, run=run_key(context))
        return self._report(run, self.job_kind.complete(self, run, run.settle(spec, None)))

    def _report(self, run: JobRun, result: dict[str, Any]) -> dict[str, Any]:
        run.task_result.mark_reported()
        self.links.show_topic(run.cfg.topic_prefix, result.get("counts") or {})
        if self.do_xcom_push:
            run.task_result.publish_summary(result)
        return result

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Continue after the deferral; end the driver when ``execution_timeout`` has passed.

        Airflow does not notify the trigger of the timeout; it fails the task on a worker
        (``SchedulerJobRunner.check_trigger_timeouts``).

        Args:
            next_method: As in ``BaseOperator``.
            next_kwargs: As in ``BaseOperator``.
            context: Airflow's context.

        Raises:
            TaskDeferralTimeout: ``execution_timeout`` has passed.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self.log.info("execution_timeout has passed, so the driver is ended.")
            try:
                end_earlier_driver(self._all_configs(), context, self.log.info)
            except CdcError as error:
                self.log.error("The driver could not be ended and may still run: %s", error)
            raise

    def on_kill(self) -> None:
        """End the driver with all its processes, here or on a cluster; see ``DriverHandle.kill`` for the exceptions."""
        self._driver_handle.kill(self.log.info)

    @property
    def _driver_handle(self) -> DriverHandle:
        # Each try has one of its own: Airflow executes a shallow copy of the operator (prepare_for_execution).
        if self._driver is None:
            self._driver = DriverHandle()
        return self._driver

    def _job_run(self, cfg: ConnectorConfig, store: OffsetStore, context: Any) -> JobRun:
        spark = SparkJobActions(
            application=self.application,
            name=str(self.name),
            new_hook=self._new_hook,
            submit=partial(self._submit, context=context),
            should_defer=self._should_defer,
            defer=partial(self._defer, context=context),
        )
        task_result = TaskResult(context, StreamAssets(self.offset_asset, self.asset_alias), self.log.info)
        return JobRun(cfg, store, context, spark, self._driver_handle, task_result, self.log)

    def _read_arguments(self, context: Any) -> None:
        """Read the arguments that may be templates or results of other tasks."""
        self._conn_id = self.spark_conn_id
        self.master = self.master or None
        self.name = self.name or application_name(self.job_kind.mode, context)
        self.conf = parse_text_map(self.conf, "conf")
        self.env_vars = parse_text_map(self.env_vars, "env_vars")

    def _config_and_store(self, context: Any) -> tuple[ConnectorConfig, OffsetStore]:
        cfg, hook = self._remembered_config(), MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id)
        accessor = accessor_of(context, self.offset_asset)
        return cfg, hook.get_offset_store(cfg, accessor=accessor, offset_conn_id=self.offset_conn_id)

    def _config(self) -> ConnectorConfig:
        return task_config(self, self._properties())

    def _all_configs(self) -> Sequence[ConnectorConfig]:
        return [self._config()]

    def _properties(self) -> dict[str, Any]:
        merged = merge_properties(with_registry(self.properties, self.schema_registry_conn_id))
        if self.writers not in (None, "", "None"):
            merged["drain.writers"] = self.writers
        return merged

    def _check_spark(self) -> None:
        """Find out what keeps Spark from starting before anything is planned."""
        self.application = str(self.application or application_path(self.job_kind.application))
        self._get_hook().check_programs()

    def _should_defer(self) -> bool:
        return resolve_deferrable(self.deferrable, self._get_hook, self.executor, self.log.info)

    def _defer(self, submission: Submission | None, context: Any) -> None:
        from airflow_provider_mysql_cdc.triggers.job import MySqlCdcJobTrigger

        if submission is not None:
            submission = submission.mark_worked(context)
            self.links.show_application(submission.application())
        self.log.info("The driver runs on its own. The task is deferred until it has ended.")
        self.defer(
            trigger=MySqlCdcJobTrigger(
                owner=owner_of(context),
                submission=submission.to_json() if submission is not None else None,
                mysql_cdc_conn_id=self.mysql_cdc_conn_id,
                kafka_conn_id=self.kafka_conn_id or None,
                properties=trigger_properties(
                    with_registry(self.properties, self.schema_registry_conn_id), self.mysql_cdc_conn_id
                ),
                poll_interval=max(float(self.poll_interval), 0.1),
            ),
            method_name="resume",
            timeout=self.execution_timeout,
        )

    def _submit(self, spec: JobSpec, context: Any) -> Exception | None:
        """Run the Spark job and return the error it failed with, of whatever type.

        Raises:
            CdcError: It could not be submitted at all.
        """
        hook = self._new_hook()
        with deliver_spec(spec, hook.driver_target) as delivery:
            hook.use_delivery(delivery)
            try:
                super().execute(context)
            except CdcError:
                raise
            except Exception as error:
                # AirflowException from spark-submit, RuntimeError from the trackers of YARN, Kubernetes and standalone,
                # OSError where a tracker's program is missing: the ledger says how the job ended.
                return error
        return None

    def _new_hook(self) -> CdcSparkSubmitHook:
        """Return the hook of the next job; ``SparkSubmitOperator.execute`` and ``on_kill`` use the same one."""
        self._hook = self._driver_handle.hook = hook = self._get_hook()
        hook.on_application(self.links.show_application)
        return hook

    def _get_hook(self) -> CdcSparkSubmitHook:
        return build_hook(self)
