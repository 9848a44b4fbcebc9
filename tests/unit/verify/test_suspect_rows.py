"""The statements that find the rows of keys in records; a real server carries them out in integration/."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, ValueChange, ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.custom_column import CustomColumn
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.verify import suspect_rows
from airflow_provider_mysql_cdc.cdc.verify.row_text import row_bytes, row_values
from airflow_provider_mysql_cdc.cdc.verify.suspect_rows import SuspectRows

pytestmark = pytest.mark.quick

ID = Column("id", 1, "INT", nullable=False)
DEFAULT = DecoderOptions()


def table(*columns: Column, key: tuple[str, ...] = ("k",)) -> Table:
    return Table(TableId("d", "t"), (ID, *columns), key)


def condition(column: Column, value: Any, options: DecoderOptions = DEFAULT) -> str:
    return SuspectRows(table(column), options, (ID,)).condition({"k": value})


def reason(column: Column, value: Any, options: DecoderOptions = DEFAULT) -> str:
    rows = SuspectRows(table(column), options, (ID,))
    assert rows.condition({"k": value}) == "TRUE"
    return rows.unsearchable["k"]


def column(type_name: str, **more: Any) -> Column:
    return Column("k", 2, type_name, **{"nullable": False, **more})


def base64(data: bytes) -> str:
    return b64encode(data).decode()


NUMBER = column("BIGINT", unsigned=True)


@for_each(
    ("key", "value", "options", "expected"),
    [
        (column("INT"), -5, DEFAULT, "`k` = -5"),
        (NUMBER, -1, DEFAULT, "`k` = 18446744073709551615"),
        (NUMBER, "18446744073709551615", replace(DEFAULT, flat=True), "`k` = 18446744073709551615"),
        (NUMBER, base64(b"\0\xff\xff"), replace(DEFAULT, bigint_unsigned_mode="precise"), "`k` = 65535"),
        (column("DECIMAL", length=5, scale=2), base64(b"\xff"), DEFAULT, "`k` = -0.01"),
        (
            column("DECIMAL", length=5, scale=2),
            0.1,
            replace(DEFAULT, decimal_mode="double"),
            "`k` BETWEEN 0.09 AND 0.11",
        ),
        (column("BIT", length=9), base64(b"\x01\x01"), DEFAULT, "`k` IN (257)"),
        (column("VARBINARY", length=9), "00ff", replace(DEFAULT, binary_mode="hex"), "`k` = x'00ff'"),
        (column("SET", enum_values=("a", "b", "c")), "c,a", DEFAULT, "CAST(`k` AS UNSIGNED) = 5"),
        (column("ENUM", enum_values=("a", "", "b")), "", DEFAULT, "`k` + 0 IN (0, 2)"),
        (column("DATE"), 19_000, DEFAULT, "(`k` = '2022-01-08' OR `k` = '0022-01-08')"),
        (column("DATE"), 19_000, replace(DEFAULT, time_adjuster=False), "`k` = '2022-01-08'"),
        (
            column("DATE"),
            0,
            DEFAULT,
            "(`k` = '1970-01-01' OR `k` = '0070-01-01' OR YEAR(`k`) = 0 OR MONTH(`k`) = 0 OR DAYOFMONTH(`k`) = 0)",
        ),
        (column("TIME", length=3), -1, DEFAULT, "`k` = TIME'-00:00:00.000001'"),
        (
            column("TIME", length=6),
            1,
            replace(DEFAULT, time_mode="connect"),
            "`k` BETWEEN TIME'00:00:00.001000' AND TIME'00:00:00.001999'",
        ),
        (
            column("DATETIME", length=6),
            -1,
            replace(DEFAULT, time_mode="connect"),
            "`k` BETWEEN '1969-12-31 23:59:59.999000' AND '1969-12-31 23:59:59.999999'",
        ),
        (column("TIMESTAMP"), "1970-01-01T00:00:00Z", DEFAULT, "`k` = '0000-00-00 00:00:00'"),
        (
            column("VARCHAR", charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
            "a'",
            DEFAULT,
            "(`k` = _utf8mb4 0x6127 AND CAST(CONVERT(`k` USING utf8mb4) AS BINARY) = x'6127')",
        ),
        # gbk shows several codes as a question mark, and latin1 has no such character: an index would not find the row.
        *(
            (
                column("VARCHAR", charset=charset, collation=f"{charset}_bin"),
                text,
                DEFAULT,
                f"CAST(CONVERT(`k` USING utf8mb4) AS BINARY) = x'{text.encode().hex()}'",
            )
            for charset, text in (("gbk", "?"), ("latin1", "漢"))
        ),
    ],
)
def test_a_value_of_a_record_becomes_a_condition(
    key: Column, value: Any, options: DecoderOptions, expected: str
) -> None:
    assert condition(key, value, options) == expected


def test_null_is_searched_for_unless_other_values_are_null_too() -> None:
    assert condition(column("INT", nullable=True), None) == "`k` IS NULL"
    assert reason(column("DATE", nullable=True), None) == "null stands for several values of DATE"
    replaced = replace(DEFAULT, replace_null_with_default=True)
    assert condition(column("INT", nullable=True), 1, replaced) == "(`k` = 1 OR `k` IS NULL)"
    assert condition(column("INT"), 1, replaced) == "`k` = 1"


def test_values_that_cannot_be_turned_back_are_named_and_bound_nothing() -> None:
    custom = CustomColumn("k", "converter c (m.C)", str, "string", None, None, (), None, optional=False)
    assert reason(column("INT"), "x", replace(DEFAULT, conversions=(("k", custom),))) == (
        "converter c (m.C) has made its value"
    )
    assert reason(column("JSON"), "{}") == "values of JSON cannot be searched for"
    # An event of an earlier structure of the key.
    assert reason(column("INT"), "seven") == "its value 'seven' is none of INT"
    assert reason(column("VARCHAR", charset="ucs2", collation="ucs2_bin"), "?").startswith("a question mark")
    assert reason(column("SET", enum_values=("a", "")), "a") == "several members have one text"
    assert "none of the members" in reason(column("ENUM", enum_values=("é",)), "e")
    assert condition(column("ENUM", enum_values=("a",)), "gone") == "FALSE"
    text = column("VARCHAR", charset="latin1", collation="latin1_bin")
    long_key = row_values(row_bytes({"k": "x" * 3000}))["k"]
    assert reason(text, long_key) == "it is so long that only its digest is known"


def test_only_values_of_the_key_are_as_the_table_has_them() -> None:
    hashed = ColumnTreatment((), ValueChange(ValueChangeKind.HASH, algorithm="sha256"))
    options = replace(DEFAULT, treatments=(("k", hashed),))
    text = column("VARCHAR", charset="utf8mb4", collation="utf8mb4_bin")
    assert condition(text, "a", options) != "TRUE"
    rows = SuspectRows(table(text), replace(options, key_columns=("id",)), (ID,))
    assert rows.condition({"id": 1, "k": "d2b8"}) == "`id` = 1"
    assert rows.unsearchable == {"k": "records show it masked, hashed or truncated"}


def test_fields_are_known_by_their_names_in_records_and_others_bound_nothing() -> None:
    odd = Column("1 k", 2, "INT", nullable=False)
    rows = SuspectRows(table(odd, key=("1 k",)), replace(DEFAULT, field_names="avro"), (ID,))
    assert rows.condition({"_1_k": 5, "__dbz__physicalTableIdentifier": "d.t"}) == "`1 k` = 5"


def test_a_statement_holds_a_bounded_number_of_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspect_rows, "MAX_SUSPECTS_PER_SELECT", 2)
    rows = SuspectRows(table(column("INT")), DEFAULT, (ID,))
    selects = list(rows.selects({"k": number} for number in range(3)))
    assert [(select.suspects, select.scans) for select in selects] == [(2, False), (1, False)]
    assert selects[0].sql == "SELECT `id` FROM `d`.`t` WHERE (`k` = 0) OR (`k` = 1)"
    assert selects[1].sql == "SELECT `id` FROM `d`.`t` WHERE `k` = 2"
    monkeypatch.setattr(suspect_rows, "MAX_CONDITION_CHARACTERS", 8)
    assert [select.suspects for select in rows.selects([{"k": 0}, {"k": 1}])] == [1, 1]


def test_suspects_without_a_condition_are_found_by_one_scan() -> None:
    rows = SuspectRows(table(column("DATE", nullable=True)), DEFAULT, (ID,))
    selects = list(rows.selects([{"k": None}, {"k": 1}, {}]))
    assert [(select.suspects, select.scans) for select in selects] == [(1, False), (2, True)]
    assert selects[1].sql == "SELECT `id` FROM `d`.`t` WHERE TRUE"
    assert {select.key_kinds for select in selects} == {("DATE",)}
    assert list(rows.selects([])) == []
