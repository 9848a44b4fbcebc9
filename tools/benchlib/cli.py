"""The bench from beginning to end."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from avrolib.fake_registry import running_registry
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from stacklib import ensure_stack
from stacklib.errors import StackError
from stacklib.java import find_java
from stacklib.stack import stop_stack

from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from benchlib import pages
from benchlib.contest import Repeats, group_by_rows, measure_workloads
from benchlib.ground import BenchEnvironment
from benchlib.result import summary
from benchlib.run import Run
from benchlib.servers import on_server, relax_durability
from benchlib.sessions import START, Session, about, kernel_version, merge_sessions, read, write
from benchlib.shapes import NARROW
from benchlib.sides import SIDES, Side
from benchlib.source import MySqlSource
from benchlib.targets import verdicts
from benchlib.workload import LEAST_ROWS, WORKLOADS, Workload

_START = Workload(START, "next to nothing: what a start costs", NARROW, LEAST_ROWS)
# 10,000 topics of each side do not fit into the heap of a developer's broker.
_BROKER_JVM = ("-Xmx2g",)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return 0 when no target is missed, 1 when one is, 2 when it cannot run."""
    parser_arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = _options(parser_arguments)
    failures: list[str] = []
    try:
        if options.docs:
            for path in pages.write_pages():
                print(path)
            return 0
        _require(options)
        compared = _run_session(options, parser_arguments, failures).lines
    except (StackError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    judged = verdicts(compared)
    for verdict in judged:
        print(f"{'missed ' if verdict.missed else 'reached'} {verdict.text}")
    missed = [verdict.text for verdict in judged if verdict.missed]
    print(f"\n{pages.table(compared)}\n\n{summary(compared, missed)}")
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    return 2 if failures else 1 if missed else 0


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _above_0(kind: Callable[[str], float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        # Not "<= 0", which nan is not either.
        if not (found := kind(text)) > 0:
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return found

    return number


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    quick = [name for name, workload in WORKLOADS.items() if workload.quick]
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Run workloads by Debezium (one by Flink CDC) and by this provider, without and with the native "
        "kernel, in turn on the same MySQL and Kafka, in a stack of the bench's own, and compare the CPU time of their "
        "whole process trees. Exit code 1 when a target is missed.",
    )
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(quick)}, Debezium once, the others twice")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="only these")
    parser.add_argument("--side", action="append", choices=list(SIDES), help="only these sides")
    parser.add_argument("--repeat", type=_above_0(int), help="runs of each side (2)")
    parser.add_argument(
        "--scale", type=_above_0(float), default=1.0, help="share of a workload's rows, tables and time (1)"
    )
    parser.add_argument("--cores", type=_above_0(int), default=2, help="Spark's local[N] (2)")
    parser.add_argument(
        "--property", action="append", default=[], type=_pair, metavar="NAME=VALUE", help="for this provider"
    )
    parser.add_argument(
        "--output", type=Path, help="result file; workloads that are measured again replace those in it"
    )
    parser.add_argument("--docs", action="store_true", help="only generate docs/performance.md and its plots again")
    options = parser.parse_args(arguments)
    options.workload = options.workload or (quick if options.quick else list(WORKLOADS))
    options.repeats = Repeats(options.repeat or 2, options.repeat or (1 if options.quick else 2))
    return options


def _require(options: argparse.Namespace) -> None:
    """Check the requested sides and the output before the servers start.

    Raises:
        StackError: The native kernel decodes nothing here, or the output is not a file that can be written.
    """
    named = options.side or ()
    if any(SIDES[name].native for name in named) and kernel_version() is None:
        raise StackError("measuring the native kernel", f"rows are decoded by {kernel().text}", "see docs/native.md")
    if options.output:
        folder = next(parent for parent in options.output.absolute().parents if parent.exists())
        if options.output.is_dir() or not os.access(folder, os.W_OK | os.X_OK) or not folder.is_dir():
            raise StackError("keeping measurements", f"{options.output} cannot be written", "name a file with --output")


def _run_session(options: argparse.Namespace, arguments: Sequence[str], failures: list[str]) -> Session:
    """Measure, print each run as it ends, and write the result file after each; note what failed."""
    begun = time.monotonic()
    if options.output:
        read(options.output)
    with TemporaryDirectory(prefix="mysql-cdc-bench-") as folder, _ground(options, Path(folder)) as ground:
        session = Session(about(arguments, ground.source.version()))
        # What the runs have started ends before the servers, also if the bench gets a signal between two runs.
        with closing(_runs(options, ground, Path(folder), begun, failures)) as runs:
            for run in runs:
                _log(begun, json.dumps(run.to_json()))
                session = replace(session, runs=(*session.runs, run))
                if options.output:
                    # Another bench may have added to it meanwhile.
                    write(options.output, merge_sessions(read(options.output), session))
    return session


def _runs(
    options: argparse.Namespace, ground: BenchEnvironment, folder: Path, begun: float, failures: list[str]
) -> Generator[Run]:
    """Measure the workloads, those of one server together; one that is not to be had keeps the others from nothing."""
    chosen = [
        WORKLOADS[name].scaled(options.scale, quick=options.quick) for name in WORKLOADS if name in options.workload
    ]
    for mysql in dict.fromkeys(workload.mysql for workload in chosen):
        separate = folder / (mysql or "own")
        mine = [workload for workload in chosen if workload.mysql == mysql]
        try:
            with on_server(ground, mysql, separate / "mysql") as there:
                yield from _on_one_server(options, there, mine, separate, begun, failures)
        except StackError as error:
            _note_failure(begun, failures, error)


def _on_one_server(
    options: argparse.Namespace,
    ground: BenchEnvironment,
    chosen: Sequence[Workload],
    folder: Path,
    begun: float,
    failures: list[str],
) -> Generator[Run]:
    """Measure starts and then the workloads; what fails in one keeps those on other rows from nothing.

    Raises:
        StackError: A start failed on a server that is there for one peer only, whose workloads would fail as well.
    """
    sides, mysql = _sides(options), chosen[0].mysql
    start = _START if mysql is None else replace(_START, mysql=mysql, peer=chosen[0].peer)
    for number, some in enumerate([[start], *group_by_rows(chosen)]):
        for workload in some:
            _log(begun, f"{workload.name}: {workload.about}; {workload.rows:,} rows")
        try:
            yield from measure_workloads(ground, some, sides, options.repeats, folder / str(number))
        except (StackError, CdcError, RuntimeError) as error:
            if number == 0 and mysql is not None and isinstance(error, StackError):
                raise
            _note_failure(begun, failures, error)


def _note_failure(begun: float, failures: list[str], error: Exception) -> None:
    failures.append(str(error))
    _log(begun, f"error: {error}")


def _sides(options: argparse.Namespace) -> list[Side]:
    """Return who runs: those that are named, or all, with the kernel where it is installed."""
    usual = [name for name, side in SIDES.items() if not side.native or kernel_version()]
    names = options.side or usual
    return [SIDES[name] for name in SIDES if name in names]


@contextmanager
def _ground(options: argparse.Namespace, folder: Path) -> Iterator[BenchEnvironment]:
    """Start servers for this bench alone, as servers are that are not about to lose power."""
    with ExitStack() as opened:
        stack = ensure_stack(folder / "stack", kafka_jvm=_BROKER_JVM)
        opened.callback(stop_stack, folder / "stack", wipe=True)
        registry = opened.enter_context(running_registry())
        source = MySqlSource(stack.mysql_host, stack.mysql_port, stack.root_user, stack.root_password)
        relax_durability(source)
        _delete_topic_files_at_once(stack.kafka)
        more = dict(options.property)
        yield BenchEnvironment(source, stack.kafka, registry.url, find_java(), options.cores, more)


def _delete_topic_files_at_once(kafka: str) -> None:
    """Let the broker remove the files of deleted topics at once: in a minute another 10,000 topics may be there."""
    entry = ConfigEntry("log.segment.delete.delay.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": kafka})
    brokers = [str(broker) for broker in admin.list_topics(timeout=30).brokers]
    changes = [ConfigResource(ResourceType.BROKER, name, incremental_configs=[entry]) for name in brokers]
    for changed in admin.incremental_alter_configs(changes).values():
        changed.result()


def _log(begun: float, text: str) -> None:
    print(f"[{time.monotonic() - begun:6.0f}s] {text}", flush=True)
