"""Key and value schemas equal, byte for byte, what Debezium 3.6.1 wrote for the same tables and settings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from golden.golden_data import rows, table_at
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "extras": {},
    "decimal_string": {"decimal_mode": "string"},
    "decimal_double": {"decimal_mode": "double"},
    "bigint_precise": {"bigint_unsigned_mode": "precise"},
    "binary_base64": {"binary_mode": "base64"},
    "binary_base64url": {"binary_mode": "base64-url-safe"},
    "binary_hex": {"binary_mode": "hex"},
    "time_microseconds": {"time_mode": "microseconds"},
    "time_nanoseconds": {"time_mode": "nanoseconds"},
    "time_connect": {"time_mode": "connect"},
    "time_isostring": {"time_mode": "isostring"},
    "source_types": {},
}
CAPTURES = sorted({r["capture"] for r in rows("schemas")})
# Defaults that Debezium writes and no row could hold: quotes left doubled, a hexadecimal literal read as text and cut,
# YEAR 0000 read as a two-digit year.
EXPLAINED = {("defs", "v"), ("defs", "vbh"), ("defs", "y0")}


def history_of(capture: str) -> str:
    """Return the capture whose schema changes were recorded: the tables are the same in all modes of a workload."""
    workload, mode = capture.split("/")
    return capture if mode == "extras" else f"{workload}/default"


def table_of(row: dict[str, Any]) -> Table:
    return table_at(
        history_of(row["capture"]),
        TableId(row["db"], row["table"]),
        (row["file"], row["pos"]),
        # Positions of other modes are those of other runs; their tables never change.
        snapshot=row["snapshot"] or row["capture"].startswith("types/"),
    )


def neutral(schema: dict[str, Any], table: str) -> dict[str, Any]:
    """Return an envelope schema without the explained defaults."""
    for image in schema["fields"][:2]:
        for field in image["fields"]:
            if (table, field["field"]) in EXPLAINED:
                field.pop("default", None)
    return schema


@pytest.mark.req("EVT-08", "EVT-10", "EVT-13", "EVT-14", "EVT-15", "EVT-16", "EVT-20", "TYPE-01", "TYPE-71")
@for_each("capture", [c for c in CAPTURES if c != "types/source_types"])
def test_schemas_equal_the_recording(capture: str) -> None:
    options = DecoderOptions(prefix="cap", **MODES[capture.split("/")[1]])
    recorded = [r for r in rows("schemas") if r["capture"] == capture]
    assert recorded
    for row in recorded:
        text = envelope_text(table_of(row), options, comments=capture.endswith("extras"))
        assert text.key_schema == row["key_schema"], row["table"]
        if row["table"] == "defs":
            mine, theirs = (neutral(json.loads(t), "defs") for t in (text.value_schema or "", row["value_schema"]))
            assert dumps(mine) == dumps(theirs)
        else:
            assert text.value_schema == row["value_schema"], row["table"]


def test_the_explained_defaults_are_the_values_mysql_stores() -> None:
    row = next(r for r in rows("schemas") if r["capture"] == "types/default" and r["table"] == "defs")
    schema = json.loads(envelope_text(table_of(row), DecoderOptions(prefix="cap")).value_schema or "")
    defaults = {f["field"]: f.get("default") for f in schema["fields"][0]["fields"]}
    assert (defaults["v"], defaults["vbh"], defaults["y0"]) == ("it's", "AP8=", 0)


def recorded_with(capture: str, file: str = "schemas_columns") -> list[dict[str, Any]]:
    found = [r for r in rows(file) if r["capture"] == capture]
    assert found
    return found


def texts_of(row: dict[str, Any], **properties: str) -> EnvelopeText:
    """Return the schemas of a recorded row's table under the properties of its mode."""
    base = {"topic.prefix": "cap", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
    cfg = ConnectorConfig.from_properties({**base, **properties})
    table = table_of(row)
    return table_options.envelope_text(cfg, table, table_options.table_options(cfg, table))


@pytest.mark.req("COL-11", "COL-12")
def test_source_type_parameters_equal_the_recording() -> None:
    for row in recorded_with("types/source_types", "schemas"):
        text = texts_of(row, **{"datatype.propagate.source.type": ".+"})
        assert text.key_schema == row["key_schema"], row["table"]
        if row["table"] == "defs":
            mine, theirs = (neutral(json.loads(t), "defs") for t in (text.value_schema or "", row["value_schema"]))
            assert dumps(mine) == dumps(theirs)
        else:
            assert text.value_schema == row["value_schema"], row["table"]


@pytest.mark.req("EVT-04", "EVT-06", "COL-15", "COL-16")
def test_adjusted_names_equal_the_recording() -> None:
    modes = {"schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"}
    for row in recorded_with("types/avro_names"):
        text = texts_of(row, **modes)
        assert text.key_schema == row["key_schema"], row["table"]
        if row["table"] != "defs":
            assert text.value_schema == row["value_schema"], row["table"]


@pytest.mark.req("COL-01", "COL-02", "COL-03", "COL-04", "COL-05", "COL-13")
def test_schemas_of_treated_columns_equal_the_recording() -> None:
    mode = {
        "column.exclude.list": "dmldb.t.a",
        "column.mask.hash.SHA-256.with.salt.pepper": "dmldb.cpk.y",
        "column.mask.with.5.chars": "dmldb.audit.msg",
        "column.truncate.to.3.chars": "dmldb.t.b",
        "message.key.columns": "dmldb.nopk:a,b;dmldb.t:b",
    }
    for row in recorded_with("dml/columns"):
        text = texts_of(row, **mode)
        assert (text.key_schema, text.value_schema) == (row["key_schema"], row["value_schema"]), row["table"]
