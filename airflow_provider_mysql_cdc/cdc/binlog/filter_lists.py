"""The lists by which a server leaves changes out, of its binlog or of what it replicates, judged as the server does.

The rules are those of ``sql/rpl_filter.cc`` (MySQL 5.7 to 9.7): the database of the row's table counts, then the lists
of tables in their order. Names and patterns are compared byte by byte with ``lower_case_table_names=0``, and without
case otherwise.

The server shows a list with commas between its entries, and an entry may contain commas: an option takes one entry each
time that it is given, whatever is in it. ``a,b`` is two databases, or one. So an answer is the set of all that is
possible.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.model.table import TableId, folded_name

Answers = frozenset[bool]
YES, NO, EITHER = frozenset({True}), frozenset({False}), frozenset({True, False})
_SEPARATOR = "\0"
"""A comma that is known to separate two entries; no name contains it."""
_LIKE = {"%": ".*", "_": "."}
_KINDS = (
    "do_db", "ignore_db", "do_table", "ignore_table", "wild_do_table", "wild_ignore_table", "rewrite_db",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FilterLists:
    """Hold the lists of the binlog, or of one replication channel.

    Args:
        texts: Each list as the server shows it, by its name without ``binlog_`` or ``replicate_``, in lower case.
        ignores_case: Whether lower_case_table_names is not 0.
        passed: Databases of which rows were not left out.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    ignores_case: bool = False
    passed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, named: Iterable[tuple[str, str]], *, ignores_case: bool) -> FilterLists:
        """Return lists by their names as the server has them: ``Replicate_Do_DB``, ``REPLICATE_DO_DB``.

        Args:
            named: Name and text of each; an empty one is none.
            ignores_case: Whether lower_case_table_names is not 0.
        """
        return cls({name.lower().partition("_")[2]: text for name, text in named if text}, ignores_case)

    def leaves_out_database(self, database: str, *, commas: bool = True) -> Answers:
        """Return whether rows of a database may be left out; ``do_db`` alone decides where there is one.

        Args:
            database: Its name.
            commas: Whether entries may contain commas.
        """
        if self._folded(database) in self.passed:
            return NO
        if self.texts.get("do_db"):
            return frozenset(not listed for listed in self._listed("do_db", database, commas))
        return self._listed("ignore_db", database, commas)

    def told_by(self, passed: TableId) -> FilterLists:
        """Return what is known of the lists when rows of a table were not left out.

        With ``do_db=a,b`` and rows of ``a``, ``a`` is an entry, and so is ``b``.

        Args:
            passed: The table.
        """
        texts = dict(self.texts)
        for kinds, name in ((("do_db",), passed.db), (("do_table", "wild_do_table"), str(passed))):
            found = [(kind, cut) for kind in kinds for cut in self._cuts(kind, texts.get(kind, ""), name)]
            if len(found) == 1:  # no other entry lets it pass
                texts |= found
        return replace(self, texts=texts, passed=self.passed | {self._folded(passed.db)})

    def _cuts(self, kind: str, text: str, name: str) -> Iterator[str]:
        """Yield a list as it is if an entry of it is the one that matches a name, for each that may be one."""
        segments = text.split(_SEPARATOR)
        for number, segment in enumerate(segments):
            parts = segment.split(",")
            for first, last in _runs(parts, name.count(",") + 1, kind != "do_db"):
                if True in self._matches(kind, ",".join(parts[first:last]), name):
                    pieces = (",".join(some) for some in (parts[:first], parts[first:last], parts[last:]) if some)
                    yield _SEPARATOR.join([*segments[:number], *pieces, *segments[number + 1 :]])

    def _matches(self, kind: str, entry: str, name: str) -> Answers:
        return self._is_like(entry, name) if kind.startswith("wild") else self._equal(entry, name)

    def leaves_out(self, table: TableId, *, commas: bool = True) -> Answers:
        """Return whether rows of a table may be left out, or come under another name, or others under its name.

        Args:
            table: The table.
            commas: Whether entries may contain commas.
        """
        rewrites = self._folded(self.texts.get("rewrite_db", ""))
        database = self._folded(table.db)
        if self.texts.keys() - set(_KINDS) or f"({database}," in rewrites or f",{database})" in rewrites:
            return YES  # a kind of a later version may leave anything out
        by_database, by_table = self.leaves_out_database(table.db, commas=commas), self._by_table(table, commas)
        return frozenset(one or other for one in by_database for other in by_table)

    def _by_table(self, table: TableId, commas: bool) -> Answers:
        answers: set[bool] = set()
        for kind in ("do_table", "ignore_table", "wild_do_table", "wild_ignore_table"):
            listed = self._listed(kind, str(table), commas)
            if True in listed:
                answers.add("ignore" in kind)
            if False not in listed:
                return frozenset(answers)
        return frozenset(answers | {"do_table" in self.texts or "wild_do_table" in self.texts})

    def _listed(self, kind: str, name: str, commas: bool) -> Answers:
        """Return whether an entry of a list matches a name.

        Args:
            kind: The list.
            name: The name.
            commas: Whether entries may contain commas.
        """
        text = self.texts.get(kind, "")
        found = [self._listed_in(kind, segment, name, commas) for segment in text.split(_SEPARATOR) if segment]
        return YES if YES in found else EITHER if EITHER in found else NO

    def _listed_in(self, kind: str, text: str, name: str, commas: bool) -> Answers:
        parts = text.split(",")
        runs = (
            _runs(parts, name.count(",") + 1, kind.endswith("table"))
            if commas
            else [(n, n + 1) for n in range(len(parts))]
        )
        found = [self._matches(kind, ",".join(parts[first:last]), name) for first, last in runs]
        if runs == [(0, len(parts))]:
            return found[0]
        if commas:
            return EITHER if any(True in answers for answers in found) else NO
        return YES if YES in found else EITHER if EITHER in found else NO

    def _folded(self, name: str) -> str:
        return folded_name(name) if self.ignores_case else name

    def _equal(self, entry: str, name: str) -> Answers:
        if self._folded(entry) == self._folded(name):
            return YES
        return EITHER if self.ignores_case and _without_accents(entry) == _without_accents(name) else NO

    def _is_like(self, pattern: str, name: str) -> Answers:
        if not self.ignores_case:
            # "_" is one byte (my_charset_bin).
            pattern, name = (text.encode().decode("latin-1") for text in (pattern, name))
        if _like(self._folded(pattern)).fullmatch(self._folded(name)):
            return YES
        loose = self.ignores_case and _like(_without_accents(pattern)).fullmatch(_without_accents(name))
        return EITHER if loose else NO

    def shown(self, prefix: str) -> str:
        """Return the lists as options.

        Args:
            prefix: The beginning of their names: ``binlog`` or ``replicate``.
        """
        return " and ".join(f"{prefix}_{name}={text.replace(_SEPARATOR, ',')}" for name, text in self.texts.items())


