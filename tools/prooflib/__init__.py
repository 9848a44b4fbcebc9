"""Proof against Debezium: run a workload through the pipeline, and compare the records with recorded ones."""

from __future__ import annotations
