"""A Kafka with accounts and ACLs: what is refused is named, and nothing is written past it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger import Ledger
from airflow_provider_mysql_cdc.cdc.commit.plan import encode, reset_plan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkAuthorizationError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.operate.check_setup import check_setup
from airflow_provider_mysql_cdc.cdc.sink import topics
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import read_topic_committed
from airflow_provider_mysql_cdc.cdc.sink.topics import (
    TopicSpec,
    end_offsets,
    ensure_topics,
    existing_topics,
    partition_counts,
)
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

MOST_MS = 30_000
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def secured(port: int, controller_port: int) -> str:
    """Return broker properties that turn on accounts and ACLs; of a repeated property the last counts."""
    lines = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{MODULE} required username="admin" password="root" user_admin="root" user_cdc="word";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        # Less than the package asks for by default, as where somebody else runs the brokers.
        "transaction.max.timeout.ms": str(MOST_MS),
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


@pytest.fixture(scope="module")
def kafka(stack: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a second broker that wants to know who calls."""
    from stacklib import java, processes
    from stacklib import kafka as stack_kafka
    from stacklib.ports import any_free

    folder = Path(tmp_path_factory.mktemp("kafka"))
    port = any_free()
    controller_port = any_free(frozenset({port}))
    plain = stack_kafka.properties
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stack_kafka, "properties", lambda *a: plain(*a) + secured(port, controller_port))
        stack_kafka.start(java.find_java(), folder, port, controller_port)
    yield f"127.0.0.1:{port}"
    processes.stop("kafka", stack_kafka.record(folder), seconds=0)


def account(kafka: str, name: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": kafka,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": password,
    }


