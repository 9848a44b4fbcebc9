"""Airflow as a new user has it: the wheel in an environment of its own, and what the quickstart says."""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demolib.airflow_run import Airflow
from kit.installed_package import ROOT, Installed
from stacklib.settings import LOOPBACK

PACKAGE = "airflow_provider_mysql_cdc"
USERS = ("admin", "op", "user", "viewer")
"""Each account has the role of its name in Airflow's SimpleAuthManager."""
DAGS = tuple(sorted(path.stem for path in (ROOT / PACKAGE / "example_dags").glob("mysql_cdc_*.py")))
RETRIES_S = 300
_AIRFLOW = "#!{python}\nimport sys\nfrom airflow.__main__ import main\nsys.exit(main())\n"
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass
class Answer:
    """What the REST API answered.

    Args:
        status: HTTP status.
        text: The body.
    """

    status: int
    text: str

    @property
    def data(self) -> Any:
        """Return the body's JSON."""
        return json.loads(self.text)


@dataclass
class Watch:
    """Notes what anybody on this host can see of running jobs: arguments of programs, and Spark's web page.

    Args:
        ui_port: Port of Spark's web page.
        commands: Command lines that were seen.
        pages: Answers of Spark's REST API.
    """

    ui_port: int
    commands: set[bytes] = field(default_factory=set)
    pages: set[str] = field(default_factory=set)
    _end: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Look until ``stop`` is called."""
        threading.Thread(target=self._look, daemon=True).start()

    def stop(self) -> None:
        """End it."""
        self._end.set()

    def _look(self) -> None:
        while not self._end.wait(0.5):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.commands.add(path.read_bytes())
                except OSError:
                    continue
            self._read_page()

    def _read_page(self) -> None:
        base = f"http://{LOOPBACK}:{self.ui_port}/api/v1/applications"
        try:
            with _OPENER.open(base, timeout=2) as answer:
                (application,) = json.load(answer)
            for part in ("environment", "jobs", "executors"):
                with _OPENER.open(f"{base}/{application['id']}/{part}", timeout=2) as answer:
                    self.pages.add(answer.read().decode())
        except (OSError, ValueError):
            return


class NewUser(Airflow):
    """A running Airflow, driven through its REST API alone.

    Args:
        folder: Folder for its files.
        installed: The environment with the wheel.
    """

    def __init__(self, folder: Path, installed: Installed) -> None:
        dags_folder = folder / "dags"
        programs = installed.folder / "bin"
        super().__init__(folder / "home", print, dags_folder=dags_folder, dags=DAGS, programs=programs)
        dags_folder.mkdir(parents=True)
        for name in DAGS:  # as docs/airflow.md says
            (dags_folder / f"{name}.py").write_text(f"from {PACKAGE}.example_dags.{name} import dag\n")
        (programs / "airflow").write_text(_AIRFLOW.format(python=installed.python))
        (programs / "airflow").chmod(0o755)
        self._accounts = folder / "accounts.json"
        self._accounts.write_text(json.dumps({user: secrets.token_urlsafe(12) for user in USERS}))
        self._tokens: dict[str, str] = {}
        self.triggered: list[tuple[str, str]] = []

    def open(self) -> None:
        """Start it and return when it is healthy; all DAGs are paused but those that are triggered later."""
        accounts = {
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{user}" for user in USERS),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._accounts),
            "AIRFLOW__CORE__FERNET_KEY": "ZmVybmV0LWtleS1vZi1hLW5ldy11c2VyLTMyLWJ5dGU=",
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "180",
            "AIRFLOW__MYSQL_CDC__BACKFILL_SCHEDULE": "@hourly",
            "MYSQL_CDC_SUITE": os.environ["MYSQL_CDC_SUITE"],
        }
        self.start({}, os.environ.get("JAVA_HOME", ""), accounts)
        self.wait_healthy()

    def _login(self) -> None:
        passwords = json.loads(self._accounts.read_text())
        for user, password in passwords.items():
            body = {"username": user, "password": password}
            self._tokens[user] = self._request("POST", f"{self.url}/auth/token", body, {})["access_token"]
        self._token = self._tokens["admin"]

    def ask(self, user: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Call the REST API as somebody.

        Args:
            user: One of ``USERS``.
            method: HTTP method.
            path: Path below ``/api/v2/``.
            body: JSON body.
        """
        headers = {"Authorization": f"Bearer {self._tokens[user]}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/api/v2/{path}", data, headers, method=method)
        try:
            with _OPENER.open(request, timeout=120) as answer:
                return Answer(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode())

    def trigger(self, dag_id: str, form: Mapping[str, Any], user: str = "user", **more: Any) -> str:
        """Trigger a DAG and return the run's id."""
        answer = self.ask(user, "POST", f"dags/{dag_id}/dagRuns", {"logical_date": None, "conf": form, **more})
        assert answer.status == 200, answer
        run_id = str(answer.data["dag_run_id"])
        self.triggered.append((dag_id, run_id))
        return run_id

    def end_of(self, dag_id: str, run_id: str) -> str:
        """Wait for the end of a run and return its state."""
        deadline = time.monotonic() + RETRIES_S
        while (state := self.call("GET", f"dags/{dag_id}/dagRuns/{run_id}")["state"]) not in ("success", "failed"):
            assert time.monotonic() < deadline, f"{dag_id} is {state}\n{self.tail()}"
            time.sleep(0.5)
        return str(state)

    def result(self, dag_id: str, form: Mapping[str, Any], task_id: str, map_index: int = -1, **more: Any) -> Any:
        """Run a DAG to its good end and return what a task returned."""
        run_id = self.trigger(dag_id, form, **more)
        state = self.end_of(dag_id, run_id)
        assert state == "success", "\n".join(str(r) for r in self.records(dag_id, run_id, task_id, map_index)[-8:])
        path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value?map_index={map_index}"
        value = self.call("GET", path)["value"]
        return json.loads(value) if isinstance(value, str) else value

    def records(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> list[dict[str, Any]]:
        """Return the records of a task's log, as the UI reads them."""
        task = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        answer = self.ask("user", "GET", f"{task}/logs/1?full_content=true&map_index={map_index}")
        return [record for record in answer.data["content"] if isinstance(record, dict)]

    def seen(self) -> dict[str, str]:
        """Return what the REST API shows of all runs, by its path."""
        paths = ["eventLogs?limit=1000", "importErrors", "connections", "variables", "assets/events", "providers"]
        for dag_id, run_id in self.triggered:
            run = f"dags/{dag_id}/dagRuns/{run_id}"
            paths += [run, f"{run}/taskInstances", f"{run}/taskInstances/~/xcomEntries"]
            for task in self.call("GET", f"{run}/taskInstances")["task_instances"]:
                index = task["map_index"]
                one = f"{run}/taskInstances/{task['task_id']}"
                paths += [f"{one}/{index}" if index >= 0 else one, f"{one}/xcomEntries/return_value?map_index={index}"]
                paths += [f"{one}/logs/{n + 1}?full_content=true&map_index={index}" for n in range(task["try_number"])]
        return {path: self.ask("admin", "GET", path).text for path in paths}


def printed_spark_connection() -> dict[str, Any]:
    """Return the Spark connection that the quickstart shows."""
    (text,) = re.findall(r"AIRFLOW_CONN_SPARK_CDC='(.*?)'", (ROOT / "docs" / "quickstart.md").read_text())
    return dict(json.loads(text))
