"""Each kind of explained differences holds for the case its reason names, and for no neighbour of it."""

from __future__ import annotations

import json

from kit.captured_lines import column, compared, kinds_of, line, row
from kit.cases import case
from prooflib.compare_cli import LIST, judge
from prooflib.differ import compare
from prooflib.explained import read_explained
from prooflib.records import parse_records

JSON = column("c", name="io.debezium.data.Json")
TEXT = column("c", "string")
FLOAT = column("c", "float")
DATETIME = column("c", "int64", name="io.debezium.time.Timestamp")
TIMESTAMP = column("c", name="io.debezium.time.ZonedTimestamp")
BITS = column("c", "bytes", name="io.debezium.data.Bits")
DOUBLE = column("c", "double")
ENUM = column("c", name="io.debezium.data.Enum")
SET = column("c", name="io.debezium.data.EnumSet")
DATE = column("c", "int32", name="io.debezium.time.Date")


def test_a_kind_holds_for_its_case() -> None:
    for kind, ours, theirs, fields, snapshot in [
        ("json-text", '{"a":[1,2]}', '{"a": [1, 2]}', JSON, "true"),
        ("json-text", "0.1", "0.1000000000000000055511151231257827021181583404541015625", JSON, "false"),
        ("json-text", "[1e21,1.5]", "[1000000000000000000000,1.5]", JSON, "false"),
        ("json-opaque", '"01:02:03.000000"', '"01:02:03"', JSON, "false"),
        ("json-opaque", '"base64:type15:AP8="', '"AP8="', JSON, "false"),
        ("json-negative-time", '"-12:34:56.000001"', '"13:0-35:0-57.00000-1"', JSON, "false"),
        ("float-six-digits", 3.1415927, 3.14159, FLOAT, "true"),
        ("float-six-digits", 2.1474836e9, 2.14748006e9, FLOAT, "true"),
        ("float-text", 1.1754944e-38, 1.17549435e-38, FLOAT, "false"),
        ("shown-as-question-mark", "a,\U0001f600\U00020000", "a,??", TEXT, "true"),
        ("year-zero", 0, 1900, column("c", "int32", name="io.debezium.time.Year"), "false"),
        ("gregorian-gap", -12219724800000, -12218860800000, DATETIME, "true"),
        (
            "trailing-zeros",
            "2024-03-31T02:30:00.120Z",
            "2024-03-31T02:30:00.12Z",
            column("c", name="io.debezium.time.ZonedTimestamp"),
            "true",
        ),
        ("sql-literal", "abc", "616263", column("c"), "false"),
        ("sql-literal", "nat", "N'nat'", column("c"), "false"),
        ("sql-literal", "1", "true", column("c"), "false"),
        ("sql-literal", "ab", "a''b", column("c"), "false"),
        ("sql-literal", "AP8=", "MDBGRg==", column("c", "bytes"), "false"),
        ("sql-literal", "QQ==", "MDEwMDAwMDE=", column("c", "bytes"), "false"),
        ("sql-literal", "3", "11", column("c"), "false"),
        ("sql-literal", "0", "00", column("c"), "false"),
        ("sql-literal", "100", "1e2", column("c"), "false"),
        ("sql-literal", "Nw==", "MDA3", column("c", "bytes"), "false"),
        ("sql-literal", "16", "10", column("c", "int32"), "false"),
        ("trailing-blanks", "a,b", "a  ,b ", column("c", name="io.debezium.data.EnumSet"), "false"),
        ("sql-literal", "31", "1F", column("c", "int32"), "false"),
        ("real-as-float", 1.7976931348623157e308, "Infinity", FLOAT, "false"),
        ("real-as-float", 0.1, 0.10000000149011612, FLOAT, "false"),
        ("reversed-bits", "BQAA", "AAAF", BITS, "true"),
        ("json-garbled-datetime", '"9999-12-31 23:59:59.999999"', '"9999-12-31 23:0-5:59.999999"', JSON, "false"),
        ("doubled-quotes", "it's", "it''s", column("c"), "false"),
        ("unpadded", "AA==", "", column("c", "bytes"), "false"),
        ("unpadded", "00", "", column("c"), "false"),
        ("escaped-comma", "x,y", "x\\,y", ENUM, "false"),
        ("backslashes", "a\nb", "a\\nb", ENUM, "false"),
        ("backslashes", "it's", "it\\'s", SET, "false"),
        ("new-year-of-zero", None, 10957, DATE, "true"),
        ("gbk-as-utf8", "中文", "\ufffd\ufffd\ufffd\ufffd", column("c"), "false"),
        ("latin1-as-utf8", "ü", "\ufffd", column("c"), "false"),
        ("hex-default", "AP8=", "MDBG", column("c"), "false"),
        ("undefined-byte", "a\x81b", "a\ufffdb", column("c"), "false"),
        ("hex-text-default", "中é", "4E2D00E", column("c"), "false"),
        ("hex-text-default", "😀", "9439FC3", column("c"), "false"),
        ("half-character", "a", "a\ud83d", column("c"), "false"),
        ("half-character", "", "\ud83d", column("c"), "true"),
        ("server-charset", "ԱԲ x", "²´ x", column("c"), "false"),
        ("server-charset", "Їжак", "╥жак", column("c"), "false"),
        ("server-charset", "a?", "aٹ", column("c"), "false"),
        ("server-charset", "日\\", "日\uff3c", column("c"), "false"),
    ]:
        with case(kind, ours, theirs, fields, snapshot):
            assert kind in kinds_of(ours, theirs, fields=fields, snapshot=snapshot)


