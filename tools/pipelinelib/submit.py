"""Start the job of a spec: with spark-submit, for a Spark Connect server, or in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

JOBS = {
    "drain": "drain_binlog.py",
    "fleet": "drain_fleet.py",
    "snapshot": "snapshot_tables.py",
    "verify": "verify_topics.py",
}

# A test's Spark driver starts in about five seconds with these; the operator uses the same defaults.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MaxNewSize=32m"


def submit_command(spec: Any, tmp_path: Path, cores: int = 3) -> list[str]:
    """Write the spec file and return the spark-submit command for it."""
    path = tmp_path / f"spec-{os.urandom(4).hex()}.json"
    spec.write(path)
    return [
        str(spark_home() / "bin" / "spark-submit"),
        *("--master", f"local[{cores}]", "--conf", "spark.ui.enabled=false", "--conf", f"spark.local.dir={tmp_path}"),
        # What a killed driver leaves behind goes with the test's folder.
        *("--driver-java-options", f"{JVM} -Djava.io.tmpdir={tmp_path}"),
        str(ROOT / "spark_jobs" / JOBS[spec.mode]),
        str(path),
    ]


def spark_home() -> Path:
    """Return the folder of the installed pyspark."""
    import pyspark

    return Path(pyspark.__file__).parent


def submit_env(fault: dict[str, Any] | None = None) -> dict[str, str]:
    """Return the environment of a Spark driver, with a fault to set."""
    env = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "HOME": os.environ.get("HOME", "/tmp"),
        "SPARK_LAUNCHER_OPTS": JVM,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    env |= {name: os.environ[name] for name in ("JAVA_HOME", "SPARK_SUBMIT_OPTS") if name in os.environ}
    if fault is not None:
        env["MYSQL_CDC_FAULT"] = json.dumps(fault)
    return env


def submit(
    spec: Any, tmp_path: Path, *, fault: dict[str, Any] | None = None, cores: int = 3
) -> subprocess.CompletedProcess[str]:
    """Run spark-submit on a job spec and wait for it."""
    return subprocess.run(
        submit_command(spec, tmp_path, cores),
        env=submit_env(fault),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def start_connect(
    spec: Any,
    tmp_path: Path,
    address: str,
    *,
    fault: dict[str, Any] | None = None,
    conf: Mapping[str, str] | None = None,
    python: Path | None = None,
) -> subprocess.Popen[str]:
    """Start the driver of a job for a Spark Connect server, as the operators do; its output is a pipe."""
    from airflow_provider_mysql_cdc.cdc.job.job_spec import ConnectSettings
    from airflow_provider_mysql_cdc.cdc.model.job_names import CONNECT_VARIABLE

    path = tmp_path / f"spec-{os.urandom(4).hex()}.json"
    spec.write(path)
    env = {n: v for n, v in submit_env(fault).items() if n not in ("SPARK_HOME", "SPARK_LAUNCHER_OPTS", "JAVA_HOME")}
    fd = os.memfd_create("mysql-cdc-connect")
    try:
        ConnectSettings(address, dict(conf or {})).write(fd)
        return subprocess.Popen(
            [str(python or sys.executable), str(ROOT / "spark_jobs" / JOBS[spec.mode]), str(path)],
            env={**env, CONNECT_VARIABLE: str(fd), "PYTHONWARNINGS": "ignore"},
            pass_fds=(fd,),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    finally:
        os.close(fd)


def over_connect(spec: Any, tmp_path: Path, address: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a job at a Spark Connect server and wait for it; takes what ``start_connect`` takes."""
    with start_connect(spec, tmp_path, address, **more) as process:
        output, _ = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, output, "")


# A job without Spark: its tasks are threads of one process, which a fault kills as a whole.
PROCESS = """
import sys
from pathlib import Path
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.operate.snapshot_job import run_snapshot
from airflow_provider_mysql_cdc.cdc.verify.verify_driver import run_verify
from pipelinelib.stand_ins import ThreadRunner
spec = JobSpec.read(Path(sys.argv[1]))
jobs = {"drain": run_drain, "snapshot": run_snapshot, "verify": run_verify}
jobs[spec.mode](spec, ThreadRunner(int(sys.argv[2])), print)
"""


def start_process(
    spec: Any, tmp_path: Path, *, fault: dict[str, Any] | None = None, slots: int = 1
) -> subprocess.Popen[str]:
    """Start a job in a process of its own; its output is a pipe."""
    path = tmp_path / f"spec-{os.urandom(4).hex()}.json"
    spec.write(path)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tools'}"}
    if fault is not None:
        env["MYSQL_CDC_FAULT"] = json.dumps(fault)
    command = [sys.executable, "-c", PROCESS, str(path), str(slots)]
    return subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
