"""Run a workload through the pipeline: a snapshot, then the changes, drained in several batches."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelinelib.stand_ins import MemoryOffsetStore, ThreadRunner
from stacklib import StackError, StackInfo
from topiclib.wire import WireReader, from_registry

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot
from airflow_provider_mysql_cdc.cdc.operate.settle import JobOutcome, settle_offset
from airflow_provider_mysql_cdc.cdc.operate.snapshot_job import run_snapshot
from prooflib import scratch
from prooflib.client import Client
from prooflib.lines import avro_as_json, line, read_topics, topic_ends, without_sentinel, write_lines
from prooflib.scratch import scratch_stack
from prooflib.workload import ProofError, Section, Workload, read_properties, read_workload

OK, STOPPED, UNUSABLE = 0, 1, 2
PREFIX = "cap"
OWNER = "proof/capture/run/-1"
SLOTS = 2
_SENTINEL_DML = (
    f"INSERT INTO {scratch.SENTINEL}.done VALUES (1);",
    f"UPDATE {scratch.SENTINEL}.done SET id = 2; DELETE FROM {scratch.SENTINEL}.done;",
)
# Properties by which records may go to topics outside of the prefix.
_NAMES_TOPICS = ("transforms", "topic.", "notification.", "heartbeat.topics.")
Log = Callable[[str], None]


def base_properties(stack: StackInfo) -> dict[str, str]:
    """Return the connector properties of the recordings.

    They also contain Kafka's address, which Connect's worker has elsewhere, and ``replace.null.with.default``, which is
    Connect's default but not this provider's. No record depends on TLS, whose handshakes cost a tenth of a capture.
    """
    return {
        "name": PREFIX,
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "tasks.max": "1",
        "database.hostname": stack.mysql_host,
        "database.port": str(stack.mysql_port),
        "database.user": stack.cdc_user,
        "database.password": stack.cdc_password,
        "database.ssl.mode": "disabled",
        "database.server.id": "5556",
        "topic.prefix": PREFIX,
        "schema.history.internal.kafka.bootstrap.servers": stack.kafka,
        "schema.history.internal.kafka.topic": f"schemahistory.{PREFIX}",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.message.timestamp.type": "CreateTime",
        "kafka.bootstrap.servers": stack.kafka,
        "value.converter.replace.null.with.default": "true",
    }


@dataclass(frozen=True, slots=True)
class CaptureResult:
    """Say what a capture wrote.

    Args:
        lines: One for each record.
        batches: Batches drained after the snapshot.
        error: Why the pipeline stopped early, or None.
        client_errors: What the source answered to statements that failed.
        schemas: Texts of the Avro schemas that records name, those of the sentinel left out.
    """

    lines: list[str]
    counts: dict[str, int]
    batches: int
    error: CdcError | None
    client_errors: list[str]
    schemas: frozenset[str] = frozenset()

    def write(self, path: Path) -> None:
        """Write the records, and next to them ``.error.txt`` when the pipeline stopped."""
        write_lines(path, self.lines)
        note = path.with_name(path.name.removesuffix(".gz").removesuffix(".jsonl") + ".error.txt")
        note.unlink(missing_ok=True)
        if self.error is not None:
            note.write_text(f"{type(self.error).__name__}: {self.error}\n", encoding="utf-8")


def capture(
    workload: Workload,
    mode: Mapping[str, str],
    stack: StackInfo,
    log: Log = lambda _: None,
    *,
    few: bool = False,
    registry: str | None = None,
    zone: str | None = None,
) -> CaptureResult:
    """Run a workload and return the records of all topics.

    Args:
        workload: The workload.
        mode: Properties that differ from the base.
        stack: The scratch servers; their databases are dropped.
        log: Takes one line of text.
        few: Drain all sections in one batch and the sentinel's changes in another, instead of two batches a section.
        registry: Address of the schema registry, for modes that write Avro; their records are shown as JSON.
        zone: The server's zone, as MySQL names it; UTC when None.

    Raises:
        ConfigError: The mode asks for something that is not supported; nothing was touched.
        ProofError: The scratch servers do not answer.
    """
    properties = {**base_properties(stack), **_registry_of(mode, registry), **mode}
    if F.SIGNAL_DATA_COLLECTION.name in mode:
        # As in the recordings: the account writes watermarks, and a GRANT would be in the binlog.
        properties |= {"database.user": stack.root_user, "database.password": stack.root_password}
    cfg = ConnectorConfig.from_properties(properties)
    client = Client.of(stack)
    conn = scratch.root(stack)
    try:
        run = _Run(cfg, workload, client, conn, log, few)
        with scratch.restored_server(conn):
            scratch.prepare_server(conn, zone)
            scratch.empty_source(client, stack.mysql_version)
            scratch.empty_kafka(stack.kafka, PREFIX)
            ends = topic_ends(cfg.kafka_settings()) if any(n.startswith(_NAMES_TOPICS) for n in mode) else None
            error = run.pipeline()
            for section in workload.sections_of("end"):
                client.run(section.text, section.kind)
        own = {cfg.ledger_topic, cfg.history_topic, str(cfg[F.SIGNAL_KAFKA_TOPIC] or "")}
        records, texts = read_topics(cfg.kafka_settings(), PREFIX, ends, own), frozenset[str]()
        if registry is not None:
            wire = WireReader(from_registry(registry))
            records = avro_as_json(records, wire)
            texts = frozenset(text for text in wire.seen if f"{PREFIX}.{scratch.SENTINEL}." not in text)
        records_found = without_sentinel(records, PREFIX)
    finally:
        conn.close()
    counts = dict(Counter(topic for topic, _ in records_found))
    return CaptureResult(
        [line(topic, r) for topic, r in records_found], counts, run.batches, error, list(client.errors), texts
    )


def _registry_of(mode: Mapping[str, str], registry: str | None) -> dict[str, str]:
    converters = [name for name in ("key.converter", "value.converter") if name in mode]
    return {f"{name}.schema.registry.url": registry for name in converters} if registry is not None else {}


@dataclass(slots=True)
class _Run:
    """One run: the pipeline's state between its parts."""

    cfg: ConnectorConfig
    workload: Workload
    client: Client
    conn: Any
    log: Log
    few: bool = False
    batches: int = 0
    error: CdcError | None = None
    _store: MemoryOffsetStore = field(default_factory=MemoryOffsetStore)
    _runner: ThreadRunner = field(default_factory=lambda: ThreadRunner(SLOTS))

    def pipeline(self) -> CdcError | None:
        """Run setup, snapshot and changes; return the error that stopped the pipeline. The changes run in any case."""
        for section in self.workload.sections_of("setup", "both"):
            self.client.run(section.text, section.kind)
        self._run_part(self._snapshot)
        for group in self.workload.streaming():
            self._group(group)
            self._drain_between()
        if self.few:
            self._run_part(self._drain)
        for text in _SENTINEL_DML:
            self.client.run(text, "sentinel")
            self._drain_between()
        if self.few:
            self._run_part(self._drain)
        return self.error

    def _drain_between(self) -> None:
        """Drain a batch between two parts of the workload."""
        if not self.few:
            self._run_part(self._drain)

    def _run_part(self, part: Callable[[], JobOutcome | None]) -> None:
        if self.error is not None:
            return
        try:
            outcome = part()
        except CdcError as error:
            self.error = error
            return
        if outcome is not None and not outcome.complete:
            self.error = outcome.error or CdcError("the job did not complete and left no error")

    def _snapshot(self) -> JobOutcome | None:
        if str(self.cfg[F.SNAPSHOT_MODE]) == "never":
            return None
        job = prepare_snapshot(self.cfg, self._store, OWNER, self.log)
        if job is None:
            return None
        run_snapshot(job.spec, self._runner, self.log)
        return settle_offset(self.cfg, self._store, self.log)

    def _drain(self) -> JobOutcome | None:
        job = prepare_drain(self.cfg, self._store, OWNER, self.log)
        if job is None:
            return None
        self.batches += 1
        run_drain(job.spec, self._runner, self.log)
        return settle_offset(self.cfg, self._store, self.log)

    def _group(self, group: list[Section]) -> None:
        if len(group) > 1:
            threads = [threading.Thread(target=self.client.run, args=(s.text, s.kind)) for s in group]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return
        section = group[0]
        self._run_in_halves(section)

    def _run_in_halves(self, section: Section) -> None:
        """Run a section in one session, and drain a batch in its middle, be it inside a transaction."""
        lines = section.text.splitlines(keepends=True)
        session = self.client.open(section.kind)
        half = len(lines) // 2
        session.feed("".join(lines[:half]))
        if half and not self.few:
            scratch.wait_idle(self.conn)
            self._run_part(self._drain)
        session.feed("".join(lines[half:]))
        session.close()