def test_no_kind_holds_for_another_case() -> None:
    for ours, theirs, fields, snapshot in [
        ('{"a":1}', '{"a": 2}', JSON, "true"),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', JSON, "true"),
        ('"01:02:03.000001"', '"01:02:03"', JSON, "false"),
        ('{"a":1}', '{"a": 1}', column("c"), "true"),
        ("a", "a\ude00", column("c"), "false"),
        ("", "a\ud83d", column("c"), "false"),
        (3.1415927, 3.14, FLOAT, "true"),
        (3.1415927, 3.14159, FLOAT, "false"),
        (0, 1999, column("c", "int32", name="io.debezium.time.Year"), "false"),
        (-12219724800000, -12218860800000, DATETIME, "false"),
        (1, 864000001, DATETIME, "true"),
        ("x", "y", column("c"), "false"),
        ("ab", "a\ufffdb", column("c"), "false"),
        (2.1474836e9, 2.14748e9, FLOAT, "false"),
        ("中é", "4E2D00F", column("c"), "false"),
        ("2024-02-29T12:34:56Z", "2024-02-29T12:34:57Z", TIMESTAMP, "true"),
        ("2024-02-29T12:34:56Z", "2024-02-29T07:04:56Z", TIMESTAMP, "false"),
        ("BQAA", "AAAF", BITS, "false"),
        (3.0e38, "Infinity", FLOAT, "false"),
        (0.1, "Infinity", FLOAT, "false"),
        ("YWIAAA==", "YWIA", column("c", "bytes"), "true"),
        ('"9999-12-31 23:59:59"', '"9999-12-30 23:0-5:59"', JSON, "false"),
        ("ԱԲ x", "²´ x", column("c"), "true"),
        ("ԱЇ", "²╥", column("c"), "false"),
        ("caf?", "café", column("c"), "false"),
        ("a", "a ", column("c"), "false"),
        # float-text: a DOUBLE that is only the same 4-byte float.
        (0.1, 0.10000000149011612, DOUBLE, "false"),
        (3.1415927, 3.14159, DOUBLE, "true"),
        # backslashes and escaped-comma: other types than ENUM, and the snapshot, which has no statement's text.
        ("a\nb", "a\\nb", column("c"), "false"),
        ("a\nb", "a\\nb", column("c"), "true"),
        ("a\nb", "a\\nb", ENUM, "true"),
        ("x,y", "x\\,y", column("c"), "false"),
        ("x,y", "x\\,y", SET, "false"),
        ("x,y", "x\\,y", ENUM, "true"),
        ("YWIAAA==", "YWJcMFww", column("c", "bytes"), "true"),
        # date-in-year-zero: the stream has the date that ours has lost, or does not have the row.
        (None, 11083, DATE, "true"),
        # full-day: a midnight that ours has lost.
        (None, "00:00:00Z", column("c", name="io.debezium.time.IsoTime"), "false"),
        (None, "00:00:00Z", column("c", name="io.debezium.time.IsoTime"), "true"),
        # json-text: integers that are the same double; a double of too few digits; a DECIMAL of more; a member twice.
        ("9007199254740993", "9007199254740992", JSON, "false"),
        ('{"a":18446744073709551615}', '{"a": 18446744073709551614}', JSON, "true"),
        ("1e21", "1000000000000000000001", JSON, "false"),
        ("0.1", "0.1000000000000000055511151231257827", JSON, "false"),
        ("0.10000000000000000555", "0.1000000000000000055511151231257827021181583404541015625", JSON, "false"),
        ("0.12345678901234567890123", "0.12345678901234567890124", JSON, "false"),
        ("5", "5.0", JSON, "false"),
        ("0.1", "0.1000000000000000055511151231257827021181583404541015625", JSON, "true"),
        ('{"a":1,"a":2}', '{"a": 2}', JSON, "true"),
        ('"é"', '"\\u00e9"', JSON, "true"),
        # replaced characters: text of another character set, a part that both have, the snapshot, other types.
        ("привет", "\ufffd" * 6, column("c"), "false"),
        ("aü", "b\ufffd", column("c"), "false"),
        ("ü", "\ufffd\ufffd\ufffd", column("c"), "false"),
        ("ü", "\ufffd", column("c"), "true"),
        ("ü", "\ufffd", ENUM, "false"),
        # unpadded: more than the one byte of a BINARY without a length, and the snapshot.
        ("YQAA", "YQ==", column("c", "bytes"), "false"),
        ("AAA=", "", column("c", "bytes"), "false"),
        ("AA==", "", column("c", "bytes"), "true"),
        # zone-of-session: without connectionTimeZone.
        ("2024-02-29T12:34:56.10Z", "2024-02-29T07:04:56.1Z", TIMESTAMP, "true"),
        # recorded-null: any other text that the recording lacks.
        ("false", None, column("c"), "false"),
        ("text", None, column("c"), "false"),
    ]:
        with case(ours, theirs, fields, snapshot):
            assert kinds_of(ours, theirs, fields=fields, snapshot=snapshot) == set()


