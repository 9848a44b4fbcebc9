"""Which stage a sampled stack belongs to, and what a profile says of it."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchlib import cli, pages, profiles
from benchlib.plots import stages
from benchlib.process_tree import process_ids
from benchlib.profiles import Profile, ProfileSet, chosen, make_profile
from benchlib.sessions import about
from benchlib.spy import CpuUsage, threads_of, watched_threads
from benchlib.stage_page import stage_block
from benchlib.stages import (
    CLIENT,
    COMMIT,
    DECODE,
    PRODUCE,
    READ,
    REST,
    STAGES,
    WALK,
    StackSamples,
    is_waiting,
    samples,
    shares,
    stage_of,
)

CDC = "airflow_provider_mysql_cdc/cdc"
LOOP = (
    "Thread.run (threading.py:982)",
    f"writer_task ({CDC}/drain/drain_driver.py:228)",
    f"DrainWriter.run ({CDC}/drain/drain_writer.py:181)",
    f"BinlogStream._decode_transactions ({CDC}/binlog/stream.py:181)",
)
KERNEL = (
    *LOOP,
    f"WholeTransactions.decode_transactions ({CDC}/drain/whole_transactions.py:69)",
    f"NativeTransactionDecoder.decode_transactions ({CDC}/decode/native_transactions.py:185)",
)
WRITER = f"({CDC}/sink/writer.py:183)"

STACKS = [
    (READ, (*LOOP, f"PacketReader._gather ({CDC}/binlog/packets.py:152)", "SSLSocket.read (ssl.py:1167)")),
    (READ, (*LOOP, f"PacketReader.next_chunk ({CDC}/binlog/packets.py:75)", "malloc (libc.so.6)")),
    (READ, (*LOOP, "SSL_read_ex (libssl.so.3)", "0x7f201dc3a9b0 (libcrypto.so.3)", "read (libc.so.6)")),
    (READ, (f"_blocks ({CDC}/snapshot/rows.py:107)", f"_receive ({CDC}/snapshot/rows.py:160)", "memcpy (libc.so.6)")),
    (READ, (f"RangeWriter._fill_spool ({CDC}/snapshot/range_writer.py:9)", "query (pymysql/connections.py:1)")),
    (WALK, LOOP),
    (WALK, (*LOOP, "zlib_crc32 (zlibmodule.c.h:820)", "crc32_z (libz.so.1.2.13)")),
    (WALK, (*LOOP[:3], f"DrainWriter._gtid ({CDC}/drain/drain_writer.py:213)", f"add ({CDC}/model/gtid.py:90)")),
    (WALK, (*KERNEL, "decode (transaction.rs:117)", "body (binlog_events.rs:96)", "calculate (pclmulqdq.rs:97)")),
    (WALK, (*KERNEL, "0x7f201838dafa (mysql_cdc_native/mysql_cdc_native.abi3.so)")),
    (WALK, (f"stream_blocks ({CDC}/snapshot/rows.py:88)", f"_scan_rows ({CDC}/snapshot/rows.py:147)")),
    (DECODE, (*KERNEL, "row_event (transaction.rs:163)", "context (transaction.rs:181)", "write (row_context.rs:90)")),
    (DECODE, (*KERNEL, "decode (row_decoder.rs:140)", "{closure#0} (transaction.rs:205)", "malloc (libc.so.6)")),
    (DECODE, (*KERNEL, "image (row_decoder.rs:190)", "write (json_renderer.rs:103)", "fold (rev.rs:83)")),
    (DECODE, (*LOOP[:3], f"RowEventHandler.handle ({CDC}/drain/row_events.py:120)", "rows (<decoder>:20)")),
    (DECODE, (f"RowEmitter.emit_row ({CDC}/snapshot/row_emitter.py:9)", f"<lambda> ({CDC}/decode/text_decoder.py:40)")),
    (PRODUCE, (*LOOP, f"RecordOutput.produce_rows ({CDC}/drain/record_output.py:60)")),
    (PRODUCE, (*LOOP, f"TransactionalWriter.produce_all {WRITER}", "rd_kafka_producev (librdkafka-0cb94173.so.1)")),
    (PRODUCE, (*LOOP, f"TransactionalWriter._serve {WRITER}", "Producer_poll (confluent_kafka/cimpl.so)")),
    (COMMIT, (*LOOP, f"Committer.check ({CDC}/drain/committer.py:106)", f"TransactionalWriter.commit {WRITER}")),
    (COMMIT, (f"Coordinator._serve ({CDC}/job/coordinator.py:118)", "SocketIO.readinto (socket.py:706)")),
    (COMMIT, (*LOOP, f"TransactionalWriter.commit {WRITER}", "rd_kafka_commit_transaction (librdkafka.so.1)")),
    (COMMIT, (f"JobLedger.read ({CDC}/job/job_ledger.py:89)", f"parse_json ({CDC}/model/stored_record.py:71)")),
    (REST, ("load (<frozen importlib._bootstrap>:1)", f"<module> ({CDC}/decode/text_decoder.py:9)")),
    (REST, (f"base_tables ({CDC}/schema/table_discovery.py:80)", "Connection.query (pymysql/connections.py:591)")),
    (REST, ("0x7f201e24524a (libc.so.6)", "gc_collect_main (libpython3.11.so.1.0)")),
]  # fmt: skip


@pytest.mark.parametrize(("stage", "frames"), STACKS)
def test_a_stack_belongs_to_one_stage(stage: str, frames: tuple[str, ...]) -> None:
    assert stage_of(frames) == stage


def test_each_stage_but_that_of_unseen_threads_has_a_stack() -> None:
    assert {stage for stage, _ in STACKS} | {CLIENT} == set(STAGES)


def test_what_the_sampler_writes_is_read_by_thread() -> None:
    text = "\n".join(
        [
            "thread (17): MainThread;f (a.py:1);g (b.py:2) 3",
            "thread (18): Thread-1 (one);array<[u8; 4]> (json_renderer.rs:9) 1",
            "process 4;f (a.py:1) 3",
            "",
        ]
    )
    first, second = samples(text)
    assert first == StackSamples(17, ("f (a.py:1)", "g (b.py:2)"), 3)
    assert second.thread == 18 and stage_of(second.frames) == DECODE


@pytest.mark.parametrize(
    ("waiting", "frames"),
    [
        (True, ("cnd_timedwait (libc.so.6)", "pthread_cond_timedwait (libc.so.6)", "0x7f1523842f16 (libc.so.6)")),
        (True, ("PyThread_acquire_lock_timed (libpython3.11.so.1.0)", "0x1 (libc.so.6)", "0x2 (libc.so.6)")),
        (True, ("poll (libc.so.6)",)),
        (False, ("rd_kafka_poll_cb (librdkafka.so.1)", "free (libc.so.6)")),
        (False, ("SSL_read_ex (libssl.so.3)", "read (libc.so.6)")),
        (False, ("poll (libc.so.6)", "a (x.py:1)", "b (x.py:2)", "c (x.py:3)")),
    ],
)
def test_a_wait_is_no_use_of_a_processor(waiting: bool, frames: tuple[str, ...]) -> None:
    assert is_waiting(frames) is waiting


def test_samples_are_weighed_with_the_time_of_their_thread() -> None:
    wait = ("a (x.py:1)", "poll (libc.so.6)")
    found = [
        StackSamples(1, LOOP, 3),
        StackSamples(1, KERNEL[:1], 1),
        StackSamples(1, wait, 90),
        StackSamples(2, STACKS[0][1], 500),
    ]
    assert shares(found, {1: 3.0, 2: 1.0, 3: 1.0}) == {
        **dict.fromkeys(STAGES, 0.0),
        **{WALK: pytest.approx(0.45), READ: pytest.approx(0.2), REST: pytest.approx(0.35)},
    }
    assert set(shares([], {}).values()) == {0.0}


def profile(**more: Any) -> Profile:
    plain, sampled = CpuUsage(4.0, 1.0), CpuUsage(9.0, 2.0, {1: 4.0}, [f"thread (1): one;{';'.join(LOOP)} 7"])
    return dataclasses.replace(make_profile("narrow", "native", [1_000_000, 500_000], [plain, sampled]), **more)


def test_a_profile_has_the_time_of_the_run_that_was_not_sampled() -> None:
    found = profile()
    assert (found.cpu_us, found.sampled_us, found.samples, found.records) == (4.0, 12.0, 7, 1_000_000)
    assert found.stages == {**dict.fromkeys(STAGES, 0.0), WALK: 3.0, CLIENT: 1.0}
    assert sum(found.stages.values()) == pytest.approx(found.cpu_us)


def test_threads_of_the_client_are_recognised_by_name() -> None:
    spent = CpuUsage()
    spent.add_threads({(1, "python"): 1.0, (2, "rdk:broker1"): 2.0, (3, "rdk:main"): 0.5})
    spent.add_threads({(1, "python"): 1.0})
    assert spent.client_s == 2.5 and spent.threads == {1: 2.0}
    assert sum(threads_of(1 << 30).values()) == 0.0


def test_the_time_of_the_sampler_is_left_out() -> None:
    """It goes on behind the job, and its threads are not the job's."""
    code = "import subprocess; subprocess.run(['sleep', '60'])"
    with subprocess.Popen([sys.executable, "-c", code]) as sampler:
        try:
            while not (found := watched_threads(sampler.pid, sampling=True)):
                time.sleep(0.02)
            assert sampler.pid not in {thread for thread, _ in found}
            assert sampler.pid in {thread for thread, _ in watched_threads(sampler.pid, sampling=False)}
            (job,) = process_ids(sampler.pid)[1:]
        finally:
            for pid in reversed(process_ids(sampler.pid)):
                os.kill(pid, signal.SIGKILL)
    assert job in {thread for thread, _ in found}
    with subprocess.Popen(["sleep", "60"]) as alone:
        assert watched_threads(alone.pid, sampling=True) == {}
        alone.kill()


