"""A real ``airflow standalone`` in a folder of its own, driven through its REST API."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stacklib import ports, processes
from stacklib.settings import LOOPBACK, REPOSITORY

from demolib import family

Progress = Callable[[str], None]

USER = "admin"
DAGS = ("mysql_cdc_snapshot", "mysql_cdc_drain", "mysql_cdc_adhoc_snapshot", "mysql_cdc_verify")
_HEALTHY_S = 240.0
# SQLite lets a request wait for a lock for 60 s (see below).
_ANSWER_S = 120.0
_STOP_S = 6.0
_PROGRESS_INTERVAL_S = 5.0
_TAIL = 30
# How lines of the Spark jobs begin.
_JOB_LINE = "[mysql-cdc]"
_GROUP_MARK = "::"
"""What a task of Airflow writes around lines that its UI folds."""
_PROGRESS_WIDTH = 140
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AirflowError(Exception):
    """Say what went wrong with Airflow or a DAG run."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """Say how a DAG run ended.

    Args:
        dag_id: The DAG.
        run_id: The run.
        state: Its final state.
        wall_s: Seconds from trigger to end.
        task_s: Seconds of the task alone.
        counts: Records by topic (drain) or rows by chunk (snapshot).
        again: Rows by table that an ad-hoc snapshot read.
        verification: What a verification found; empty for other runs.
    """

    dag_id: str
    run_id: str
    state: str
    wall_s: float
    task_s: float
    counts: Mapping[str, int]
    again: Mapping[str, int] = field(default_factory=dict)
    verification: Mapping[str, Any] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Return how many records the run wrote."""
        return sum(self.counts.values())


def connection(conn_type: str, host: str, **fields: Any) -> str:
    """Return the text of an AIRFLOW_CONN_* variable."""
    return json.dumps({"conn_type": conn_type, "host": host, **fields})


def latest_progress(lines: list[str]) -> str:
    """Return what a task said last about its work, short enough for a progress line."""
    said = [line for line in lines if not line.startswith(_GROUP_MARK)]
    job_lines = [line.removeprefix(_JOB_LINE).strip() for line in said if line.startswith(_JOB_LINE)]
    if job_lines:
        return textwrap.shorten(job_lines[-1], _PROGRESS_WIDTH, placeholder=" ...")
    if any("spark" in line.lower() for line in said):
        return "Spark is starting"
    return textwrap.shorten(said[-1], _PROGRESS_WIDTH, placeholder=" ...") if said else "the task has not begun yet"


