"""A drain each minute by this provider at a Spark Connect server that runs already."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from pipelinelib.submit import spark_home, start_connect
from stacklib import processes, spark_connect

from airflow_provider_mysql_cdc.cdc.decode.native_kernel import ENV_VARIABLE
from benchlib.ground import WorkloadRun
from benchlib.lag import LagReader
from benchlib.our_sides import Jobs, delete_topics, pipeline
from benchlib.process_tree import Sample, process_ids, sample
from benchlib.run import Run
from benchlib.source import TABLE, changing_rows

DRAINS = 10
"""Drains of a run; at scale 1 one a minute."""


class ServerShare:
    """Take what the processes of a server use from now on.

    Args:
        pid: The server's JVM; its Python workers are below it.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = {each.pid: each.cpu_s for each in self._now()}

    def take(self) -> list[Sample]:
        """Return samples of this moment, which count from the beginning."""
        return [replace(s, cpu_s=s.cpu_s - self._before.get(s.pid, 0.0)) for s in self._now()]

    def _now(self) -> list[Sample]:
        at_s = time.monotonic()
        return [found for pid in process_ids(self._pid) if (found := sample(pid, at_s)) is not None]


def run_over_connect(spec: Any, folder: Path, address: str) -> list[Sample]:
    """Run a job at a server; return what its driver used, exactly.

    Raises:
        RuntimeError: It failed.
    """
    begun = time.monotonic()
    with start_connect(spec, folder, address) as driver:
        assert driver.stdout is not None
        output = driver.stdout.read()
        _, status, used = os.wait4(driver.pid, 0)
        driver.returncode = os.waitstatus_to_exitcode(status)
    if driver.returncode:
        raise RuntimeError(f"the job ended with code {driver.returncode}:\n{output}")
    peak_mb = used.ru_maxrss / 1024
    first = Sample(begun, driver.pid, "python", 0.0, 0.0, peak_mb)
    return [first, replace(first, at_s=time.monotonic(), cpu_s=used.ru_utime + used.ru_stime)]


@contextmanager
def running_server(entry: WorkloadRun) -> Iterator[tuple[str, int]]:
    """Run a server with the bench's number of slots; yield its address and the process of its JVM."""
    folder, ground = entry.folder / "connect", entry.ground
    env = {} if entry.side.native else {ENV_VARIABLE: "off"}
    options = spark_connect.ServerOptions(f"local[{ground.cores}]", Path(sys.executable), env=env)
    try:
        server = spark_connect.start(ground.java, folder, spark_home(), options)
        identity = processes.load(folder / "process.json")
        assert identity is not None
        yield server.address, identity.pid
    finally:
        spark_connect.stop(folder, 0)


class ProviderOverConnect:
    """Follow a steady load with a drain every minute, over Spark Connect.

    The server has run one drain before, as one that has been running for a while; from then on all that it uses counts.
    """

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry

    def store_position(self) -> None:
        """Do nothing: it is found right before a run, so that no run has to read what an earlier one has."""

    def run(self, number: int) -> Run:
        """Drain while the load runs, and return the costs, the lag of a reader, and the wall time of a drain.

        Raises:
            RuntimeError: A drain failed.
        """
        entry, found = self._entry, pipeline(self._entry, number)
        found.snapshot()
        with ExitStack() as opened:
            address, pid = opened.enter_context(running_server(entry))
            opened.enter_context(changing_rows(entry.ground.source, entry.workload.rows, entry.workload.rate))

            def run_spec(spec: Any) -> list[Sample]:
                return run_over_connect(spec, entry.folder, address)

            Jobs(entry, found, run_spec).run_job()
            lag = opened.enter_context(LagReader(entry.ground.kafka, found.table_topic(TABLE)))
            jobs, walls = Jobs(entry, found, run_spec), list[float]()
            self._follow(jobs, ServerShare(pid), walls)
        delete_topics(found)
        drains = {"count": float(len(walls)), "wall_s": round(median(walls), 2)}
        return replace(jobs.run(lag.seconds()), drains=drains)

    def _follow(self, jobs: Jobs, server: ServerShare, walls: list[float]) -> None:
        """Run a drain at the beginning of each part of the time, and add the server's share."""
        begun, every = time.monotonic(), self._entry.workload.seconds / DRAINS
        for number in range(DRAINS):
            time.sleep(max(0.0, begun + number * every - time.monotonic()))
            started = time.monotonic()
            jobs.run_job()
            walls.append(time.monotonic() - started)
            jobs.add(server.take())
        time.sleep(max(0.0, begun + DRAINS * every - time.monotonic()))
        jobs.add(server.take())