def say(text: str) -> None:
    """Print to standard error."""
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run a capture; return 0, 1 when the pipeline stopped with an error, 2 when it could not begin."""
    parser = argparse.ArgumentParser(
        prog="scripts/capture",
        description="Run a workload through the pipeline on scratch servers and write every record as a JSON line. "
        "The scratch MySQL's databases are dropped and its binary logs reset.",
    )
    parser.add_argument("workload", type=Path, help="SQL in sections (-- @setup, @both, @change, @sessionX, ...)")
    parser.add_argument("mode", type=Path, help="connector properties in addition to the base ones, name=value lines")
    parser.add_argument("out", type=Path, help="file of records, .jsonl or .jsonl.gz")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="one more property")
    parser.add_argument("--registry", metavar="URL", help="the schema registry, for a mode that writes Avro")
    parser.add_argument("--server-zone", metavar="ZONE", help="time zone of the scratch MySQL (default UTC)")
    parser.add_argument("--dir", type=Path, help="folder of the scratch servers (default .stack/proof)")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what the pipeline says")
    args = parser.parse_args(argv)
    try:
        workload, mode = read_workload(args.workload), read_properties(args.mode)
        mode |= {name: value for name, _, value in (text.partition("=") for text in args.set)}
        log = say if args.verbose else lambda _: None
        done = capture(workload, mode, scratch_stack(args.dir), log, registry=args.registry, zone=args.server_zone)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        done.write(args.out)
    except CdcError as error:
        say(f"error: {type(error).__name__}: {error}")
        return UNUSABLE
    except (ProofError, StackError, OSError) as error:
        say(f"error: {error}")
        return UNUSABLE
    for text in done.client_errors:
        say(text)
    if done.error is not None:
        say(f"error: the pipeline stopped: {type(done.error).__name__}: {done.error}")
    mode_name = args.mode.name.removesuffix(".properties")
    summary = {
        "workload": workload.name,
        "mode": mode_name,
        "records": len(done.lines),
        "topics": len(done.counts),
        "batches": done.batches,
        "error": type(done.error).__name__ if done.error else None,
    }
    print(json.dumps(summary), flush=True)
    return OK if done.error is None else STOPPED


if __name__ == "__main__":
    sys.exit(main())
