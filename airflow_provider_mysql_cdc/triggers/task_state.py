"""What Airflow says about a task instance now, asked from its own process or from a trigger.

Whoever is told to end is not told why. A person may have ended the task; or a scheduler that began anew has given it to
another try, or a triggerer that was late has lost its triggers to another one (Airflow 3.3 cancels these as if a person
had ended the task: ``TriggerRunnerSupervisor.load_triggers``, ``update_triggers``). Only the first ends the driver.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

log = logging.getLogger(__name__)

UNKNOWN = "unknown"
"""Stands for a state that could not be asked for."""
QUERY_TIMEOUT_S = 2.0
"""Seconds to wait for Airflow's answer in a task; it kills the process five seconds after it has told it to end."""
TRIGGER_QUERY_TIMEOUT_S = 15.0
"""The same in a trigger, which has thirty seconds; its triggerer may have to load the API first, which takes some."""
UNFINISHED_STATES = (None, "scheduled", "queued", "running", "deferred", "up_for_retry", "up_for_reschedule")
"""States of a task that nobody has ended: this try, or another one, goes on with it."""


def state_of(ti: Any, timeout_s: float = QUERY_TIMEOUT_S) -> str | None:
    """Return the state of a task instance; ``UNKNOWN`` when Airflow does not tell in time.

    It is asked in a thread of its own: the thread that was told to end may hold Airflow's channel.

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
        log.info("Airflow does not tell the task's state: %s", type(error).__name__)