def _runs(parts: list[str], longest: int, dotted: bool) -> list[tuple[int, int]]:
    """Return what may be an entry of a list: neighbouring parts with the commas between them, by first and end.

    Args:
        parts: What stands between commas.
        longest: Most parts of an entry that can match: a comma matches a comma only.
        dotted: Whether what is no entry of its own, nor what is before or behind it, is without a dot.
    """

    def is_entry(some: list[str]) -> bool:
        return not dotted or "." in ",".join(some)

    count = len(parts)
    if not any(is_entry(parts[:at]) and is_entry(parts[at:]) for at in range(1, count)):
        return [(0, count)]
    return [
        (first, last)
        for first in range(count)
        for last in range(first + 1, min(first + longest, count) + 1)
        if (not first or is_entry(parts[:first]))
        and is_entry(parts[first:last])
        and (last == count or is_entry(parts[last:]))
    ]


def _without_accents(name: str) -> str:
    """Return a name as utf8mb3_general_ci compares it, which some versions use for patterns; not exactly."""
    return folded_name("".join(c for c in unicodedata.normalize("NFD", name) if not unicodedata.combining(c)))


def _like(pattern: str) -> re.Pattern[str]:
    r"""Return the regular expression of a pattern; ``\`` takes its meaning from what follows."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    return re.compile("".join(_LIKE.get(part) or re.escape(part[-1]) for part in parts), re.DOTALL)
