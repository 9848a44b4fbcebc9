"""``mysql-cdc offsets`` without a server: what it prints, refuses and needs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from kit.store_contract import END, START, plan
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    ConfigError,
    DamagedRecordError,
    NoOffsetError,
    StoredVersionError,
)
from airflow_provider_mysql_cdc.cdc.model.stored_record import versioned
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import export_document, past_offsets, read_document
from airflow_provider_mysql_cdc.commands.program import command_line, main

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlOffsetStore:
    url = f"sqlite:///{tmp_path}/offsets.db"
    monkeypatch.setenv("MYSQL_CDC_OFFSET_URL", url)
    return SqlOffsetStore(sa.create_engine(url), "shop")


def committed(store: Any) -> StoredState:
    """Store two batches, the second one pending."""
    state = store.save(StoredState().with_plan(plan()), None)
    state = store.save(state.commit(END, 1_700_000_000_000), state)
    saved: StoredState = store.save(state.with_plan(plan(2, END, END.with_position("binlog.000011", 4))), state)
    return saved


def test_show_and_history_print_what_is_stored(store: SqlOffsetStore, capsys: pytest.CaptureFixture[str]) -> None:
    committed(store)
    assert main(["offsets", "show", "--topic-prefix", "shop"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["committed"]["file"], shown["pending"]["epoch"], shown["epoch"]) == ("binlog.000010", 2, 2)
    assert main(["offsets", "history", "--topic-prefix", "shop"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("2023-11-14T22:13:20+00:00  epoch 1  ") and "binlog.000010" in line


def test_show_of_nothing_says_what_happens_then(store: SqlOffsetStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["offsets", "show", "--topic-prefix", "other"]) == 1
    told = capsys.readouterr()
    assert told.out == "" and "nothing is known of topic.prefix=other" in told.err
    assert "restores the offset from the ledger" in told.err and "it has offsets of" not in told.err
    committed(store)
    assert main(["offsets", "show", "--topic-prefix", "shp"]) == 1
    assert "nothing is known of topic.prefix=shp: the store has no offset of it; it has offsets of shop" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("wrapped", [False, True])
def test_properties_are_taken_from_the_json_of_a_connector(
    store: SqlOffsetStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrapped: bool
) -> None:
    committed(store)
    properties = {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "topic.prefix": "shop",
        "database.hostname": "db",
        "database.user": "u",
        "schema.history.internal.kafka.bootstrap.servers": "k:1",
    }
    path = tmp_path / "dbz.json"
    path.write_text(json.dumps({"name": "c", "config": properties} if wrapped else properties))
    assert main(["offsets", "show", "--properties", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["topic.prefix"] == "shop"
    path.write_text("[]")
    assert main(["offsets", "show", "--properties", str(path)]) == 1
    assert f"is not a JSON object [{path}]" in capsys.readouterr().err


def test_neither_airflow_nor_spark_is_needed_for_a_database(store: SqlOffsetStore) -> None:
    committed(store)
    code = (
        "import sys; from airflow_provider_mysql_cdc.commands.program import command_line, main\n"
        "assert main(['offsets', 'export', '--topic-prefix', 'shop']) == 0\n"
        "print(sorted({'airflow', 'pyspark', 'pandas'} & set(sys.modules)), file=sys.stderr)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stderr.strip() == "[]"
    assert json.loads(done.stdout)["topic.prefix"] == "shop"


def test_an_exported_document_holds_all_of_it(store: SqlOffsetStore, tmp_path: Path) -> None:
    state = committed(store)
    assert main(["offsets", "export", "--topic-prefix", "shop", "--output", str(tmp_path / "shop.json")]) == 0
    carried = read_document(json.loads((tmp_path / "shop.json").read_text()))
    assert (carried.prefix, carried.state, carried.history) == ("shop", state, state.history)


@pytest.mark.parametrize("url", ["postgresql://u:p@ss:w0rdS3cret@h/db", "mysql://u:x@h:S3cret/db", "no:S3cret@h/d"])
def test_an_address_that_cannot_be_taken_apart_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    monkeypatch.setenv("MYSQL_CDC_OFFSET_URL", url)
    assert main(["offsets", "show", "--topic-prefix", "shop"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("ConfigError") and "%40" in told and "S3cret" not in told


def test_a_place_that_cannot_be_written_is_named(
    store: SqlOffsetStore, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    committed(store)
    place = str(tmp_path / "missing" / "x.json")
    assert main(["offsets", "export", "--topic-prefix", "shop", "--output", place]) == 1
    assert f"ConfigError: the export cannot be written [{place}]" in capsys.readouterr().err


def test_a_document_without_a_state_is_damaged() -> None:
    with pytest.raises(DamagedRecordError, match="state"):
        read_document({"form": "mysql-cdc-offsets", "version": 1, "topic.prefix": "shop"})


def test_a_store_without_rows_of_history_gives_those_inside_its_state() -> None:
    store = MemoryOffsetStore()
    state = committed(store)
    assert past_offsets(store) == [state.history[0]]
    assert read_document(export_document(store, "shop")).history == state.history
    with pytest.raises(NoOffsetError):
        export_document(MemoryOffsetStore(), "shop")
    assert past_offsets(MemoryOffsetStore()) == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"form": "another"}, ConfigError),
        ({"state": {"epoch": "many"}}, StoredVersionError),
        ({"state": versioned({"epoch": "many"})}, DamagedRecordError),
        ({"state": None}, CdcError),
        ({"history": [{"epoch": 1}]}, DamagedRecordError),
        ({"topic.prefix": 7}, DamagedRecordError),
    ],
)
def test_what_is_no_document_is_named(store: SqlOffsetStore, change: dict[str, Any], kind: type[CdcError]) -> None:
    committed(store)
    with pytest.raises(kind):
        read_document({**export_document(store, "shop"), **change}, "shop.json")


@pytest.mark.parametrize(
    "arguments",
    [
        ["set", "current", "--confirm", "shop"],
        ["import", "no-such-file", "--confirm", "shop"],
        ["set", "current", "--confirm", "another", "--topic-prefix", "shop"],
        ["show"],
        ["show", "--properties", "no-such-file"],
    ],
)
def test_what_cannot_be_done_is_one_named_line(
    arguments: list[str], store: SqlOffsetStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["offsets", *arguments]) == 1
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("ConfigError: ") and "What to do" in told.err
    assert store.load() is None


def test_an_address_is_refused_without_showing_its_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MYSQL_CDC_OFFSET_URL", "postgresql+nodriver://me:hunter2@db/x")
    assert main(["offsets", "show", "--topic-prefix", "shop"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("ConfigError: ") and "MYSQL_CDC_OFFSET_URL" in told and "hunter2" not in told


def test_one_store_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["offsets", "show", "--offset-conn-id", "a", "--asset", "b", "--topic-prefix", "shop"])
    assert caught.value.code == 2


def test_the_packed_environment_is_one_of_its_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["environment", "--output", str(tmp_path / "e.tar.gz"), "--python", "/no/such/python"]) == 1
    assert "ConfigError" in capsys.readouterr().err


def test_the_start_of_a_stream_stays_known(store: SqlOffsetStore) -> None:
    """A plan that nobody carried out yet is carried as well, or its batch would be planned twice."""
    first = store.save(StoredState().with_plan(plan(start=START)), None)
    assert read_document(export_document(store, "shop")).state == first


def test_the_commands_in_the_docs_are_taken_as_they_stand() -> None:
    texts = "\n".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    printed = re.findall(r"^    mysql-cdc (.*)$", texts, re.MULTILINE)
    assert len(printed) >= 5
    for line in printed:
        command_line().parse_args(shlex.split(line))
