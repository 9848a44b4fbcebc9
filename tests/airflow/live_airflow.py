"""One real ``airflow standalone`` for all tests that need a scheduler, a triggerer or the REST API.

Its tasks run as they do anywhere; only spark-submit is a program that runs a job's tasks as threads, because starting a
JVM for each would cost more than all else. What Spark adds is seen in test_real_pipeline and in tests/fault.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demolib import family
from demolib.airflow_run import Airflow
from demolib.airflow_server import AirflowError, connection

ROOT = Path(__file__).resolve().parents[2]
FLEETS = ("fleet_by_submit_of_a_test", "fleet_over_connect_of_a_test", "drain_over_connect_of_a_test")
DAGS = ("mysql_cdc_adhoc_snapshot", "mysql_cdc_backfill", "mysql_cdc_snapshot")
WAITS = "waits_of_a_test"
DEFERRED = "deferred_drain_of_a_test"
RETRIED = "retried_drain_of_a_test"
ATTACHED = "attached_drain_of_a_test"
CLUSTER = "cluster_drain_of_a_test"
WATCHED = "watched_drain_of_a_test"
LATE = "late_run_of_a_test"
LOCKED = "database is locked"
"""SQLite refuses a transaction at once that has read before another one has written; Airflow then takes all back."""
TRIES = 5
# A part that is begun again takes the one before it for dead soon. Not so the first ones: what they would look for
# every few seconds locks SQLite for others, and on a busy machine they would take themselves for dead.
QUICKLY = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "12",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "12",
}
PATIENTLY = {"AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "120"}

SUBMIT = """#!{python}
import os
import sys
import time
from pathlib import Path

with open({drivers!r}, "a") as drivers:
    print(os.getpid(), file=drivers)
sys.path[:0] = [{root!r}, {root!r} + "/tools"]
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job.job_error import reporting_job_error
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.job_names import KEY_VARIABLE
from pipelinelib.stand_ins import ThreadRunner
from airflow_provider_mysql_cdc.cdc.fleet.fleet_driver import reporting_fleet_error
from airflow_provider_mysql_cdc.spark.jobs import run_fleet_job, run_job

while os.path.exists({hold!r}):
    time.sleep(0.05)

def log(line):
    if not on_cluster:  # its driver writes somewhere else
        print("[mysql-cdc]", line, flush=True)


def key():
    if not on_cluster:
        return os.environ[KEY_VARIABLE]
    return Path(os.environ["HADOOP_TOKEN_FILE_LOCATION"]).read_bytes().decode("latin1")[-44:]


on_cluster = "--files" in sys.argv
file = sys.argv[sys.argv.index("--files") + 1] if on_cluster else sys.argv[-1]
spec = JobSpec.read(Path(file), key)
log("Spark application local-17, page http://10.0.0.9:4040")
if says := os.environ.get("SAYS"):
    log(says + " " + spec.properties["database.password"])
with open({started!r}, "a") as started:
    print(spec.owner, file=started)
fleet = spec.mode == "fleet"
reporting, run = (reporting_fleet_error, run_fleet_job) if fleet else (reporting_job_error, run_job)
try:
    with reporting(spec, log, lambda error: error if isinstance(error, CdcError) else None):
        run(spec, ThreadRunner(2), log)
except CdcError as error:
    log(f"{{type(error).__name__}}: {{error.message()}}")
    if on_cluster:
        sys.exit("Exception in thread main org.apache.spark.SparkException: Application application_1 has failed")
    sys.exit(75 if error.can_retry else 78)
