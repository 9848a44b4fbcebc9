"""Jobs of the pipeline as tests and measurements run them, on real servers."""

from __future__ import annotations
