"""Executors of a standalone cluster that end before they register: how many, and why."""

from __future__ import annotations

import re
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError

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
