"""A Spark standalone cluster of the stack: a master and two workers on loopback, out of the installed pyspark.

The workers know nothing of the checkout or of this process's environment: their tasks run in the packed environment
(``python -m airflow_provider_mysql_cdc.environment``), in folders of the workers.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stacklib import commands, ports, processes
from stacklib.errors import say
from stacklib.java import Java
from stacklib.settings import LOOPBACK, REPOSITORY, SPARK_DAEMON_JVM, SPARK_VERSION, SPARK_WORKERS
from stacklib.unpack import unpack_tar

_START_SECONDS = 60.0
_CLASS = "org.apache.spark.deploy."
_MEMBERS = ("master", *(f"worker-{n}" for n in range(1, SPARK_WORKERS + 1)))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Addresses of a running cluster.

    Args:
        rest: The master's submission server (``spark.master.rest.enabled``).
        web: The master's web page; ``/json/`` returns its state.
        home: SPARK_HOME of its processes.
    """

    folder: str
    master: str
    rest: str
    web: str
    home: str

    def state(self) -> dict[str, Any]:
        """Return what the master reports: workers, activeapps, completedapps, activedrivers, completeddrivers."""
        with urllib.request.urlopen(f"{self.web}/json/", timeout=10) as reply:
            found: dict[str, Any] = json.load(reply)
        return found


def home(python: Path) -> Path:
    """Return Spark's folder in the environment of an interpreter."""
    return next((python.parent.parent / "lib").glob("python3*/site-packages/pyspark"))


def load(folder: Path) -> Cluster | None:
    """Return the cluster of a folder, or None when none was started there."""
    try:
        return Cluster(**json.loads((folder / "spark.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def running(folder: Path) -> bool:
    """Return whether all processes of the cluster are alive."""
    return all(processes.alive(processes.load(folder / name / "process.json")) for name in _MEMBERS)


def start(java: Java, folder: Path, spark_home: Path, *, cores: int = 2, jvm: str = "") -> Cluster:
    """Start a master and its workers and wait until all have registered; one that runs is returned as it is.

    Raises:
        StackError: One does not start; the end of its log is in the detail.
    """
    running_cluster = load(folder)
    if running_cluster is not None and running(folder):
        say("spark", f"already runs on {running_cluster.master}")
        return running_cluster
    stop(folder)
    port, rest, web = _three_ports()
    cluster = Cluster(
        str(folder),
        f"spark://{LOOPBACK}:{port}",
        f"http://{LOOPBACK}:{rest}",
        f"http://{LOOPBACK}:{web}",
        str(spark_home),
    )
    say("spark", f"starting {SPARK_VERSION} on {cluster.master}")
    master = ["master.Master", "--host", LOOPBACK, "--port", str(port), "--webui-port", str(web)]
    worker = ["worker.Worker", "--host", LOOPBACK, "--webui-port", "0", "-c", str(cores), "-m", "2g", cluster.master]
    options = f"{SPARK_DAEMON_JVM} {jvm}"
    serve = f"-Dspark.master.rest.enabled=true -Dspark.master.rest.host={LOOPBACK} -Dspark.master.rest.port={rest}"
    try:
        started = [_spawn(java, folder / name, spark_home, worker, options) for name in _MEMBERS[1:]]
        started.append(_spawn(java, folder / "master", spark_home, master, f"{options} {serve}"))
        processes.wait_ready("spark", started[-1], lambda: _registered(cluster), _START_SECONDS)
    except BaseException:
        stop(folder)
        raise
    processes.write_private(folder / "spark.json", json.dumps(asdict(cluster), indent=2) + "\n")
    say("spark", "ready")
    return cluster


def stop(folder: Path) -> bool:
    """End the cluster of a folder with its executors; return whether one ran."""
    # A worker that is asked to end takes its executors along (org.apache.spark.deploy.worker.Worker.onStop).
    ended = [processes.stop(f"spark {name}", folder / name / "process.json", 10) for name in reversed(_MEMBERS)]
    (folder / "spark.json").unlink(missing_ok=True)
    return any(ended)


def environment(folder: Path, python: Path) -> Path:
    """Return the packed environment of this checkout's code, packed and unpacked once for each state of the code.

    ``environment.tar.gz`` is for ``--archives``; next to it, the folder ``environment`` is what an administrator would
    unpack on each machine.
    """
    archive, stamp, unpacked = folder / "environment.tar.gz", folder / "environment.stamp", folder / "environment"
    wanted = _fingerprint(python)
    if not (stamp.exists() and stamp.read_text(encoding="utf-8") == wanted):
        folder.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)
        say("spark", "packing the environment of the tasks")
        commands.run(
            [str(python), "-m", "airflow_provider_mysql_cdc.environment", "--output", str(archive)],
            "packing the environment of Spark's tasks",
            "run scripts/bootstrap first",
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        shutil.rmtree(unpacked, ignore_errors=True)
        with tarfile.open(archive) as tar:
            unpack_tar(tar, unpacked)
        stamp.write_text(wanted, encoding="utf-8")
    return archive


def _fingerprint(python: Path) -> str:
    digest = hashlib.sha256(str(python.resolve()).encode())
    sources = [REPOSITORY / "airflow_provider_mysql_cdc", REPOSITORY / "spark_jobs"]
    for path in (REPOSITORY / "requirements.lock", *sorted(p for s in sources for p in s.rglob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _three_ports() -> tuple[int, int, int]:
    first = ports.any_free()
    second = ports.any_free(frozenset({first}))
    return first, second, ports.any_free(frozenset({first, second}))


def _spawn(java: Java, folder: Path, spark_home: Path, command: list[str], options: str) -> processes.Started:
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    program = [str(spark_home / "bin" / "spark-class"), _CLASS + command[0], *command[1:]]
    env = _daemon_env(os.environ, java, folder, spark_home, options)
    return processes.spawn(program, folder / "process.json", folder / "log", _CLASS + command[0], env)


def _daemon_env(base: Mapping[str, str], java: Java, folder: Path, spark_home: Path, options: str) -> dict[str, str]:
    """Return the environment of a master or worker; executors inherit their worker's."""
    kept = {name: base[name] for name in ("HOME", "LANG", "MYSQL_CDC_SUITE") if name in base}
    return {
        **kept,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LAUNCHER_OPTS": SPARK_DAEMON_JVM,
        "SPARK_DAEMON_JAVA_OPTS": f"{options} -Djava.io.tmpdir={folder / 'tmp'}",
    }


def _registered(cluster: Cluster) -> bool:
    try:
        return int(cluster.state()["aliveworkers"]) == SPARK_WORKERS
    except (OSError, ValueError):
        return False
