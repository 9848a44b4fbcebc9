"""Executors of a standalone cluster that end before they have come: how many, and of what."""

from __future__ import annotations

import re
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError

MAX_RETRIES_SETTING, DEFAULT_MAX_RETRIES = "spark.deploy.maxExecutorRetries", 10
"""After how many ends in a row Spark's master gives an application up, and its default; negative for never."""
_BACKEND = "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend"
_REMOVED = re.compile(r"Executor (\S+) removed: (.*)")


class ExecutorFailures:
    """Count what Spark's driver says of executors that have ended.

    A worker starts another executor for each that ends. The master gives an application up after some, but not while
    another of its executors counts as running, which of two workers that start them in turn is always so (org.apache.
    spark.deploy.master.Master, ExecutorStateChanged, 4.3: 1,767 executors in two minutes, and no end). The driver
    hears of each end, and only logs it: such executors have never registered, so no listener is told.

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
        """Take in what was said since the last look."""
        text = str(self._log_buffer.toString())
        self._log_buffer.reset()
        for _, reason in _REMOVED.findall(text):
            self.count, self.last_reason = self.count + 1, reason.strip()

    def reset(self) -> None:
        """Begin to count anew: a task has run."""
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
            why=f"{self.count} have ended and none is there; the last one: {self.last_reason}",
            remedy="read an executor's stderr (the master's web page, the application, logs): it has to start a JVM "
            "with spark.executor.memory and spark.executor.extraJavaOptions, to reach the driver (spark.driver.host, "
            "spark.driver.port), and to share spark.authenticate and spark.network.crypto with it",
            retriable=True,
        )
