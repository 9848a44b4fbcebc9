"""One attempt as the Airflow operator makes it: prepare, run the job, settle. A process of its own, to be killed.

Properties are in ``properties.json`` of the folder (mode 0600); the offset store is the SQLite file ``state.db``.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pipelinelib.stand_ins import ThreadRunner
from stacklib.settings import REPOSITORY

from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_job import PreparedJob
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot
from airflow_provider_mysql_cdc.cdc.operate.prepare_verify import prepare_verify
from airflow_provider_mysql_cdc.cdc.operate.settle import settle_offset, verification_of_run
from airflow_provider_mysql_cdc.cdc.operate.snapshot_job import run_snapshot
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_driver import run_verify

_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# local-cluster: a master, a worker and an executor in processes of their own (cores, MB); Spark tries lost tasks again.
_MASTERS = {"local": "local[{slots}]", "cluster": "local-cluster[1,{slots},768]"}
_JOBS = {"drain": "drain_binlog.py", "snapshot": "snapshot_tables.py", "verify": "verify_topics.py"}
_RUN = {"drain": run_drain, "snapshot": run_snapshot, "verify": run_verify}
_MAX_EXAMPLES = 20


def _log(line: str) -> None:
    print(f"[mysql-cdc] {line}", flush=True)


def _on_threads(spec: JobSpec, slots: int) -> None:
    _RUN[spec.mode](spec, ThreadRunner(slots), _log)


def _spark_home(folder: Path) -> Path:
    """Return a Spark of the soak's own: the master's workers leave their folders in it."""
    import pyspark

    home = folder / "spark"
    home.mkdir(exist_ok=True)
    for part in ("bin", "jars", "python"):
        with contextlib.suppress(FileExistsError):
            (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    return home


def _on_spark(spec: JobSpec, master: str, slots: int, folder: Path) -> None:
    """Submit the job as the operator does; how it ended is in the ledger."""
    home = _spark_home(folder)
    path = folder / f"spec-{os.getpid()}.json"
    spec.write(path)
    # A killed JVM leaves the libraries that it has unpacked.
    unpacked = folder / "unpacked"
    unpacked.mkdir(exist_ok=True)
    options = f"{_JVM} -Djava.io.tmpdir={unpacked}"
    command = [
        str(home / "bin" / "spark-submit"),
        *("--master", _MASTERS[master].format(slots=slots), "--driver-java-options", options),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=512m"),
        *("--conf", f"spark.executor.extraJavaOptions={options}"),
        str(REPOSITORY / "spark_jobs" / _JOBS[spec.mode]),
        str(path),
    ]
    env = {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(REPOSITORY),
        "SPARK_LAUNCHER_OPTS": _JVM,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
    }
    try:
        code = subprocess.run(command, env=env, cwd=folder, stdin=subprocess.DEVNULL, check=False).returncode
        _log(f"spark-submit ended with {code}")
    finally:
        path.unlink(missing_ok=True)


def _prepare(kind: str, cfg: ConnectorConfig, store: SqlOffsetStore, owner: str) -> PreparedJob | None:
    if kind == "verify":
        job = prepare_verify(cfg, store, owner, _log, VerifyRequest(history=True, examples=_MAX_EXAMPLES))
        return job and replace(job, spec=replace(job.spec, run=f"{owner}/{os.getpid()}"))
    return (prepare_snapshot if kind == "snapshot" else prepare_drain)(cfg, store, owner, _log)


def _differences(cfg: ConnectorConfig, owner: str, run: str) -> list[tuple[str, str]]:
    """Return what the verification of a run has found: the table's name in its database, and words."""
    result = verification_of_run(cfg, owner, run)
    out = []
    for verdict in result.tables:
        _log(f"verified {verdict.table}: {verdict.rows} rows, {verdict.records} records, {verdict.unknown}")
        for kind, count in verdict.findings.items():
            examples = [example.to_json() for example in verdict.examples if example.finding is kind]
            text = f"verification: {verdict.table}: {count} {kind}, for example {examples[:3]}"
            out.append((verdict.table.partition(".")[2], text))
    return out


def attempt(options: argparse.Namespace) -> dict[str, Any]:
    """Make the attempt and return how it ended, as JSON."""
    folder: Path = options.folder
    cfg = ConnectorConfig.from_properties(json.loads((folder / "properties.json").read_text(encoding="utf-8")))
    store = SqlOffsetStore(sa.create_engine(f"sqlite:///{folder / 'state.db'}"), cfg.topic_prefix)
    job = _prepare(options.kind, cfg, store, options.owner)
    if job is None:
        return {"nothing": True}
    _log(f"epoch {job.plan.epoch}: {job.plan.kind} {job.plan.start} to {job.plan.end}, {job.plan.writers} writer(s)")
    if options.only not in (None, job.plan.epoch):
        return {"other": job.plan.epoch}
    failed: CdcError | None = None
    spec = replace(job.spec, run_for_s=options.run_for)
    try:
        if options.spark:
            _on_spark(spec, options.spark, options.slots, folder)
        else:
            _on_threads(spec, options.slots)
    except CdcError as error:
        failed = error
    outcome = settle_offset(cfg, store, _log)
    failed = failed or outcome.error
    differences = _differences(cfg, options.owner, job.spec.run) if options.kind == "verify" and failed is None else []
    return {
        "differences": differences,
        "epoch": job.plan.epoch,
        "complete": outcome.complete,
        "records": sum(outcome.counts.values()),
        "error": None if outcome.complete or failed is None else failed.to_json(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run one attempt; return 0 when it is complete or there was nothing to do, else 1."""
    parser = argparse.ArgumentParser(prog="soaklib.driver")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kind", choices=tuple(_JOBS), required=True)
    parser.add_argument("--owner", required=True)
    parser.add_argument("--slots", type=int, default=3)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--spark", choices=tuple(_MASTERS))
    parser.add_argument("--only", type=int)
    parser.add_argument("--run-for", type=float, default=0.0)
    options = parser.parse_args(argv)
    # Somebody who waits too long asks where the threads are.
    with contextlib.suppress(AttributeError, ValueError):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        result = attempt(options)
    except CdcError as error:
        result = {"error": error.to_json()}
    except BaseException as error:
        traceback.print_exc()
        result = {"raw": repr(error)}
    _log(f"result {json.dumps(result)}")
    options.result.write_text(json.dumps(result), encoding="utf-8")
    return 0 if result.get("nothing") or result.get("complete") else 1


if __name__ == "__main__":
    sys.exit(main())
