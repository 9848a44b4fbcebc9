"""Make a table's new structure out of its old one and a parsed statement."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.ddl.resolve import (
    converted,
    pick_charset,
    promoted,
    resolve,
    with_default,
)
from airflow_provider_mysql_cdc.cdc.ddl.state import DbDefaults, DdlContext, PlainKey
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    AddColumn,
    AddKey,
    AlterTable,
    ChangeColumn,
    ConvertTo,
    CreateTable,
    DropColumn,
    DropKey,
    KeyKind,
    KeySpec,
    RenameColumn,
    RenameKey,
    SetDefault,
    SetOptions,
    SetVisible,
    TableOptions,
)
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import BLOBS, TEXTS, Column, Index, Table, TableId

_ALWAYS_PREFIX = frozenset((*TEXTS, *BLOBS))
Structure = tuple[Table, tuple[PlainKey, ...]]
"""A table and its indexes which are not unique."""


@dataclass(slots=True)
class _Work:
    """Hold a structure while it is being changed."""

    id: TableId
    defaults: DbDefaults
    columns: list[Column] = field(default_factory=list)
    primary: tuple[str, ...] = ()
    unique: list[Index] = field(default_factory=list)
    plain: list[PlainKey] = field(default_factory=list)
    comment: str | None = None
    engine: str | None = None

    def index_of(self, name: str) -> int:
        """Return a column's place.

        Raises:
            DdlParseError: There is no such column.
        """
        lower = name.lower()
        for i, column in enumerate(self.columns):
            if column.name.lower() == lower:
                return i
        raise DdlParseError("a statement names a column that the table does not have", where=f"{self.id}.{name}")

    def column(self, name: str) -> Column:
        """Return a column by name."""
        return self.columns[self.index_of(name)]

    def finished(self) -> Structure:
        """Return the structure: columns numbered, those of the primary key NOT NULL."""
        key = {name.lower() for name in self.primary}
        columns = []
        for i, column in enumerate(self.columns, 1):
            null = column.nullable and column.name.lower() not in key
            has_default = column.has_default and (null or column.default is not None)
            columns.append(replace(column, position=i, nullable=null, has_default=has_default))
        table = Table(
            self.id,
            tuple(columns),
            tuple(self.column(name).name for name in self.primary),
            tuple(self.unique),
            self.defaults.charset,
            self.defaults.collation,
            self.comment,
            self.engine,
        )
        return table, tuple(self.plain)


def created(statement: CreateTable, table_id: TableId, defaults: DbDefaults, context: DdlContext) -> Structure:
    """Return the structure that CREATE TABLE with a column list makes.

    Args:
        statement: The statement.
        table_id: The table's full name.
        defaults: Character set of the database.
        context: Session context.

    Raises:
        DdlParseError: A key names an unknown column, or a character set is unknown.
    """
    options = statement.options
    work = _Work(table_id, pick_charset(options.charset, options.collation, defaults, context))
    work.comment, work.engine = options.comment or None, options.engine
    work.columns = resolve(statement.columns, work.defaults, context)
    work.columns = promoted(work.columns, work.columns, context)
    _add_keys(work, list(statement.keys))
    return work.finished()


def copied(source: Structure, table_id: TableId) -> Structure:
    """Return the structure that CREATE TABLE ... LIKE makes: foreign keys are not copied, their indexes are."""
    table, plain = source
    return replace(table, id=table_id), tuple(replace(k, generated=False) for k in plain)


def altered(source: Structure, statement: AlterTable, database: DbDefaults, context: DdlContext) -> Structure:
    """Return the structure after ALTER TABLE; a new name is the caller's matter.

    The order is the server's: columns are dropped, changed and altered where they stand, then those with a place and
    new ones are put in; keys are dropped and renamed, then new ones added.

    Args:
        source: The structure before.
        statement: The statement.
        database: Character set of the database, for CONVERT TO CHARACTER SET DEFAULT.
        context: Session context.

    Raises:
        DdlParseError: The statement names what the table does not have.
    """
    table, plain = source
    old = DbDefaults(table.charset or database.charset, table.collation or database.collation)
    work = _Work(table.id, old, list(table.columns), table.primary_key, list(table.unique_keys), list(plain))
    work.comment, work.engine = table.comment, table.engine
    _options(work, statement, database, context)
    _columns(work, statement, context)
    _drop_keys(work, statement)
    _add_keys(work, [a.key for a in statement.actions if isinstance(a, AddKey)])
    return work.finished()


def _options(work: _Work, statement: AlterTable, database: DbDefaults, context: DdlContext) -> None:
    for action in statement.actions:
        if isinstance(action, SetOptions):
            _option(work, action.options, database, context)
        elif isinstance(action, ConvertTo):
            work.defaults = pick_charset(action.charset, action.collation, database, context)
            changed = {a.old.lower() for a in statement.actions if isinstance(a, ChangeColumn)}
            columns = work.columns
            work.columns = [c if c.name.lower() in changed else converted(c, work.defaults) for c in columns]


def _option(work: _Work, options: TableOptions, database: DbDefaults, context: DdlContext) -> None:
    if options.charset is not None or options.collation is not None:
        work.defaults = pick_charset(options.charset, options.collation, database, context)
    if options.comment is not None:
        work.comment = options.comment or None
    if options.engine is not None:
        work.engine = options.engine


def _columns(work: _Work, statement: AlterTable, context: DdlContext) -> None:
    actions = statement.actions
    placed = [a for a in actions if isinstance(a, AddColumn | ChangeColumn)]
    new = dict(zip(map(id, placed), resolve([a.spec for a in placed], work.defaults, context), strict=True))
    changes = {a.old.lower(): a for a in actions if isinstance(a, ChangeColumn)}
    renames = {a.old.lower(): a.new for a in actions if isinstance(a, RenameColumn)}
    drops = {a.name.lower() for a in actions if isinstance(a, DropColumn)}
    for name in (*changes, *renames, *drops):
        work.index_of(name)
    _alter_in_place(work, statement)
    columns = []
    for column in work.columns:
        lower = column.name.lower()
        change = changes.get(lower)
        if lower in drops:
            continue
        if change is None:
            columns.append(replace(column, name=renames.get(lower, column.name)))
        elif change.place is None:
            columns.append(new[id(change)])
    work.columns = columns
    for action in placed:
        if isinstance(action, AddColumn) or action.place is not None:
            _put(work, new[id(action)], action.place, renames)
    work.columns = promoted(work.columns, new.values(), context)
    _rename_in_keys(work, {k: a.spec.name for k, a in changes.items()} | renames, drops)


def _alter_in_place(work: _Work, statement: AlterTable) -> None:
    for action in statement.actions:
        if isinstance(action, SetDefault):
            i = work.index_of(action.name)
            column = with_default(work.columns[i], action.default)
            work.columns[i] = column if action.default else replace(column, has_default=False, default=None)
        elif isinstance(action, SetVisible):
            i = work.index_of(action.name)
            work.columns[i] = replace(work.columns[i], invisible=action.invisible)


def _put(work: _Work, column: Column, place: str | None, renames: dict[str, str]) -> None:
    if place is None:
        work.columns.append(column)
    elif place == "":
        work.columns.insert(0, column)
    else:
        known = {c.name.lower() for c in work.columns}
        name = place if place.lower() in known else renames.get(place.lower(), place)
        work.columns.insert(work.index_of(name) + 1, column)


def _rename_in_keys(work: _Work, renames: dict[str, str], drops: set[str]) -> None:
    """Carry new column names into keys, and drop columns out of them; a key without columns goes too."""
    if not renames and not drops:
        return

    def follow(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(renames.get(n.lower(), n) for n in names if n.lower() not in drops)

    work.primary = follow(work.primary)
    unique = (replace(i, columns=follow(i.columns)) for i in work.unique)
    work.unique = [i for i in unique if i.columns or i.prefixed]
    plain = []
    for key in work.plain:
        names = tuple(
            n if n is None else renames.get(n.lower(), n) for n in key.columns if n is None or n.lower() not in drops
        )
        if names:
            plain.append(replace(key, columns=names))
    work.plain = plain


def _drop_keys(work: _Work, statement: AlterTable) -> None:
    renames = {a.old.lower(): a.new for a in statement.actions if isinstance(a, RenameKey)}
    drops = [a for a in statement.actions if isinstance(a, DropKey)]
    for action in drops:
        lower = action.name.lower()
        if lower == "primary":
            work.primary = ()
        work.unique = [i for i in work.unique if i.name.lower() != lower]
        if not action.constraint:
            work.plain = [k for k in work.plain if k.name.lower() != lower]
    work.unique = [replace(i, name=renames.get(i.name.lower(), i.name)) for i in work.unique]
    work.plain = [replace(k, name=renames.get(k.name.lower(), k.name)) for k in work.plain]


def _add_keys(work: _Work, keys: list[KeySpec]) -> None:
    """Add keys in order; the server names those without a name after their first column."""
    _drop_generated(work, keys)
    for key in keys:
        names = tuple(None if p.column is None else work.column(p.column).name for p in key.parts)
        if key.kind is KeyKind.PRIMARY:
            work.primary = tuple(n for n in names if n is not None)
            continue
        if key.kind is KeyKind.FOREIGN and _covered(work, keys, key, names):
            continue
        name = key.name or _free_name(work, names[0])
        if key.kind is KeyKind.UNIQUE:
            work.unique.append(Index(name, tuple(n for n in names if n is not None), _is_prefixed(work, key)))
        else:
            work.plain.append(PlainKey(name, names, key.kind is KeyKind.FOREIGN))


def _free_name(work: _Work, first: str | None) -> str:
    base = first or "functional_index"
    used = {i.name.lower() for i in work.unique} | {k.name.lower() for k in work.plain} | {"primary"}
    name, number = base, 1
    while name.lower() in used:
        number += 1
        name = f"{base}_{number}"
    return name


def _is_prefixed(work: _Work, key: KeySpec) -> bool:
    for part in key.parts:
        if part.column is None:
            return True
        if part.prefix is not None:
            column = work.column(part.column)
            if column.type_name in _ALWAYS_PREFIX or column.length != part.prefix:
                return True
    return False


def _covers(columns: tuple[str | None, ...], wanted: tuple[str | None, ...]) -> bool:
    head = columns[: len(wanted)]
    return [n and n.lower() for n in head] == [n and n.lower() for n in wanted]


def _covered(work: _Work, keys: list[KeySpec], key: KeySpec, names: tuple[str | None, ...]) -> bool:
    """Return whether a foreign key needs no index of its own: another one begins with its columns."""
    there = [work.primary, *(i.columns for i in work.unique if not i.prefixed), *(k.columns for k in work.plain)]
    if any(_covers(columns, names) for columns in there):
        return True
    return any(_covers(_whole_columns(k), names) for k in keys if k is not key and k.kind is not KeyKind.FOREIGN)


def _whole_columns(key: KeySpec) -> tuple[str | None, ...]:
    return tuple(p.column if p.prefix is None else None for p in key.parts)


def _drop_generated(work: _Work, keys: list[KeySpec]) -> None:
    """Drop indexes that the server made for a foreign key and that a new index covers."""
    new = [_whole_columns(k) for k in keys if k.kind is not KeyKind.FOREIGN]
    work.plain = [k for k in work.plain if not (k.generated and any(_covers(c, k.columns) for c in new))]
