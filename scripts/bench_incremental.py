"""Measure an incremental snapshot beside a writer: this provider on Spark and Debezium, on the same servers in one run.

    .venv/bin/python scripts/bench_incremental.py --mysql HOST:PORT --kafka HOST:PORT --rows 1000000

makes the database ``bench`` anew, lets a writer change its table, and lets each of the two in turn read the table
beside the stream, asked by a row of a signal table. CPU seconds are those of the whole process tree, from its start
until the snapshot is done. Debezium and Kafka Connect are fetched by coordinate, once. With ``--tables N`` this
provider alone is asked for N tables at once. docs/performance.md has figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests")]

from benchlib import many_tables  # noqa: E402
from benchlib.debezium import Debezium  # noqa: E402
from benchlib.figures import Measured, complaints, ratios  # noqa: E402
from benchlib.ours import Ours, properties  # noqa: E402
from benchlib.source import Source, load, writer  # noqa: E402
from kit import Pipeline  # noqa: E402
from stacklib.java import find_java  # noqa: E402


def main() -> None:
    """Run one measurement and print a JSON line for each of the two, and their ratio."""
    options = arguments()
    host, port = options.mysql.rsplit(":", 1)
    source = Source(host, int(port), options.user, options.password)
    prefix = f"bench{int(time.time())}"
    pipeline = Pipeline(properties(source, options.kafka, f"{prefix}-ours", pairs(options.property)))
    load(source, many_tables.ROWS if options.tables else options.rows)
    if options.tables:
        many_tables.load(source, options.tables)
        print(json.dumps(many_tables.measure(pipeline, options.cores)), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        more = pairs(options.debezium_property)
        debezium = Debezium(find_java(), source, options.kafka, Path(folder), f"{prefix}-debezium", more)
        runs: dict[str, Callable[[], Measured]] = {
            "ours": Ours(pipeline, options.cores).measure,
            "debezium": debezium.measure,
        }
        found: dict[str, Measured] = {}
        for name in options.only or ("debezium", "ours"):
            with writer(source, options.rows, options.rate):
                found[name] = runs[name]()
            print(json.dumps(found[name].to_json()), flush=True)
    if wrong := [line for run in found.values() for line in complaints(run, options.rows, options.rate)]:
        sys.exit("\n".join(wrong))
    if len(found) == len(runs):
        print(json.dumps({"ours_of_debezium": ratios(found["ours"], found["debezium"])}), flush=True)


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mysql", required=True, help="HOST:PORT of a scratch server; its database bench is dropped")
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("--kafka", required=True, help="bootstrap servers")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=100.0, help="transactions of the writer a second")
    parser.add_argument("--cores", type=int, default=2, help="Spark's local[N]")
    parser.add_argument("--tables", type=int, default=0, help="instead: so many tables asked for at once")
    parser.add_argument("--only", action="append", choices=["debezium", "ours"], help="leave the other one out")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="for this provider")
    parser.add_argument("--debezium-property", action="append", default=[], metavar="NAME=VALUE")
    return parser.parse_args()


def pairs(given: list[str]) -> dict[str, str]:
    """Return properties given as ``NAME=VALUE``."""
    return dict(text.split("=", 1) for text in given)


if __name__ == "__main__":
    main()
