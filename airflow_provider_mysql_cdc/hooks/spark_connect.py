"""Start a job's driver for a Spark Connect server: a Python process beside the task, without spark-submit and Java."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.common.compat.sdk import AirflowException, BaseHook

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_spec import ConnectSettings
from airflow_provider_mysql_cdc.cdc.model.job_names import CONNECT_VARIABLE
from airflow_provider_mysql_cdc.connections import read_extra
from airflow_provider_mysql_cdc.hooks.spark_python import DRIVER_PYTHON, EXECUTOR_PYTHON, choose_python
from airflow_provider_mysql_cdc.hooks.spark_settings import connection_conf
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook

SCHEME = "sc://"
CONNECTION_TYPES = (SparkConnectHook.conn_type, "spark")
SESSION_PYTHON = "spark.sql.execution.pyspark.python"
"""Setting of a session that chooses the interpreter of its tasks."""
_CLIENT_MODULES = ("pyspark", "pyarrow", "grpc", "grpc_status")
# Of the Airflow worker's environment: they choose another server, and the interpreter of another Spark's executors.
_OTHER_SPARK = ("SPARK_REMOTE", "PYSPARK_PYTHON")
_REFUSED = {
    "_deploy_mode": "cluster",
    "files": None,
    "jars": None,
    "packages": None,
    "exclude_packages": None,
    "_repositories": None,
    "driver_class_path": None,
    "properties_file": None,
    "_total_executor_cores": None,
    "_executor_cores": None,
    "_executor_memory": None,
    "_num_executors": None,
    "_driver_memory": None,
    "_yarn_queue": None,
    "keytab": None,
    "principal": None,
    "proxy_user": None,
    "_use_krb5ccache": None,
}
"""Arguments of ``SparkSubmitOperator`` that belong to a start of Spark, with the refused value; None for any."""


def is_connect(master: str | None, conn_id: str) -> bool:
    """Return whether a job's Spark is a Spark Connect server.

    Args:
        master: The operator's master, which overrides the connection.
        conn_id: The Spark connection; one that does not exist is none.
    """
    if master is not None:
        return master.startswith(SCHEME)
    try:
        conn = BaseHook.get_connection(conn_id)
    except (AirflowException, ValueError):
        return False
    return conn.conn_type == SparkConnectHook.conn_type or str(conn.host or "").startswith(SCHEME)


def refuse_arguments(task: Any) -> None:
    """Refuse arguments of an operator that start a Spark, because this one runs already.

    Args:
        task: The operator, with the attributes of ``SparkSubmitOperator``.

    Raises:
        ConfigError: It has some.
    """
    given = [
        name.lstrip("_")
        for name, refused in _REFUSED.items()
        if (value := getattr(task, name, None)) and refused in (None, value)
    ]
    if given:
        raise ConfigError(
            "arguments of the task have no effect on a Spark Connect server",
            where=", ".join(given),
            why="the server was started before, with its own executors",
            remedy="remove them; set them where the server is started",
        )


class CdcSparkConnectHook(CdcSparkSubmitHook):
    """Run the driver of a CDC job for a Spark Connect server.

    The connection is Airflow's own ``spark_connect`` (host, port, login as user, password as token, ``use_ssl``), or a
    ``spark`` connection whose host begins with ``sc://``. Its extra may hold ``conf``, ``archives`` and ``py_files``.

    Args:
        kwargs: Arguments of ``CdcSparkSubmitHook``.

    Raises:
        ConfigError: The connection cannot be used, or packages of the client are missing.
    """

    _settings: ConnectSettings
    _py_files: str | None

    def _resolve_connection(self) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        url = self._master
        if url is None:
            conn = self.get_connection(self._conn_id)
            extra = read_extra(conn, '{"use_ssl": true, "conf": {...}, ...}')
            url = self._connection_url()
        elif ";" in url:
            raise self._bad_connection("master has parameters, which Airflow shows")
        requested = {**connection_conf(extra, f"connection {self._conn_id}"), **self._conf}
        archives = self._archives or extra.get("archives")
        env = {name: value for name, value in self._driver_env.items() if name not in _OTHER_SPARK}
        python = choose_python(
            SCHEME, "client", env=env, conf=requested, archives=archives, requested_env=self._env_vars
        )
        self._driver_env, self._driver_python = python.env, python.conf[DRIVER_PYTHON]
        self._settings = ConnectSettings(
            url,
            _session_conf({**requested, **python.conf}),
            _paths(archives),
            _paths(self._py_files or extra.get("py_files")),
        )
        # The base classes look for names of other cluster managers in the master, which a host's name may contain.
        return {**_NO_CLUSTER, "master": SCHEME}

    def _connection_url(self) -> str:
        try:
            return str(SparkConnectHook(self._conn_id).get_connection_url())
        except (ValueError, TypeError) as error:
            raise self._bad_connection(str(error)) from error

    def _bad_connection(self, why: str) -> ConfigError:
        return ConfigError(
            "the connection of the Spark Connect server cannot be used",
            where=f"connection {self._conn_id}" if self._master is None else "master",
            why=why,
            remedy="create a connection of type spark_connect with host and port, the token as its password; or of "
            "type spark with a host that begins with sc://",
        )

    def check_programs(self) -> None:
        """Check that the packages of the client are installed, where the driver runs in this interpreter.

        Raises:
            ConfigError: One is missing.
        """
        missing = [name for name in _CLIENT_MODULES if importlib.util.find_spec(name) is None]
        if missing and "PYSPARK_DRIVER_PYTHON" not in self._driver_env and DRIVER_PYTHON not in self._conf:
            raise ConfigError(
                "a Python package of the Spark Connect client is missing",
                where="Airflow worker",
                why=", ".join(missing),
                remedy="install pyspark-client (Airflow's Spark provider requires it), or pyspark[connect]",
            )

    @contextmanager
    def spark_submit_context(self, *, outlives: bool = False) -> Iterator[dict[str, Any]]:
        """Prepare what the driver inherits: its environment, the job spec, and the settings with the token.

        Args:
            outlives: Whether the driver may still run after this context.

        Yields:
            Arguments for ``subprocess.Popen``.
        """
        with _anonymous_file() as fd, super().spark_submit_context(outlives=outlives) as arguments:
            self._settings.write(fd)
            env: Mapping[str, str] = arguments["env"]
            yield {
                **arguments,
                "env": {**env, CONNECT_VARIABLE: str(fd)},
                "pass_fds": (*arguments["pass_fds"], fd),
            }

    def _build_spark_submit_command(self, application: str) -> list[str]:
        self._env = None
        # The name identifies the driver for later tries (Submission.find_pid).
        return [self._driver_python, application, *(self._application_args or ()), str(self._name)]


_NO_CLUSTER: dict[str, Any] = {
    "queue": None,
    "deploy_mode": "client",
    "spark_binary": "spark-submit",
    "namespace": None,
    "principal": None,
    "keytab": None,
    "rest_scheme": "http",
    "rest_port": 6066,
    "rest_endpoint": None,
}


def _session_conf(conf: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of the session: the interpreter of the tasks has another name there."""
    session = {name: str(value) for name, value in conf.items() if name not in (DRIVER_PYTHON, EXECUTOR_PYTHON)}
    if EXECUTOR_PYTHON in conf:
        session.setdefault(SESSION_PYTHON, str(conf[EXECUTOR_PYTHON]))
    return session


def _paths(text: str | None) -> tuple[str, ...]:
    return tuple(path.strip() for path in (text or "").split(",") if path.strip())


@contextmanager
def _anonymous_file() -> Iterator[int]:
    """Open a file without a name, which the driver keeps open until it has read it."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("mysql-cdc-connect")
        try:
            yield fd
        finally:
            os.close(fd)
        return
    with tempfile.TemporaryFile() as file:
        yield file.fileno()
