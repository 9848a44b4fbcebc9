"""Every character set of MySQL decodes, and as the server does where Python does not agree."""

from __future__ import annotations

import json

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.collations import MAX_CHARACTER_BYTES
from airflow_provider_mysql_cdc.cdc.decode.values.text_values import charset
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import shown_text


@for_each("name", sorted(set(MAX_CHARACTER_BYTES) - {"binary"}))
def test_every_character_set_has_a_decoder(name: str) -> None:
    known = charset(name)
    blank = b" ".rjust(known.unit, b"\0") if name != "utf16le" else b" \0"
    assert known.decode(b"") == "" and known.decode(blank) == " "
    assert json.loads(f'"{known.escape(blank.decode("latin-1"))}"') == " "


@pytest.mark.req("TYPE-02")
@for_each(
    ("name", "data", "text"),
    [
        ("latin1", "80818de9", "€\x81\x8dé"),
        ("swe7", "5b5c5d7b7c7d", "ÄÖÅäöå"),
        ("dec8", "a4e5", "?å"),
        ("hp8", "a1b3", "À°"),
        ("keybcs2", "80", "Č"),
        ("armscii8", "b2b3", "Աա"),
        ("geostd8", "c0", "ა"),
        ("tis620", "a1", "ก"),
        ("macce", "81", "Ā"),
        ("macroman", "ca", "\u00a0"),
        ("koi8u", "a4", "є"),
        ("cp850", "9b", "ø"),
        ("latin7", "e0", "ą"),
        ("greek", "e1", "\u03b1"),
        ("hebrew", "e0", "א"),
        ("gbk", "d6d0cec4", "中文"),
        ("gb18030", "baba9439fc36", "汉😀"),
        ("gb18030", "a8bc8135f437", "ḿ\ue7c7"),
        ("gb2312", "d6d0", "中"),
        ("big5", "c163c5e9", "繁體"),
        ("big5", "f9d6", "碁"),
        ("euckr", "c7d1b1b9", "한국"),
        ("euckr", "8141", "갂"),
        ("sjis", "93fa815f", "日\\"),
        ("cp932", "93fa815f8740", "日\uff3c①"),
        ("ujis", "c6fca1c0", "日\\"),
        ("ujis", "f5a18ff5a1", "\ue000\ue3ac"),
        ("eucjpms", "c6fca1c1ada1", "日\uff5e①"),
        ("ucs2", "75534e2d", "畓中"),
        ("utf16", "d83dde00", "😀"),
        ("utf16le", "3dd800de", "😀"),
        ("utf32", "0001f600", "😀"),
        ("utf8mb3", "e4b8ad", "中"),
    ],
)
def test_known_bytes(name: str, data: str, text: str) -> None:
    known = charset(name)
    raw = bytes.fromhex(data)
    assert known.decode(raw) == text
    written = known.escape(raw.decode("latin-1")).encode("latin-1").decode()
    assert json.loads(f'"{written}"') == text


@for_each(("name", "data"), [("gbk", "fe40"), ("sjis", "81ad"), ("ujis", "a2af"), ("cp1250", "81")])
def test_a_code_without_a_character_is_a_question_mark_as_on_the_server(name: str, data: str) -> None:
    text = charset(name).decode(bytes.fromhex(data))
    assert len(text) == 1


@for_each(
    ("name", "data"),
    [("ascii", "e9"), ("utf8mb4", "c080"), ("ucs2", "d83d"), ("utf16", "d83d"), ("gb2312", "80"), ("ujis", "8f41")],
)
def test_bytes_that_are_not_well_formed_are_refused(name: str, data: str) -> None:
    with pytest.raises(UnicodeDecodeError):
        charset(name).decode(bytes.fromhex(data))


@for_each(
    ("name", "data", "text"),
    [
        ("utf8mb4", "61fc", "a"),
        ("utf8mb4", "62e9e862", "b?"),
        ("utf8mb4", "e979", ""),
        ("utf8mb3", "61fc", "a?"),
        ("utf8mb3", "f09f9880", "????"),
        ("ascii", "62c1c2", "b??"),
        ("utf16", "d8414142", "?䅁"),
        ("utf16", "0041db80", "A"),
        ("utf16le", "c3db", ""),
        ("utf32", "ffffffff61", "?"),
        ("gbk", "8120e9", "?"),
        ("sjis", "8120e9", "? "),
        ("gb18030", "6181", "a"),
        ("euckr", "e979ff", "?"),
        ("eucjpms", "ffa1", "?"),
    ],
)
def test_members_that_are_not_well_formed_are_what_the_server_shows(name: str, data: str, text: str) -> None:
    """As MySQL 9.7.4 converts them."""
    assert shown_text(bytes.fromhex(data), name) == text


def test_an_unknown_character_set_is_named() -> None:
    with pytest.raises(SchemaError, match="klingon"):
        charset("klingon")
