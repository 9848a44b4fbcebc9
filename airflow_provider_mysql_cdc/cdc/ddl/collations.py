"""Every character set and collation of MySQL.

Source: information_schema.CHARACTER_SETS and COLLATIONS of MySQL 9.7.4. The ids are those of the client protocol and
of the binlog; 8.0.15 has no other ids, only the older prefix ``utf8_`` for ``utf8mb3_``.
"""

from __future__ import annotations

from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.errors import DdlParseError

# A paragraph: character set, bytes a character at most, id of the default collation; then id:suffix of each collation.
_TABLE = """\
armscii8 1 32 32:_general_ci 64:_bin
ascii 1 11 11:_general_ci 65:_bin
big5 2 1 1:_chinese_ci 84:_bin
binary 1 63 63:
cp1250 1 26 26:_general_ci 34:_czech_cs 44:_croatian_ci 66:_bin 99:_polish_ci
cp1251 1 51 14:_bulgarian_ci 23:_ukrainian_ci 50:_bin 51:_general_ci 52:_general_cs
cp1256 1 57 57:_general_ci 67:_bin
cp1257 1 59 29:_lithuanian_ci 58:_bin 59:_general_ci
cp850 1 4 4:_general_ci 80:_bin
cp852 1 40 40:_general_ci 81:_bin
cp866 1 36 36:_general_ci 68:_bin
cp932 2 95 95:_japanese_ci 96:_bin
dec8 1 3 3:_swedish_ci 69:_bin
eucjpms 3 97 97:_japanese_ci 98:_bin
euckr 2 19 19:_korean_ci 85:_bin
gb18030 4 248 248:_chinese_ci 249:_bin 250:_unicode_520_ci
gb2312 2 24 24:_chinese_ci 86:_bin
gbk 2 28 28:_chinese_ci 87:_bin
geostd8 1 92 92:_general_ci 93:_bin
greek 1 25 25:_general_ci 70:_bin
hebrew 1 16 16:_general_ci 71:_bin
hp8 1 6 6:_english_ci 72:_bin
keybcs2 1 37 37:_general_ci 73:_bin
koi8r 1 7 7:_general_ci 74:_bin
koi8u 1 22 22:_general_ci 75:_bin
latin1 1 8 5:_german1_ci 8:_swedish_ci 15:_danish_ci 31:_german2_ci 47:_bin 48:_general_ci 49:_general_cs
    94:_spanish_ci
latin2 1 9 2:_czech_cs 9:_general_ci 21:_hungarian_ci 27:_croatian_ci 77:_bin
latin5 1 30 30:_turkish_ci 78:_bin
latin7 1 41 20:_estonian_cs 41:_general_ci 42:_general_cs 79:_bin
macce 1 38 38:_general_ci 43:_bin
macroman 1 39 39:_general_ci 53:_bin
sjis 2 13 13:_japanese_ci 88:_bin
swe7 1 10 10:_swedish_ci 82:_bin
tis620 1 18 18:_thai_ci 89:_bin
ucs2 2 35 35:_general_ci 90:_bin 128:_unicode_ci 129:_icelandic_ci 130:_latvian_ci 131:_romanian_ci
    132:_slovenian_ci 133:_polish_ci 134:_estonian_ci 135:_spanish_ci 136:_swedish_ci 137:_turkish_ci
    138:_czech_ci 139:_danish_ci 140:_lithuanian_ci 141:_slovak_ci 142:_spanish2_ci 143:_roman_ci
    144:_persian_ci 145:_esperanto_ci 146:_hungarian_ci 147:_sinhala_ci 148:_german2_ci 149:_croatian_ci
    150:_unicode_520_ci 151:_vietnamese_ci 159:_general_mysql500_ci
ujis 3 12 12:_japanese_ci 91:_bin
utf16 4 54 54:_general_ci 55:_bin 101:_unicode_ci 102:_icelandic_ci 103:_latvian_ci 104:_romanian_ci
    105:_slovenian_ci 106:_polish_ci 107:_estonian_ci 108:_spanish_ci 109:_swedish_ci 110:_turkish_ci
    111:_czech_ci 112:_danish_ci 113:_lithuanian_ci 114:_slovak_ci 115:_spanish2_ci 116:_roman_ci
    117:_persian_ci 118:_esperanto_ci 119:_hungarian_ci 120:_sinhala_ci 121:_german2_ci 122:_croatian_ci
    123:_unicode_520_ci 124:_vietnamese_ci
utf16le 4 56 56:_general_ci 62:_bin
utf32 4 60 60:_general_ci 61:_bin 160:_unicode_ci 161:_icelandic_ci 162:_latvian_ci 163:_romanian_ci
    164:_slovenian_ci 165:_polish_ci 166:_estonian_ci 167:_spanish_ci 168:_swedish_ci 169:_turkish_ci
    170:_czech_ci 171:_danish_ci 172:_lithuanian_ci 173:_slovak_ci 174:_spanish2_ci 175:_roman_ci
    176:_persian_ci 177:_esperanto_ci 178:_hungarian_ci 179:_sinhala_ci 180:_german2_ci 181:_croatian_ci
    182:_unicode_520_ci 183:_vietnamese_ci
utf8mb3 3 33 33:_general_ci 76:_tolower_ci 83:_bin 192:_unicode_ci 193:_icelandic_ci 194:_latvian_ci
    195:_romanian_ci 196:_slovenian_ci 197:_polish_ci 198:_estonian_ci 199:_spanish_ci 200:_swedish_ci
    201:_turkish_ci 202:_czech_ci 203:_danish_ci 204:_lithuanian_ci 205:_slovak_ci 206:_spanish2_ci
    207:_roman_ci 208:_persian_ci 209:_esperanto_ci 210:_hungarian_ci 211:_sinhala_ci 212:_german2_ci
    213:_croatian_ci 214:_unicode_520_ci 215:_vietnamese_ci 223:_general_mysql500_ci
utf8mb4 4 255 45:_general_ci 46:_bin 224:_unicode_ci 225:_icelandic_ci 226:_latvian_ci 227:_romanian_ci
    228:_slovenian_ci 229:_polish_ci 230:_estonian_ci 231:_spanish_ci 232:_swedish_ci 233:_turkish_ci
    234:_czech_ci 235:_danish_ci 236:_lithuanian_ci 237:_slovak_ci 238:_spanish2_ci 239:_roman_ci
    240:_persian_ci 241:_esperanto_ci 242:_hungarian_ci 243:_sinhala_ci 244:_german2_ci 245:_croatian_ci
    246:_unicode_520_ci 247:_vietnamese_ci 255:_0900_ai_ci 256:_de_pb_0900_ai_ci 257:_is_0900_ai_ci
    258:_lv_0900_ai_ci 259:_ro_0900_ai_ci 260:_sl_0900_ai_ci 261:_pl_0900_ai_ci 262:_et_0900_ai_ci
    263:_es_0900_ai_ci 264:_sv_0900_ai_ci 265:_tr_0900_ai_ci 266:_cs_0900_ai_ci 267:_da_0900_ai_ci
    268:_lt_0900_ai_ci 269:_sk_0900_ai_ci 270:_es_trad_0900_ai_ci 271:_la_0900_ai_ci 273:_eo_0900_ai_ci
    274:_hu_0900_ai_ci 275:_hr_0900_ai_ci 277:_vi_0900_ai_ci 278:_0900_as_cs 279:_de_pb_0900_as_cs
    280:_is_0900_as_cs 281:_lv_0900_as_cs 282:_ro_0900_as_cs 283:_sl_0900_as_cs 284:_pl_0900_as_cs
    285:_et_0900_as_cs 286:_es_0900_as_cs 287:_sv_0900_as_cs 288:_tr_0900_as_cs 289:_cs_0900_as_cs
    290:_da_0900_as_cs 291:_lt_0900_as_cs 292:_sk_0900_as_cs 293:_es_trad_0900_as_cs 294:_la_0900_as_cs
    296:_eo_0900_as_cs 297:_hu_0900_as_cs 298:_hr_0900_as_cs 300:_vi_0900_as_cs 303:_ja_0900_as_cs
    304:_ja_0900_as_cs_ks 305:_0900_as_ci 306:_ru_0900_ai_ci 307:_ru_0900_as_cs 308:_zh_0900_as_cs 309:_0900_bin
    310:_nb_0900_ai_ci 311:_nb_0900_as_cs 312:_nn_0900_ai_ci 313:_nn_0900_as_cs 314:_sr_latn_0900_ai_ci
    315:_sr_latn_0900_as_cs 316:_bs_0900_ai_ci 317:_bs_0900_as_cs 318:_bg_0900_ai_ci 319:_bg_0900_as_cs
    320:_gl_0900_ai_ci 321:_gl_0900_as_cs 322:_mn_cyrl_0900_ai_ci 323:_mn_cyrl_0900_as_cs
"""
_OLD_NAMES = {"utf8": "utf8mb3"}


