"""What the page of each DAG says; ``{drain}`` and the like become the ids of the other DAGs of its stream."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_ADHOC_SNAPSHOT = """
### Read tables again, without stopping the stream and without losing a change

Requests an ad-hoc snapshot with a signal and drains until it is done. It writes an `r` event for every row of the
tables, or for every row that meets the condition, between the changes of the stream. Errors in the form (an invalid
expression, SQL over an untrusted channel, a channel that is not enabled) are reported before anything starts.

While `{drain}` runs for the same `topic.prefix`, that run reads the tables and this one waits. `{send_signal}`
pauses, resumes and stops the snapshot.

{connections}, and GTIDs (`gtid_mode=ON`) or a signal table (`signal.data.collection`).
"""

_BACKFILL = """
### Read the rows of each data interval again

Each run is an incremental snapshot of the rows whose *column* is in its data interval
(`updated_at >= start AND updated_at < end`), one task for each table, one task at a time. Use *Backfill* in the UI, or

    airflow backfill create --dag-id {backfill} --from-date 2026-11-01 --to-date 2026-11-07 \\
        --dag-run-conf '{{"tables": ["shop.orders"], "column": "updated_at"}}'

Airflow runs a backfill only while the DAG is not paused. {backfill_schedule} A run that is triggered by hand
with a logical date has the last whole interval before it (at 11:00 with `@hourly`: 10:00 to 11:00).

**Time zones.** The interval is compared in UTC, which is exact for TIMESTAMP whatever the server's time zone. DATETIME
has no time zone; enter the one in which the application writes. In the hour that is repeated when daylight saving time
ends, DATETIME values are ambiguous.

Rows that a later change has moved out of the interval are not read, because the stream contains that change. Create an
index on the column; without one, each interval reads the whole table.
"""

_DRAIN = """
### Drain the MySQL binlog into Kafka

Reads the binlog from the stored offset to its current end and writes every change as a Debezium event, exactly once;
then moves the offset. It runs on its schedule as long as it is not paused.{drain_schedule} **Trigger** unpauses the DAG
and so starts the schedule. The first snapshot is the work of `{snapshot}`.

{connections}.
"""

_PIPELINE = """
### MySQL to Kafka: snapshot once, then drain

The first run takes a snapshot of the captured tables; every run then drains the binlog. The snapshot task ends at once
when an offset is stored already. Not scheduled by default; `[mysql_cdc] pipeline_schedule` changes that. Use it in
place of `{snapshot}` and `{drain}`, not together with them: of two concurrent runs for one
`topic.prefix` one is refused.

{connections}.
"""

_IMPORT_DEBEZIUM = """
### Go on from a Debezium connector's offset

Reads the offset and the schema history of a connector that is stopped, and stores its place as this stream's: the same
topics go on, nothing is lost, and nothing comes twice. A **dry run** writes nothing, and is the default. The task's log
says where the stream begins, what it leaves out because the connector has written it, and what to set.

1. Put the connector's JSON into the connection of type MySQL CDC, and stop the connector
   (`PUT /connectors/NAME/stop`; `PAUSED` is not enough).
2. Trigger a dry run, then one without it and with the connector's `topic.prefix` in *Confirm*.
3. Set in the connection what the log says under `set`, and trigger `{drain}`.

The way back is the command `mysql-cdc export-debezium`.
"""

_RESET_OFFSET = """
### Continue from another offset

Discards a batch that cannot be finished (its binlog was purged, its ledger was lost) and stores the offset from which
the next drain reads. **Events between the old and the new offset are skipped, or written again.** After skipping
events, take a new snapshot: `{snapshot}` with *Snapshot again*.

Pause the DAG that drains this stream first: the reset is refused while a run is active.
"""

_SEND_SIGNAL = """
### Pause, resume or stop ad-hoc snapshots

Sends a signal to the stream, which the next batch of a drain carries out, also one of `{adhoc_snapshot}`. *Pause* stops
the reading of all tables and keeps what was read, while changes go on; *resume* continues there; *stop* ends the
snapshots of all tables, or of those in the form. Rows that were read stay in their topics. A snapshot of kind
`blocking` cannot be stopped this way: end its task instead.

{connections}.
"""

_SNAPSHOT = """
### Snapshot MySQL tables into Kafka

Reads all captured tables in one consistent view and writes an `r` event for every row, then stores the binlog position
of that view. `{drain}` continues from there. Does nothing when an offset is stored already, unless a new
snapshot is requested (*Snapshot again*): then the stream is drained to the end of the binlog and waits while all or
some of the tables are read. No change is skipped, and scheduled drains are skipped meanwhile.

{connections}.
"""

_VERIFY = """
### Compare tables with their topics

Drains the binlog, then compares each topic, folded by key, with its table at one position, while the source goes on.
The task's log has the report: rows that are missing in the topic, rows that the table no longer has (ghosts), rows that
differ. *Repair* writes missing and differing rows again and deletes ghosts; begin with a dry run.

While another run of the stream is active this one is skipped.{verify_schedule}

{connections}.
"""

PAGES: Mapping[str, str] = MappingProxyType(
    {
        "adhoc_snapshot": _ADHOC_SNAPSHOT,
        "backfill": _BACKFILL,
        "drain": _DRAIN,
        "import_debezium": _IMPORT_DEBEZIUM,
        "pipeline": _PIPELINE,
        "reset_offset": _RESET_OFFSET,
        "send_signal": _SEND_SIGNAL,
        "snapshot": _SNAPSHOT,
        "verify": _VERIFY,
    }
)
"""Page of each kind of DAG, in Markdown."""

FLEET_PAGE = """
### Drain the MySQL binlogs of many streams into Kafka

Drains each stream from its stored offset to the current end of its binlog, in one Spark application, and moves its
offset. A stream that fails keeps no other from being drained; the task then fails with the error of each, and a retry
drains what is left. The log has a table of the streams, and the XCom `stream_<topic.prefix>` what each did. It runs on
its schedule as long as it is not paused. **Trigger** unpauses the DAG and so starts the schedule. The first snapshot of
a stream is the work of its own DAG.

Uses the connection `{connection}` (Spark), and one of type MySQL CDC for each stream:

{streams}
"""
"""Page of the DAG that drains a fleet, in Markdown."""
