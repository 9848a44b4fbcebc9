"""Measure a drain on Spark: records, seconds, CPU seconds of the whole process tree, memory of each process.

    .venv/bin/python scripts/bench_drain.py --mysql HOST:PORT --user root --kafka HOST:PORT --tables bench.orders

drains the server's whole binlog (snapshot.mode=never) into a fresh topic.prefix. docs/performance.md tells how it is
compared with Debezium on the same binlog.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests")]

from benchlib.process_tree import usage, watch  # noqa: E402
from kit import Pipeline, submit_command, submit_env  # noqa: E402


def main() -> None:
    """Run one measurement and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mysql", required=True)
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--tables", required=True)
    parser.add_argument("--schemas", default="false")
    parser.add_argument("--writers", default="1")
    parser.add_argument("--property", action="append", default=[])
    options = parser.parse_args()
    host, port = options.mysql.split(":")
    properties = {
        "topic.prefix": f"bench{int(time.time())}",
        "database.hostname": host,
        "database.port": port,
        "database.user": options.user,
        "database.password": options.password,
        "table.include.list": options.tables,
        "kafka.bootstrap.servers": options.kafka,
        "topic.creation.default.replication.factor": "1",
        "snapshot.mode": "never",
        "drain.writers": options.writers,
        "key.converter.schemas.enable": options.schemas,
        "value.converter.schemas.enable": options.schemas,
        **dict(p.split("=", 1) for p in options.property),
    }
    pipeline = Pipeline(properties)
    job = pipeline.prepare("drain")
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        process = subprocess.Popen(
            submit_command(job.spec, Path(folder), cores=max(2, int(options.writers))),
            env=submit_env(),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        used = usage(watch(process.pid, lambda: process.poll() is not None))
        wall = time.monotonic() - began
        output = process.stdout.read() if process.stdout else ""
    outcome = pipeline.settle()
    records = sum(outcome.counts.values())
    if process.returncode or not outcome.complete:
        sys.exit(output)
    print(
        json.dumps(
            {
                "records": records,
                "wall_s": round(wall, 1),
                "cpu_s": round(used.cpu_s, 2),
                "cpu_s_per_million": round(used.cpu_s / records * 1e6, 2),
                "peak_mb": {k: round(v) for k, v in used.peak_mb.items()},
                "load1": os.getloadavg()[0],
            }
        )
    )


if __name__ == "__main__":
    main()
