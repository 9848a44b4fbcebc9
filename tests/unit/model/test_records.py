"""Every record and message is written and read back, and each damage to one is named with its path."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from airflow_provider_mysql_cdc.cdc.errors import CdcError, DamagedRecordError, SchemaError, StoredVersionError
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record, parse_json
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import LogLine

pytestmark = pytest.mark.quick

CDC = Path(__file__).parents[3] / "airflow_provider_mysql_cdc" / "cdc"
SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
BOUNDED = {"SnapshotChunk": ("low", "high"), "KeyRange": ("low", "high"), "TableScan": ("last_key", "cursor")}
MEMBERS: dict[str, Any] = {
    **{f"{kind}.kinds": ("UNSIGNED",) for kind in BOUNDED},
    **{f"{kind}.{bound}": (2**63,) for kind, bounds in BOUNDED.items() for bound in bounds},
    "TableScan.state": "running",
    "BatchPlan.writers": 8,
    "StoredState.snapshot": {"epoch": 1, "status": "done"},
    "JobSpec.properties": {"a": "b"},
}
"""Values of fields, by class and name, where any value of the type would contradict another field."""
PATTERNS = ["binlog.000001", f"{SERVER}:1-5", f"{SERVER}:5@1700000000000000"]
"""Texts, of which one fits each pattern that a type has."""


def kinds() -> Iterator[type[Record]]:
    """Yield each class of a record of the core."""
    for path in sorted(CDC.rglob("*.py")):
        if "Record):" in path.read_text():
            module = import_module(".".join(path.relative_to(CDC.parents[1]).with_suffix("").parts))
            for kind in vars(module).values():
                if isinstance(kind, type) and issubclass(kind, Record) and dataclasses.is_dataclass(kind):
                    yield kind


def sample(hint: Any, name: str = "") -> Any:
    """Return a value of a type; of a record one in which no field has its default."""
    if name in MEMBERS:
        return MEMBERS[name]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        patterns = [text for text in PATTERNS if any(fits(text, meta) for meta in arguments[1:])]
        return patterns[0] if patterns else sample(arguments[0])
    if origin is Literal:
        return arguments[-1]
    if origin in (Union, types.UnionType):
        return sample(arguments[0])
    if origin is tuple:
        return tuple(sample(each) for each in arguments if each is not ...)
    if origin is frozenset:
        return frozenset({sample(arguments[0])})
    if origin is not None and issubclass(origin, Mapping):
        return {sample(arguments[0]): sample(arguments[1])}
    if dataclasses.is_dataclass(hint) or (isinstance(hint, type) and issubclass(hint, tuple)):
        hints = get_type_hints(hint, include_extras=True)
        names = [f.name for f in dataclasses.fields(hint)] if dataclasses.is_dataclass(hint) else hint._fields
        return hint(**{each: sample(hints[each], f"{hint.__name__}.{each}") for each in names})  # type: ignore[operator]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return list(hint)[-1]
    if hint is CdcError:
        return SchemaError("no", where="table d.t", why="b", remedy="c")
    simple = {int: 7, str: "x", bool: True, float: 1.5, Any: {"a": [1]}}
    return simple[hint]


def fits(text: str, meta: Any) -> bool:
    return meta.pattern is not None and re.search(meta.pattern, text) is not None


def test_each_record_is_written_and_read_again() -> None:
    read = [(kind, value := sample(kind), kind.from_json(parse_json(json.dumps(value.to_json())))) for kind in kinds()]
    assert len(read) > 20
    for kind, value, again in read:
        assert str(again) == str(value), kind
        assert again.to_json() == value.to_json() == json.loads(json.dumps(value.to_json())), kind


def test_each_damage_is_named_with_its_path() -> None:
    for kind in kinds():
        members = sample(kind).to_json()
        for name, hint in ((f.name, get_type_hints(kind)[f.name]) for f in dataclasses.fields(kind)):  # type: ignore[arg-type]
            changes = [{n: m for n, m in members.items() if n != name}]
            changes += [] if hint in (Any, CdcError, CdcError | None) else [members | {name: [[{"\x00": object()}]]}]
            for change in changes:
                with pytest.raises(DamagedRecordError) as caught:
                    kind.from_json(change)
                assert name in caught.value.why and caught.value.remedy, (kind, name)
        for other in (None, [], "x", 7):
            with pytest.raises((DamagedRecordError, StoredVersionError)):
                kind.from_json(other)  # type: ignore[arg-type]


def test_a_text_that_utf8_cannot_write_is_carried_in_a_message() -> None:
    line = LogLine("a name: \ud800")
    assert LogLine.from_json(json.loads(json.dumps(line.to_json()))) == line


FIRST_READS = """
import sys, threading
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
sys.setswitchinterval(1e-6)
together = threading.Barrier(8)
def read():
    for kind in (TableScan, JobSpec, Marker, BatchPlan, StoredState):
        together.wait()
        try:
            kind.from_json({"v": 2, "epoch": 1})
        except CdcError:
            pass
threads = [threading.Thread(target=read) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_threads_may_read_a_kind_of_record_for_the_first_time_at_once() -> None:
    """Writers are threads where Spark is not, and so are the streams of a fleet."""
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", FIRST_READS], check=False).returncode == 0