class Collation(NamedTuple):
    """Describe one collation.

    Args:
        id: Number in protocol and binlog.
        name: Name in lower case.
        charset: Its character set.
        is_default: Whether it is the default of its character set.
    """

    id: int
    name: str
    charset: str
    is_default: bool


def _parse_collations() -> tuple[dict[int, Collation], dict[str, int]]:
    collations, widths = {}, {}
    for paragraph in _TABLE.replace("\n    ", " ").splitlines():
        charset, width, default, *items = paragraph.split()
        widths[charset] = int(width)
        for item in items:
            number, _, suffix = item.partition(":")
            collations[int(number)] = Collation(int(number), charset + suffix, charset, number == default)
    return collations, widths


COLLATIONS, MAX_CHARACTER_BYTES = _parse_collations()
"""All collations by id; bytes a character takes at most by character set."""
COLLATIONS_BY_NAME = {c.name: c for c in COLLATIONS.values()}
"""All collations by name."""
DEFAULT_COLLATIONS = {c.charset: c.name for c in COLLATIONS.values() if c.is_default}
"""Default collation name by character set."""


def collation_by_id(number: int) -> Collation | None:
    """Return the collation of that id, or None when there is none."""
    return COLLATIONS.get(number)


def charset_by_id(number: int) -> str | None:
    """Return the character set name of a collation id, or None when there is none."""
    collation = COLLATIONS.get(number)
    return collation.charset if collation else None


