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
        beside_s: CPU seconds outside of them: planning and settling, which an Airflow task does.
        load: Load of the machine over the last minute at the end.
        native_rows: Rows that the native kernel has decoded.
        lag_s: Seconds from a commit to the reader of its event, by name of the share (``p50``); empty without a steady
            load.
        drains: Number of the drains that each began at a time of its own (``count``), and the median of their wall time
            from planning to settling (``wall_s``); empty for others.
    """

    workload: str
    side: str
    records: int
    used: Usage
    beside_s: float = 0.0
    load: float = 0.0
    native_rows: int = 0
    lag_s: Mapping[str, float] = field(default_factory=dict)
    drains: Mapping[str, float] = field(default_factory=dict)

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
        beside = {"lag_s": self.lag_s, "drains": self.drains}
        return {**found, **{name: dict(values) for name, values in beside.items() if values}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        """Return what ``to_json`` wrote.

        Args:
            data: The object.
        """
        beside_s = float(data["cpu_s_beside"])
        cpu_by_kind, peak_mb = dict(data["cpu_s_by_kind"]), dict(data["peak_mb"])
        busiest = dict(data.get("cpu_s_busiest", {}))
        cpu_s = float(data["cpu_s"]) - beside_s
        used = Usage(float(data["wall_s"]), cpu_s, cpu_by_kind, peak_mb, busiest_s=busiest)
        load, rows = float(data["load1"]), int(data["native_rows"])
        records, lag_s = int(data["records"]), dict(data.get("lag_s", {}))
        return cls(
            str(data["workload"]),
            str(data["side"]),
            records,
            used,
            beside_s,
            load,
            rows,
            lag_s,
            dict(data.get("drains", {})),
        )
