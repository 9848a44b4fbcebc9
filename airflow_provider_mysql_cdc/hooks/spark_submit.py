"""spark-submit for this provider: the Spark provider's hook, strict about master, environment and processes."""

from __future__ import annotations

import base64
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException, conf

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError
from airflow_provider_mysql_cdc.connections import read_extra, require_type
from airflow_provider_mysql_cdc.hooks import kill_application, kubernetes_secret, spec_delivery
from airflow_provider_mysql_cdc.hooks.spark_python import choose_python, require_programs
from airflow_provider_mysql_cdc.hooks.spark_settings import (
    DEFAULT_CONF,
    SecretSettings,
    cluster_defaults,
    connection_conf,
    secret_settings,
    with_defaults,
)
from airflow_provider_mysql_cdc.hooks.spec_delivery import (
    POD_NAME,
    YARN_TAGS,
    DriverTarget,
    SpecDelivery,
    keytab_file,
    pod_name,
    yarn_tag,
)
from airflow_provider_mysql_cdc.hooks.submission import DriverOutput, SparkApplication

_PACKAGE = Path(__file__).resolve().parent.parent
_MASTER = re.compile(r"local(\[[^\]]+\])?|yarn|(spark|mesos)://[^/]+:\d+(,.+)?|k8s://.+")
_KUBERNETES = "airflow.providers.cncf.kubernetes"
_EXIT_FAIL = 78
DEPLOY_MODES = ("client", "cluster")
# Of the five seconds that Airflow gives on_kill. A spark-submit without the driver inside needs no time to clean up.
_SUBMIT_GRACE_S = 1.0


def application_path(name: str) -> str:
    """Return the path of one of this provider's Spark applications.

    The search order is: the folder of the option ``[mysql_cdc] spark_jobs_folder``, without which ``spark_jobs`` inside
    the installed package, then ``spark_jobs`` next to the package (a source checkout).

    Args:
        name: File name, for example ``drain_binlog.py``.

    Raises:
        ConfigError: None of these folders has the file.
    """
    configured = conf.get("mysql_cdc", "spark_jobs_folder", fallback="") or ""
    folders = [Path(configured)] if configured else [_PACKAGE / "spark_jobs", _PACKAGE.parent / "spark_jobs"]
    for folder in folders:
        # A folder such as local:///opt/jobs is inside a container image, where only Spark can read it.
        if "://" in configured:
            return f"{configured.rstrip('/')}/{name}"
        if (folder / name).is_file():
            return str(folder / name)
    raise ConfigError(
        "the Spark application was not found",
        where=name,
        why="it is not in " + ", ".join(map(str, folders)),
        remedy="set [mysql_cdc] spark_jobs_folder, or the operator's argument application",
    )


