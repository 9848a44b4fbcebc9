"""Measure an ad-hoc snapshot of many tables by this provider on Spark.

    .venv/bin/python scripts/bench_incremental.py --mysql HOST:PORT --kafka HOST:PORT --tables 1000

creates the database ``bench`` again and prints one JSON line: CPU seconds of the whole process tree, memory, and the
largest records of the ledger. One large table that is being changed is a workload of scripts/bench.
docs/performance.md has figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from benchlib import many_tables  # noqa: E402
from benchlib.ours import properties  # noqa: E402
from benchlib.source import MySqlSource, load  # noqa: E402
from pipelinelib.pipeline import Pipeline  # noqa: E402


def main() -> None:
    """Run the measurement and print a JSON line."""
    options = arguments()
    host, port = options.mysql.rsplit(":", 1)
    source = MySqlSource(host, int(port), options.user, options.password)
    more = dict(text.split("=", 1) for text in options.property)
    pipeline = Pipeline(properties(source, options.kafka, f"bench{int(time.time())}", more))
    load(source, many_tables.ROWS)
    many_tables.load(source, options.tables)
    print(json.dumps(many_tables.measure(pipeline, options.cores)), flush=True)


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mysql", required=True, help="HOST:PORT of a scratch server; its database bench is dropped")
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("--kafka", required=True, help="bootstrap servers")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--cores", type=int, default=2, help="Spark's local[N]")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
