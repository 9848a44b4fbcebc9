"""Made-up transactions, sound and damaged, walked by the native kernel: what is walked is what Python reads.

``BothWalks`` reads event by event what was walked, and compares.
"""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from dataclasses import replace

import pytest
from kit.avro_identity import sides
from kit.native_identity import BothDecoders, BothFlat, BothWalks
from kit.ticdc_identity import FlatSides, flat_sides
from kit.transaction_bytes import Sent, begin_body, gtid_body, learn, map_body, route, rows_body
from test_fuzz_native import Made, each_seed

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import avro_row_decoder
from airflow_provider_mysql_cdc.cdc.avro.native_avro import AVRO_ROWS
from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_rows import JSON_ROWS, NativeRowDecoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_decoder import TicdcRowDecoder
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId

pytestmark = [pytest.mark.quick, pytest.mark.native]
KINDS = (("write", 30), ("update", 31), ("delete", 32))
Columns = list[tuple[Column, WireType]]


class Walks:
    """Make tables, transactions and damage of a seed, and walk."""

    def __init__(self, seed: int) -> None:
        self.made = Made(seed)
        self.random: random.Random = self.made.random
        module = kernel().module
        self.tally = Tally(module.Tally())
        self.walker = BothWalks(module, self.tally, by_event=self.random.random() < 0.3)
        self.tables: list[tuple[bytes, Columns]] = []
        for number in range(self.random.randrange(1, 4)):
            self._table(number)

    def _table(self, number: int) -> None:
        pick = self.random
        columns = [self.made.column(n) for n in range(1, pick.randrange(2, 12))]
        names = [column.name for column, _ in columns]
        keys = tuple(pick.sample(names, pick.randrange(min(3, len(names)) + 1)))
        table = Table(TableId(pick.choice(("db", "dé", 'd"b')), f"t{number}"), tuple(x for x, _ in columns), keys)
        options, wires = self.made.options(table.columns), tuple(wire for _, wire in columns)
        table_map = b"map %d" % number
        if pick.random() < 0.3 and (both := self._flat(table, columns)) is not None:
            self.tables.append((table_map, columns))
            with suppress(Declined):
                python = TicdcRowDecoder(both.table, both.wires, both.text)
                flat = BothFlat(python, both.wires, kernel().module, self.tally)
                learn(self.walker, table_map, route(flat), both.count)
            return
        self.tables.append((table_map, columns))
        if (decoder := self._decoder(table, options, wires)) is not None:
            # The context of a contract without transactions is none of a walk's.
            more = {"version": options.contract}
            owned = decoder.python.owned
            partitions = pick.choice((1, 1, 2, 7)) if owned is None else owned.partition_count
            learn(self.walker, table_map, route(decoder, **more), partitions)

    def _flat(self, table: Table, columns: Columns) -> FlatSides | None:
        return flat_sides(self.made, replace(table, id=TableId("db", table.id.table)), tuple(w for _, w in columns))

    def _decoder(self, table: Table, options: DecoderOptions, wires: tuple[WireType, ...]) -> NativeRowDecoder | None:
        pick, names, module = self.random, [column.name for column in table.columns], kernel().module
        schemas = ('{"k":"é"}', '{"v":1}') if pick.random() < 0.3 else (None, None)
        texts = EnvelopeText(*schemas, null_text=dict.fromkeys(names, '"dé"'))
        try:
            if pick.random() < 0.5:
                python = RowDecoder(table, wires, options, texts, owned=self.made.owned())
                return NativeRowDecoder(python, wires, JSON_ROWS, module, self.tally)
            both = sides(table, replace(options, treatments=()))
            if both is None:
                return None
            given = both.table, wires, both.options, both.texts, both.heads(), self.made.owned()
            return BothDecoders(avro_row_decoder(*given), wires, AVRO_ROWS, module, self.tally)
        except Declined:
            return None

    def transaction(self, sent: Sent, number: int) -> None:
        """Send a transaction; a few are none that can be walked."""
        pick = self.random
        tagged, other = pick.random() < 0.03, pick.random() < 0.03
        gtid = gtid_body(
            number,
            us=pick.choice((0, 1, 1 << 54, 1_763_900_000_123_456)),
            original=pick.choice((None, None, 0, 1_763_900_000_000_000)),
            clock=pick.choice((2,) * 30 + (1,)),
            order=pick.choice((5, 0, 261, -1, 1 << 40)),
        )
        sent.add(c.GTID_TAGGED_LOG_EVENT if tagged else pick.choice((33, 33, 33, 34)), gtid)
        sent.add(c.QUERY_EVENT, begin_body(pick.choice((0, 7, 0xFFFFFFFF)), b"CREATE" if other else b"BEGIN"))
        for _ in range(pick.randrange(4)):
            if pick.random() < 0.1:
                sent.add(pick.choice((c.ROWS_QUERY_LOG_EVENT, c.INTVAR_EVENT, c.QUERY_EVENT)), b"\3abc")
            self._rows(sent)
        if pick.random() < 0.97:
            sent.end()

    def _rows(self, sent: Sent) -> None:
        pick = self.random
        table_map, columns = pick.choice(self.tables)
        table, (name, kind) = pick.choice((90, 91, 1 << 47)), pick.choice(KINDS)
        sent.add(c.TABLE_MAP_EVENT, map_body(table, table_map))
        for _ in range(pick.choice((0, 1, 1, 1, 2))):
            rows = self.made.image(columns)
            if name == "update":
                rows += rows
            if pick.random() < 0.1:
                rows = self.made.event(columns, name)
            sent.add(kind, rows_body(table, kind, len(columns), rows))

    def damaged(self, data: bytes) -> bytes:
        """Return the bytes with something changed, without the checksums' knowing."""
        pick, changed = self.random, bytearray(data)
        for _ in range(pick.choice((0, 0, 0, 1, 2))):
            at = pick.randrange(len(changed))
            how = pick.random()
            if how < 0.3:
                del changed[at:]
            elif how < 0.4:
                changed[at:at] = self.made.some_bytes(pick.randrange(1, 9))
            else:
                changed[at] = pick.randrange(256)
            if not changed:
                break
        return bytes(changed)


