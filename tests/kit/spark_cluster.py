"""A Spark standalone cluster for tests: what runs on it, and who can be killed there.

The fixture ``spark_cluster`` (tests/conftest.py) starts a master and two workers with two slots each, once for all
tests of a session. Submit to ``spark_cluster.master`` with ``spark_cluster.conf``; the executors' Python is the packed
environment, unpacked outside of the checkout. ``spark_cluster.archive`` is the same for ``--archives``.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelinelib.submit import JVM, ROOT, spark_home
from stacklib.unpack import unpack_tar


@dataclass
class RunningCluster:
    """A running cluster.

    Args:
        master: For spark-submit.
        rest: Base address of the master's submission server.
        web: Base address of the master's web page.
        folder: What master and workers write: ``worker-1/work/APPLICATION/EXECUTOR/stderr``.
        archive: The packed environment.
        python: The same, unpacked: the executors' interpreter.
        conf: Spark configuration of an application.
    """

    master: str
    rest: str
    web: str
    folder: Path
    archive: Path
    python: Path
    conf: dict[str, str] = field(default_factory=dict)

    def state(self) -> dict[str, Any]:
        """Return what the master tells: activeapps, completedapps, activedrivers, completeddrivers, workers."""
        from stacklib import spark

        return spark.Cluster(str(self.folder), self.master, self.rest, self.web, "").state()

    def applications(self) -> list[dict[str, Any]]:
        """Return the running applications: ``id``, ``name``, ``state``, ``cores`` and more."""
        return list(self.state()["activeapps"])

    def executors(self) -> list[int]:
        """Return the process ids of the executors' JVMs."""
        from stacklib import processes

        workers = [processes.load(path) for path in self.folder.glob("worker-*/process.json")]
        found = [pid for w in workers if w is not None for pid in descendants(w.pid)]
        return [pid for pid in found if b"CoarseGrainedExecutorBackend" in command(pid)]

    def tasks(self) -> list[int]:
        """Return the process ids of the Python workers, without the daemons that they are forked from."""
        daemons = [d for jvm in self.executors() for d in descendants(jvm) if b"pyspark.daemon" in command(d)]
        return [pid for pid in daemons if parent(pid) in daemons]

    def wait_idle(self, seconds: float = 60) -> None:
        """Wait until no application and no executor is left."""
        wait_until(lambda: not self.applications() and not self.executors(), seconds, "the cluster is not idle")


def unpack_environment(folder: Path) -> Path:
    """Unpack the environment of Spark's tasks, packed when it is not there; return the archive."""
    from stacklib import spark
    from stacklib.locks import exclusive

    kept = ROOT / ".stack" / "environment"
    kept.mkdir(parents=True, exist_ok=True)
    with exclusive(kept / ".lock", "packing the environment of Spark's tasks"):
        archive = spark.environment(kept, Path(sys.executable))
    with tarfile.open(archive) as tar:
        unpack_tar(tar, folder)
    return archive


@contextmanager
def running_cluster(jvm: str) -> Iterator[RunningCluster]:
    """Run a cluster outside of the checkout.

    Args:
        jvm: Further options of its Java.
    """
    from stacklib import spark
    from stacklib.java import find_java

    folder = Path(tempfile.mkdtemp(prefix=f"mysql-cdc-spark-{os.environ['MYSQL_CDC_SUITE']}-"))
    try:
        archive = unpack_environment(folder / "environment")
        started = spark.start(find_java(), folder, spark_home(), jvm=jvm)
        python = folder / "environment" / "bin" / "python"
        # A killed executor leaves the libraries that it has unpacked.
        unpacked = folder / "unpacked"
        unpacked.mkdir()
        conf = {
            "spark.ui.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": f"{JVM} {jvm} -Djava.io.tmpdir={unpacked}",
            "spark.pyspark.python": str(python),
        }
        yield RunningCluster(started.master, started.rest, started.web, folder, archive, python, conf)
    finally:
        spark.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


def wait_until(condition: Callable[[], Any], seconds: float, what: str) -> None:
    """Wait until something is the case."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def kill(pid: int) -> None:
    """End a process without giving it a chance (SIGKILL)."""
    os.kill(pid, signal.SIGKILL)


def command(pid: int) -> bytes:
    """Return a process's command line; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent(pid: int) -> int:
    """Return a process's parent, 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def descendants(pid: int) -> list[int]:
    """Return the process ids of a process's children and of theirs."""
    parents = {int(p.name): parent(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
    found, waiting = [], [pid]
    while waiting:
        above = waiting.pop()
        children = [child for child, of in parents.items() if of == above]
        found += children
        waiting += children
    return found