def charset_name(name: str) -> str:
    """Return the present-day name of a character set: ``UTF8`` gives ``utf8mb3``.

    Raises:
        DdlParseError: MySQL has no such character set.
    """
    lower = name.lower()
    lower = _OLD_NAMES.get(lower, lower)
    if lower not in DEFAULT_COLLATIONS:
        raise DdlParseError("an unknown character set", where=name)
    return lower


def default_collation(charset: str) -> str:
    """Return a character set's default collation."""
    return DEFAULT_COLLATIONS[charset_name(charset)]


def collation_by_name(name: str) -> Collation:
    """Return the collation of that name; the old prefix ``utf8_`` means ``utf8mb3_``.

    Raises:
        DdlParseError: MySQL has no such collation.
    """
    lower = name.lower()
    if lower.startswith("utf8_"):
        lower = "utf8mb3_" + lower[5:]
    collation = COLLATIONS_BY_NAME.get(lower)
    if collation is None:
        raise DdlParseError("an unknown collation", where=name)
    return collation


def binary_collation(charset: str) -> str:
    """Return a character set's collation by code: ``latin1_bin``; that of ``binary`` is ``binary``."""
    name = charset_name(charset)
    return name if name == "binary" else name + "_bin"


UNIT_BYTES = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}
"""Bytes of the smallest character in character sets in which ASCII has other bytes."""
