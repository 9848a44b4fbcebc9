"""One Spark job of an operator: submit it, end it, and say how spark-submit ended."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.spark_python import driver_env
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook, application_path
from airflow_provider_mysql_cdc.hooks.spec_delivery import deliver_spec
from airflow_provider_mysql_cdc.operators.arguments import (
    REJECTED_ARGUMENTS,
    application_name,
    parse_text_map,
    reject_arguments,
)

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec


class SparkJobOperator(SparkSubmitOperator):  # type: ignore[misc]
    """Submit this provider's Spark applications; what they are for is the subclass's business.

    Args:
        spark_conn_id: Connection of type ``spark``; it must exist and name a master.
        master: Spark master; wins over the connection, which may then be missing.
        conf: Spark configuration, a mapping or its JSON text; added to the connection's (``conf`` in its extra) and to
            ``hooks.spark_defaults.DEFAULT_CONF``.
        env_vars: Environment variables for the driver, a mapping or its JSON text; the driver does not get the Airflow
            task's own.
        application: Path of the Spark application; None takes the one of this provider.
        name: Name of the Spark application; None makes one of DAG, task, run and try.
        kwargs: Arguments of ``SparkSubmitOperator``; those that have no effect are refused.

    Raises:
        TypeError: An argument has no effect.
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
    )

    rejected_arguments: ClassVar[Mapping[str, str]] = REJECTED_ARGUMENTS
    mode: ClassVar[str]
    job_file: ClassVar[str]
    application: str
    name: str | None
    conf: Any
    env_vars: Any
    files: str | None
    _hook: CdcSparkSubmitHook | None

    def __init__(
        self,
        *,
        spark_conn_id: str = "spark_cdc",
        master: str | None = None,
        conf: Mapping[str, Any] | None = None,
        env_vars: Mapping[str, str] | None = None,
        application: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        reject_arguments(type(self).__name__, kwargs, self.rejected_arguments)
        # What is given may be the result of another task, which nobody can read before it is rendered.
        super().__init__(
            application=application,
            conf=conf,
            env_vars=env_vars,
            name=name,
            conn_id=spark_conn_id,
            durable=False,
            **kwargs,
        )
        self.spark_conn_id = spark_conn_id
        self.master = master
        self._killed = False

    def on_kill(self) -> None:
        """End the application: the driver with all its processes here, and what runs on a cluster."""
        self._killed = True
        if self._hook is not None:
            self._hook.on_kill()

    def _stop_if_killed(self) -> None:
        if self._killed:
            raise AirflowException("the task was ended from outside; a retry goes on from the last committed marker")

    def _read_arguments(self, context: Any) -> None:
        """Read what could not be read before it was rendered."""
        self._conn_id = self.spark_conn_id
        self.master = self.master or None
        self.name = self.name or application_name(self.mode, context)
        self.conf = parse_text_map(self.conf, "conf")
        self.env_vars = parse_text_map(self.env_vars, "env_vars")

    def _check_spark(self) -> None:
        """Find out what keeps Spark from starting before anything is planned."""
        if not self.application:
            self.application = application_path(self.job_file)
        self._get_hook().check_programs()

    def _submit(self, spec: JobSpec, context: Any) -> Exception | None:
        """Run the Spark job and return how that failed, if it did, whatever the cluster's tracker calls it.

        Raises:
            CdcError: It could not be submitted at all.
        """
        self._hook = self._get_hook()
        with deliver_spec(spec, self._hook.driver_target) as delivery:
            self._hook.use_delivery(delivery)
            try:
                super().execute(context)
            except CdcError:
                raise
            except Exception as error:
                # AirflowException from spark-submit, RuntimeError from the trackers of YARN, Kubernetes and standalone,
                # OSError where a tracker's program is missing: the ledger says what became of the job.
                return error
        return None

    def _get_hook(self) -> CdcSparkSubmitHook:
        return CdcSparkSubmitHook(
            master=self.master,
            driver_env=driver_env(os.environ, self.env_vars),
            conf=self.conf,
            conn_id=self._conn_id,
            files=self.files,
            py_files=self.py_files,
            archives=self._archives,
            driver_class_path=self.driver_class_path,
            jars=self.jars,
            packages=self.packages,
            exclude_packages=self.exclude_packages,
            repositories=self._repositories,
            total_executor_cores=self._total_executor_cores,
            executor_cores=self._executor_cores,
            executor_memory=self._executor_memory,
            driver_memory=self._driver_memory,
            keytab=self.keytab,
            principal=self.principal,
            proxy_user=self.proxy_user,
            name=self.name,
            num_executors=self._num_executors,
            status_poll_interval=self._status_poll_interval,
            application_args=self.application_args,
            env_vars=self.env_vars,
            verbose=self._verbose,
            spark_binary=self._spark_binary,
            properties_file=self.properties_file,
            yarn_queue=self._yarn_queue,
            deploy_mode=self._deploy_mode,
            use_krb5ccache=self._use_krb5ccache,
            post_submit_commands=self.post_submit_commands,
            track_driver_via_k8s_api=self._track_driver_via_k8s_api,
            yarn_track_via_rm_api=self._yarn_track_via_rm_api,
            yarn_rm_auth=self._yarn_rm_auth,
        )
