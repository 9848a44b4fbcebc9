"""Every stored form has a version, and a record of another one is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.store_contract import END, START, plan
from kit.verify_results import CUSTOMERS, verify_result

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker, decode, encode
from airflow_provider_mysql_cdc.cdc.commit.plan_parts import plan_records
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic
from airflow_provider_mysql_cdc.cdc.errors import StoredVersionError, from_message
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.model.stored_record import STORED_VERSION, VERSION_MEMBER, versioned
from airflow_provider_mysql_cdc.cdc.operate.due_drain import DrainRequest
from airflow_provider_mysql_cdc.cdc.operate.lag import LagPoint, read_points
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import DOCUMENT_FORMAT, read_document
from airflow_provider_mysql_cdc.cdc.operate.stream_report import table_counts
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import verdict_values
from airflow_provider_mysql_cdc.hooks.submission import Submission
from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore

Change = Callable[[dict[str, Any]], dict[str, Any]]

OTHERS: dict[str, Change] = {
    "none": lambda data: {name: value for name, value in data.items() if name != VERSION_MEMBER},
    "the next": lambda data: data | {VERSION_MEMBER: STORED_VERSION + 1},
    "the one before": lambda data: data | {VERSION_MEMBER: STORED_VERSION - 1},
    "a text": lambda data: data | {VERSION_MEMBER: str(STORED_VERSION)},
    "true": lambda data: data | {VERSION_MEMBER: True},
}
MARKER = Marker(1, 0, START, END, ResumePosition(END))
LEDGER_RECORDS: dict[str, dict[str, Any]] = {
    "plan": plan().to_json(),
    "writer/0": MARKER.to_json(),
    "topic/t": RecordedTopic(1, None, 1).to_json(),
    "snapshot": {"epoch": 1, "status": "done"},
    "incremental/state": {"next_order": 0, "paused": False},
    "run": {},
    "owner/p": {"prefix": "p"},
    "writers": {"count": 1},
    "unknown": {},
}


def in_ledger(key: str) -> Callable[[Change], object]:
    def read(change: Change) -> object:
        value = json.dumps(change(versioned(LEDGER_RECORDS[key]))).encode()
        return build_ledger_state({key: value}, where=lambda name: f"topic l, key {name}, offset 3")

    return read


def history_record(change: Change) -> object:
    data = json.loads(HistoryRecord("p", START, 6, 1, "d", "CREATE TABLE t (a INT)").to_bytes())
    return HistoryRecord.from_bytes(json.dumps(change(data)).encode(), "topic h, offset 3")


def part_of_a_plan(change: Change) -> object:
    wide = plan(assignment={f"p.d.{'x' * 100}_{n}": (0,) for n in range(2000)})
    records = plan_records(wide)
    records["plan/0"] = json.dumps(change(json.loads(records["plan/0"] or b""))).encode()
    return build_ledger_state(records)


def verdict(change: Change) -> object:
    records = {key: encode(value or {}) for key, value in verdict_values(LedgerState(), verify_result(CUSTOMERS))}
    key = "verify/table/shop.customers"
    return table_counts(build_ledger_state(records | {key: json.dumps(change(json.loads(records[key]))).encode()}), {})


class Accessor:
    """Airflow's state of an asset."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.values[key] = value


def asset_state(change: Change) -> object:
    accessor = Accessor()
    store = AssetOffsetStore(accessor, "p")
    store.save(StoredState(), None)
    accessor.values = {key: change(value) for key, value in accessor.values.items()}
    return store.load()


def lag_points(change: Change) -> object:
    accessor = Accessor()
    store = AssetOffsetStore(accessor, "p")
    store.save_points([LagPoint(1, 1).to_json()])
    accessor.values = {key: change(value) for key, value in accessor.values.items()}
    return read_points(store)


def document(change: Change) -> object:
    state = change(StoredState().to_json())
    return read_document({"form": DOCUMENT_FORMAT, "topic.prefix": "p", "state": state, "history": []}, "file f")


def submission(change: Change) -> object:
    return Submission.from_json(change(Submission("j", "n", "h", "o").to_json()))


def drain_request(change: Change) -> object:
    return DrainRequest.from_json(change(DrainRequest(END, 1).to_json()))


READERS: dict[str, tuple[Callable[[Change], object], str]] = {
    **{f"ledger, {key}": (in_ledger(key), f"topic l, key {key}, offset 3") for key in LEDGER_RECORDS},
    "ledger, plan/0": (part_of_a_plan, "key plan/0"),
    "ledger, verdict": (verdict, "key verify/table/shop.customers"),
    "schema history": (history_record, "topic h, offset 3"),
    "asset state": (asset_state, "asset state, key offset/p"),
    "points of the lag": (lag_points, "asset state, key lag/p"),
    "document of offsets": (document, "file f"),
    "submission": (submission, "task state, key mysql_cdc_submission"),
    "request of a watch": (drain_request, ""),
}


@pytest.mark.parametrize("form", READERS)
def test_a_record_of_another_version_is_refused_by_name(form: str) -> None:
    read, where = READERS[form]
    for name, change in OTHERS.items():
        with pytest.raises(StoredVersionError) as caught:
            read(change)
        error = caught.value
        assert error.where == where, name
        assert not error.can_retry and "CHANGELOG" in error.remedy and "runbook" in error.remedy, name
        assert ("no version" in error.why) == (name == "none"), name
        assert isinstance(from_message(f"StoredVersionError: {error.message()}"), StoredVersionError), name
    if form != "ledger, run":  # its members are not given here
        read(lambda data: data)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_job_spec_of_another_version_is_refused_by_name(tmp_path: Path, encrypted: bool) -> None:
    for n, (name, change) in enumerate(OTHERS.items()):
        path = tmp_path / str(n)
        spec = JobSpec("drain", {"database.password": "hidden-7"}, {}, "o")
        key = spec.write_encrypted(path) if encrypted else spec.write(path)
        assert JobSpec.read(path, lambda key=key: key) == spec
        path.write_text(json.dumps(change(json.loads(path.read_bytes()))))
        with pytest.raises(StoredVersionError) as caught:
            JobSpec.read(path, lambda key=key: key)
        assert caught.value.where == f"job spec {path}" and "hidden-7" not in str(caught.value), name


def test_a_version_takes_six_bytes_of_a_ledger_record_and_is_no_member_of_its_content() -> None:
    data = MARKER.to_json()
    assert len(encode(data)) == len(json.dumps(data, separators=(",", ":"))) + 6
    assert decode(encode(data)) == data
