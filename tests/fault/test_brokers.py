"""Three brokers, of which one dies, is slow or gives its offices up, in the middle of each kind of job.

Each case fails unless its fault has fired. Afterwards each event is there once, topics equal tables, and the stored
offset is where Kafka's last batch ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kit.broker_rig import ROWS, Fault, Stream, new_stream
from kit.incremental_rig import ask_for, books, reads
from kit.kafka_cluster import END_TXN, KafkaCluster, kafka_cluster
from kit.private_mysql import PrivateServer, running_server
from kit.records import payload
from kit.sql import execute
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.fleet.fleet_driver import run_fleet
from airflow_provider_mysql_cdc.cdc.fleet.fleet_spec import fleet_job
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.spark.errors import named_job_error

pytestmark = [pytest.mark.exhaustive, pytest.mark.fault]

RUN_FOR_S, TRIES = 8.0, 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("kafka")) as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    with running_server(tmp_path_factory, "9.7") as made:
        yield made


def killed(cluster: KafkaCluster, stream: Stream) -> Fault:
    node: list[int] = []

    def act(writer: str) -> None:
        node.append(cluster.leader(stream.pipeline.cfg.ledger_topic))
        cluster.kill(node[0])
        cluster.wait(lambda: cluster.leader(stream.pipeline.cfg.ledger_topic) != node[0])

    return Fault(act, after=lambda: cluster.start(node[0]))


def leader_moved(cluster: KafkaCluster, stream: Stream) -> Fault:
    ledger = stream.pipeline.cfg.ledger_topic

    def act(writer: str) -> None:
        preferred = cluster.leader(ledger)
        cluster.stop(preferred)
        assert cluster.leader(ledger) != preferred
        cluster.start(preferred)
        cluster.wait(lambda: preferred in cluster.partition(ledger).isrs)
        cluster.elect(ledger)
        cluster.wait(lambda: cluster.leader(ledger) == cluster.partition(ledger).replicas[0])

    return Fault(act)


def controller_changed(cluster: KafkaCluster, stream: Stream) -> Fault:
    node: list[int] = []

    def act(writer: str) -> None:
        node.append(cluster.controller())
        cluster.kill(node[0])
        cluster.wait(lambda: cluster.controller() != node[0])

    return Fault(act, after=lambda: cluster.start(node[0]))


def too_few_in_sync(cluster: KafkaCluster, stream: Stream) -> Fault:
    """Ask for three replicas in sync while one is down; then it comes back."""
    ledger, node = stream.pipeline.cfg.ledger_topic, list[int]()

    def act(writer: str) -> None:
        names = cluster.topics(stream.pipeline.properties["topic.prefix"])
        entry = ConfigEntry("min.insync.replicas", "3", incremental_operation=AlterConfigOpType.SET)
        changed = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry]) for name in names]
        for future in cluster.admin.incremental_alter_configs(changed).values():
            future.result(20)
        node.append(next(n for n in cluster.partition(ledger).isrs if n != cluster.leader(ledger)))
        cluster.kill(node[0])
        cluster.wait(lambda: len(cluster.partition(ledger).isrs) == 2)
        time.sleep(2)

    return Fault(act, after=lambda: cluster.start(node[0]))


def slow(cluster: KafkaCluster, stream: Stream) -> Fault:
    """A broker that hangs until the others have taken its offices, and then goes on where it was."""
    ledger, node = stream.pipeline.cfg.ledger_topic, list[int]()

    def act(writer: str) -> None:
        node.append(cluster.leader(ledger))
        cluster.freeze(node[0])
        try:
            cluster.wait(lambda: cluster.leader(ledger) != node[0])
            time.sleep(1)
        finally:
            cluster.thaw(node[0])

    return Fault(act)


def coordinator_moved(cluster: KafkaCluster, stream: Stream) -> Fault:
    """The broker that coordinates the writer's transactions dies when all is produced, and the commit not asked for."""
    node: list[int] = []

    def act(writer: str) -> None:
        node.append(cluster.coordinator(writer))
        cluster.kill(node[0])
        cluster.wait(lambda: cluster.coordinator(writer) != node[0])

    return Fault(act, together=True, after=lambda: cluster.start(node[0]))


def reply_lost(cluster: KafkaCluster, stream: Stream) -> Fault:
    """EndTxn is carried out, and its reply does not come."""
    before = sum(proxy.lost for proxy in cluster.proxies.values())
    fault = Fault(lambda writer: [proxy.lose_next(END_TXN) for proxy in cluster.proxies.values()], together=True)
    fault.after = lambda: cluster.wait(lambda: sum(p.lost for p in cluster.proxies.values()) > before)
    return fault


FAULTS: dict[str, Callable[[KafkaCluster, Stream], Fault]] = {
    "broker killed": killed,
    "leader moved": leader_moved,
    "controller changed": controller_changed,
    "too few in sync": too_few_in_sync,
    "slow broker": slow,
    "coordinator moved": coordinator_moved,
    "reply of EndTxn lost": reply_lost,
}