def test_the_zone_of_the_session_is_the_one_that_the_connector_was_given() -> None:
    for ours, theirs, zone, holds in [
        ("2024-02-29T12:34:56.10Z", "2024-02-29T07:04:56.1Z", "+05:30", True),
        ("2024-07-29T12:00:00Z", "2024-07-29T10:00:00Z", "Europe/Berlin", True),
        # A clock that shows an hour twice: Java takes the later one.
        ("2024-10-27T02:30:00Z", "2024-10-27T01:30:00Z", "Europe/Berlin", True),
        ("2024-10-27T02:30:00Z", "2024-10-27T00:30:00Z", "Europe/Berlin", False),
        ("2024-02-29T12:34:56Z", "2024-02-29T14:34:56Z", "-02:00", True),
        # Another offset, the other direction, other digits, zones that have no name.
        ("2024-02-29T12:34:56Z", "2024-02-29T07:04:56Z", "+05:00", False),
        ("2024-02-29T12:34:56Z", "2024-02-29T18:04:56Z", "+05:30", False),
        ("2024-02-29T12:34:56.2Z", "2024-02-29T07:04:56.1Z", "+05:30", False),
        ("2024-07-29T12:00:00Z", "2024-07-29T11:00:00Z", "Europe/Berlin", False),
        ("2024-02-29T12:34:56Z", "2024-02-29T12:19:56Z", "SERVER", False),
    ]:
        with case(ours, theirs, zone, holds):
            settings = {"database.connectionTimeZone": zone}
            for snapshot, expected in (("true", holds), ("false", False)):
                found = kinds_of(ours, theirs, fields=TIMESTAMP, snapshot=snapshot, settings=settings)
                assert ("zone-of-session" in found) is expected


def test_a_row_of_an_xa_transaction_is_explained_by_its_key_only() -> None:
    """A committed one looks the same in the recording; ours must not lose it."""
    entries = read_explained(LIST)
    for key, expected in ((1014, 0), (1013, 1), (1015, 1)):
        missing = line(row({"a": 2}, thread=None), key=key, topic="cap.dmldb.t")
        result = compare(parse_records([], "o"), parse_records([missing], "t"))
        assert len(judge("dml/default", result, entries)[0]) == expected, key
        assert len(judge("engines/tx_skipped", result, entries)[0]) == 1


def test_records_after_the_end_of_a_recording_are_explained_once_and_in_no_gap() -> None:
    """zerofill_decimal: Debezium stopped, so ours goes on; none of its records may come twice, or between."""
    entries = read_explained(LIST)
    a, b, c = (line(row({"a": n}, pos=n), key=n, topic="cap.zfdb.zd") for n in (1, 2, 3))

    def left(ours: list[str], theirs: list[str]) -> list[str]:
        result = compare(parse_records(ours, "o"), parse_records(theirs, "t"))
        return [d.where for d in judge("zerofill_decimal/default", result, entries)[0]]

    assert left([a, b, c], [a]) == []
    assert left([a, b, c], [a, c]) == ['record.{"id":2}']
    assert left([a, b, c, c], [a]) == ['repeated.{"id":3}', 'record.{"id":3}']
    assert left([a, a, b], [a]) == ['repeated.{"id":1}', 'record.{"id":1}']


def test_a_record_that_ours_has_twice_is_reported_even_if_the_recording_has_none() -> None:
    """The two records of a deletion and those of a row that really comes again are not the same event."""
    deleted = [line(row(None, before={"a": 1}, op="d")), line(None)]
    again = [line(row({"a": 1}, pos=p)) for p in (200, 300)]
    assert [d.where for d in compared([*again, *deleted], [])] == ['record.{"id":1}'] * 4
    repeated = [*again, *deleted, deleted[1]]
    assert [d.where for d in compared(repeated, []) if d.path[0] == "repeated"] == ['repeated.{"id":1}']
    twice = [line(row({"a": 1}), key=None)] * 2
    assert compared(twice, twice) == ()


