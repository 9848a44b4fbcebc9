"""What a runner knows of its cluster: slots that register, tasks that starve, executors that fail, the driver's
address.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint

SETTLE_S = 2.0
"""Seconds without another slot after which all executors count as registered."""
DEFAULT_REGISTRATION_WAIT_S = 30
"""Default of ``spark.scheduler.maxRegisteredResourcesWaitingTime``."""


def wait_for_slots(current_slots: Callable[[], int], required: int, timeout_s: float) -> int:
    """Return the number of slots once there are as many as required, or no more executors register.

    Args:
        current_slots: Returns the current number of slots.
        required: How many are sufficient; 0 waits until no more executors register.
        timeout_s: Longest wait in seconds.
    """
    slots, started = current_slots(), time.monotonic()
    last_change = started
    while (not required or slots < required) and time.monotonic() - started < timeout_s:
        if not required and time.monotonic() - last_change >= SETTLE_S:
            break
        time.sleep(0.1)
        if (new_slots := current_slots()) != slots:
            slots, last_change = new_slots, time.monotonic()
    return slots


POLL_S = 5.0
"""Seconds between two checks."""
FIRST_WARNING_S = 15.0
"""Seconds without a running task before the first warning, as for Spark's own (spark.starvation.timeout)."""
MAX_WARNING_INTERVAL_S = 900.0
"""Longest time between two warnings, in seconds."""


@dataclass(slots=True)
class StarvationTimer:
    """Measure for how long a stage has had no running task.

    Args:
        idle_s: Seconds so far.
        due_s: Value of ``idle_s`` at which the next warning is due.
    """

    idle_s: float = 0.0
    due_s: float = FIRST_WARNING_S

    def update(self, running: int | None) -> float | None:
        """Count one check and return the seconds for a warning, or None when none is due.

        Args:
            running: Number of running tasks; None when there is no stage.
        """
        if running != 0:
            self.idle_s, self.due_s = 0.0, FIRST_WARNING_S
            return None
        self.idle_s += POLL_S
        if self.idle_s < self.due_s:
            return None
        self.due_s += min(self.due_s, MAX_WARNING_INTERVAL_S)
        return self.idle_s


@contextmanager
def warn_while_starving(running: Callable[[], int | None], warn: Callable[[float], None]) -> Iterator[None]:
    """Check every few seconds whether the stage inside has running tasks, and warn when it has none.

    A stage waits for executors without a limit. Spark warns only for the first stage of an application, and its message
    does not name the resources that the job requests.

    Args:
        running: Returns the number of running tasks, None when there is no stage.
        warn: Called with the seconds without a running task.
    """
    end = threading.Event()
    thread = threading.Thread(target=_watch, args=(end, running, warn), name="cdc-starvation", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()


def _watch(end: threading.Event, running: Callable[[], int | None], warn: Callable[[float], None]) -> None:
    timer = StarvationTimer(due_s=FIRST_WARNING_S)
    while not end.wait(POLL_S):
        try:
            idle_s = timer.update(running())
            if idle_s is not None and not end.is_set():
                warn(idle_s)
        except Exception:  # the context has stopped, and the stage raises that
            return


MAX_RETRIES_SETTING, DEFAULT_MAX_RETRIES = "spark.deploy.maxExecutorRetries", 10
"""Consecutive failures after which Spark's master fails an application, and the default; negative for never."""
_BACKEND = "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend"
_REMOVED = re.compile(r"Executor (\S+) removed: (.*)")


class ExecutorFailures:
    """Count the executors that have ended, from the log of Spark's driver.

    A worker starts another executor for each that ends. The master fails an application after some of them, but not
    while another of its executors counts as running, which is always the case when two workers start them in turn
    (org.apache.spark.deploy.master.Master, ExecutorStateChanged, 4.3: 1,767 executors in two minutes, without an end).
    The driver only logs each end: such executors have never registered, so Spark calls no listener.

    Args:
        jvm: The driver's JVM (py4j).
    """

    def __init__(self, jvm: Any) -> None:
        core = jvm.org.apache.logging.log4j.core
        self._log_buffer = jvm.java.io.CharArrayWriter()
        layout = core.layout.PatternLayout.newBuilder().withPattern("%m%n").build()
        appender = core.appender.WriterAppender.createAppender(layout, None, self._log_buffer, "mysql-cdc", False, True)
        appender.start()
        logger = jvm.org.apache.logging.log4j.LogManager.getLogger(_BACKEND)
        logger.addAppender(appender)
        logger.setLevel(jvm.org.apache.logging.log4j.Level.INFO)
        self.count, self.last_reason = 0, ""

    def poll(self) -> None:
        """Read the log lines since the last call."""
        text = str(self._log_buffer.toString())
        self._log_buffer.reset()
        for _, reason in _REMOVED.findall(text):
            self.count, self.last_reason = self.count + 1, reason.strip()

    def reset(self) -> None:
        """Restart the count, because a task has run."""
        self._log_buffer.reset()
        self.count, self.last_reason = 0, ""

    def error(self, master: str) -> CdcError:
        """Return the error of a job whose executors do not start.

        Args:
            master: Spark's master, for the message.
        """
        return StateError(
            "the executors of this job end before they can run a task",
            where=master,
            why=f"{self.count} executors have ended and none is running; the last one: {self.last_reason}",
            remedy="read an executor's stderr (on the master's web page: the application, logs). It must start a JVM "
            "with spark.executor.memory and spark.executor.extraJavaOptions, reach the driver (spark.driver.host, "
            "spark.driver.port), and have the driver's spark.authenticate and spark.network.crypto",
            retriable=True,
        )


COORDINATOR_PREFIX = "spark.mysqlcdc.coordinator."
"""``host``, ``bindAddress`` and ``port`` of the channel from tasks to driver; by default those of Spark's driver."""


def endpoint(setting: Callable[[str], str | None], default_host: str = "127.0.0.1") -> Endpoint:
    """Return where the driver listens for its tasks.

    Args:
        setting: Returns the value of one of Spark's settings; those of the coordinator default to the driver's.
        default_host: The host when no setting names one.

    Raises:
        ConfigError: The port is no port.
    """
    host = setting(COORDINATOR_PREFIX + "host") or setting("spark.driver.host") or default_host
    bind = setting(COORDINATOR_PREFIX + "bindAddress") or setting("spark.driver.bindAddress") or ""
    port = setting(COORDINATOR_PREFIX + "port") or "0"
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(
            "the port of the coordinator is invalid",
            where=COORDINATOR_PREFIX + "port",
            why=repr(port),
            remedy="use a number from 0 to 65535",
        )
    return Endpoint(host, bind, int(port))
