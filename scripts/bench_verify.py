"""Measure a verification on Spark beside a snapshot of the same table.

    .venv/bin/python scripts/bench_verify.py --mysql HOST:PORT --kafka HOST:PORT --rows 1000000

creates the database ``bench`` again and prints one JSON line: CPU seconds of the whole process tree of each job, with
what Spark's start costs, and memory by quarter of the time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from benchlib import spark_job  # noqa: E402
from benchlib.ours import properties  # noqa: E402
from benchlib.process_tree import Usage, usage  # noqa: E402
from benchlib.source import MySqlSource, load  # noqa: E402
from pipelinelib.pipeline import Pipeline  # noqa: E402

from airflow_provider_mysql_cdc.cdc.verify.verify_request import VerifyRequest  # noqa: E402
from airflow_provider_mysql_cdc.cdc.verify.verify_result import TableVerdict  # noqa: E402


def main() -> None:
    """Run the measurement and print a JSON line."""
    options = arguments()
    host, port = options.mysql.rsplit(":", 1)
    source = MySqlSource(host, int(port), options.user, options.password)
    more = dict(text.split("=", 1) for text in options.property)
    measure(source, options, more, 1)  # the first jobs compile modules
    used = measure(source, options, more, options.rows)
    out: dict[str, Any] = {"rows": options.rows, "cores": options.cores}
    for job, of_job in used.items():
        out[job] = {
            "cpu_s": round(of_job.cpu_s, 1),
            "wall_s": round(of_job.wall_s, 1),
            "quarters_mb": {kind: [round(mb) for mb in four] for kind, four in of_job.quarters_mb.items()},
        }
    for job in ("verify", "verify-rows"):
        out[f"ratio-{job}"] = round(used[job].cpu_s / used["snapshot"].cpu_s, 2)
    print(json.dumps(out), flush=True)


def measure(source: MySqlSource, options: argparse.Namespace, more: dict[str, str], rows: int) -> dict[str, Usage]:
    """Take a snapshot of a table and verify it, by checksums and row by row; return what each job used.

    Args:
        source: The server.
        options: The command line.
        more: Further properties.
        rows: Rows of the table.
    """
    load(source, rows)
    pipeline = Pipeline(
        properties(source, options.kafka, f"bench{time.time_ns()}", {"snapshot.mode": "initial", **more})
    )
    snapshot = run(pipeline.prepare("snapshot").spec, options)
    pipeline.settle()
    used = {"snapshot": snapshot}
    for name, request in (("verify", VerifyRequest()), ("verify-rows", VerifyRequest(checksums=False))):
        spec = pipeline.verify_spec(request)
        used[name] = run(spec, options)
        result = pipeline.verify_result(spec.run)
        if not result.clean or any(sum(counts) < rows for counts in zip(*map(_counts, result.tables), strict=True)):
            raise SystemExit(f"the verification found something: {result}")
    return used


def _counts(verdict: TableVerdict) -> tuple[int, int]:
    return verdict.rows, verdict.records


def run(spec: Any, options: argparse.Namespace) -> Usage:
    """Run one job on Spark; return what its processes used."""
    samples, _ = spark_job.run_job(spec, options.cores, native=not options.python)
    return usage(samples)


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mysql", required=True, help="HOST:PORT of a scratch server; its database bench is dropped")
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("--kafka", required=True, help="bootstrap servers")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2, help="Spark's local[N]")
    parser.add_argument("--python", action="store_true", help="without the native kernel")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
