"""The demo: a shop on MySQL, a writer that changes it, Airflow that carries it to Kafka, and a verifier."""

from __future__ import annotations
