"""The workloads by Flink CDC, from the start of its JVM until it ends with a savepoint."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from stacklib.errors import StackError

from benchlib.debezium_worker import RUN_TIMEOUT_S
from benchlib.flink_worker import NAME, Flink, archives
from benchlib.ground import WorkloadRun
from benchlib.process_tree import sample_tree, usage
from benchlib.run import Run
from benchlib.servers import delete_topics_and_wait
from benchlib.source import DATABASE, TABLE, MySqlSource

_POLL_S = 0.5
# Flink SQL names columns and types itself; these are the types that Flink CDC's manual maps those of MySQL to.
_COLUMNS = (
    "id BIGINT, customer_id INT, status STRING, amount DECIMAL(10, 2), note STRING, "
    "created_at TIMESTAMP(3), updated_at TIMESTAMP_LTZ(3)"
)
BinlogPosition = tuple[str, int]
"""File and position in the binlog."""
_Step = tuple[Callable[[], bool], Callable[[], None]]


def drain_statements(source: MySqlSource, kafka: str, topic: str, position_at_start: BinlogPosition) -> str:
    """Return a job that writes the changes of the narrow table to a topic; what is not set is Flink's default.

    Args:
        source: The server.
        kafka: Bootstrap servers.
        topic: The topic.
        position_at_start: Where the job begins in the binlog.
    """
    file, position = position_at_start
    reads = {
        "connector": "mysql-cdc",
        "hostname": source.host,
        "port": str(source.port),
        "username": source.user,
        "password": source.password,
        "database-name": DATABASE,
        "table-name": TABLE,
        "server-id": "5701",
        "server-time-zone": "UTC",
        "scan.startup.mode": "specific-offset",
        "scan.startup.specific-offset.file": file,
        "scan.startup.specific-offset.pos": str(position),
    }
    writes = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": kafka,
        "format": "debezium-json",
    }
    return (
        f"CREATE TABLE source ({_COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ({_options(reads)});\n"
        f"CREATE TABLE sink ({_COLUMNS}) WITH ({_options(writes)});\n"
        "INSERT INTO sink SELECT * FROM source;\n"
    )


def _options(options: dict[str, str]) -> str:
    quoted = ((name, value.replace("'", "''")) for name, value in options.items())
    return ", ".join(f"'{name}' = '{value}'" for name, value in quoted)


def _records(admin: AdminClient, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    return int(admin.list_offsets({partition: OffsetSpec.latest()})[partition].result().offset)


class FlinkDrain:
    """Drain rows that are there: each run begins at the same place."""

    def __init__(self, entry: WorkloadRun) -> None:
        # A download that fails is reported before the rows are written.
        archives(entry.ground.java)
        self._entry = entry
        self._place: BinlogPosition = ("", 0)

    def store_position(self) -> None:
        """Store the current binlog position."""
        with self._entry.ground.source.connect() as conn, conn.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            file, position, *_ = cursor.fetchone()
        self._place = (str(file), int(position))

    def run(self, number: int) -> Run:
        """Drain all rows.

        Raises:
            RuntimeError: Another number of records came than there are rows.
            StackError: It ends before all records are there.
        """
        entry, ground, workload = self._entry, self._entry.ground, self._entry.workload
        topic = f"{entry.prefix(number)}.{DATABASE}.{TABLE}"
        admin = AdminClient({"bootstrap.servers": ground.kafka})
        for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            made.result()
        folder = entry.folder / str(number)
        folder.mkdir(parents=True)
        with Flink(ground.java, folder, drain_statements(ground.source, ground.kafka, topic, self._place)) as flink:
            used = usage(sample_tree(flink.pid, self._stop_when_done(flink, lambda: _records(admin, topic))))
        load, records = os.getloadavg()[0], _records(admin, topic)
        delete_topics_and_wait(ground.kafka, [topic])
        if records != workload.rows:
            raise RuntimeError(f"{workload.name}: {workload.rows} rows were written, and {records} records came")
        return Run(workload.name, entry.side.name, records, used, load=load)

    def _stop_when_done(self, flink: Flink, records: Callable[[], int]) -> Callable[[], bool]:
        """Return a function that ends the job, then the process, when all records are there."""
        limit, last_check = time.monotonic() + RUN_TIMEOUT_S, 0.0
        rows = self._entry.workload.rows
        steps: list[_Step] = [
            (lambda: records() >= rows, flink.stop_job),
            (lambda: flink.stopped, flink.ask_to_end),
        ]

        def over() -> bool:
            nonlocal last_check
            now = time.monotonic()
            if not steps:
                return flink.ended or now > limit
            if now - last_check < _POLL_S:
                return False
            last_check = now
            if (why := flink.trouble()) is not None or now > limit:
                raise StackError(
                    f"measuring {NAME}", why or f"not done within {RUN_TIMEOUT_S:.0f} s", f"see {flink.log}"
                )
            reached, then = steps[0]
            if reached():
                then()
                del steps[0]
            return False

        return over