class CdcSparkSubmitHook(SparkSubmitHook):  # type: ignore[misc]
    """Submit a CDC job.

    Differences from the Spark provider's hook: a connection that is missing or has no usable master is an error (there
    the master silently becomes ``yarn``); the driver gets a clean environment instead of the Airflow task's; the driver
    runs in a process group of its own, which ``on_kill`` ends. The connection's extra may hold ``conf`` (a JSON object
    of Spark configuration, which the job's own overrides) and ``archives``.

    Args:
        master: Spark master; overrides the connection, which may then be missing.
        driver_env: Environment of spark-submit.
        kwargs: Arguments of ``SparkSubmitHook``.

    Raises:
        ConfigError: The connection does not exist or its master cannot be used, or spark-submit or Java is missing.
    """

    _files: str | None
    _conf: dict[str, Any]

    def __init__(self, *, master: str | None = None, driver_env: Mapping[str, str], **kwargs: Any) -> None:
        self._master = master
        self._driver_env = dict(driver_env)
        self._delivery = SpecDelivery("")
        self._secrets = SecretSettings(None)
        self._keytab = b""
        self._kill_requested = False
        self._output = DriverOutput(lambda line: self.log.debug("%s", line))
        self._archives: str | None
        super().__init__(**kwargs)

    def _resolve_connection(self) -> dict[str, Any]:
        if self._master is None:
            _require_connection(self, self._conn_id)
        try:
            data: dict[str, Any] = super()._resolve_connection()
        except ValueError as error:  # from the Spark provider; Airflow would retry it, and no retry can help
            raise _bad_extra(self._conn_id, str(error)) from error
        if self._master is not None:
            data["master"] = self._master
        data["deploy_mode"] = self._deploy_mode or data["deploy_mode"] or "client"
        if data["deploy_mode"] not in DEPLOY_MODES:
            raise _bad_extra(
                self._conn_id, f"deploy mode {data['deploy_mode']!r} is not one of {', '.join(DEPLOY_MODES)}"
            )
        if not _MASTER.fullmatch(str(data["master"])):
            raise _bad_master(self._conn_id, f"{data['master']!r} is not a Spark master")
        if str(data["master"]).startswith("local"):
            # No other host has to reach a local driver, and its web page has no password.
            self._driver_env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        _require_supported(str(data["master"]), str(data["deploy_mode"]))
        self._complete_conf(str(data["master"]), str(data["deploy_mode"]))
        return data

    def _create_keytab_path_from_base64_keytab(self, base64_keytab: str, principal: str | None) -> str:
        """Keep the connection's keytab in memory until a job is submitted; the base class leaves it in /tmp."""
        try:
            self._keytab = base64.b64decode(base64_keytab, validate=True)
        except ValueError as error:
            raise _bad_extra(self._conn_id, f"its keytab is not base64: {error}") from None
        return "the connection's keytab"

    def _complete_conf(self, master: str, deploy_mode: str) -> None:
        """Complete configuration and environment with the settings of connection, cluster and master."""
        connection_extra = {} if self._master is not None else self.get_connection(self._conn_id).extra_dejson
        requested = {**connection_conf(connection_extra, f"connection {self._conn_id}"), **self._conf}
        self._archives = self._archives or connection_extra.get("archives")
        cluster = cluster_defaults(self._driver_env, self._properties_file)
        python = choose_python(
            master,
            deploy_mode,
            env=self._driver_env,
            conf={**cluster, **requested},
            archives=self._archives,
            requested_env=self._env_vars,
            cluster_settings=cluster.keys() - requested.keys(),
        )
        self._driver_env = python.env
        merged = with_defaults(DEFAULT_CONF, cluster=cluster, requested=requested, env=self._driver_env)
        self._conf = {**merged, **python.conf}

    @property
    def driver_target(self) -> DriverTarget:
        """Return where the driver will run."""
        data = self._connection
        return DriverTarget(
            str(data["master"]),
            self.deploy_mode,
            str(data["namespace"] or ""),
            own_login=bool(data["keytab"] or data["principal"] or self._proxy_user),
            token_files=self._driver_env.get(spec_delivery.TOKEN_FILE_VARIABLE, ""),
        )

    def use_delivery(self, delivery: SpecDelivery) -> None:
        """Add a job spec to the next submission.

        Args:
            delivery: How the spec reaches the driver.
        """
        self._delivery = delivery
        self._application_args = [delivery.argument]
        self._files = ",".join(filter(None, (self._files, *delivery.files))) or None
        delivery_conf = dict(delivery.conf)
        if (name := self._conf.get(POD_NAME)) is not None:
            delivery_conf[POD_NAME] = str(name)
        if tags := self._conf.get(YARN_TAGS):
            delivery_conf[YARN_TAGS] = f"{tags},{delivery_conf[YARN_TAGS]}" if YARN_TAGS in delivery_conf else str(tags)
        self._conf = {**self._conf, **delivery_conf}

    @property
    def deploy_mode(self) -> str:
        """Return ``client`` or ``cluster``."""
        return str(self._connection["deploy_mode"])

    def _build_spark_common_args(self) -> list[str]:
        return self._secrets.move_secrets(super()._build_spark_common_args())

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command: list[str] = super()._build_spark_submit_command(application)
        # The base class would merge this with the task's environment; submit() passes a complete one instead.
        self._env = None
        return command

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run spark-submit, write its output to the task log and wait for its end.

        Args:
            application: Path of the Python file to run.
            kwargs: Arguments for ``subprocess.Popen``.

        Raises:
            ConfigError: spark-submit or Java is missing.
            AirflowException: spark-submit ended with an error, or the task was killed before.
        """
        self.check_programs()
        if self._kill_requested:
            raise AirflowException("The task was killed before its job was submitted. A retry submits it again.")
        driver = self.cluster_driver(self._delivery.job_id) if self._delivery.job_id else {}
        with (
            kubernetes_secret.deleted_once_mounted(driver) if "pod" in driver else nullcontext(),
            self.spark_submit_context() as popen_arguments,
        ):
            result: str | None = super().submit(application, **{**popen_arguments, **kwargs})
        return result

    @contextmanager
    def spark_submit_context(self, *, outlives: bool = False) -> Iterator[dict[str, Any]]:
        """Prepare what spark-submit inherits; build its command and start it inside.

        Args:
            outlives: Whether spark-submit may still run after this context.

        Yields:
            Arguments for ``subprocess.Popen``: a complete environment, a session of its own, and open files.
        """
        with ExitStack() as stack:
            # Afterwards the descriptor is closed, and another file may get its number.
            stack.callback(setattr, self, "_secrets", SecretSettings(None))
            self._secrets = stack.enter_context(secret_settings())
            fds = (*self._delivery.fds, *self._secrets.fds)
            if self._keytab:
                path, lock_fd = stack.enter_context(keytab_file(self._keytab, outlives=outlives))
                self._connection["keytab"], fds = path, (*fds, lock_fd)
            yield {"env": {**self._driver_env, **self._delivery.env}, "start_new_session": True, "pass_fds": fds}

    def check_programs(self) -> None:
        """Check that spark-submit and Java are installed, and that the tracking options match the master.

        Raises:
            ConfigError: A program is missing, or an option does not match.
        """
        require_programs(self._connection["spark_binary"], self._driver_env)
        try:
            if self._track_driver_via_k8s_api:
                self._validate_track_driver_via_k8s_api_config()
            self._validate_yarn_track_via_rm_api_config()
        except (ValueError, RuntimeError) as error:
            raise ConfigError(
                "the job cannot be tracked with these arguments",
                where="track_driver_via_k8s_api, yarn_track_via_rm_api",
                why=str(error),
                remedy="change the arguments, or the Spark connection, as the message says",
            ) from error

    def on_application(self, take: Callable[[SparkApplication], None]) -> None:
        """Have what spark-submit or the driver says about the Spark application taken as soon as it is said.

        Args:
            take: Takes it, in the thread that reads the output.
        """
        self._output.on_application = take

    def driver_error(self) -> CdcError | None:
        """Return the named error that the driver on this host ended with."""
        if self._submit_sp is None or not self._submit_sp.returncode:
            return None
        return self._output.error(retriable=self._submit_sp.returncode != _EXIT_FAIL)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        if self._kill_requested and self._submit_sp is not None:
            # The task was killed while the process was being started.
            self._kill_spark_submit(kill_application.KILL_GRACE_S)
        super()._process_spark_submit_log(self._output.other_lines(itr))

    def on_kill(self) -> None:
        """End spark-submit with all its processes, and a driver on a cluster."""
        self._kill_requested = True
        cluster_mode = self.deploy_mode == "cluster"
        if self._submit_sp is not None and self._submit_sp.poll() is None:
            # An application that it submits until then is ended below.
            self._kill_spark_submit(_SUBMIT_GRACE_S if cluster_mode else kill_application.KILL_GRACE_S)
        if cluster_mode and self._delivery.argument:
            self.kill_in_cluster(self.cluster_driver(self._delivery.job_id))
        self._run_post_submit_commands()

    def _kill_spark_submit(self, grace_s: float) -> None:
        process = self._submit_sp
        kill_application.kill_process_group(process.pid, lambda: process.poll() is None, grace_s)

    def cluster_driver(self, job: str) -> dict[str, str]:
        """Return what identifies a driver on a cluster, without secrets, so that any process can end it.

        Args:
            job: The submission's id.

        Returns:
            Empty in client mode.
        """
        if self.deploy_mode != "cluster":
            return {}
        if self._is_kubernetes:
            namespace, pod = self.driver_target.namespace or "default", str(self._conf.get(POD_NAME) or pod_name(job))
            return {"pod": pod, "namespace": namespace, "secret": kubernetes_secret.secret_name(job)}
        try:
            address = str(self._get_yarn_rm_base_url())
        except (ValueError, RuntimeError):
            address = ""
        return {"tag": yarn_tag(job), "address": address}

    def kill_in_cluster(self, driver: Mapping[str, str]) -> None:
        """End a driver on a cluster, whether this hook has submitted it or not.

        Args:
            driver: From ``cluster_driver``.
        """
        auth = self._resolved_yarn_rm_auth if driver.get("address") else None
        kill_application.kill_in_cluster(driver, auth=auth, application=self._yarn_application_id, env=self._driver_env)


def _require_connection(hook: CdcSparkSubmitHook, conn_id: str) -> None:
    try:
        conn = hook.get_connection(conn_id)
    except (AirflowException, ValueError) as error:
        raise _bad_master(conn_id, str(error)) from error
    require_type(conn, "Spark", ("spark", "yarn"))
    read_extra(conn, '{"deploy-mode": "client", "conf": {...}, ...}')
    if not conn.host and conn.conn_type != "yarn":
        raise _bad_master(conn_id, "it has no host, which is the field for the master")


def _bad_master(conn_id: str, why: str) -> ConfigError:
    return ConfigError(
        "the Spark connection has no usable master",
        where=f"connection {conn_id}",
        why=why,
        remedy=(
            "create it with type spark and a master as its host: local[2], yarn, spark://host:7077 or"
            " k8s://https://host:443; in a connection URI, write local[2] as spark://local%5B2%5D"
        ),
    )


def _bad_extra(conn_id: str, why: str) -> ConfigError:
    return ConfigError(
        "the settings of the Spark connection cannot be used",
        where=f"connection {conn_id}, or the task's arguments",
        why=why,
        remedy="correct the connection's extra; to choose a Spark, set SPARK_HOME on the Airflow worker",
    )


def _require_supported(master: str, deploy_mode: str) -> None:
    """Refuse combinations with which the Spark provider or Spark itself would fail without a clear error."""
    if master.startswith("spark://") and deploy_mode == "cluster":
        raise ConfigError(
            "a Spark standalone cluster cannot run Python drivers",
            where=f"{master}, deploy mode cluster",
            why="Spark supports deploy mode cluster for Python on YARN and Kubernetes only",
            remedy="use deploy mode client: the driver runs on the Airflow worker, its executors on the cluster",
        )
    if master.startswith("k8s://") and not _importable(_KUBERNETES):
        raise ConfigError(
            "a Python package for Spark on Kubernetes is missing",
            where=master,
            why=f"{_KUBERNETES} cannot be imported",
            remedy="install apache-airflow-providers-cncf-kubernetes into the Airflow worker's environment",
        )


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package around it
        return False
