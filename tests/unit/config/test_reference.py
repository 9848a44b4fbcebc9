"""What is made of the declarations: reference page; and that each declaration is used."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import reference
from airflow_provider_mysql_cdc.cdc.config.field import Field

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "airflow_provider_mysql_cdc"
READ_BY_NOBODY = {
    "CONNECTOR_CLASS": "one accepted value",
    "KEY_CONVERTER": "one accepted value",
    "VALUE_CONVERTER": "one accepted value",
    "EVENT_PROCESSING_FAILURE_HANDLING_MODE": "one accepted value",
    "INCONSISTENT_SCHEMA_HANDLING_MODE": "one accepted value",
    "NAME": "for people",
    "ERRORS_TOLERANCE": "event.processing.failure.handling.mode is derived from it",
    "INCREMENTAL_SNAPSHOT_ALLOW_SCHEMA_CHANGES": "both values mean what true means in Debezium",
    "TOPIC_HEARTBEAT_PREFIX": "heartbeat.interval.ms is pending",
}


def test_the_reference_page_is_current() -> None:
    page = (ROOT / "docs" / "properties.md").read_text(encoding="utf-8")
    assert page == reference.render(), (
        "run: python -m airflow_provider_mysql_cdc.cdc.config.reference docs/properties.md"
    )


def test_no_property_is_accepted_and_then_ignored() -> None:
    """Each field is read somewhere, or only its default is accepted, or it stands in the list with the reason."""
    declaring = {"source_fields.py", "event_fields.py", "column_fields.py", "sink_fields.py"}
    code = "\n".join(p.read_text() for p in PACKAGE.rglob("*.py") if p.name not in declaring)
    used = set(re.findall(r"\bF\.([A-Z][A-Z_]+)", code))
    names = {name: f for name, f in vars(F).items() if isinstance(f, Field)}
    unread = {name for name, f in names.items() if name not in used and not f.pending}
    assert unread <= READ_BY_NOBODY.keys(), f"accepted and read by nobody: {sorted(unread - READ_BY_NOBODY.keys())}"
    # Those of converters stand in groups, one for keys and one for values (test_config_avro).
    groups = {"CONVERTER_CLASS_FIELD", "CONVERTER_FIELDS", "KEY_AVRO", "PARTS", "SUBJECT_STRATEGIES", "VALUE_AVRO"}
    assert used <= {*names, "ALL", "BY_NAME", "RECORD_NAME_STRATEGY", "WRITER_IDS", *groups}
