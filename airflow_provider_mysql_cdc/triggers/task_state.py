"""The state of a task instance in Airflow, queried from the task's process or from a trigger.

When Airflow ends a task's process or a trigger, it does not say why. A person may have ended the task; or a restarted
scheduler has assigned it to another try; or the triggers of a triggerer that was late were assigned to another one
(Airflow 3.3 cancels these as if a person had ended the task: ``TriggerRunnerSupervisor.load_triggers``,
``update_triggers``). Only in the first case the driver must end.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

log = logging.getLogger(__name__)

UNKNOWN = "unknown"
"""In place of a state that Airflow did not return."""
QUERY_TIMEOUT_S = 2.0
"""Seconds to wait for Airflow's answer in a task; Airflow kills the process five seconds after SIGTERM."""
TRIGGER_QUERY_TIMEOUT_S = 15.0
"""The same in a trigger, which has thirty seconds; the triggerer may first have to load the API, which takes time."""
UNFINISHED_STATES = (None, "scheduled", "queued", "running", "deferred", "up_for_retry", "up_for_reschedule")
"""States of a task that has not ended: this try, or another one, continues it."""


def state_of(ti: Any, timeout_s: float = QUERY_TIMEOUT_S) -> str | None:
    """Return the state of a task instance; ``UNKNOWN`` when Airflow does not answer in time.

    The query runs in a thread of its own, because the interrupted thread may hold the lock of Airflow's channel.

    Args:
        ti: Has ``dag_id``, ``run_id``, ``task_id`` and ``map_index``.
        timeout_s: Seconds to wait for the answer.
    """
    answers: list[str | None] = []
    thread = threading.Thread(target=_query_state, args=(ti, answers), name="cdc-task-state", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return answers[0] if answers else UNKNOWN


def _query_state(ti: Any, answers: list[str | None]) -> None:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    index = getattr(ti, "map_index", -1)
    try:
        states = RuntimeTaskInstance.get_task_states(
            dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=index
        )
        # Source: execution_api/routes/task_instances.py, get_task_instance_states (3.3).
        state = states[ti.run_id][f"{ti.task_id}_{index}" if index >= 0 else ti.task_id]
        answers.append(None if state is None else str(getattr(state, "value", state)))
    except Exception as error:  # the run is gone, or Airflow does not answer
        log.info("Airflow did not return the state of the task: %s", type(error).__name__)