def until_done(streams: list[Stream], attempt: Callable[[int], object]) -> None:
    """Try as Airflow does: again where the error says that it helps."""
    for number in range(TRIES):
        try:
            attempt(number)
        except CdcError as error:
            assert error.can_retry and number < TRIES - 1, error
        with suppress(CdcError):
            outcomes = [stream.pipeline.settle() for stream in streams]
            if all(outcome.complete for outcome in outcomes):
                return
    raise AssertionError([line for stream in streams for line in stream.pipeline.lines])


@dataclass
class Case:
    """A stream on the cluster, and how to begin its fault."""

    stream: Stream
    begin: Callable[[], Fault]
    others: Callable[[str], Stream]


def snapshot(case: Case) -> Fault:
    fault = case.begin()
    until_done([case.stream], lambda number: case.stream.pipeline.snapshot())
    case.stream.change(last=10)
    case.stream.pipeline.drain()
    return fault


def drain(case: Case) -> Fault:
    case.stream.pipeline.snapshot()
    case.stream.change()
    fault = case.begin()
    until_done([case.stream], lambda number: case.stream.pipeline.drain())
    return fault


def run_for(case: Case) -> Fault:
    """Batch after batch, with changes meanwhile."""
    stream = case.stream
    stream.pipeline.snapshot()
    stream.change(last=10)
    changes = threading.Thread(target=stream.change)
    fault = case.begin()

    def attempt(number: int) -> None:
        job = prepare_drain(stream.pipeline.cfg, stream.pipeline.store, stream.pipeline.owner, stream.pipeline.log)
        if not number:
            changes.start()
        if job is not None:
            run_drain(replace(job.spec, run_for_s=RUN_FOR_S), ThreadRunner(3), stream.pipeline.log)

    until_done([stream], attempt)
    changes.join()
    stream.pipeline.drain()
    return fault


def window(case: Case) -> Fault:
    """An ad-hoc snapshot beside changes."""
    stream = case.stream
    stream.pipeline.snapshot()
    ask_for(stream.pipeline, ["t"])
    stream.change(last=20)
    fault = case.begin()
    until_done([stream], lambda number: stream.pipeline.drain())
    for _ in range(TRIES):
        if {scan.state for scan in books(stream.pipeline).scans.values()} == {"done"}:
            break
        stream.pipeline.drain()
    assert set(reads(stream.pipeline, "t").values()) == {1}
    stream.more_reads = ROWS
    return fault


def verify(case: Case) -> Fault:
    """A verification that repairs rows which were changed past the binlog."""
    stream = case.stream
    stream.pipeline.snapshot()
    stream.change(last=20)
    with stream.server.connect() as conn:
        execute(conn, "SET sql_log_bin = 0", f"UPDATE `{stream.database}`.t SET v = v + 1000 WHERE id >= 60")
    fault = case.begin()
    request = VerifyRequest(repair=RepairMode.YES)
    until_done([stream], lambda number: stream.pipeline.verify(request))
    assert (result := stream.pipeline.verify()).equal, result
    repaired = [r for r in stream.pipeline.records("t") if "cdc-repair" in dict(r.headers)]
    assert sorted(payload(r.key)["id"] for r in repaired) == list(range(60, ROWS)), "each row is repaired once"
    stream.unlogged = 1000 * len(repaired)
    return fault


def fleet(case: Case) -> Fault:
    """Two streams in one job, whose drivers share the brokers."""
    streams = [case.stream, case.others("b")]
    for stream in streams:
        stream.pipeline.snapshot()
        stream.change()
    fault = case.begin()

    def attempt(number: int) -> None:
        pipelines = [stream.pipeline for stream in streams]
        jobs = [prepare_drain(p.cfg, p.store, p.owner, p.log) for p in pipelines]
        if specs := [job.spec for job in jobs if job is not None]:
            run_fleet(fleet_job(specs), ThreadRunner(4), case.stream.pipeline.log, named_job_error)

    until_done(streams, attempt)
    streams[1].check()
    return fault


JOBS = {job.__name__: job for job in (snapshot, drain, run_for, window, verify, fleet)}


@pytest.mark.req("FAULT-01", "FAULT-12")
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_befalls_a_broker_loses_and_repeats_nothing(
    cluster: KafkaCluster,
    server: PrivateServer,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    job: str,
) -> None:
    cluster.heal()
    more = {"kafka.bootstrap.servers": cluster.lossy_addresses} if fault == "reply of EndTxn lost" else {}
    stream = new_stream(cluster, server, f"{unique}a", **more)

    def begin() -> Fault:
        begun = FAULTS[fault](cluster, stream)
        begun.install(monkeypatch)
        return begun

    fired = JOBS[job](Case(stream, begin, lambda name: new_stream(cluster, server, f"{unique}{name}", **more)))
    fired.join()
    cluster.heal()
    stream.check()
