"""The driver of one stream, or of several that one Spark application drains: whether it runs, and how to end it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job.run_lock import STREAMS_OF_SERVER
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.operate import end_run

AnswerT = TypeVar("AnswerT")
MAX_THREADS = 16
"""Streams whose servers are asked at the same time; most of the time is waiting for answers."""
NEXT_TURN_S = 1.0
"""Seconds in which the driver of a fleet begins with other streams in place of those that have ended."""


def any_driver_running(cfgs: Sequence[ConnectorConfig], owner: str) -> bool:
    """Return whether a driver of a run holds its owner's lock on one of the servers.

    Args:
        cfgs: Configuration of each stream.
        owner: ``dag_id/run_id/task_id/map_index``.

    Raises:
        SourceError: No server can be asked.
    """
    return any(_answers(cfgs, lambda cfg: end_run.driver_running(cfg, owner)))


def server_time(cfgs: Sequence[ConnectorConfig]) -> float:
    """Return the time of the first server that answers, in seconds since 1970.

    Args:
        cfgs: Configuration of each stream.

    Raises:
        SourceError: No server can be asked.
    """
    for cfg in cfgs[:-1]:
        try:
            return end_run.server_time(cfg)
        except CdcError:
            continue
    return end_run.server_time(cfgs[-1])


def end_runs(cfgs: Sequence[ConnectorConfig], owner: str, log: Log) -> None:
    """End the driver of a run on all its streams; what cannot be ended on one server keeps no other from it.

    Where a server has more streams than work at the same time, others begin as these end, and are ended too.

    Args:
        cfgs: Configuration of each stream.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.

    Raises:
        CdcError: No server, or not Kafka, can be reached.
    """
    most = max(Counter(cfg.source_address() for cfg in cfgs).values(), default=0)
    ended = _answers(cfgs, lambda cfg: end_run.end_run(cfg, owner, log))
    for _ in range(STREAMS_OF_SERVER, most, STREAMS_OF_SERVER):
        if not any(ended):
            return
        time.sleep(NEXT_TURN_S)
        ended = _answers(cfgs, lambda cfg: end_run.end_run(cfg, owner, log))


def _answers(cfgs: Sequence[ConnectorConfig], ask: Callable[[ConnectorConfig], AnswerT]) -> list[AnswerT]:
    """Ask all servers; return the answers of those that can be asked.

    Raises:
        CdcError: None of them can be asked; the error of the first.
    """
    if len(cfgs) == 1:
        return [ask(cfgs[0])]
    answers: list[AnswerT] = []
    errors: list[CdcError] = []

    def try_one(cfg: ConnectorConfig) -> None:
        try:
            answers.append(ask(cfg))
        except CdcError as error:
            errors.append(error)

    with ThreadPoolExecutor(min(MAX_THREADS, max(1, len(cfgs)))) as pool:
        list(pool.map(try_one, cfgs))
    if errors and not answers:
        raise errors[0]
    return answers