def run(seed: int) -> None:
    """Walk transactions of a seed, from each place where the walk ends."""
    walks = Walks(seed)
    pick = walks.random
    start = pick.choice((4, 1000, (1 << 32) - 300))
    # Without checksums damage reaches the rows.
    sent = Sent(start, crc=pick.random() < 0.6)
    for number in range(1, pick.randrange(2, 9)):
        walks.transaction(sent, number)
    data = walks.damaged(bytes(sent.data))
    limit = pick.choice((1 << 63, 1 << 63, sent.pos, *(pos for _, pos in sent.ends)))
    for begin in [(0, start), *sent.ends]:
        at, pos = begin
        while at < len(data):
            found = walks.walker.decode_transactions(data, at, "b.000001", pos, limit, sent.tail())
            if found.at == at:
                break
            at, pos = found.at, found.pos
            assert pos <= limit


def test_made_up_transactions() -> None:
    before = BothWalks.compared
    each_seed(run)
    assert BothWalks.compared > before + 20


def test_any_bytes() -> None:
    """Nothing is walked of bytes that are no transaction, and nothing panics."""
    pick, walks = random.Random(5), Walks(5)
    for _ in range(500):
        size = pick.randrange(60)
        packet = (
            struct.pack("<I", size)[:3] + b"\0\0" + bytes(4) + bytes([pick.choice((33, 34, 2))]) + pick.randbytes(size)
        )
        found = walks.walker.decode_transactions(
            packet, pick.choice((0, 0, 3, 99)), "b", 4, 1 << 63, pick.choice((0, 4))
        )
        assert found.last_transaction is None
