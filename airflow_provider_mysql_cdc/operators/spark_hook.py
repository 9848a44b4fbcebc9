"""The hook that submits the job of an operator."""

from __future__ import annotations

import os
from typing import Any

from airflow_provider_mysql_cdc.hooks.spark_python import driver_env
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook


def build_hook(task: Any) -> CdcSparkSubmitHook:
    """Return this provider's hook with the arguments of a ``SparkSubmitOperator``.

    Args:
        task: The operator, with rendered arguments and a ``master``. ``SparkSubmitOperator._get_hook`` reads the same
            attributes.

    Raises:
        ConfigError: The connection, or an argument, cannot be used.
    """
    # Not with the operators' modules: what it imports is not needed to parse a DAG.
    from airflow_provider_mysql_cdc.hooks.spark_connect import CdcSparkConnectHook, is_connect, refuse_arguments

    kind = CdcSparkSubmitHook
    if is_connect(task.master, task._conn_id):
        refuse_arguments(task)
        kind = CdcSparkConnectHook
    return kind(
        master=task.master,
        driver_env=driver_env(os.environ, task.env_vars),
        conf=task.conf,
        conn_id=task._conn_id,
        files=task.files,
        py_files=task.py_files,
        archives=task._archives,
        driver_class_path=task.driver_class_path,
        jars=task.jars,
        packages=task.packages,
        exclude_packages=task.exclude_packages,
        repositories=task._repositories,
        total_executor_cores=task._total_executor_cores,
        executor_cores=task._executor_cores,
        executor_memory=task._executor_memory,
        driver_memory=task._driver_memory,
        keytab=task.keytab,
        principal=task.principal,
        proxy_user=task.proxy_user,
        name=task.name,
        num_executors=task._num_executors,
        status_poll_interval=task._status_poll_interval,
        application_args=task.application_args,
        env_vars=task.env_vars,
        verbose=task._verbose,
        spark_binary=task._spark_binary,
        properties_file=task.properties_file,
        yarn_queue=task._yarn_queue,
        deploy_mode=task._deploy_mode,
        use_krb5ccache=task._use_krb5ccache,
        post_submit_commands=task.post_submit_commands,
        track_driver_via_k8s_api=task._track_driver_via_k8s_api,
        yarn_track_via_rm_api=task._yarn_track_via_rm_api,
        yarn_rm_auth=task._yarn_rm_auth,
    )
