"""A real ``airflow standalone`` in a folder of its own, and its REST API."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stacklib import ports, processes
from stacklib.settings import LOOPBACK, REPOSITORY

from demolib import family

Progress = Callable[[str], None]

USER = "admin"
_HEALTHY_S = 240.0
# SQLite lets a request wait for a lock for 60 s (see below).
_ANSWER_S = 120.0
_STOP_S = 6.0
_PROGRESS_INTERVAL_S = 5.0
_LOOK_INTERVAL_S = 5.0
_SCHEDULER = "airflow scheduler"
_PART_TAIL = 12
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AirflowError(Exception):
    """Say what went wrong with Airflow or a DAG run."""


def connection(conn_type: str, host: str, **fields: Any) -> str:
    """Return the text of an AIRFLOW_CONN_* variable."""
    return json.dumps({"conn_type": conn_type, "host": host, **fields})


class AirflowServer:
    """One Airflow: start it, wait for it, call it, end it.

    Args:
        home: Its folder; created, and kept after the end.
        dags_folder: Folder of its DAGs.
        dags: DAGs to wait for and to unpause.
        programs: Folder of the programs of the environment in which it runs; None for this one, with the checkout.
    """

    def __init__(
        self,
        home: Path,
        say: Progress,
        dags_folder: Path = REPOSITORY / "dags",
        dags: tuple[str, ...] = (),
        programs: Path | None = None,
    ) -> None:
        self.home, self.say, self._dags_folder, self._dags = home, say, dags_folder, dags
        self.programs = programs or Path(sys.executable).parent
        self._modules = {} if programs else {"PYTHONPATH": str(REPOSITORY)}
        self._record = home / "process.json"
        self._log = home / "standalone.log"
        self._started: processes.Started | None = None
        self._looked = 0.0
        self._missed = False
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
        ended = family.end(root, self._tag(), _STOP_S, self.say)
        if self._started is not None:
            try:
                self._started.process.wait(1)
            except subprocess.TimeoutExpired:
                self.say("the process of airflow standalone does not end")
        self._record.unlink(missing_ok=True)
        if ended:
            self.say("ended")

    def begin(self, part: str, more: Mapping[str, str] | None = None) -> None:
        """Start a part again, for example ``scheduler``."""
        with (self.home / f"{part}.log").open("ab") as log:
            subprocess.Popen(
                [str(self.programs / "airflow"), part],
                env={**self.environment, **(more or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def revive_scheduler(self) -> None:
        """Start the scheduler again if it has ended; does nothing within five seconds of the last call.

        A scheduler ends where SQLite refuses it a transaction ("database is locked": at once, whatever the timeout,
        if another process has written since it began to read), and ``airflow standalone`` does not start another one.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK_INTERVAL_S:
            return
        self._looked = now
        missed, self._missed = self._missed, not self._runs(_SCHEDULER)
        if missed and self._missed:
            self.say(f"the scheduler has ended and is started again; it wrote last:\n{self.tail('scheduler')}")
            self._missed = False
            self.begin("scheduler")

    def _runs(self, title: str) -> bool:
        """Return whether a process of this Airflow has such a command line."""
        return any(title in family.shown(process.pid) for process in family.members(None, self._tag()))

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
        self.say(f"healthy after {time.monotonic() - began:.0f} s of waiting, {self.url}")

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
                self.say(f"waiting for {subject}: {missing_now} ({now - began:.0f} s)")
            time.sleep(0.3)

    def tail(self, *parts: str) -> str:
        """Return the end of standalone's own log.

        Args:
            parts: Names of parts, of each of which the last lines are returned; without names, the end of the log.
        """
        if not parts:
            return processes.tail(self._log)
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        of_parts = ([line for line in lines if part in line.split("|", 1)[0]][-_PART_TAIL:] for part in parts)
        return "\n".join(line[:400] for chosen in of_parts for line in chosen)

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
