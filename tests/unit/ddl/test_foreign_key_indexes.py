"""Names of the indexes that the server makes for foreign keys, as MySQL 5.7.22, 8.0.15 and 9.7.4 show them."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.model.table import TableId

F, G = "CONSTRAINT f FOREIGN KEY (a) REFERENCES p (id)", "CONSTRAINT g FOREIGN KEY (a) REFERENCES p (id)"
BOTH = "FOREIGN KEY (a, b) REFERENCES p (id, b)"
UNNAMED = "FOREIGN KEY (a) REFERENCES p (id)"


@pytest.mark.req("SCH-01")
@for_each(
    ("elements", "alters", "names"),
    [
        (f"{F}, {G}", "", ["g"]),
        (f"{F}, {UNNAMED}", "", ["a"]),
        (f"{UNNAMED}, {BOTH}", "", ["a"]),
        (f"{BOTH}, {UNNAMED}", "", ["a"]),
        (f"{F}, KEY k (a, b)", "", ["k"]),
        (F, f"ADD {G}", ["g"]),
        (F, f"ADD {UNNAMED}", ["a"]),
        (F, f"ADD CONSTRAINT {UNNAMED}, DROP FOREIGN KEY f", ["a"]),
        (F, f"ADD CONSTRAINT g {BOTH}", ["g"]),
        (f"CONSTRAINT f {BOTH}", f"ADD {G}", ["f"]),
        (F, f"DROP FOREIGN KEY f; ADD {G}", ["g"]),
        (F, "ADD KEY (a)", ["a"]),
        (F, f"RENAME INDEX f TO ff; ADD {G}", ["ff"]),
        ("KEY f (a)", f"ADD {G}", ["f"]),
    ],
)
@for_each("copied", [False, True])
def test_a_later_index_replaces_one_that_the_server_made(
    elements: str, alters: str, names: list[str], copied: bool
) -> None:
    """LIKE copies which indexes the server made; a name of one's own makes it an index like others."""
    context, state = DdlContext("d"), SchemaState()
    statements = [f"CREATE TABLE c (a INT, b INT, {elements})", *(["CREATE TABLE e LIKE c"] if copied else [])]
    table = "e" if copied else "c"
    for statement in [*statements, *(f"ALTER TABLE {table} {alter}" for alter in filter(None, alters.split("; ")))]:
        state = apply_ddl(state, statement, context).state
    assert [index.name for index in state.non_unique_indexes[TableId("d", table)]] == names
