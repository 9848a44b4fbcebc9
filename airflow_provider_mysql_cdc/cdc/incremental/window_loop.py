"""Round after round behind a batch, as long as an ad-hoc snapshot has something to read."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.drain.drain_driver import Behind
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import books_of
from airflow_provider_mysql_cdc.cdc.incremental.signal_processor import take_signals
from airflow_provider_mysql_cdc.cdc.incremental.window_driver import Round
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors

IDLE_ROUNDS = 3
"""Rounds in which no scan came further after which the rest is left to the next drain."""


def run_rounds(behind: Behind) -> dict[str, int]:
    """Carry out signals and read what ad-hoc snapshots have left, until all is read, paused, or cannot be read now.

    Args:
        behind: The drain, behind a batch.

    Returns:
        Records by topic of all rounds.

    Raises:
        CdcError: A round failed; what its stretches committed is kept.
    """
    cfg, conn, job, log = behind.cfg, behind.conn, behind.job, behind.log
    totals: dict[str, int] = {}
    idle, late = 0, frozenset[int]()
    ledger = job.latest()
    while True:
        behind.require()
        with named_errors(cfg):
            books, moved = take_signals(cfg, conn, job, ledger, log, behind.owner)
        if moved or not books.work:
            return totals
        at_work = {scan.order for scan in books.active}
        end = Round(cfg, conn, job, behind.runner, behind.owner, log, behind.weights, late).run(ledger, books)
        late |= end.blocked
        for topic, n in end.counts.items():
            totals[topic] = totals.get(topic, 0) + n
        left = set[int]() if end.stretches else {scan.order for scan in books_of(job.read()).active}
        # Tables without a row, and those that are given up, take no stretch.
        idle = 0 if end.stretches or left != at_work else idle + 1
        if idle == IDLE_ROUNDS and left:
            log(f"the next drain goes on with the ad-hoc snapshots: {end.why}")
            return totals
        ledger = job.read()
