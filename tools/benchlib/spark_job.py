"""One job of this provider on Spark, sampled from spark-submit to its end, and its connector's properties."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from pipelinelib.submit import submit_command, submit_env

from airflow_provider_mysql_cdc.cdc.decode.native_kernel import ENV_VARIABLE
from benchlib.process_tree import Sample, kill_tree, sample_tree
from benchlib.slow_cores import SlowCores
from benchlib.source import DATABASE, MySqlSource

NAME = "this provider"


def run_job(spec: Any, cores: int, *, native: bool = True, share: float = 0.0) -> tuple[list[Sample], str]:
    """Run a job as the operator does; return what its processes used, and what it printed.

    Args:
        spec: The job's spec.
        cores: Spark's ``local[N]``.
        native: Whether the native kernel decodes where it is installed.
        share: Speed of the processor that each Python worker has for itself, as a share of a whole one; 0 for no bound.

    Raises:
        RuntimeError: It failed, or workers cannot be bound here.
    """
    own = SlowCores(share) if share else None
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
        process = subprocess.Popen(
            submit_command(spec, Path(folder), cores=cores),
            env=submit_env() | ({} if native else {ENV_VARIABLE: "off"}),
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            samples = sample_tree(process.pid, lambda: _is_over(process, own))
        except BaseException:
            # A job does not end with the bench by itself.
            kill_tree(process.pid)
            process.wait()
            raise
        finally:
            if own:
                own.remove()
        log.seek(0)
        lines = log.read()
    if process.returncode:
        raise RuntimeError(f"the Spark job ended with code {process.returncode}:\n{lines}")
    return samples, lines


def _is_over(process: subprocess.Popen[bytes], own: SlowCores | None) -> bool:
    if own:
        own.bind_workers(process.pid)
    return process.poll() is not None


def properties(source: MySqlSource, kafka: str, prefix: str, *, schemas: bool = False) -> dict[str, str]:
    """Return the properties that all measurements share; those that Debezium has too are the same."""
    return {
        "topic.prefix": prefix,
        "database.hostname": source.host,
        "database.port": str(source.port),
        "database.user": source.user,
        "database.password": source.password,
        "database.include.list": DATABASE,
        "kafka.bootstrap.servers": kafka,
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        "snapshot.mode": "no_data",
        "key.converter.schemas.enable": str(schemas).lower(),
        "value.converter.schemas.enable": str(schemas).lower(),
    }
