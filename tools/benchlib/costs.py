"""The costs of a measured run."""

from __future__ import annotations

from typing import Any

from benchlib.process_tree import Usage


class Costs:
    """Return the costs of a run: those of its processes, and of the work outside them."""

    __slots__ = ()
    used: Usage
    beside_s: float
    load: float

    @property
    def cpu_s(self) -> float:
        """Return all CPU seconds."""
        return self.used.cpu_s + self.beside_s

    def costs(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "wall_s": round(self.used.wall_s, 1),
            "cpu_s": round(self.cpu_s, 2),
            "cpu_s_beside": round(self.beside_s, 2),
            "cpu_s_by_kind": {kind: round(s, 2) for kind, s in self.used.cpu_by_kind.items()},
            "cpu_s_busiest": {kind: round(s, 2) for kind, s in self.used.busiest_s.items()},
            "peak_mb": {kind: round(mb) for kind, mb in self.used.peak_mb.items()},
            "load1": round(self.load, 1),
        }
