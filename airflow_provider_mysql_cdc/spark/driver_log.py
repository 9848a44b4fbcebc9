"""What Spark itself writes into the driver's output, which is part of the task log in client mode."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

LEVEL_SETTING, DEFAULT_LEVEL = "spark.log.level", "WARN"
"""A job that is submitted with another level than the default of this provider gets all lines of that level."""
# In local mode they write a page of Java and Python for an error of a task, whose text the driver writes as well: an
# error without a name with the whole exception of Spark (org.apache.spark.executor.Executor, TaskSetManager, 4.3).
TASK_LOGGERS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")


def reduce_log(context: Any) -> None:
    """Have Spark write errors only, and none of those with which a task ends.

    Args:
        context: The Spark context.
    """
    if not _is_default(context):
        return
    context.setLogLevel("ERROR")
    with suppress(Exception):  # the driver does not log with log4j
        log4j = context._jvm.org.apache.logging.log4j
        for name in TASK_LOGGERS:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def silence_stop(context: Any) -> None:
    """Have the JVM of a driver in client mode write nothing more, because the job has ended and its error is known.

    While Spark stops, an answer of an executor may come too late, and Java writes the stack of a
    ``RejectedExecutionException``: as an error of TransportResponseHandler, or without a logger from the execution
    context of Scala, which calls ``printStackTrace`` (org.apache.spark.rpc.netty.NettyRpcEnv.askAbortable, 4.3: in 4 of
    10 runs on a standalone cluster).

    Args:
        context: The Spark context, before it is stopped.
    """
    if not _is_default(context) or context.getConf().get("spark.submit.deployMode", "client") != "client":
        return
    with suppress(Exception):  # the JVM is gone
        context.setLogLevel("OFF")
        java = context._jvm.java
        java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))


def _is_default(context: Any) -> bool:
    return str(context.getConf().get(LEVEL_SETTING, DEFAULT_LEVEL)).upper() == DEFAULT_LEVEL