def allow(kafka: str, kind: ResourceType, prefix: str, *operations: AclOperation) -> None:
    """Allow the account ``cdc`` some operations; return when the broker applies them."""
    admin = make_admin(account(kafka, "admin", "root"))
    acls = [
        AclBinding(kind, prefix, ResourcePatternType.PREFIXED, "User:cdc", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    for future in admin.create_acls(acls).values():
        future.result(20)
    rule = (kind, prefix, ResourcePatternType.PREFIXED, "User:cdc", "*", AclOperation.ANY, AclPermissionType.ALLOW)
    wait_for_acls(admin, AclBindingFilter(*rule), frozenset(operations))


def wait_for_acls(admin: AdminClient, rules: AclBindingFilter, operations: frozenset[AclOperation]) -> None:
    """Wait until the broker applies rules with these operations, or none at all: it answers before it does."""
    deadline = time.monotonic() + 60
    while True:
        found = {acl.operation for acl in admin.describe_acls(rules).result(20)}
        if found >= operations and bool(found) == bool(operations):
            return
        assert time.monotonic() < deadline, f"the broker applies {found} in place of {operations}"
        time.sleep(0.05)


def test_a_refused_transactional_id_is_named(kafka: str, unique: str) -> None:
    with (
        TransactionalWriter(account(kafka, "cdc", "word"), f"{unique}.0", transaction_timeout_ms=MOST_MS) as w,
        pytest.raises(SinkAuthorizationError) as caught,
    ):
        w.init(timeout_s=30)
    assert "transactional id" in caught.value.what and f"{unique}.0" in caught.value.where
    assert not caught.value.can_retry


def test_a_refused_topic_fails_the_transaction_and_nothing_of_it_is_visible(kafka: str, unique: str) -> None:
    mine, theirs = f"{unique}.mine", f"other.{unique}"
    root = account(kafka, "admin", "root")
    ensure_topics(make_admin(root), {mine: TopicSpec(1, 1), theirs: TopicSpec(1, 1)})
    allow(kafka, ResourceType.TRANSACTIONAL_ID, unique, AclOperation.WRITE, AclOperation.DESCRIBE)
    allow(kafka, ResourceType.TOPIC, unique, AclOperation.WRITE, AclOperation.DESCRIBE)
    with TransactionalWriter(account(kafka, "cdc", "word"), f"{unique}.0", transaction_timeout_ms=MOST_MS) as w:
        w.init()
        w.produce(mine, b"k", b"allowed", 0)
        w.commit()
        w.produce(mine, b"k", b"in one transaction with what is refused", 0)
        with pytest.raises(SinkAuthorizationError) as caught:
            w.produce(theirs, b"k", b"refused", 0)
            w.commit([SideRecord(mine, b"marker", b"m")])
    assert "topic" in caught.value.what and not caught.value.can_retry
    assert theirs in caught.value.where, caught.value
    assert [r.value for r in read_topic_committed(root, mine)] == [b"allowed"]
    assert list(read_topic_committed(root, theirs)) == []


@pytest.mark.req("TOPIC-11")
def test_topics_that_may_not_be_created_are_named(kafka: str, unique: str) -> None:
    with pytest.raises(SinkAuthorizationError) as caught:
        ensure_topics(make_admin(account(kafka, "cdc", "word")), {f"{unique}.t": TopicSpec(1, 1)})
    assert f"{unique}.t" in caught.value.where


def test_a_topic_that_may_no_longer_be_described_is_not_taken_for_missing(
    kafka: str, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists leave it out, and requests for offsets find no leader; a ledger would be said to be gone."""
    monkeypatch.setattr(topics, "_LEADER_TIMEOUT_S", 1.0)
    settings, topic = account(kafka, "cdc", "word"), f"{unique}.t"
    allow(kafka, ResourceType.TOPIC, unique, AclOperation.ALL)
    ensure_topics(make_admin(settings), {topic: TopicSpec(1, 1)})
    admin = make_admin(account(kafka, "admin", "root"))
    rule = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:cdc", "*", AclOperation.DESCRIBE)
    for future in admin.create_acls([AclBinding(*rule, AclPermissionType.DENY)]).values():
        future.result(20)
    wait_for_acls(admin, AclBindingFilter(*rule, AclPermissionType.DENY), frozenset({AclOperation.DESCRIBE}))
    calls: dict[str, Callable[[], object]] = {
        "exists": lambda: existing_topics(make_admin(settings), [topic]),
        "create": lambda: ensure_topics(make_admin(settings), {topic: TopicSpec(1, 1)}),
        "offsets": lambda: end_offsets(make_admin(settings), topic, [0]),
        "read": lambda: list(read_topic_committed(settings, topic, timeout_s=15)),
        "ledger": lambda: Ledger(settings, topic, unique).read(),
    }
    for name, call in calls.items():
        with pytest.raises(SinkAuthorizationError) as caught:
            call()
        assert topic in caught.value.where and not caught.value.can_retry, name


def test_the_documented_grants_suffice_for_a_ledger(kafka: str, unique: str) -> None:
    ledger = Ledger(account(kafka, "cdc", "word"), f"{unique}.ledger", unique, replication=1)
    operations = (AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE)
    allow(kafka, ResourceType.TOPIC, unique, *operations)
    allow(kafka, ResourceType.TRANSACTIONAL_ID, unique, AclOperation.WRITE, AclOperation.DESCRIBE)
    with pytest.raises(SinkAuthorizationError, match=r"DescribeConfigs.*topic\.settings\.verified"):
        ledger.ensure()
    assert ledger.read(timeout_s=15) is not None
    looked_at = Ledger(
        account(kafka, "cdc", "word"),
        f"{unique}.ledger",
        unique,
        replication=1,
        verified=True,
        transaction_timeout_ms=MOST_MS,
    )
    looked_at.ensure()
    allow(kafka, ResourceType.TOPIC, unique, AclOperation.DESCRIBE_CONFIGS)
    ledger.ensure()
    outcome = {"epoch": 1, "ok": True, "counts": {}}
    looked_at.put({"outcome": encode(outcome)})
    state = ledger.read(timeout_s=15)
    assert state is not None and state.outcome == outcome


def test_a_short_transaction_timeout_holds_for_everything_that_a_job_opens(kafka: str, unique: str) -> None:
    """Also for the producers that only fence or write the plan: the brokers refuse more than their maximum."""
    cfg = ConnectorConfig.from_properties(
        {
            "topic.prefix": unique,
            "database.hostname": "h",
            "database.user": "u",
            "transaction.timeout.ms": str(MOST_MS),
            "topic.creation.default.replication.factor": "1",
            **{f"kafka.{name}": value for name, value in account(kafka, "admin", "root").items()},
        }
    )
    here = BinlogOffset("binlog.000001", 4)
    with JobLedger(cfg) as job:
        for epoch in (1, 2):
            job.begin(reset_plan(epoch, here, "a person"))
    ledger = kafka_clients.ledger(cfg)
    ledger.begin(reset_plan(3, here, "a person"))
    left_open = kafka_clients.record_writer(cfg, 0)
    left_open.init()
    left_open.produce(ledger.topic, b"outcome", encode({"epoch": 1, "ok": True, "counts": {}}), 0)
    left_open._kafka.producer.flush(10)
    state = ledger.read(fence_after_s=1)
    assert state is not None and state.plan is not None and state.plan.epoch == 3


def test_topics_are_created_by_the_account_for_it(kafka: str, unique: str) -> None:
    """That of the writers may write and read; admin.override.* names one that may create topics."""
    allow(kafka, ResourceType.TOPIC, unique, AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE)
    allow(kafka, ResourceType.TRANSACTIONAL_ID, unique, AclOperation.WRITE, AclOperation.DESCRIBE)
    given = {
        "topic.prefix": unique,
        "database.hostname": "h",
        "database.user": "u",
        "ledger.topic": f"{unique}.ledger",
        "schema.history.internal.kafka.topic": f"{unique}.history",
        "transaction.timeout.ms": str(MOST_MS),
        "topic.creation.default.replication.factor": "1",
        **{f"kafka.{name}": value for name, value in account(kafka, "cdc", "word").items()},
    }
    root = {"admin.override.sasl.username": "admin", "admin.override.sasl.password": "root"}
    with pytest.raises(SinkAuthorizationError), JobLedger(ConnectorConfig.from_properties(given)):
        pass
    with JobLedger(ConnectorConfig.from_properties(given | root)) as job:
        job.create_topics({f"{unique}.t": TopicSpec(1, 1)})
        job.begin(reset_plan(1, BinlogOffset("binlog.000001", 4), "a person"))
    names = [f"{unique}.{name}" for name in ("ledger", "history", "t")]
    assert partition_counts(make_admin(account(kafka, "cdc", "word")), names) == dict.fromkeys(names, 1)


def documented_grants(prefix: str) -> list[AclBinding]:
    """Return the grants that docs/install.md names for a stream's account."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "install.md").read_text()
    rows = re.findall(
        r"^\| (topic|transactional id) \| `([^`]+)` \| (literal|prefixed) \| ([\w, ]+) \|", text, re.MULTILINE
    )
    kinds = {"topic": ResourceType.TOPIC, "transactional id": ResourceType.TRANSACTIONAL_ID}
    patterns = {"literal": ResourcePatternType.LITERAL, "prefixed": ResourcePatternType.PREFIXED}
    return [
        AclBinding(
            kinds[kind],
            name.replace("PREFIX", prefix),
            patterns[pattern],
            "User:cdc",
            "*",
            AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()],
            AclPermissionType.ALLOW,
        )
        for kind, name, pattern, operations in rows
        for operation in operations.split(", ")
    ]


@pytest.mark.parametrize("without", [None, *range(5)])
@pytest.mark.exhaustive(but="None|3")
def test_the_documented_grants_are_what_a_stream_needs(
    kafka: str, properties: dict[str, str], root: Any, database: str, without: int | None
) -> None:
    """With all of them a snapshot and a drain run; without one row they do not."""
    wanted = {f"kafka.{name}": value for name, value in account(kafka, "cdc", "word").items()}
    settings = {**properties, **wanted, "transaction.timeout.ms": str(MOST_MS), "heartbeat.interval.ms": "1"}
    grants = documented_grants(settings["topic.prefix"])
    names = list(dict.fromkeys((grant.restype, grant.name) for grant in grants))
    assert len(names) == 5
    left = [g for g in grants if without is None or (g.restype, g.name) != names[without]]
    for future in make_admin(account(kafka, "admin", "root")).create_acls(left).values():
        future.result(20)
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")
    pipeline = Pipeline(settings)
    found = [report for report in check_setup(pipeline.cfg) if report.system == "Kafka"]
    assert [report.ok for report in found] == [without is None], list(found[0].lines())

    def run() -> None:
        pipeline.snapshot()
        execute(root, f"INSERT INTO `{database}`.t VALUES (2)")
        pipeline.drain()

    if without is None:
        run()
        assert check_setup(pipeline.cfg)[1].ok, "of topics that exist"
        assert len(list(read_topic_committed(account(kafka, "admin", "root"), pipeline.table_topic("t")))) == 2
    else:
        with pytest.raises(SinkAuthorizationError):
            run()


def test_an_operation_that_the_account_lacks_on_a_topic_that_exists_is_named(
    kafka: str, properties: dict[str, str], root: Any, database: str
) -> None:
    """The error has the command to paste; with Read taken from the ledger a job would end after its plan."""
    wanted = {f"kafka.{name}": value for name, value in account(kafka, "cdc", "word").items()}
    settings = {**properties, **wanted, "transaction.timeout.ms": str(MOST_MS)}
    prefix, admin = settings["topic.prefix"], make_admin(account(kafka, "admin", "root"))
    for future in admin.create_acls(documented_grants(prefix)).values():
        future.result(20)
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")
    pipeline = Pipeline(settings)
    pipeline.snapshot()
    rule = (ResourceType.TOPIC, f"ledger.{prefix}", ResourcePatternType.LITERAL, "User:cdc", "*", AclOperation.READ)
    for future in admin.delete_acls([AclBindingFilter(*rule, AclPermissionType.ALLOW)]).values():
        future.result(20)
    wait_for_acls(admin, AclBindingFilter(*rule, AclPermissionType.ALLOW), frozenset())
    report = check_setup(pipeline.cfg)[1]
    assert [type(finding.error) for finding in report.findings] == [SinkAuthorizationError]
    assert report.findings[0].fix == (
        f"kafka-acls.sh --add --allow-principal User:cdc --operation Read --topic ledger.{prefix}"
    )
