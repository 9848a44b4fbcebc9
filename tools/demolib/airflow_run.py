"""DAG runs of a real Airflow, from the trigger to what they return."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from demolib.airflow_server import AirflowError, AirflowServer

DAGS = ("mysql_cdc_snapshot", "mysql_cdc_drain", "mysql_cdc_adhoc_snapshot", "mysql_cdc_verify")
_PROGRESS_INTERVAL_S = 5.0
_TAIL = 30
# How lines of the Spark jobs begin.
_JOB_LINE = "[mysql-cdc]"
_GROUP_MARK = "::"
"""What a task of Airflow writes around lines that its UI folds."""
_PROGRESS_WIDTH = 140


@dataclass(frozen=True, slots=True)
class RunResult:
    """Say how a DAG run ended.

    Args:
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


def latest_progress(lines: list[str]) -> str:
    """Return what a task said last about its work, short enough for a progress line."""
    said = [line for line in lines if not line.startswith(_GROUP_MARK)]
    job_lines = [line.removeprefix(_JOB_LINE).strip() for line in said if line.startswith(_JOB_LINE)]
    if job_lines:
        return textwrap.shorten(job_lines[-1], _PROGRESS_WIDTH, placeholder=" ...")
    if any("spark" in line.lower() for line in said):
        return "Spark is starting"
    return textwrap.shorten(said[-1], _PROGRESS_WIDTH, placeholder=" ...") if said else "the task has not begun yet"


class Airflow(AirflowServer):
    """One Airflow that runs DAGs."""

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
        self.say(f"triggered {dag_id}")
        while True:
            state = self.call("GET", f"dags/{dag_id}/dagRuns/{run_id}")["state"]
            now = time.monotonic()
            if state in ("success", "failed"):
                break
            if now - began > seconds:
                raise AirflowError(f"{dag_id} is {state} after {seconds:.0f} s\n{self._task_tail(run_id)}")
            if now - last_report >= _PROGRESS_INTERVAL_S:
                last_report = now
                self.say(
                    f"waiting for {dag_id}: {state} ({now - began:.0f} s): {latest_progress(self.task_lines(run_id))}"
                )
            tick()
            self.revive_scheduler()
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
        """Return the lines of a run's newest task log; its records are JSON, one a line."""
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
