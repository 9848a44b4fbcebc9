"""Records that brokers have lost: a replica that lacks the end of ledger or topic becomes its leader all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic
from kit.broker_rig import Fault, Stream, new_stream
from kit.kafka_cluster import KafkaCluster, kafka_cluster
from kit.private_mysql import PrivateServer, running_server
from kit.repairs import verdict

from airflow_provider_mysql_cdc.cdc.errors import CdcError, RecordsLostError, SinkConnectionError
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import topic_config
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

pytestmark = [pytest.mark.exhaustive, pytest.mark.fault]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("kafka")) as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    with running_server(tmp_path_factory, "9.7") as made:
        yield made


LAGGING, LEADING = 3, 1
LEDGER = {"cleanup.policy": "compact"}


def pair(cluster: KafkaCluster, topic: str, config: dict[str, str]) -> None:
    """Create a topic of two replicas, which one alone may confirm: what is refused to no one, and warned of."""
    new = NewTopic(topic, 1, replica_assignment=[[LEADING, LAGGING]], config=config | {"min.insync.replicas": "1"})
    cluster.admin.create_topics([new])[topic].result(30)


def lag(cluster: KafkaCluster, topic: str) -> None:
    """Let one of the two replicas miss what is written from now on."""
    cluster.kill(LAGGING)
    cluster.wait(lambda: cluster.partition(topic).isrs == [LEADING])


def drain(stream: Stream) -> None:
    """Drain while a broker is away, as Airflow does: again where the error says that it helps."""
    for number in range(3):
        try:
            stream.pipeline.drain()
            return
        except CdcError as error:
            assert error.can_retry and number < 2, error


def require_refusal(stream: Stream, topic: str) -> None:
    """A drain says each time what was lost, and writes nothing."""
    written = len(stream.pipeline.records("t"))
    for attempt in (stream.pipeline.drain, stream.pipeline.verify, stream.pipeline.drain):
        with pytest.raises(RecordsLostError, match=re.escape(topic)) as caught:
            attempt()
        assert not caught.value.can_retry and "mysql_cdc_reset_offset" in caught.value.remedy
    assert len(stream.pipeline.records("t")) == written


@pytest.mark.req("FAULT-01")
def test_a_ledger_that_has_gone_back_is_named(cluster: KafkaCluster, server: PrivateServer, unique: str) -> None:
    """Its last batch is gone, and the events of that batch are not: a person decides, and nothing comes twice."""
    cluster.heal()
    stream = new_stream(cluster, server, unique)
    ledger = stream.pipeline.cfg.ledger_topic
    pair(cluster, ledger, LEDGER)
    stream.pipeline.snapshot()
    stream.change()
    lag(cluster, ledger)
    drain(stream)
    cluster.lose_end(ledger, LAGGING)
    stream.change(last=10)
    require_refusal(stream, ledger)
    reset_offset(stream.pipeline.cfg, stream.pipeline.store, stream.pipeline.owner, stream.pipeline.log)
    stream.pipeline.drain()
    stream.check()


@pytest.mark.req("FAULT-01")
def test_markers_of_a_failed_batch_that_are_gone_are_named(
    cluster: KafkaCluster, server: PrivateServer, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.heal()
    stream = new_stream(cluster, server, unique)
    ledger = stream.pipeline.cfg.ledger_topic
    pair(cluster, ledger, LEDGER)
    stream.pipeline.snapshot()
    stream.change()
    lag(cluster, ledger)

    def fail(writer: str) -> None:
        raise SinkConnectionError("the driver lost Kafka")

    fault = Fault(fail, together=True)
    with monkeypatch.context() as patch, pytest.raises(SinkConnectionError):
        fault.install(patch)
        stream.pipeline.drain()
    assert fault.commits >= 2
    assert not stream.pipeline.settle().complete
    cluster.lose_end(ledger, LAGGING)
    require_refusal(stream, ledger)


@pytest.mark.req("FAULT-01")
def test_a_marker_that_is_gone_when_its_batch_ends_is_named(
    cluster: KafkaCluster, server: PrivateServer, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The election is inside the transaction: Kafka commits the events, and has no marker to commit."""
    cluster.heal()
    stream = new_stream(cluster, server, unique, **{"drain.writers": "1", "commit.bytes": "100000000"})
    ledger = stream.pipeline.cfg.ledger_topic
    pair(cluster, ledger, LEDGER)
    stream.pipeline.snapshot()
    stream.change()
    lag(cluster, ledger)
    fault = Fault(lambda writer: cluster.lose_end(ledger, LAGGING), together=True, nth=1)
    with monkeypatch.context() as patch:
        fault.install(patch)
        with pytest.raises(RecordsLostError, match=re.escape(ledger)):
            stream.pipeline.drain()
    fault.join()
    require_refusal(stream, ledger)


@pytest.mark.req("FAULT-01")
def test_a_topic_that_has_gone_back_is_named_and_repaired(
    cluster: KafkaCluster, server: PrivateServer, unique: str
) -> None:
    cluster.heal()
    stream = new_stream(cluster, server, unique, **{"topic.creation.default.partitions": "1"})
    topic = stream.pipeline.table_topic("t")
    pair(cluster, topic, {})
    stream.pipeline.snapshot()
    stream.change()
    lag(cluster, topic)
    drain(stream)
    written = len(stream.pipeline.records("t"))
    cluster.lose_end(topic, LAGGING)
    assert len(stream.pipeline.records("t")) < written
    stream.change(last=10)
    require_refusal(stream, topic)
    reset_offset(stream.pipeline.cfg, stream.pipeline.store, stream.pipeline.owner, stream.pipeline.log)
    result = stream.pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    assert verdict(result, "t").repaired and stream.pipeline.verify().equal


def test_new_topics_have_the_brokers_replicas_and_weaker_ones_are_named(
    cluster: KafkaCluster, server: PrivateServer, unique: str
) -> None:
    cluster.heal()
    stream = new_stream(cluster, server, unique)
    ledger = stream.pipeline.cfg.ledger_topic
    config = LEDGER | {"unclean.leader.election.enable": "true"}
    cluster.admin.create_topics([NewTopic(ledger, 1, 1, config=config)])[ledger].result(30)
    stream.pipeline.snapshot()
    warnings = [line for line in stream.pipeline.lines if line.startswith("WARNING: ") and ledger in line]
    assert any("one replica on a cluster of 3 brokers" in line for line in warnings), stream.pipeline.lines
    assert any("unclean.leader.election.enable=true" in line for line in warnings)
    others = set(cluster.topics(unique)) - {ledger}
    assert stream.pipeline.table_topic("t") in others and stream.pipeline.cfg.history_topic in others
    for topic in others:
        assert len(cluster.partition(topic).replicas) == 3
        config = topic_config(make_admin(stream.pipeline.cfg.kafka_settings()), topic) or {}
        assert config["min.insync.replicas"] == "2"
