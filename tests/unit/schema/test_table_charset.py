"""The character set that the server leaves out of statements: when the table's is taken."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.printed_definitions import has_no_charset, with_table_charset

TABLE = TableId("d", "t`t")
COLUMNS = "(\n  `a` varchar(9) DEFAULT '\\n)',\n  `b` int(11) AUTO_INCREMENT,\n  KEY `b` (`b`)\n)"
STATEMENT = f"CREATE TABLE `d`.`t``t` {COLUMNS} ENGINE=InnoDB COMMENT='x'"
SHOWN = f"CREATE TABLE `t``t` {COLUMNS} ENGINE=InnoDB DEFAULT CHARSET=latin1 COMMENT='x'"
CREATED = range(100, 103)


class Server:
    """Answer SHOW CREATE TABLE, then the query for the table's time and collation."""

    def __init__(self, shown: str | Exception = SHOWN, row: Any = (101, "latin1_german1_ci")) -> None:
        self.answers, self.queries = [None, ("t", shown), row], list[str]()

    def cursor(self) -> Server:
        return self

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *unused: object) -> None:
        pass

    def execute(self, sql: str, args: Any = None) -> None:
        self.queries.append(sql)
        self.answer = self.answers.pop(0)
        if isinstance(self.answer, tuple) and isinstance(self.answer[1], Exception):
            raise self.answer[1]

    def fetchone(self) -> Any:
        return self.answer


def test_the_tables_character_set_is_added() -> None:
    server = Server()
    expected = STATEMENT.replace(") ENGINE", ") DEFAULT CHARSET=latin1 COLLATE=latin1_german1_ci ENGINE")
    assert with_table_charset(server, TABLE, STATEMENT, CREATED) == expected
    assert server.queries[0].endswith("sql_mode = ''") and "`d`.`t``t`" in server.queries[1]
    server = Server()
    with_table_charset(server, TABLE, STATEMENT, CREATED, ansi_quotes=True)
    assert "ANSI_QUOTES" in server.queries[0]


@pytest.mark.parametrize("time", [99, 103, None])
def test_a_table_of_another_time_may_have_had_another_one(time: int | None) -> None:
    assert with_table_charset(Server(row=(time, "latin1_bin")), TABLE, STATEMENT, CREATED) is None


def test_a_table_with_other_columns_or_none_is_another_one() -> None:
    assert with_table_charset(Server(SHOWN.replace("`a`", "`c`")), TABLE, STATEMENT, CREATED) is None
    assert with_table_charset(Server(row=None), TABLE, STATEMENT, CREATED) is None
    assert with_table_charset(Server(row=(101, "klingon_ci")), TABLE, STATEMENT, CREATED) is None
    gone, denied = (pymysql.err.ProgrammingError(code, "x") for code in (1146, 1142))
    assert with_table_charset(Server(gone), TABLE, STATEMENT, CREATED) is None
    with pytest.raises(pymysql.MySQLError):
        with_table_charset(Server(denied), TABLE, STATEMENT, CREATED)


def test_which_statements_lack_it() -> None:
    assert has_no_charset(STATEMENT)
    assert not has_no_charset(SHOWN)
    assert not has_no_charset("CREATE TABLE `t` (\n  `a` int\n) COLLATE=utf8_bin")
    assert has_no_charset("CREATE TABLE `t` (\n  `a` int COMMENT ' CHARSET=latin1'\n)")
