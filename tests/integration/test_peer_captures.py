"""The records equal those that Debezium 3.6.1 wrote for the same workloads, but for the explained differences."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, ValueDecodeError

PEER = Path(__file__).resolve().parents[1] / "golden" / "peer"
CASES = sorted(f"{f.parent.name}/{f.name.removesuffix('.jsonl.gz')}" for f in PEER.glob("captured/*/*.jsonl.gz"))
# A NOT NULL value without a form in the mode stops the pipeline, as it stops Debezium.
STOPS: dict[str, tuple[type[Exception], str]] = {
    "types/time_connect": (ValueDecodeError, "column t of table tdb.nn_zero"),
    "types/time_isostring": (ValueDecodeError, "column t of table tdb.nn_zero"),
}
# What no release supports yet must be refused by name, never written in another form.
UNSUPPORTED = {"dml/unwrap": "transforms"}
# Modes that change how values and rows are written and nothing that goes from one batch to the next: the workload's
# mode "default" shows that the places where batches end cannot be told from the records.
WRITTEN_ONLY = ("types/", "dml/", "ddl/no_data")


@pytest.fixture(scope="session")
def proof_stack(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return servers that a capture may empty: a worker's own, or scratch servers that end with the tests."""
    from prooflib.scratch import FOLDER, scratch_stack
    from stacklib import kafka, mysql, stop_stack

    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        mine = request.getfixturevalue("stack")
        # Servers that the environment names are somebody's.
        if mine.mysql_origin == mine.kafka_origin == "stack":
            yield mine
            return
    folder = FOLDER if worker is None else FOLDER / worker
    ran = mysql.running(folder / "mysql") or kafka.running(folder / "kafka")
    yield scratch_stack(folder)
    if not ran:
        stop_stack(folder, wipe=worker is not None)


def mode_of(case: str) -> dict[str, str]:
    from prooflib.workload import read_properties

    return read_properties(PEER / "modes" / f"{case.partition('/')[2]}.properties")


@pytest.mark.req(
    "EVT-01", "TYPE-01", "TXN-01", "COL-01", "SNAP-07", "SNAP-16", "SNAP-39", "SNAP-40", "STRM-17", "SCH-20"
)
@pytest.mark.req("INC-02", "INC-04", "INC-06", "INC-47")
@pytest.mark.parametrize("case", [c for c in CASES if c not in UNSUPPORTED])
def test_records_equal_the_recorded_ones(case: str, proof_stack: Any, tmp_path: Path) -> None:
    """Every record of a workload and mode equals the recorded one, or the difference is explained."""
    from prooflib.capture import capture
    from prooflib.compare_cli import LIST, judge, report
    from prooflib.differ import compare
    from prooflib.explained import read_explained
    from prooflib.lines import read_lines
    from prooflib.records import parse_records
    from prooflib.workload import read_workload

    workload = read_workload(PEER / "workloads" / f"{case.partition('/')[0]}.sql")
    few = case.startswith(WRITTEN_ONLY) and not case.endswith("/default")
    done = capture(workload, mode_of(case), proof_stack, few=few)
    expected = STOPS.get(case)
    if expected is None:
        assert done.error is None
        assert done.batches >= 2
    else:
        assert isinstance(done.error, expected[0])
        assert expected[1] in str(done.error)
    theirs = parse_records(read_lines(PEER / "captured" / f"{case}.jsonl.gz"), case)
    result = compare(parse_records(done.lines, "ours"), theirs)
    left, _ = judge(case, result, read_explained(LIST), mode_of(case))
    assert report(left) == []


@pytest.mark.parametrize("case", sorted(UNSUPPORTED))
def test_unsupported_modes_are_refused_by_name(case: str) -> None:
    """A mode that is not supported stops with a ConfigError that names the property."""
    base = {"topic.prefix": "cap", "database.hostname": "h", "database.user": "u", "database.password": "p"}
    with pytest.raises(ConfigError, match=UNSUPPORTED[case]):
        ConnectorConfig.from_properties({**base, "kafka.bootstrap.servers": "k:9092", **mode_of(case)})