"""


class LiveAirflow(Airflow):
    """Airflow with this provider's DAGs and one of sensors, for tests.

    Args:
        home: Its folder.
    """

    def __init__(self, home: Path) -> None:
        folder = home.with_name(home.name + "-dags")
        super().__init__(
            home,
            lambda line: print(f"[airflow] {line}"),
            dags_folder=folder,
            dags=(*DAGS, WAITS, DEFERRED, RETRIED, ATTACHED, CLUSTER, LATE, *FLEETS),
        )
        self.spark = home.with_name(home.name + "-spark")
        self._started_jobs = self.spark / "started"
        self._drivers = self.spark / "drivers"
        self.hold = self.spark / "hold"
        self._orphans: set[family.Process] = set()
        folder.mkdir()
        for name in DAGS:
            shutil.copy(ROOT / "dags" / f"{name}.py", folder)
        for name in ("waits", "deferred_drain", "deferred_fleet", "watched_drain", "late_run"):
            shutil.copy(Path(__file__).with_name(f"{name}.py"), folder)
        (self.spark / "bin").mkdir(parents=True)
        files = {"started": self._started_jobs, "drivers": self._drivers, "hold": self.hold}
        text = SUBMIT.format(python=sys.executable, root=str(ROOT), **{name: str(file) for name, file in files.items()})
        for name, program in (("spark-submit", text), ("java", "#!/bin/sh\n")):
            (self.spark / "bin" / name).write_text(program)
            (self.spark / "bin" / name).chmod(0o755)

    def open(self, properties: Mapping[str, str]) -> None:
        """Start it for one stream; return when it is healthy.

        Args:
            properties: The connector's properties.
        """
        given = dict(properties)
        kafka = {"bootstrap.servers": given.pop("kafka.bootstrap.servers")}
        host, port = given.pop("database.hostname"), int(given.pop("database.port"))
        login, password = given.pop("database.user"), given.pop("database.password")
        extra = {**given, "kafka_conn_id": "kafka_cdc"}
        connections = {
            "mysql_cdc_default": connection("mysql_cdc", host, port=port, login=login, password=password, extra=extra),
            "kafka_cdc": connection("kafka", "", extra=kafka),
            "spark_cdc": connection("spark", "local[2]"),
        }
        # What an interrupted run of the suite leaves is found by the second name.
        suite = {"MYSQL_CDC_SUITE": os.environ["MYSQL_CDC_SUITE"]}
        self.start(connections, "", {"SPARK_HOME": str(self.spark), **PATIENTLY, **suite})
        self.wait_healthy()

    def jobs(self) -> list[str]:
        """Return the owners of all jobs that were started."""
        return self._started_jobs.read_text().splitlines() if self._started_jobs.exists() else []

    def drivers(self) -> list[int]:
        """Return the process ids of all drivers that were started, whether they came to read their job or not."""
        return [int(pid) for pid in self._drivers.read_text().split()] if self._drivers.exists() else []

    def kill(self, *words: str) -> list[int]:
        """End processes of this Airflow with SIGKILL and return which ones there were.

        Args:
            words: Text that stands in their command lines.
        """
        family_of_all = family.members(None, self._tag())
        # What they leave has neither a parent that is known nor an environment that can be read (setproctitle).
        self._orphans |= family_of_all
        found = [process.pid for process in family_of_all if any(word in family.shown(process.pid) for word in words)]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return found

    def end(self, part: str, sign: signal.Signals) -> None:
        """End a part with a signal, and wait until it is gone.

        Args:
            part: Its command line.
            sign: The signal.
        """
        found = [process for process in family.members(None, self._tag()) if part in family.shown(process.pid)]
        assert found
        for process in found:
            os.kill(process.pid, sign)
        self.wait_for(lambda: not any(map(family.alive, found)), f"the end of {part}")

    def stop(self) -> None:
        """End Airflow, with what its killed parts have left."""
        super().stop()
        for process in filter(family.alive, self._orphans):
            os.kill(process.pid, signal.SIGKILL)

    def begin(self, part: str, more: Mapping[str, str] | None = None) -> None:
        """Start a part again that soon takes the one before it for dead."""
        super().begin(part, {**QUICKLY, **(more or {})})

    def trigger(self, dag_id: str, **form: Any) -> str:
        """Trigger a DAG and return the run's id."""
        body = {"logical_date": None, "conf": form}
        return str(self._post(f"dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Post, again where SQLite was locked by another part for too long: then nothing was done."""
        for _ in range(TRIES - 1):
            try:
                return self.call("POST", path, body)
            except AirflowError as error:
                if ": 500 " not in str(error):
                    raise
        return self.call("POST", path, body)

    def refusal(self, dag_id: str, **form: Any) -> str:
        """Return what the REST API answers to a form that it refuses."""
        try:
            run_id = self.trigger(dag_id, **form)
        except AirflowError as error:
            return str(error)
        raise AssertionError(f"{dag_id} was triggered with {form}: {run_id}")

    def set_paused(self, dag_id: str, *, paused: bool) -> None:
        """Pause a DAG, or let it run, and have its file read again: only then do its assets' watchers follow."""
        known = self.wait_for(
            lambda: self.call("GET", f"dags?dag_id_pattern={dag_id}&paused={not paused}")["dags"], dag_id
        )
        self.call("PATCH", f"dags/{known[0]['dag_id']}", {"is_paused": paused})
        token = self.call("GET", f"dags/{dag_id}/details")["file_token"]
        self.call("PUT", f"parseDagFile/{token}")

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return all runs of a DAG."""
        return list(self.call("GET", f"dags/{dag_id}/dagRuns")["dag_runs"])

    def end_of(self, dag_id: str, run_id: str, seconds: float = 240) -> str:
        """Wait for the end of a run and return its state."""
        return str(self.wait_for(lambda: self._ended(dag_id, run_id), f"the end of {run_id}", seconds))

    def _ended(self, dag_id: str, run_id: str) -> str | None:
        state = self.call("GET", f"dags/{dag_id}/dagRuns/{run_id}")["state"]
        return state if state in ("success", "failed") else None

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run."""
        return list(self.call("GET", f"dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"])

    def wait_deferred(self, dag_id: str, run_id: str) -> None:
        """Wait until all tasks of a run are deferred, and the scheduler has read that their first parts have ended.

        Airflow 3.3 fails a task whose trigger fires before that.
        """

        def deferred() -> bool:
            tasks = self.tasks(dag_id, run_id)
            seen = [line for line in (self.home / "standalone.log").read_text().splitlines() if run_id in line]
            read = [line for line in seen if "Received executor event with state success" in line]
            return {task["state"] for task in tasks} == {"deferred"} and len(read) >= len(tasks)

        self.wait_for(deferred, "deferred tasks")

    def result(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """Return what a task has returned."""
        path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        value = self.call("GET", f"{path}?map_index={map_index}")["value"]
        return dict(json.loads(value) if isinstance(value, str) else value)

    def log_of(self, run_id: str) -> str:
        """Return the log of a run's last task."""
        return "\n".join(self.task_lines(run_id))

    def shown_log(self, dag_id: str, run_id: str, task_id: str, attempt: int = 1) -> list[str]:
        """Return the lines that Airflow's pages show of a try: those of the task and of its triggers."""
        path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{attempt}?full_content=true"
        return [str(record["event"]) for record in self.call("GET", path)["content"]]

    def links(self, dag_id: str, run_id: str, task_id: str) -> dict[str, str]:
        """Return the links that Airflow's pages show beside a task."""
        path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/links"
        return {name: url for name, url in self.call("GET", path)["extra_links"].items() if url}

    def form_of(self, conn_type: str) -> dict[str, Any]:
        """Return the fields of a connection form by name, as Airflow's page gets them."""
        token = {"Authorization": f"Bearer {self._token}"}
        found = self._request("GET", f"{self.url}/ui/connections/hook_meta", None, token)
        (meta,) = (meta for meta in found if meta["connection_type"] == conn_type)
        return dict(meta["extra_fields"])

    def backfill(self, *arguments: str) -> None:
        """Run ``airflow backfill create`` beside the running Airflow."""
        command = [str(Path(sys.executable).with_name("airflow")), "backfill", "create", *arguments]
        done = subprocess.CompletedProcess[str](command, 1)
        for _ in range(TRIES):
            done = subprocess.run(
                command, env=self.environment, capture_output=True, text=True, timeout=180, check=False
            )
            if not done.returncode or LOCKED not in done.stderr:
                break
        assert done.returncode == 0, done.stdout + done.stderr

    def post_backfill(self, body: Mapping[str, Any]) -> None:
        """Ask for a backfill over the REST API, behind one whose runs are done.

        Airflow takes one for a DAG at a time, and looks every thirty seconds whether the last one is over.
        """
        for before in self.call("GET", f"backfills?dag_id={body['dag_id']}")["backfills"]:
            if not before["completed_at"]:
                self.call("PUT", f"backfills/{before['id']}/cancel")
        self._post("backfills", body)

    def wait_for(self, look: Any, what: str, seconds: float = 240) -> Any:
        """Wait until a function returns something."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < deadline, f"{what} did not come\n{self.state()}"
            self.revive_scheduler()
            time.sleep(1)
        return found

    def state(self) -> str:
        """Return what there is to know about a wait in vain: health, tasks at work, the last lines of each part."""
        health = self.call("GET", "monitor/health")
        tasks = self.call("GET", "dags/~/dagRuns/~/taskInstances?limit=100&order_by=-start_date")["task_instances"]
        ours = [
            f"{t['dag_id']} {t['dag_run_id']} {t['task_id']}: {t['state']}" for t in tasks if t["state"] != "success"
        ]
        return "\n".join([str(health), *ours, self.tail("scheduler", "triggerer", "dag-processor")])
