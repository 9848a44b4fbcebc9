"""What a soak works on: one stream (database, topic.prefix, offset store) at a time, its load, and its attempts."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from stacklib import processes

from soaklib import tables
from soaklib.attempts import OWNER, Attempt, Attempts
from soaklib.binlog_facts import GtidSet
from soaklib.ddl import DdlLoad
from soaklib.incremental_requests import IncrementalRequests
from soaklib.load import Load
from soaklib.servers import Servers
from soaklib.verify import FORMATS, StreamVerdict, format_properties, stream_topics, verify

Progress = Callable[[str], None]
_ATTEMPT_TIMEOUT_S = 240.0
_TRIES = 8
_GRANT = 150
_UNSAID = ("k", "w")
_FREE = {
    "commit.bytes": ("100000", "400000", "2000000", "33554432"),
    "commit.interval.ms": ("500", "1000", "10000"),
    "drain.writers": ("1", "2", "3"),
    "drain.small.batch.bytes": ("0", "0", "0", "8388608"),
    "max.batch.bytes": ("0", "0", "50000", "300000"),
    "snapshot.chunk.rows": ("40", "150", "5000"),
}


class StreamStuckError(Exception):
    """Say that a stream does not come to its end any more."""


@dataclass
class SoakStream:
    """Everything that a fault may touch.

    Args:
        folder: The folder of its files.
        seed: Of all random numbers.
        rate: Transactions a second of each thread of the load.
        ddl_every_s: Seconds between two DDL statements, about.
        ddl_late: Whether DDL begins only when the initial snapshot is complete.
        say: Takes a line for people.
        formats: Formats of records; each stream has the next one.
    """

    servers: Servers
    folder: Path
    seed: int
    rate: float
    ddl_every_s: float
    ddl_late: bool
    say: Progress
    formats: tuple[str, ...] = FORMATS[:1]
    rng: random.Random = field(init=False)
    attempts: Attempts = field(init=False)
    fired: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    transactions: Counter[str] = field(default_factory=Counter)
    epochs: set[tuple[int, int]] = field(default_factory=set)
    stream: int = 0
    load: Load = field(init=False)
    ddl: DdlLoad = field(init=False)
    properties: dict[str, str] = field(default_factory=dict)
    settled: threading.Event = field(default_factory=threading.Event)
    after: GtidSet = field(default_factory=lambda: GtidSet({}))
    since: dict[str, str] = field(default_factory=dict)
    promotions: int = 0
    interrupted: bool = False
    requests: IncrementalRequests = field(default_factory=IncrementalRequests)
    _signals: int = 0
    typical_s: float = 4.0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.attempts = Attempts(self.folder, self.rng)

    # -- streams ----------------------------------------------------------------------------------------------------

    @property
    def database(self) -> str:
        """The stream's database."""
        return f"soak_{self.stream}"

    @property
    def prefix(self) -> str:
        """The stream's topic.prefix."""
        return f"soak{self.stream}"

    @property
    def format(self) -> str:
        """The format of the stream's records."""
        return self.formats[(self.stream - 1) % len(self.formats)]

    @property
    def kind(self) -> str:
        """The job that is next."""
        return "drain" if self.settled.is_set() else "snapshot"

    def begin(self) -> None:
        """Make a new stream and start its load."""
        self.stream += 1
        self.settled, self.interrupted = threading.Event(), False
        self.requests = IncrementalRequests()
        (self.folder / "state.db").unlink(missing_ok=True)
        with closing(self.servers.connect()) as conn:
            tables.create(conn, self.database, self.servers.info.cdc_user)
        self.since, self.promotions = self.servers.binlog_files(), self.servers.promotions
        info = self.servers.info
        self.properties = {
            "topic.prefix": self.prefix,
            "database.hostname": info.mysql_host,
            "database.port": str(self.servers.proxy.port),
            "database.user": info.cdc_user,
            "database.password": info.cdc_password,
            "database.include.list": self.database,
            "kafka.bootstrap.servers": info.kafka,
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": str(self.rng.randrange(1, 4)),
            "cdc.id.header": "true",
            "skipped.operations": "none",
            "transaction.timeout.ms": "30000",
            "source.silence.timeout.ms": "15000",
            "signal.data.collection": tables.SIGNALS,
            # Watermarks are rows of the signal table, or GTID sets.
            "read.only": self.rng.choice(("false", "true")),
            **self.free_settings(),
        }
        self.properties |= format_properties(self.format, self.servers.registry_url, self.prefix)
        self._one_partition("w")
        seed = self.seed * 1000 + self.stream
        self.load = Load(self.servers.connect, self.database, seed, self.rate)
        settled = self.settled
        ddl_rng = random.Random(f"{seed}/ddl")
        self.ddl = DdlLoad(self.servers.connect, self.database, self.load, ddl_rng, settled.is_set, self.fired)
        self.load.grant(_GRANT)
        self.load.start()
        if not self.ddl_late:
            self.ddl.start(self.ddl_every_s)

    def _one_partition(self, table: str) -> None:
        """Make a table's topic with one partition: a truncate event is only in partition 0."""
        admin = AdminClient({"bootstrap.servers": self.servers.info.kafka})
        topic = NewTopic(f"{self.prefix}.{self.database}.{table}", num_partitions=1, replication_factor=1)
        for future in admin.create_topics([topic]).values():
            future.result(30)

    def free_settings(self) -> dict[str, str]:
        """Return settings that may change between a crash and the retry."""
        return {name: self.rng.choice(values) for name, values in _FREE.items()}

    def finish(self) -> StreamVerdict:
        """Stop the load, drain the rest and return the verdict on the stream.

        Raises:
            Stuck: The rest cannot be drained.
        """
        self.stop_load()
        self.problems += [f"load: {e}" for e in self.load.errors[:5]] + [f"ddl: {e}" for e in self.ddl.errors[:5]]
        self.transactions += self.load.done
        for _ in range(100):
            if self.run(self.start()).get("nothing") and self.settled.is_set():
                break
        else:
            raise StreamStuckError("a hundred drains without a load did not come to an end")
        self.fired[f"stream: {self.format}"] += 1
        self.fired["snapshot interrupted"] += self.interrupted
        self.fired["incremental snapshot accepted"] += len(self.requests.accepted)
        self.fired += Counter(f"table of an incremental snapshot: {end}" for end in self.requests.ended.values())
        url, info = self.servers.registry_url, self.servers.info
        topics = stream_topics(self.format, url, info.kafka, self.prefix, self.database)
        topics.promoted = self.servers.promotions > self.promotions
        verdict = verify(
            self.servers.connect,
            topics,
            self.ddl.journal,
            self.after,
            self.since[self.servers.primary.name],
            interrupted=self.interrupted,
            read_after=self.requests.read_after(),
        )
        verdict.differences += self.requests.differences()
        verdict.differences += self._verify_by_job()
        return verdict

    def _verify_by_job(self) -> list[str]:
        """Return what the product's own verification finds.

        Rows of a table that was renamed have their events in the topic of its former name.
        TiCDC's protocol says neither which row without a key is deleted, nor that a table is truncated.
        """
        found = self.run(self.attempts.start("verify")).get("differences")
        if found is None:
            return ["verification: no result"]
        left_out = {*self.ddl.journal.names[1:], *(_UNSAID if self.format == "ticdc" else ())}
        return [text for table, text in found if table not in left_out]

    def request_snapshot(self, names: Sequence[str]) -> None:
        """Request an incremental snapshot of tables in the signal table."""
        before = self.executed()
        self.requests.sent[self._signal("execute-snapshot", names)] = names, before

    def stop_snapshot(self, names: Sequence[str]) -> None:
        """Stop the incremental snapshots of tables in the signal table."""
        self._signal("stop-snapshot", names)
        self.requests.stop(names)

    def _signal(self, kind: str, names: Sequence[str]) -> str:
        self._signals += 1
        signal_id = f"{self.prefix}-{self._signals}"
        data = json.dumps({"type": "incremental", "data-collections": list(names)})
        with closing(self.servers.connect()) as conn, conn.cursor() as cursor:
            cursor.execute(f"INSERT INTO {tables.SIGNALS} VALUES (%s, %s, %s)", (signal_id, kind, data))
        return signal_id

    def free(self) -> str:
        """Return the settings that may change, as text."""
        names = ("topic.creation.default.partitions", *_FREE)
        return ", ".join(f"{name}={self.properties[name]}" for name in names)

    def end(self) -> None:
        """End every process and thread of this stream at once."""
        self.attempts.end()
        if self.stream:
            self.ddl.cancel()
            self.load.cancel()

    def stop_load(self) -> None:
        """Stop load and DDL, and decide what is prepared."""
        self.ddl.stop()
        self.load.stop()
        with closing(self.servers.connect()) as conn:
            self.load.decide_all(conn)

    def delete_stream(self) -> None:
        """Remove a verified stream's database and topics."""
        with closing(self.servers.connect()) as conn, conn.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {self.database}")
        admin = AdminClient({"bootstrap.servers": self.servers.info.kafka})
        names = [t for t in admin.list_topics(timeout=30).topics if t.startswith((self.prefix + ".", "_"))]
        names = [t for t in names if self.prefix in t] + [self.prefix]
        for future in admin.delete_topics(names).values():
            with suppress(Exception):
                future.result(30)

    # -- attempts ---------------------------------------------------------------------------------------------------

    def start(self, *, owner: str = OWNER, **more: Any) -> Attempt:
        """Start the next attempt with the stream's properties as they are now; see ``Attempts.start``."""
        processes.write_private(self.folder / "properties.json", json.dumps(self.properties))
        self.load.grant(_GRANT)
        return self.attempts.start(self.kind, owner=owner, **more)

    def run(self, attempt: Attempt, *, excused: bool = False) -> dict[str, Any]:
        """Wait for an attempt, judge how it ended, and return that.

        Args:
            attempt: The attempt.
            excused: Whether a fault was done to it: then it may fail, but with a named error that a retry can mend.
        """
        timeout_s = _ATTEMPT_TIMEOUT_S * (2 if attempt.spark else 1)
        if not attempt.wait(timeout_s):
            with suppress(ProcessLookupError):
                os.kill(attempt.process.pid, signal.SIGUSR1)
            time.sleep(1)
            attempt.kill()
            self.report_problem(f"attempt {attempt.number} ({attempt.kind}) hung for {timeout_s:.0f} s", attempt)
        result = attempt.result
        error = result.get("error")
        if result.get("raw"):
            self.report_problem(
                f"attempt {attempt.number} ({attempt.kind}) ended with a raw {result['raw'][:300]}", attempt
            )
        elif error and excused and error["type"] == "FencedError":
            pass  # a newer attempt is running: the older one need not be repeated
        elif error and not error["retriable"]:
            self.report_problem(f"attempt {attempt.number} ({attempt.kind}): {_error_text(error)}", attempt)
        elif error and not excused:
            self.say(f"attempt {attempt.number} ({attempt.kind}) failed by itself: {_error_text(error)}")
        self.note(attempt, result)
        return result

    def note(self, attempt: Attempt, result: dict[str, Any]) -> None:
        """Take down what an attempt has reached."""
        for line in self.requests.note(attempt.output()):
            self.report_problem(line, attempt)
        self.interrupted |= attempt.kind == "snapshot" and not result.get("complete")
        if result.get("complete"):
            self.epochs.add((self.stream, int(result["epoch"])))
            if not attempt.spark:
                self.typical_s = 0.7 * self.typical_s + 0.3 * (time.monotonic() - attempt.began)
        done = result.get("complete") or result.get("nothing")
        if attempt.kind == "snapshot" and done and not self.settled.is_set():
            self.after = self.executed()
            self.settled.set()
            if self.ddl_late:
                self.ddl.start(self.ddl_every_s)

    def executed(self) -> GtidSet:
        """Return the primary's transactions."""
        return GtidSet.parse(self.servers.primary.executed)

    def recover(self) -> None:
        """Run undisturbed attempts until one is complete.

        Raises:
            Stuck: None is.
        """
        last: dict[str, Any] = {}
        for _ in range(_TRIES):
            last = self.run(self.start())
            if last.get("complete") or last.get("nothing"):
                return
        raise StreamStuckError(f"{_TRIES} undisturbed attempts of the {self.kind} failed; the last one: {last}")

    def report_problem(self, text: str, attempt: Attempt | None = None) -> None:
        """Take down something that must not be."""
        self.problems.append(text + (f" (see {attempt.log})" if attempt else ""))
        self.say(f"COMPLAINT: {text}")

    def middle_delay(self) -> float:
        """Return seconds after which an attempt is usually in the middle of its work."""
        return self.rng.uniform(0.05, 0.7) * self.typical_s


def _error_text(error: dict[str, Any]) -> str:
    return f"{error['type']}: {error['what']} [{error['where']}] {error['why']}"[:500]
