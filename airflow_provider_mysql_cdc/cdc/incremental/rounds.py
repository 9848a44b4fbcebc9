"""Round after round behind a batch, as long as an ad-hoc snapshot has something to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.incremental.books import Books, books_of
from airflow_provider_mysql_cdc.cdc.incremental.round_driver import Round
from airflow_provider_mysql_cdc.cdc.incremental.taking import take_signals
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner

Log = Callable[[str], None]
IDLE_ROUNDS = 3
"""Rounds without a stretch after which the rest is left to the next drain."""


def run_rounds(
    cfg: ConnectorConfig,
    conn: Any,
    job: JobLedger,
    runner: TaskRunner,
    owner: str,
    log: Log,
    require: Callable[[], None],
    weights: dict[str, int],
) -> dict[str, int]:
    """Read what ad-hoc snapshots have left, until it is all read, paused, or cannot be read for now.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger; its last batch is complete.
        runner: Runs the tasks.
        owner: Who runs.
        log: Takes one line of text.
        require: Raises when this run does not hold its lock any more.
        weights: Records per topic in the batch before.

    Returns:
        Records by topic of all rounds.

    Raises:
        CdcError: A round failed; what its stretches committed is kept.
    """
    totals: dict[str, int] = {}
    idle = 0
    while True:
        require()
        ledger = job.read()
        books = take_signals(cfg, conn, job, ledger, log)
        if not books.work:
            return totals
        end = Round(cfg, conn, job, runner, owner, log, weights).run(ledger, books)
        for topic, n in end.counts.items():
            totals[topic] = totals.get(topic, 0) + n
        idle = 0 if end.stretches else idle + 1
        if idle == IDLE_ROUNDS and _waits(books_of(job.read())):
            log(f"the next drain goes on with the ad-hoc snapshots: {end.why}")
            return totals


def _waits(books: Books) -> bool:
    return bool(books.work)
