"""Measure a drain on Spark: records, seconds, CPU seconds of the whole process tree, memory of each process.

    .venv/bin/python scripts/bench_drain.py --mysql HOST:PORT --user root --kafka HOST:PORT --tables bench.orders

drains the server's whole binlog (snapshot.mode=never) into a fresh topic.prefix. docs/performance.md tells how it is
compared with Debezium on the same binlog. With ``--avro`` keys and values are Avro, and a registry in this process,
whose CPU does not count, gives ids.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests")]

from benchlib.process_tree import usage  # noqa: E402
from benchlib.source import Source  # noqa: E402
from benchlib.spark_job import properties as common  # noqa: E402
from benchlib.spark_job import run_job  # noqa: E402
from fake_registry import running_registry  # noqa: E402
from kit import Pipeline  # noqa: E402


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
    parser.add_argument("--avro", action="store_true", help="keys and values as Avro")
    parser.add_argument("--property", action="append", default=[])
    options = parser.parse_args()
    with running_registry() as registry:
        avro = {}
        for part in ("key", "value") if options.avro else ():
            avro[f"{part}.converter"] = "io.confluent.connect.avro.AvroConverter"
            avro[f"{part}.converter.schema.registry.url"] = registry.url
        measure(options, avro)


def measure(options: argparse.Namespace, more: dict[str, str]) -> None:
    """Drain once.

    Args:
        options: The arguments.
        more: Further properties.
    """
    host, port = options.mysql.split(":")
    source = Source(host, int(port), options.user, options.password)
    properties = {
        **common(source, options.kafka, f"bench{int(time.time())}", schemas=options.schemas == "true"),
        "database.include.list": ",".join(sorted({name.split(".")[0] for name in options.tables.split(",")})),
        "table.include.list": options.tables,
        "snapshot.mode": "never",
        "drain.writers": options.writers,
        **more,
        **dict(p.split("=", 1) for p in options.property),
    }
    pipeline = Pipeline(properties)
    job = pipeline.prepare("drain")
    try:
        samples, output = run_job(job.spec, max(2, int(options.writers)))
    except RuntimeError as error:
        sys.exit(str(error))
    used = usage(samples)
    outcome = pipeline.settle()
    records = sum(outcome.counts.values())
    if not outcome.complete:
        sys.exit(output)
    print(
        json.dumps(
            {
                "form": "avro" if more else "json",
                "records": records,
                "wall_s": round(used.wall_s, 1),
                "cpu_s": round(used.cpu_s, 2),
                "cpu_s_per_million": round(used.cpu_s / records * 1e6, 2),
                "peak_mb": {k: round(v) for k, v in used.peak_mb.items()},
                "load1": os.getloadavg()[0],
            }
        )
    )


if __name__ == "__main__":
    main()