class Airflow:
    """One Airflow: start it, wait for it, run DAGs, end it.

    Args:
        home: Its folder; created, and kept after the end.
        say: Takes progress lines.
        dags_folder: Folder of its DAGs.
        dags: DAGs to wait for and to unpause.
        programs: Folder of the programs of the environment in which it runs; None for this one, with the checkout.
    """

    def __init__(
        self,
        home: Path,
        say: Progress,
        dags_folder: Path = REPOSITORY / "dags",
        dags: tuple[str, ...] = DAGS,
        programs: Path | None = None,
    ) -> None:
        self.home, self._say, self._dags_folder, self._dags = home, say, dags_folder, dags
        self.programs = programs or Path(sys.executable).parent
        self._modules = {} if programs else {"PYTHONPATH": str(REPOSITORY)}
        self._record = home / "process.json"
        self._log = home / "standalone.log"
        self._started: processes.Started | None = None
        self._token = ""
        self.port = 0
        self.environment: dict[str, str] = {}

    @property
    def url(self) -> str:
        """Return the address of UI and API."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def password_file(self) -> Path:
        """Return the file that holds the UI's password."""
        return self.home / "passwords.json"

    def _tag(self) -> str:
        return f"TMPDIR={self.home / 'tmp'}"

    # -- start and end ----------------------------------------------------------------------------------------------

    def start(self, connections: Mapping[str, str], java_home: str, more: Mapping[str, str] | None = None) -> None:
        """Start it with a fresh metadata database; return at once.

        Args:
            connections: Text of each connection by its id.
            java_home: Java for Spark.
            more: Further environment variables.
        """
        shutil.rmtree(self.home, ignore_errors=True)
        (self.home / "tmp").mkdir(parents=True, mode=0o700)
        self.home.chmod(0o700)
        processes.write_private(self.password_file, json.dumps({USER: secrets.token_urlsafe(12)}) + "\n")
        taken: frozenset[int] = frozenset()
        for _ in range(3):
            taken |= {ports.any_free(taken)}
        self.port, *log_ports = sorted(taken)
        self.environment = env = {**self._environment(log_ports, connections, java_home), **(more or {})}
        command = [str(self.programs / "airflow"), "standalone"]
        self._started = processes.spawn(command, self._record, self._log, "standalone", env)

    def _environment(self, log_ports: list[int], connections: Mapping[str, str], java_home: str) -> dict[str, str]:
        inherited = {
            n: v
            for n, v in os.environ.items()
            if not n.startswith(("AIRFLOW", "MYSQL_CDC", "SPARK", "PYSPARK", "PYTHON"))
        }
        sections: dict[str, dict[str, object]] = {
            "core": {
                "dags_folder": self._dags_folder,
                "load_examples": False,
                "parallelism": 2,
                # Importing Airflow for a DAG file takes longer than the 30 seconds by default on a machine under load.
                "dagbag_import_timeout": 180,
                "simple_auth_manager_users": f"{USER}:admin",
                "simple_auth_manager_passwords_file": self.password_file,
                "execution_api_server_url": f"{self.url}/execution/",
            },
            "api": {"host": LOOPBACK, "port": self.port, "base_url": self.url, "workers": 1},
            "api_auth": {"jwt_secret": secrets.token_urlsafe(32)},
            # Each pass over the DAG files imports Airflow and this provider in a process of its own.
            "dag_processor": {"min_file_process_interval": 3600, "parsing_processes": 1},
            # A scheduler that waits in vain for SQLite's lock ends; five seconds, the default, go by on a busy machine.
            "database": {"sql_alchemy_conn": f"sqlite:///{self.home}/airflow.db?timeout=60"},
            "logging": {
                "base_log_folder": self.home / "logs",
                "worker_log_server_port": log_ports[0],
                "trigger_log_server_port": log_ports[1],
            },
            # The demo decides when to drain.
            "mysql_cdc": {"drain_schedule": "none"},
            "usage_data_collection": {"enabled": False},
        }
        settings = {f"AIRFLOW__{s}__{n}".upper(): str(v) for s, names in sections.items() for n, v in names.items()}
        return {
            **inherited,
            **settings,
            **{f"AIRFLOW_CONN_{name.upper()}": text for name, text in connections.items()},
            "AIRFLOW_HOME": str(self.home),
            "JAVA_HOME": java_home,
            "PATH": os.pathsep.join([str(self.programs), inherited.get("PATH", os.defpath)]),
            **self._modules,
            "TMPDIR": str(self.home / "tmp"),
            # Everything is on this host; a proxy of the environment must not be used for it.
            "NO_PROXY": "*",
            "no_proxy": "*",
        }

    def stop(self) -> None:
        """End Airflow with all tasks and Spark drivers; also one that an earlier demo has left."""
        identity = processes.load(self._record)
        root = family.started(identity.pid) if identity is not None and processes.alive(identity) else None
        ended = family.end(root, self._tag(), _STOP_S, self._say)
        if self._started is not None:
            try:
                self._started.process.wait(1)
            except subprocess.TimeoutExpired:
                self._say("the process of airflow standalone does not end")
        self._record.unlink(missing_ok=True)
        if ended:
            self._say("ended")

    # -- waiting ----------------------------------------------------------------------------------------------------

    def wait_healthy(self) -> None:
        """Wait until all components answer and the DAGs are known; then take a token and unpause the DAGs.

        Raises:
            AirflowError: It ended, or took too long.
        """
        began = time.monotonic()
        self._wait("Airflow", self._unhealthy, _HEALTHY_S)
        self._login()
        self._wait("the DAGs to be parsed", self._missing_dags, _HEALTHY_S)
        for dag_id in self._dags:
            self.call("PATCH", f"dags/{dag_id}", {"is_paused": False})
        self._say(f"healthy after {time.monotonic() - began:.0f} s of waiting, {self.url}")

    def _wait(self, subject: str, missing: Callable[[], str], seconds: float) -> None:
        began = last_report = time.monotonic()
        while missing_now := missing():
            if self._started is not None and self._started.process.poll() is not None:
                raise AirflowError(f"airflow standalone ended; see {self._log}\n{processes.tail(self._log)}")
            now = time.monotonic()
            if now - began > seconds:
                raise AirflowError(f"{subject}: {missing_now} after {seconds:.0f} s; see {self._log}\n{self.tail()}")
            if now - last_report >= _PROGRESS_INTERVAL_S:
                last_report = now
                self._say(f"waiting for {subject}: {missing_now} ({now - began:.0f} s)")
            time.sleep(0.3)

    def tail(self) -> str:
        """Return the end of standalone's own log."""
        return processes.tail(self._log)

    def _unhealthy(self) -> str:
        try:
            health = self._request("GET", f"{self.url}/api/v2/monitor/health", None, {})
        except (OSError, AirflowError):
            return "the API server does not answer yet"
        parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
        bad = [p for p in parts if (health.get(p) or {}).get("status") != "healthy"]
        return f"{', '.join(bad)} not up yet" if bad else ""

    def _missing_dags(self) -> str:
        known = {dag["dag_id"] for dag in self.call("GET", "dags?limit=50")["dags"]}
        errors = self.call("GET", "importErrors")["import_errors"]
        if errors:
            raise AirflowError(f"a DAG cannot be imported: {errors[0]['filename']}\n{errors[0]['stack_trace']}")
        missing = sorted(set(self._dags) - known)
        return f"{', '.join(missing)} not there yet" if missing else ""

    # -- REST -------------------------------------------------------------------------------------------------------

    def _login(self) -> None:
        password = json.loads(self.password_file.read_text(encoding="utf-8"))[USER]
        answer = self._request("POST", f"{self.url}/auth/token", {"username": USER, "password": password}, {})
        self._token = answer["access_token"]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the REST API and return what it answers.

        Args:
            method: HTTP method.
            path: Path below ``/api/v2/``.
            body: JSON body.

        Raises:
            AirflowError: It refused.
        """
        return self._request(method, f"{self.url}/api/v2/{path}", body, {"Authorization": f"Bearer {self._token}"})

    @staticmethod
    def _request(method: str, url: str, body: Any, headers: Mapping[str, str]) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}, method=method)
        try:
            with _OPENER.open(request, timeout=_ANSWER_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode("utf-8", "replace")
            raise AirflowError(f"{method} {url}: {error.code} {text[:500]}") from error

    # -- DAG runs ---------------------------------------------------------------------------------------------------

    def run_dag(
        self,
        dag_id: str,
        seconds: float,
        tick: Callable[[], None] = lambda: None,
        form: Mapping[str, Any] | None = None,
    ) -> RunResult:
        """Trigger a DAG of one task and wait for its end.

        Args:
            dag_id: The DAG.
            seconds: How long it may take.
            tick: Called again and again while waiting; what it raises ends the waiting.
            form: Values of the trigger form.

        Raises:
            AirflowError: The run failed or took too long; the text ends with the task's log.
        """
        began = last_report = time.monotonic()
        run_id = self.call("POST", f"dags/{dag_id}/dagRuns", {"logical_date": None, "conf": dict(form or {})})[
            "dag_run_id"
        ]
        self._say(f"triggered {dag_id}")
        while True:
            state = self.call("GET", f"dags/{dag_id}/dagRuns/{run_id}")["state"]
            now = time.monotonic()
            if state in ("success", "failed"):
                break
            if now - began > seconds:
                raise AirflowError(f"{dag_id} is {state} after {seconds:.0f} s\n{self._task_tail(run_id)}")
            if now - last_report >= _PROGRESS_INTERVAL_S:
                last_report = now
                self._say(
                    f"waiting for {dag_id}: {state} ({now - began:.0f} s): {latest_progress(self.task_lines(run_id))}"
                )
            tick()
            time.sleep(0.5)
        if state == "failed":
            raise AirflowError(f"{dag_id} failed, run {run_id}; the end of its log:\n{self._task_tail(run_id)}")
        return self._result(dag_id, run_id, state, now - began)

    def _result(self, dag_id: str, run_id: str, state: str, wall_s: float) -> RunResult:
        base = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances"
        task = self.call("GET", base)["task_instances"][0]
        value = self.call("GET", f"{base}/{task['task_id']}/xcomEntries/return_value")["value"]
        found = json.loads(value) if isinstance(value, str) else value
        seconds = float(task["duration"] or 0)
        counts, again, verification = found["counts"], found.get("rows", {}), found.get("verification", {})
        return RunResult(dag_id, run_id, state, wall_s, seconds, dict(counts), dict(again), verification)

    def task_lines(self, run_id: str) -> list[str]:
        """Return the lines of a run's newest task log; its records are JSON, one a line.

        Args:
            run_id: The run.
        """
        logs = sorted((self.home / "logs").glob(f"*/run_id={run_id}/*/*.log"), key=lambda p: p.stat().st_mtime)
        if not logs:
            return []
        lines = []
        for text in logs[-1].read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(text)
            except ValueError:
                record = {"event": text}
            lines.append(str(record.get("event", text)))
            lines += [f"{e.get('exc_type')}: {e.get('exc_value')}" for e in record.get("error_detail") or ()]
        return [line for line in lines if line.strip()]

    def _task_tail(self, run_id: str) -> str:
        lines = self.task_lines(run_id) or ["(no task log)"]
        return "\n".join(f"    {line[:400]}" for line in lines[-_TAIL:])
