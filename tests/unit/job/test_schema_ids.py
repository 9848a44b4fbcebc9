"""Ids of schemas in a job: asked once, those of keys in the ledger before their first use, and the same ever after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from avrolib.fake_registry import FakeRegistry, guid_of, running_registry
from kit.avro_rig import avro

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PLAN_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, encode
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedSchemaId, schema_key_name
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import FencedError, IncompatibleSchemaError, SchemaIdChangedError
from airflow_provider_mysql_cdc.cdc.job.schema_ids import SchemaIds
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

pytestmark = pytest.mark.quick

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
KEY = '{"type":"record","name":"Key","fields":[{"name":"id","type":"long"}]}'
START = BinlogOffset("b.000001", 4, None, "s")


class Ledger:
    """Stands for the ledger topic: the last value of each key."""

    def __init__(self) -> None:
        self.records: dict[str, bytes | None] = {}
        self.commits = 0
        self.fenced = False

    def commit(self, records: Sequence[Any]) -> None:
        if self.fenced:
            raise FencedError("a newer attempt")
        self.commits += 1
        self.records |= {key.decode(): value for _, key, value, _ in records}

    def begin(self, kind: str = "drain", epoch: int = 2) -> LedgerState:
        plan = BatchPlan(epoch=epoch, kind=kind, start=START, end=START, writers=1, created_ms=0)  # type: ignore[arg-type]
        self.records[PLAN_KEY] = encode(plan.to_json())
        return self.state()

    def state(self) -> LedgerState:
        return build_ledger_state(self.records)


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with running_registry() as found:
        yield found


def book(
    fake: FakeRegistry, ledger: Ledger, kind: str = "drain", epoch: int = 2, more: Mapping[str, str] = {}
) -> SchemaIds:
    cfg = ConnectorConfig.from_properties({**BASE, **avro(fake.url), **more})
    made = SchemaIds(cfg, ledger.commit, ledger.state)
    made.begin(ledger.begin(kind, epoch))
    return made


def test_the_id_of_a_key_is_in_the_ledger_before_a_task_gets_it(fake):
    ledger = Ledger()
    assert book(fake, ledger).id_of("key", "t-key", KEY, "table a.t") == SchemaId(1)
    assert ledger.state().schemas == {schema_key_name("t-key", KEY): RecordedSchemaId(1, 2)}
    assert not ledger.state().has_commits()  # it is no part of a batch
    # The next job finds it there and writes nothing.
    assert book(fake, ledger, epoch=3).id_of("key", "t-key", KEY, "table a.t") == SchemaId(1)
    assert ledger.commits == 1


def test_a_driver_that_is_fenced_returns_no_id(fake):
    ledger = Ledger()
    ledger.fenced = True
    with pytest.raises(FencedError):
        book(fake, ledger).id_of("key", "t-key", KEY, "table a.t")


def test_a_key_with_another_id_stops_with_both_ids_and_the_way_out(fake):
    ledger = Ledger()
    book(fake, ledger).id_of("key", "t-key", KEY, "table a.t")
    fake.wipe(first_id=40)
    with pytest.raises(SchemaIdChangedError) as found:
        book(fake, ledger).id_of("key", "t-key", KEY, "table a.t")
    assert "id 1, now it is 40" in found.value.why
    assert "table a.t, subject t-key" in found.value.where
    assert "mysql_cdc_reset_offset" in found.value.remedy
    assert not found.value.can_retry
    assert ledger.state().schemas[schema_key_name("t-key", KEY)].id == 1


def test_a_newer_version_of_the_subject_gives_keys_another_id(fake):
    ledger, latest = Ledger(), {"key.converter.use.latest.version": "true"}
    book(fake, ledger).id_of("key", "t-key", KEY, "table a.t")
    described = KEY.replace('"Key",', '"Key","doc":"of a.t",')
    fake.ids[described] = 9
    fake.subjects["t-key"].append(described)
    with pytest.raises(SchemaIdChangedError, match=r"\(with use\.latest\.version\) the subject has a newer version"):
        book(fake, ledger, more=latest).id_of("key", "t-key", KEY, "table a.t")


def test_a_value_may_have_another_id(fake):
    ledger = Ledger()
    book(fake, ledger).id_of("value", "t-value", KEY, "table a.t")
    fake.wipe(first_id=40)
    assert book(fake, ledger).id_of("value", "t-value", KEY, "table a.t") == SchemaId(40)
    assert ledger.commits == 0


def test_a_new_snapshot_takes_the_registry_as_it_is(fake):
    ledger = Ledger()
    book(fake, ledger).id_of("key", "t-key", KEY, "table a.t")
    fake.wipe(first_id=40)
    assert book(fake, ledger, "snapshot", 3).id_of("key", "t-key", KEY, "table a.t") == SchemaId(40)
    assert ledger.state().schemas == {schema_key_name("t-key", KEY): RecordedSchemaId(40, 3)}


def test_a_snapshot_that_is_begun_does_not(fake):
    ledger = Ledger()
    book(fake, ledger).id_of("key", "t-key", KEY, "table a.t")
    fake.wipe(first_id=40)
    ledger.records["view"] = encode({"epoch": 3, "offset": START.to_json(), "ts_ms": 1})
    with pytest.raises(SchemaIdChangedError):
        book(fake, ledger, "snapshot", 3).id_of("key", "t-key", KEY, "table a.t")


HEADERS = {f"{part}.converter.{part}.schema.id.serializer": "HeaderSchemaIdSerializer" for part in ("key", "value")}


def test_a_guid_in_a_header_of_keys_decides_nothing_and_is_not_recorded(fake):
    fake.guids, ledger = True, Ledger()
    made = book(fake, ledger, more=HEADERS)
    assert made.id_of("key", "t-key", KEY, "table a.t") == SchemaId(1, guid_of(KEY))
    fake.wipe(first_id=40)
    made = book(fake, ledger, more=HEADERS)
    request = {"part": "key", "subject": "t-key", "text": KEY, "about": "table a.t"}
    assert SchemaId.from_json(made.handler().reply(0, request)) == SchemaId(40, guid_of(KEY))
    assert (ledger.commits, ledger.state().schemas) == (0, {})
    made.close()


def test_the_ids_of_keys_are_kept_where_the_guids_of_values_are_in_headers(fake):
    fake.guids, ledger = True, Ledger()
    only = {name: text for name, text in HEADERS.items() if name.startswith("value")}
    made = book(fake, ledger, more=only)
    assert made.id_of("key", "t-key", KEY, "table a.t") == SchemaId(1)
    assert made.id_of("value", "t-value", KEY, "table a.t") == SchemaId(1, guid_of(KEY))
    assert ledger.state().schemas == {schema_key_name("t-key", KEY): RecordedSchemaId(1, 2)}
    made.close()


@pytest.mark.req("AVRO-54")
def test_a_changed_schema_has_an_id_of_its_own(fake):
    changed, ids = KEY.replace("long", "string"), book(fake, Ledger())
    found = [ids.id_of("value", "t-value", text, "table a.t") for text in (KEY, changed, KEY)]
    assert found == [SchemaId(1), SchemaId(2), SchemaId(1)]


def test_forty_tasks_are_one_question(fake):
    book(fake, Ledger()).id_of("key", "t-key", KEY, "table a.t")
    fake.requests.clear()
    # The client keeps the ids of what it has registered, and not the latest ones.
    made = book(fake, Ledger(), more={"key.converter.use.latest.version": "true"})
    tell = made.handler().reply
    request = {"part": "key", "subject": "t-key", "text": KEY, "about": "table a.t"}
    with ThreadPoolExecutor(40) as pool:
        assert {reply["number"] for reply in pool.map(lambda n: tell(n, request), range(40))} == {1}
    assert len(fake.requests) == 1
    made.close()


@pytest.mark.req("FAULT-28")
def test_a_refusal_names_the_table_that_shares_the_subject(fake):
    strategy = {"value.converter.value.subject.name.strategy": "RecordNameStrategy"}
    ids, subject = book(fake, Ledger(), more=strategy), "p.shop.a_b.Envelope"
    other = KEY.replace("long", "string")
    ids.id_of("value", subject, KEY, "table shop.a-b")
    fake.refuses = lambda subject, text: "types differ" if text == other else None
    with pytest.raises(IncompatibleSchemaError, match=r"table shop\.a-b has this subject as well") as found:
        ids.id_of("value", subject, other, "table shop.a_b")
    assert "table shop.a_b" in found.value.where
    assert "value.converter.value.subject.name.strategy=TopicNameStrategy" in found.value.remedy


def test_a_refusal_names_no_other_table_where_each_topic_has_a_subject(fake):
    ids = book(fake, Ledger())
    ids.id_of("value", "t-value", KEY, "table a.t")
    fake.refuses = lambda subject, text: "types differ"
    with pytest.raises(IncompatibleSchemaError) as found:
        ids.id_of("value", "t-value", KEY.replace("long", "string"), "table a.t")
    assert "as well" not in str(found.value)
