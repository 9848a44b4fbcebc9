"""The bench from beginning to end."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stacklib import ensure_stack
from stacklib.errors import StackError
from stacklib.java import find_java
from stacklib.stack import stop_stack

from benchlib import debezium_worker, spark_job, stream_ours
from benchlib.result import Run, lines, summary, table
from benchlib.source import Source
from benchlib.stream_debezium import DebeziumStream
from benchlib.workload import NARROW, WORKLOADS, Workload, load, make_table

START = "start"
_START = Workload(START, "next to nothing: what a start costs", NARROW, 100)
_SMALL = 100
QUICK = ("narrow", "narrow-schemas", "wide", "snapshot")
OURS, THEIRS = spark_job.NAME, debezium_worker.NAME


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return 0 when no target is missed, 1 when one is, 2 when it cannot run."""
    options = _options(arguments)
    try:
        runs = list(_runs(options))
    except (StackError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    starts = {run.name: run.cpu_s for run in runs if run.workload == START}
    targets = {name: workload.target for name, workload in WORKLOADS.items()}
    measured = [run for run in runs if run.workload != START]
    compared = lines(measured, OURS, THEIRS, starts, targets)
    print(f"\n{table(compared, OURS, THEIRS)}\n\n{summary(compared)}")
    return 1 if any(line.missed for line in compared) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Run workloads by this provider and by Debezium in turn on the same MySQL and Kafka, in a stack of "
        "the bench's own, and compare the CPU time of their whole process trees. Exit code 1 when a target is missed.",
    )
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)}, twice each")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="only these")
    parser.add_argument("--repeat", type=int, help="runs of each side (3; quick: 2)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of a workload's rows (1)")
    parser.add_argument("--only", choices=["ours", "debezium"], help="leave the other side out")
    parser.add_argument("--cores", type=int, default=2, help="Spark's local[N] (2)")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="for this provider")
    parser.add_argument("--output", type=Path, help="write each run as a JSON line to this file")
    options = parser.parse_args(arguments)
    options.repeat = options.repeat or (2 if options.quick else 3)
    options.workload = options.workload or (list(QUICK) if options.quick else list(WORKLOADS))
    return options


def _runs(options: argparse.Namespace) -> Iterator[Run]:
    """Measure a start and then the workloads; print each run as it ends."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mysql-cdc-bench-") as folder, _servers(Path(folder)) as (source, kafka):
        todo = [replace(_START, rows=_SMALL), *(WORKLOADS[name] for name in options.workload)]
        for number, workload in enumerate(todo):
            rows = workload.rows if workload is todo[0] else max(_SMALL, round(workload.rows * options.scale))
            _say(begun, f"{workload.name}: {workload.about}; {rows:,} rows")
            repeat = 1 if workload.name == START else options.repeat
            for run in _measured(options, workload, rows, repeat, source, kafka, Path(folder) / str(number)):
                line = json.dumps(run.to_json())
                _say(begun, line)
                if options.output is not None:
                    with options.output.open("a") as output:
                        output.write(f"{line}\n")
                yield run


def _measured(
    options: argparse.Namespace,
    workload: Workload,
    rows: int,
    repeat: int,
    source: Source,
    kafka: str,
    folder: Path,
) -> Iterator[Run]:
    """Let both find their place, write the rows, and let them run by turns."""
    folder.mkdir()
    prefix = f"bench-{folder.name}"
    more: Mapping[str, str] = dict(text.split("=", 1) for text in options.property)
    make_table(source, workload.shape)
    theirs = DebeziumStream(find_java(), source, kafka, folder, f"{prefix}-debezium", workload=workload)
    mine = [stream_ours.pipeline(source, kafka, workload, f"{prefix}-ours-{n}", more) for n in range(repeat)]
    if not workload.snapshot:
        if options.only != "ours":
            theirs.find_place()
        for each in mine:
            each.snapshot()
    load(source, workload, rows)
    for n in range(repeat):
        if options.only != "ours":
            if workload.snapshot:
                # Its topics keep their rows, so each snapshot has a prefix of its own.
                (folder / str(n)).mkdir()
                prefixed = f"{theirs.prefix}-{n}"
                again = DebeziumStream(theirs.java, source, kafka, folder / str(n), prefixed, workload=workload)
                yield again.measure(rows)
            else:
                yield theirs.measure(rows)
        if options.only != "debezium":
            run = stream_ours.measure(mine[n], workload, options.cores)
            if run.records != rows:
                raise RuntimeError(f"{workload.name}: {rows} rows were written, and {run.records} records came of them")
            yield run


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[Source, str]]:
    """Start servers for this bench alone, as servers are that are not about to lose power."""
    stack = ensure_stack(folder / "stack")
    try:
        source = Source(stack.mysql_host, stack.mysql_port, stack.root_user, stack.root_password)
        source.run("SET GLOBAL sync_binlog = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
        yield source, stack.kafka
    finally:
        stop_stack(folder / "stack", wipe=True)


def _say(begun: float, text: str) -> None:
    print(f"[{time.monotonic() - begun:6.0f}s] {text}", flush=True)
