"""One measured run, as the result file keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchlib.costs import Costs
from benchlib.process_tree import Usage


@dataclass(frozen=True, slots=True)
class Run(Costs):
    """Hold one measured run.

    Args:
        workload: Its workload.
        side: Name of the side that ran.
        records: Records written to the tables' topics.
        used: What its processes used.
        beside_s: CPU seconds beside them: planning and settling, which an Airflow task does.
        load: Load of the machine over the last minute at the end.
        native_rows: Rows that the native kernel has decoded.
        lag_s: Seconds from a commit to the reader of its event, by name of the share (``p50``); empty without a steady
            load.
    """

    workload: str
    side: str
    records: int
    used: Usage
    beside_s: float = 0.0
    load: float = 0.0
    native_rows: int = 0
    lag_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def peak_mb(self) -> float:
        """Return the greatest memory of one process of each kind, together."""
        return sum(self.used.peak_mb.values())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        found: dict[str, Any] = {
            "workload": self.workload,
            "side": self.side,
            "records": self.records,
            **self.costs(),
            "native_rows": self.native_rows,
        }
        return {**found, "lag_s": dict(self.lag_s)} if self.lag_s else found

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Run:
        """Return what ``to_json`` wrote.

        Args:
            given: The object.
        """
        beside_s = float(given["cpu_s_beside"])
        cpu_by_kind, peak_mb = dict(given["cpu_s_by_kind"]), dict(given["peak_mb"])
        busiest = dict(given.get("cpu_s_busiest", {}))
        cpu_s = float(given["cpu_s"]) - beside_s
        used = Usage(float(given["wall_s"]), cpu_s, cpu_by_kind, peak_mb, busiest_s=busiest)
        load, rows = float(given["load1"]), int(given["native_rows"])
        records, lag_s = int(given["records"]), dict(given.get("lag_s", {}))
        return cls(str(given["workload"]), str(given["side"]), records, used, beside_s, load, rows, lag_s)
