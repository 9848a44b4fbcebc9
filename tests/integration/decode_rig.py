"""Read a part of a real binlog and decode it, without the rest of the pipeline."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pymysql
from kit.create_statement import parse_create

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import ROW_EVENTS, rows_header
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import select_list
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.table_correction import find_correction
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

TABLE_MAP, COM_BINLOG_DUMP, NON_BLOCK = 19, 0x12, 1
DEFAULT = DecoderOptions()
METHODS = {23: "write", 30: "write", 24: "update", 31: "update", 25: "delete", 32: "delete", 39: "partial_update"}


class Event(NamedTuple):
    type: int
    file: str
    start_pos: int
    buf: bytes
    body: int
    end: int


def connect(stack: Any, **options: Any) -> Any:
    return pymysql.connect(
        host=stack.mysql_host,
        port=stack.mysql_port,
        user=stack.root_user,
        password=stack.root_password,
        autocommit=True,
        ssl_disabled=True,
        **{"charset": "utf8mb4", **options},
    )


def execute(conn: Any, sql: str, args: Any = None) -> tuple[Any, ...]:
    with conn.cursor() as cursor:
        cursor.execute(sql, args)
        return cursor.fetchall()


def run_script(conn: Any, text: str) -> None:
    """Run statements one by one, going on after an error as ``mysql --force`` does."""
    for statement in statements(text):
        try:
            execute(conn, statement)
        except pymysql.MySQLError as error:
            print(f"{error}: {statement[:200]}")


def statements(text: str) -> Iterator[str]:
    """Split at semicolons outside of quotes; ``--`` comments end with their line."""
    out: list[str] = []
    quote = ""
    i = 0
    while i < len(text):
        char = text[i]
        if quote:
            if char == "\\" and quote != "`":
                out.append(text[i : i + 2])
                i += 2
                continue
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif text.startswith("-- ", i):
            i = text.find("\n", i)
            continue
        elif char == ";":
            yield "".join(out).strip()
            out = []
            i += 1
            continue
        out.append(char)
        i += 1
    if "".join(out).strip():
        yield "".join(out).strip()


def binlog_end(conn: Any) -> tuple[str, int]:
    row = execute(conn, "SHOW BINARY LOG STATUS")[0]
    return row[0], row[1]


def events(stack: Any, start: tuple[str, int], server_id: int = 987_001) -> Iterator[Event]:
    """Yield all events from ``start`` to where the binlog ends now."""
    conn = connect(stack)
    execute(conn, "SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32'")
    file, pos = start
    conn._execute_command(COM_BINLOG_DUMP, struct.pack("<IHI", pos, NON_BLOCK, server_id) + file.encode())
    try:
        while True:
            data = conn._read_packet().get_all_data()
            if data[0] == 0xFE:
                return
            kind, size, next_pos = data[5], *struct.unpack_from("<II", data, 10)
            if kind == 4:
                file = data[28:].split(b"\0")[0][: size - 27].decode("ascii", "ignore")
            yield Event(kind, file, next_pos - size, data, 20, len(data) - 4)
    finally:
        conn._force_close()


def table_of(conn: Any, db: str, name: str) -> Table:
    sql = execute(conn, f"SHOW CREATE TABLE `{db}`.`{name}`")[0][1]
    return parse_create(sql, DdlContext(default_db=db))


class Decoded(NamedTuple):
    table: str
    op: str
    key: dict[str, Any] | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    key_bytes: bytes | None
    value_bytes: bytes | None
    record: tuple[Any, ...]


def decode(
    stack: Any,
    conn: Any,
    db: str,
    start: tuple[str, int],
    options: DecoderOptions = DEFAULT,
    tables: Mapping[str, Table] = MappingProxyType({}),
) -> list[Decoded]:
    """Return the records of one database's row events from ``start`` on, with these structures, or those of now."""
    out: list[Decoded] = []
    tables = dict(tables)
    decoders: dict[bytes, tuple[str, RowDecoder]] = {}
    ids: dict[int, tuple[str, RowDecoder] | None] = {}
    for event in events(stack, start):
        if event.type == TABLE_MAP:
            table_map = parse_table_map(event)
            raw = event.buf[event.body + 6 : event.end]
            if table_map.db != db:
                ids[table_map.table_id] = None
                continue
            if raw not in decoders:
                name = table_map.table
                tables.setdefault(name, table_of(conn, db, name))
                correction = find_correction(tables[name], table_map)
                assert correction is None, correction.differences()
                texts = envelope_text(tables[name], options, key=False, value=False)
                decoders[raw] = name, compile_decoder(tables[name], table_map, options, texts)
            ids[table_map.table_id] = decoders[raw]
        elif event.type in ROW_EVENTS:
            header = rows_header(event)
            found = ids[header.table_id]
            if found is not None:
                name, decoder = found
                records: list[Any] = []
                ctx = EventContext(where=f"{event.file}:{event.start_pos}")
                getattr(decoder, METHODS[event.type])(event.buf, header.pos, event.end, ctx, records)
                out.extend(parsed(name, records))
    return out


def parsed(table: str, records: Iterable[tuple[Any, ...]]) -> Iterator[Decoded]:
    for record in records:
        key_bytes, value_bytes = record[:2]
        value = json.loads(value_bytes) if value_bytes is not None else {}
        key = json.loads(key_bytes) if key_bytes is not None else None
        yield Decoded(
            table, value.get("op", ""), key, value.get("before"), value.get("after"), key_bytes, value_bytes, record
        )


def image_text(value_bytes: bytes, member: str = "after") -> str:
    """Return one image's JSON as it was written."""
    text = value_bytes.decode()
    start = text.index(f'"{member}":') + len(member) + 3
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start:end]


def snapshot(
    conn: Any,
    db: str,
    name: str,
    options: DecoderOptions = DEFAULT,
    order: str = "",
) -> list[Decoded]:
    """Return the records of a SELECT of the whole table through the text decoder."""
    table = table_of(conn, db, name)
    decode_row = compile_text_decoder(table, options, EnvelopeText())
    execute(conn, "SET SESSION time_zone = '+00:00'")
    records: list[Any] = []
    ctx = EventContext(where="snapshot")
    for packet in text_rows(conn, f"SELECT {select_list(table)} FROM {TableId(db, name).quoted()} {order}"):
        decode_row(packet, 0, ctx, records)
    return list(parsed(name, records))


def text_rows(conn: Any, sql: str) -> list[bytes]:
    """Return the row packets of a query."""
    conn._execute_command(3, sql.encode())
    count = conn._read_packet().get_all_data()
    assert count[0] not in (0xFF, 0), count
    rows = []
    for _ in range(count[0] if count[0] < 251 else int.from_bytes(count[1:3], "little")):
        conn._read_packet()
    assert conn._read_packet().is_eof_packet()
    while True:
        packet = conn._read_packet()
        if packet.is_eof_packet():
            return rows
        rows.append(packet.get_all_data())
