"""Versions of a mapping that share their entries say what dicts would, and are not copied for each change."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, LayeredMapping, SchemaState, layered
from airflow_provider_mysql_cdc.cdc.model.table import TableId

CONTEXT = DdlContext(default_db="db")


def changed(
    made: LayeredMapping[int, int], told: dict[int, int], rng: random.Random
) -> tuple[LayeredMapping[int, int], dict[int, int]]:
    key, value, what = rng.randrange(400), rng.randrange(10), rng.random()
    if what < 0.6:
        return made.with_entry(key, value), {**told, key: value}
    gone = [rng.randrange(400) for _ in range(1 if what < 0.97 else 60)]
    return made.without(gone), {k: v for k, v in told.items() if k not in gone}


@for_each("seed", range(8))
def test_all_versions_are_what_dicts_would_be_in_their_order(seed: int) -> None:
    rng = random.Random(seed)
    made: LayeredMapping[int, int] = LayeredMapping({n: n for n in range(0, 300, 2)})
    told = dict(made)
    versions = [(made, told)]
    for _ in range(600):
        made, told = changed(made, told, rng)
        versions.append((made, told))
    for made, told in versions[::3]:
        assert list(made.items()) == list(told.items()) and len(made) == len(told)
        assert made == told and all((k in made) == (k in told) for k in range(400))
        assert all(made.get(k) == told.get(k) for k in range(400))


def test_a_version_is_pickled_as_one_mapping() -> None:
    made = LayeredMapping({1: 1, 2: 2}).with_entry(3, 3).without((1,)).with_entry(2, 5)
    read = pickle.loads(pickle.dumps(made))
    assert list(read.items()) == [(2, 5), (3, 3)] and layered(read) is read
    with pytest.raises(KeyError):
        read[1]
    with pytest.raises(KeyError):
        made[1]


def wholes(state: SchemaState, statements: list[str], context: DdlContext = CONTEXT) -> tuple[SchemaState, int]:
    """Return the structures behind statements, and how often all of them were copied on the way."""
    bases: list[Any] = []
    for sql in statements:
        state = apply_ddl(state, sql, context).state
        for layers in (state.tables, state.non_unique_indexes):
            assert isinstance(layers, LayeredMapping)
            if not any(layers._base is seen for seen in bases):
                bases.append(layers._base)
    return state, len(bases)


def test_tables_that_come_change_and_go_among_thousands_copy_a_few_times() -> None:
    made, copies = wholes(
        SchemaState(), [f"CREATE TABLE t{n} (id INT PRIMARY KEY, v INT, KEY (v))" for n in range(3000)]
    )
    assert len(made.tables) == len(made.non_unique_indexes) == 3000 and copies < 150
    made, copies = wholes(made, [f"ALTER TABLE t{n} ADD w INT" for n in range(300)])
    assert len(made.tables[TableId("db", "t299")].columns) == 3 and copies < 12
    made, copies = wholes(made, [f"DROP TABLE t{n}" for n in range(300)])
    assert len(made.tables) == 2700 and copies < 12
    assert not apply_ddl(made, "DROP DATABASE db", CONTEXT).state.tables
