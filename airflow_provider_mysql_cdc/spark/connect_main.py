"""The driver of a job at a Spark Connect server: a Python process without a JVM."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.connect_settings import ConnectSettings
from airflow_provider_mysql_cdc.cdc.model.job_names import CONNECT_VARIABLE
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.spark.connect_errors import missing_client
from airflow_provider_mysql_cdc.spark.connect_parts import import_arrow_alone
from airflow_provider_mysql_cdc.spark.connect_runner import ConnectRunner
from airflow_provider_mysql_cdc.spark.connect_session import ConnectSession


def inherited_settings() -> ConnectSettings | None:
    """Return how to reach the server; None for a driver that spark-submit has started."""
    descriptor = os.environ.pop(CONNECT_VARIABLE, None)
    return None if descriptor is None else ConnectSettings.read(int(descriptor))


@contextmanager
def connect_runner(settings: ConnectSettings, stream: str, log: Log, exit_code: int) -> Iterator[ConnectRunner]:
    """Run tasks in the session of a stream.

    Args:
        settings: The server.
        stream: Name of the stream.
        log: Takes one line of text.
        exit_code: Exit code when the process is asked to end (SIGTERM), which ends its operations too.

    Raises:
        CdcError: The server cannot be used.
    """
    try:
        import_arrow_alone()
    except ImportError as error:
        raise missing_client(error) from error
    session = ConnectSession(settings, stream)
    try:
        _refuse_speculation(session)
        log(f"Spark application {session.setting('spark.app.id') or 'unknown'}, Spark Connect server {session.server}")
        runner = ConnectRunner(session, log)

        def end(*_: Any) -> None:
            # At once: whoever asks kills this process some seconds later, and the job may wait for its writers' end.
            runner.interrupt()
            raise SystemExit(exit_code)

        signal.signal(signal.SIGTERM, end)
        yield runner
    finally:
        session.close()


def _refuse_speculation(session: ConnectSession) -> None:
    """Refuse a server that starts tasks twice.

    Raises:
        ConfigError: It does.
    """
    if (session.setting("spark.speculation") or "false").strip().lower() == "true":
        raise ConfigError(
            "spark.speculation=true would start a second copy of a writer, which fences the first one",
            where=f"Spark Connect server {session.server}",
            remedy="start the server with spark.speculation=false",
        )