def album() -> ProfileSet:
    return ProfileSet(
        profiles.about(about(["--profile"], "9.7.4")), (profile(), profile(workload="wide", side="python"))
    )


def test_a_file_of_profiles_says_the_same_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "profile.json"
    assert profiles.read(path) is None
    made = album()
    profiles.write(path, made)
    assert profiles.read(path) == made
    assert "debezium" not in path.read_text()


def test_the_picture_and_the_table_have_all_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = stages(album().profiles)
    assert drawn is not None and drawn == stages(album().profiles) and stages([]) is None
    texts = {element.text for element in ElementTree.fromstring(drawn).iter() if element.text}
    assert {"narrow, native", "wide, python"} <= texts
    made = album()
    block = stage_block(made)
    assert "| narrow | native | 1,000,000 | 0.00 | 3.00 |" in block and "`scripts/bench --profile`" in block
    assert all(stage in block for stage in STAGES)
    monkeypatch.setattr(pages, "RESULT", tmp_path / "result.json")
    profiles.write(tmp_path / "profile.json", made)
    assert tmp_path / "stages.svg" in pages.files([])
    assert block in pages.page("<!-- bench: stages -->\n<!-- /bench -->\n", [])


def test_workloads_on_the_same_rows_are_profiled_together() -> None:
    together = chosen(["narrow", "snapshot", "wide", "avro"], 0.1)
    assert [[each.name for each in some] for some in together] == [["narrow", "snapshot"], ["wide"]]
    assert {each.rows for some in together for each in some} == {100_000, 20_000}
    assert cli._options(["--profile"]).profile
