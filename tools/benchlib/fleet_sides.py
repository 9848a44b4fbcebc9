"""A fleet of quiet streams by this provider: one Spark application drains a few rows of each."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar

from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.fleet.fleet_spec import fleet_job
from benchlib.ground import WorkloadRun
from benchlib.process_tree import usage
from benchlib.run import Run
from benchlib.servers import private_server
from benchlib.source import MySqlSource
from benchlib.spark_job import properties, run_job
from benchlib.workload import ROWS_PER_STREAM

SERVERS = 4
"""Servers that the streams share."""
_THREADS = 16
"""Streams that are planned or settled at the same time, as an Airflow task does."""
ResultT = TypeVar("ResultT")


class ProviderFleet:
    """Drain streams of databases of their own, each of them with a few new rows.

    Args:
        entry: What is measured; its number of tables is that of the streams.
    """

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry
        self._stack = ExitStack()
        self._sources: list[MySqlSource] = []
        self._pipelines: list[Pipeline] = []

    def __enter__(self) -> ProviderFleet:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _pipeline(self, source: MySqlSource, database: str) -> Pipeline:
        ground = self._entry.ground
        own = {"database.include.list": database, **self._entry.workload.ours, **ground.more}
        return Pipeline(properties(source, ground.kafka, database) | own)

    def store_position(self) -> None:
        """Start the servers, make a database for each stream, and drain each once: a first drain makes its topics."""
        prefix, shape = self._entry.prefix(0), self._entry.workload.shape
        self._sources = [
            self._stack.enter_context(private_server(self._entry.folder / f"mysql-{n}")) for n in range(SERVERS)
        ]
        for number in range(self._entry.workload.tables):
            source, database = self._sources[number % SERVERS], f"{prefix}_{number}"
            source.run(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.{shape.name} ({shape.table_ddl})")
            self._pipelines.append(self._pipeline(source, database))
        self._each(lambda pipeline: pipeline.snapshot())
        self._drain()

    def run(self, number: int) -> Run:
        """Write a few rows to each stream, and drain all of them.

        Raises:
            RuntimeError: A stream was not drained, or wrote another number of records than there are rows.
        """
        return self._drain()

    def _drain(self) -> Run:
        entry, pipelines = self._entry, self._pipelines
        self._write_rows()
        begun = time.process_time()
        specs = self._each(lambda pipeline: pipeline.prepare("drain").spec)
        job = specs[0].id
        spec: Any = fleet_job([replace(each, id=job) for each in specs])
        beside_s = time.process_time() - begun
        samples, lines = run_job(spec, entry.ground.cores, native=entry.side.native)
        begun = time.process_time()
        outcomes = self._each(lambda pipeline: pipeline.settle())
        beside_s += time.process_time() - begun
        table, both = entry.workload.shape.name, zip(pipelines, outcomes, strict=True)
        records = [outcome.counts.get(each.table_topic(table), 0) for each, outcome in both]
        if not all(outcome.complete for outcome in outcomes) or set(records) != {ROWS_PER_STREAM}:
            raise RuntimeError(f"{entry.workload.name}: {records} records of the streams came:\n{lines}")
        load, rows = os.getloadavg()[0], sum(o.tally.native.rows for o in outcomes if o.tally)
        return Run(entry.workload.name, entry.side.name, sum(records), usage(samples), beside_s, load, rows)

    def _write_rows(self) -> None:
        shape, draw = self._entry.workload.shape, random.Random(42)
        marks = ", ".join(["%s"] * (shape.columns.count(",") + 1))
        for number, pipeline in enumerate(self._pipelines):
            table = f"{pipeline.properties['database.include.list']}.{shape.name}"
            with self._sources[number % SERVERS].connect() as conn, conn.cursor() as cursor:
                for _ in range(ROWS_PER_STREAM):
                    cursor.execute(f"INSERT INTO {table} ({shape.columns}) VALUES ({marks})", shape.row(draw))

    def _each(self, work: Callable[[Pipeline], ResultT]) -> list[ResultT]:
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(work, self._pipelines))
