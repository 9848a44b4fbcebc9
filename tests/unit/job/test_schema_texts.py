"""Texts of schemas that records name: asked for once, and an id without one is no error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from avrolib.fake_registry import DOWN, FakeRegistry, guid_of, running_registry
from kit.avro_rig import avro
from kit.table_records import config

from airflow_provider_mysql_cdc.cdc.errors import CdcError, RegistryAuthError, RegistryConnectionError, RegistryError
from airflow_provider_mysql_cdc.cdc.job import schema_ids
from airflow_provider_mysql_cdc.cdc.job.coordinator import Coordinator, CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.schema_ids import SchemaTexts, ask_driver_for_texts

pytestmark = pytest.mark.quick
TEXT = '{"type":"record","name":"Key","fields":[{"name":"id","type":"long"}]}'


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with running_registry() as found:
        found.subjects, found.ids = {"t-key": [TEXT]}, {TEXT: 7}
        yield found


@pytest.fixture
def texts(fake: FakeRegistry) -> Iterator[SchemaTexts]:
    with contextlib.closing(SchemaTexts(config(avro(fake.url)))) as found:
        yield found


def test_a_text_is_asked_for_once_and_so_is_one_that_does_not_exist(fake: FakeRegistry, texts: SchemaTexts) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: texts.text_of("key", "7"), range(40))) == {TEXT}
    assert texts.text_of("value", "7") == TEXT
    assert [texts.text_of("key", "8") for _ in range(3)] == [None] * 3
    assert [path.partition("?")[0] for _, path in fake.requests] == ["/schemas/ids/7", "/schemas/ids/8"]


def test_a_schema_may_be_named_by_its_guid(fake: FakeRegistry, texts: SchemaTexts) -> None:
    fake.guids = True
    assert texts.text_of("key", guid_of(TEXT)) == TEXT
    assert texts.text_of("key", guid_of("other")) is None


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((404, {"error_code": 404, "message": "no such page"}), RegistryError),
        ((404, "<html>no such page</html>"), RegistryError),
        ((401, {"error_code": 401, "message": "who are you"}), RegistryAuthError),
        ((500, {"error_code": 50001, "message": "broken"}), RegistryConnectionError),
        (DOWN, RegistryConnectionError),
        ((200, "<html>log in</html>"), RegistryConnectionError),
    ],
)
def test_what_does_not_answer_the_question_is_no_answer(
    fake: FakeRegistry, answer: object, kind: type[CdcError]
) -> None:
    settings = avro(fake.url) | {f"{part}.converter.max.retries": "0" for part in ("key", "value")}
    with contextlib.closing(SchemaTexts(config(settings))) as texts:
        fake.broken = [answer] * 3
        with pytest.raises(kind) as caught:
            texts.text_of("key", "9")
        assert fake.url in str(caught.value)
        fake.broken = []
        assert texts.text_of("key", "9") is None


def test_a_text_that_is_none_is_named(fake: FakeRegistry, texts: SchemaTexts) -> None:
    fake.broken = [(200, {"schema": 7})]
    with pytest.raises(RegistryConnectionError, match="7 is not the text of a schema"):
        texts.text_of("key", "9")


def test_a_client_without_guids_is_named(
    fake: FakeRegistry, texts: SchemaTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    monkeypatch.delattr(SchemaRegistryClient, "get_schema_by_guid")
    with pytest.raises(RegistryError, match=r"install confluent-kafka 2\.11"):
        texts.text_of("key", guid_of(TEXT))


def test_the_number_of_kept_texts_is_bounded(
    fake: FakeRegistry, texts: SchemaTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_ids, "_MAX_TEXTS", 3)
    for schema_id in range(100, 110):
        assert texts.text_of("key", str(schema_id)) is None
    assert len(texts._texts) <= 3


def test_a_task_asks_its_driver(fake: FakeRegistry, texts: SchemaTexts) -> None:
    with (
        contextlib.closing(Coordinator([texts.handler()])) as driver,
        CoordinatorClient(driver.address, driver.token, 0) as channel,
    ):
        ask = ask_driver_for_texts(channel)
        assert (ask("key", "7"), ask("value", "8")) == (TEXT, None)
