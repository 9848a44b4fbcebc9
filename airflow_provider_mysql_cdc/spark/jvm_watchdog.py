"""End the driver's Python process when its JVM has ended."""

from __future__ import annotations

import os
import threading
import time

POLL_S = 1.0
"""Seconds between two checks of the JVM."""


def exit_with_parent(code: int) -> None:
    """End this process when its parent process has ended.

    spark-submit's JVM starts the driver's Python (org.apache.spark.deploy.PythonRunner) and ends it in a shutdown hook.
    A JVM that is killed, by a person or because the machine is out of memory, runs no hook. Python would notice at its
    next call of Spark, and hold the stream's lock until then; without new events that is the end of ``run_for``.

    Args:
        code: Exit code. Committed records stay; everything else ends as if this process had been killed.
    """
    threading.Thread(target=_watch, args=(os.getppid(), code), name="cdc-lifeline", daemon=True).start()


def _watch(parent: int, code: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os._exit(code)