def test_what_transforms_leave_of_a_document_has_no_type_and_its_structs_no_order() -> None:
    entries = read_explained(LIST)

    def left(ours: object, theirs: object, schema: object = None) -> list[str]:
        pair = [parse_records([line({"schema": schema or {}, "payload": value})], "x") for value in (ours, theirs)]
        return [d.where for d in judge("ob/ob_default", compare(*pair), entries)[0]]

    assert left('{"a":[1,2]}', '{"a": [1, 2]}') == left({"c": "[1,2]"}, {"c": "[1, 2]"}) == []
    assert left({"l": [{"n": 2, "s": "a"}]}, {"l": [{"s": "a", "n": 2}]}) == []
    structs = [{"fields": [{"field": name} for name in names]} for names in ("ns", "sn")]
    for in_array, expected in (True, []), (False, ["value.schema.fields[l].fields.(order)"]):
        schemas = [{"fields": [{"field": "l", **({"items": s} if in_array else s)}]} for s in structs]
        lines = [line({"schema": schema, "payload": {"l": None}}) for schema in schemas]
        pair = [parse_records([text], "x") for text in lines]
        assert [d.where for d in judge("ob/ob_expand", compare(*pair), entries)[0]] == expected
    number = {"type": "string", "name": "io.debezium.data.Json"}
    assert left("1e21", "1000000000000000000000", number) == []
    assert left("1e21", "1000000000000000000000") == ["value.payload"]
    # Other documents; a text that is none; a struct that is in no array; an event.
    assert left('{"a":1}', '{"a":2}') == ["value.payload"]
    assert left("a b", "a  b") == ["value.payload"]
    assert left({"l": {"n": 2, "s": "a"}}, {"l": {"s": "a", "n": 2}}) == ["value.payload.l.(order)"]
    event = {"op": "c", "source": {}}
    assert left({"after": {"c": "[1,2]"}, **event}, {"after": {"c": "[1, 2]"}, **event}) == ["value.payload.after.c"]


def test_a_document_that_is_the_whole_value_may_have_blanks_in_the_recording() -> None:
    entries, converter = read_explained(LIST), "org.apache.kafka.connect.storage.StringConverter"

    def left(ours: str, theirs: str, converter: str = converter) -> list[str]:
        pair = [parse_records([line(None, raw=text)], "x") for text in (ours, theirs)]
        settings = {"value.converter": converter}
        return [d.where for d in judge("ob/ob_string", compare(*pair), entries, settings)[0]]

    assert left('{"a":[1,2.50]}', '{"a": [1, 2.50]}') == left('["a b"]', '[ "a b" ]') == []
    assert left('{"a":[1,2.50]}', '{"a": [1, 2.5]}') == ["value.payload.a[1]", "value.(text)"]
    # Blanks of ours, another way to write a text, a value that is no document, an event, another converter.
    assert left('{"a": 1}', '{"a":1}') == left('["é"]', '[ "\\u00e9"]') == ["value.(text)"]
    event = '{"op":"c","source":{}}'
    assert left(event, event.replace(",", ", ")) == ["value.(text)"]
    assert left('{"a":1}', '{"a": 1}', "org.apache.kafka.connect.json.JsonConverter") == ["value.(text)"]


def test_a_header_that_unwrap_adds_is_twice_at_a_recorded_tombstone() -> None:
    entries = read_explained(LIST)

    def left(value: str | None, ours: list[str], theirs: list[str]) -> list[str]:
        headers = [",".join(f'{{"{name}":"x"}}' for name in names) for names in (ours, theirs)]
        text = json.dumps(value)
        lines = [f'{{"topic":"t","partition":0,"key":1,"value":{text},"headers":[{part}]}}' for part in headers]
        pair = [parse_records([made], "x") for made in lines]
        return [d.where for d in judge("dml/unwrap", compare(*pair), entries)[0]]

    assert left(None, ["run", "__op"], ["run", "__op", "__op"]) == []
    assert left(None, ["run", "__op", "__db"], ["run", "__op", "__db", "__op", "__db"]) == []
    for value, ours, theirs in (
        ("row", ["run", "__op"], ["run", "__op", "__op"]),
        (None, ["run", "__op"], ["run", "__op", "run"]),
        (None, ["run", "__op", "__op"], ["run", "__op"]),
        (None, [], ["__op"]),
    ):
        assert left(value, ours, theirs) == ["headers.(names)"]
