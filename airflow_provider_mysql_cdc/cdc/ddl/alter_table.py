"""Make a table's new structure out of its old one and a parsed statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.ddl.keys import (
    covers,
    renamed_index,
    unique_index,
    unprefixed_columns,
    with_whole_columns,
)
from airflow_provider_mysql_cdc.cdc.ddl.resolve import (
    converted_spec,
    resolve_charset,
    resolve_clauses,
    resolve_columns,
    with_charset,
    with_converted_size,
    with_default,
    with_timestamp_defaults,
)
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, DefaultCharset, NonUniqueIndex
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    AddColumn,
    AddKey,
    AlterTable,
    ChangeColumn,
    ConvertTo,
    CreateTable,
    DdlKeyKind,
    DropColumn,
    DropKey,
    KeySpec,
    RenameColumn,
    RenameKey,
    SetDefault,
    SetOptions,
    SetVisible,
    TableOptions,
)
from airflow_provider_mysql_cdc.cdc.ddl.stored_defaults import after_alter
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId, UniqueIndex, folded_name, matching_name

_GENERATED_KEY = "my_row_id"
TableStructure = tuple[Table, tuple[NonUniqueIndex, ...]]
"""A table and its indexes which are not unique."""


@dataclass(slots=True)
class _StructureBuilder:
    """Hold a structure while it is being changed; ``target`` is what CONVERT TO CHARACTER SET names."""

    id: TableId
    defaults: DefaultCharset
    target: DefaultCharset | None = None
    columns: list[Column] = field(default_factory=list)
    primary_key: tuple[str, ...] = ()
    unique_keys: list[UniqueIndex] = field(default_factory=list)
    non_unique_indexes: list[NonUniqueIndex] = field(default_factory=list)
    comment: str | None = None
    engine: str | None = None

    def index_of(self, name: str) -> int:
        """Return a column's place.

        Raises:
            DdlParseError: There is no such column.
        """
        names = [column.name for column in self.columns]
        match = matching_name(names, name)
        if match is not None:
            return names.index(match)
        raise DdlParseError(
            "a statement names a column that the table does not have",
            where=f"{self.id}.{name}",
            why="the schema history may lack a statement that was not in the binlog (sql_log_bin=0, or a restored "
            "backup); then a new snapshot of the table mends it",
        )

    def column(self, name: str) -> Column:
        """Return a column by name."""
        return self.columns[self.index_of(name)]

    def build(self) -> TableStructure:
        """Return the structure: columns numbered, those of the primary key NOT NULL."""
        primary_key = tuple(self.column(name).name for name in self.primary_key)
        columns = []
        for i, column in enumerate(self.columns, 1):
            null = column.nullable and column.name not in primary_key
            has_default = column.has_default and (null or column.default is not None)
            columns.append(replace(column, position=i, nullable=null, has_default=has_default))
        table = Table(
            self.id,
            tuple(columns),
            primary_key,
            tuple(with_whole_columns(i, self.column) for i in self.unique_keys),
            self.defaults.charset,
            self.defaults.collation,
            self.comment,
            self.engine,
            self.defaults.declared,
            self.defaults.assumed,
        )
        return table, tuple(self.non_unique_indexes)


def create_structure(
    statement: CreateTable, table_id: TableId, defaults: DefaultCharset, context: DdlContext
) -> TableStructure:
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
    assumed = context.server_layout and options.charset is None and options.collation is None
    builder = _StructureBuilder(table_id, replace(resolve_clauses(options, defaults, context), assumed=assumed))
    builder.comment, builder.engine = options.comment or None, options.engine
    builder.columns = resolve_columns(statement.columns, builder.defaults, context)
    builder.columns = with_timestamp_defaults(builder.columns, builder.columns, context)
    _add_keys(builder, list(statement.keys))
    return builder.build()


def copy_structure(source: TableStructure, table_id: TableId) -> TableStructure:
    """Return the structure that CREATE TABLE ... LIKE makes: foreign keys are not copied, their indexes are."""
    columns = tuple(map(after_alter, source[0].columns))
    return replace(source[0], id=table_id, columns=columns), source[1]


def alter_structure(
    source: TableStructure, statement: AlterTable, database: DefaultCharset, context: DdlContext
) -> TableStructure:
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
    table, non_unique_indexes = source
    table_defaults = DefaultCharset(
        table.charset or database.charset,
        table.collation or database.collation,
        table.declared_charset,
        table.charset_assumed,
    )
    builder = _StructureBuilder(
        table.id,
        table_defaults,
        columns=list(table.columns),
        primary_key=table.primary_key,
        unique_keys=list(table.unique_keys),
        non_unique_indexes=list(non_unique_indexes),
    )
    builder.comment, builder.engine = table.comment, table.engine
    _apply_options(builder, statement, database, context)
    _apply_columns(builder, statement, context)
    builder.columns = list(map(after_alter, builder.columns))
    _drop_keys(builder, statement)
    _add_keys(builder, [a.key for a in statement.actions if isinstance(a, AddKey)])
    return builder.build()


def _apply_options(
    builder: _StructureBuilder, statement: AlterTable, database: DefaultCharset, context: DdlContext
) -> None:
    options, converting = TableOptions(), None
    for action in statement.actions:
        if isinstance(action, SetOptions):
            # CHARSET and COLLATE belong together wherever they stand.
            for name in ("charset", "collation", "comment", "engine"):
                if (value := getattr(action.options, name)) is not None:  # COMMENT '' removes a comment
                    setattr(options, name, value)
            if action.options.charset is not None or action.options.collation is not None:
                options.charset_is_last = action.options.charset_is_last
        elif isinstance(action, ConvertTo):
            # A COLLATE before it is void; one behind it is of the table, not of its columns (MySQL 9.7.4).
            converting, options.collation, options.charset_is_last = action, None, False
    if converting is not None:
        builder.target = resolve_charset(converting.charset, converting.collation, database, context)
        options.charset, options.collation = converting.charset, options.collation or converting.collation
        changes = [a for a in statement.actions if isinstance(a, ChangeColumn)]
        changed = {matching_name((c.name for c in builder.columns), a.old) for a in changes}
        builder.columns = [c if c.name in changed else with_charset(c, builder.target) for c in builder.columns]
    _apply_option(builder, options, database, context)


def _apply_option(
    builder: _StructureBuilder, options: TableOptions, database: DefaultCharset, context: DdlContext
) -> None:
    if options.charset is not None or options.collation is not None:
        builder.defaults = resolve_clauses(options, database, context)
    if options.comment is not None:
        builder.comment = options.comment or None
    if options.engine is not None:
        builder.engine = options.engine


def _apply_columns(builder: _StructureBuilder, statement: AlterTable, context: DdlContext) -> None:
    actions = statement.actions
    defining_actions = [a for a in actions if isinstance(a, AddColumn | ChangeColumn)]
    defined_columns = _defined_columns(builder, defining_actions, context)
    changes = {builder.column(a.old).name: a for a in actions if isinstance(a, ChangeColumn)}
    renames = {builder.column(a.old).name: a.new for a in actions if isinstance(a, RenameColumn)}
    drops = {builder.column(a.name).name for a in actions if isinstance(a, DropColumn)}
    names = [column.name for column in builder.columns]
    generated_key = _generated_key(builder)
    _alter_attributes(builder, statement, context)
    columns = []
    for column in builder.columns:
        change = changes.get(column.name)
        if column.name in drops:
            continue
        if change is None:
            columns.append(replace(column, name=renames.get(column.name, column.name)))
        elif change.position is None:
            columns.append(defined_columns[id(change)])
    builder.columns = columns
    for action in defining_actions:
        if isinstance(action, AddColumn) or action.position is not None:
            _insert_column(builder, defined_columns[id(action)], action.position, renames)
    # What has FIRST comes second behind such a key (MySQL 9.7.4).
    builder.columns.sort(key=lambda column: column.name != generated_key)
    builder.columns = with_timestamp_defaults(builder.columns, defined_columns.values(), context)
    _rename_in_keys(builder, names, {name: a.spec.name for name, a in changes.items()} | renames, drops)


def _defined_columns(
    builder: _StructureBuilder, actions: Sequence[AddColumn | ChangeColumn], context: DdlContext
) -> dict[int, Column]:
    """Return the columns that ADD, CHANGE and MODIFY define, by the ids of the actions."""
    specs, target = [a.spec for a in actions], builder.target
    if target is None:
        return dict(zip(map(id, actions), resolve_columns(specs, builder.defaults, context), strict=True))
    columns = resolve_columns([converted_spec(spec, target, context) for spec in specs], target, context)
    if context.keeps_written_sizes:
        return dict(zip(map(id, actions), columns, strict=True))
    return {
        id(a): with_converted_size(column, a.spec, builder.column(a.old)) if isinstance(a, ChangeColumn) else column
        for a, column in zip(actions, columns, strict=True)
    }


def _generated_key(builder: _StructureBuilder) -> str:
    """Return the column of a generated invisible primary key, which always stays the first; empty without one.

    MySQL 9.7.4 takes a column for it by its name, place and attributes, whoever defined it, with
    sql_generate_invisible_primary_key=OFF too.
    """
    first = next(iter(builder.columns), None)
    is_generated = (
        first is not None
        and folded_name(first.name) == _GENERATED_KEY
        and (first.type_name, first.unsigned, first.auto_increment, first.invisible) == ("BIGINT", True, True, True)
        and builder.primary_key == (first.name,)
    )
    return first.name if first is not None and is_generated else ""


def _alter_attributes(builder: _StructureBuilder, statement: AlterTable, context: DdlContext) -> None:
    for action in statement.actions:
        if isinstance(action, SetDefault):
            i = builder.index_of(action.name)
            column = with_default(builder.columns[i], action.default, context)
            builder.columns[i] = column if action.default else replace(column, has_default=False, default=None)
        elif isinstance(action, SetVisible):
            i = builder.index_of(action.name)
            builder.columns[i] = replace(builder.columns[i], invisible=action.invisible)


def _insert_column(builder: _StructureBuilder, column: Column, position: str | None, renames: dict[str, str]) -> None:
    if position is None:
        builder.columns.append(column)
    elif position == "":
        builder.columns.insert(0, column)
    else:
        name = matching_name((c.name for c in builder.columns), position)
        if name is None:
            name = renames.get(matching_name(renames, position) or "", position)
        builder.columns.insert(builder.index_of(name) + 1, column)


def _rename_in_keys(builder: _StructureBuilder, columns: list[str], renames: dict[str, str], drops: set[str]) -> None:
    """Carry new column names into keys, and drop columns out of them; a key without columns goes too."""
    if not renames and not drops:
        return

    def new_name(name: str) -> str | None:
        column = matching_name(columns, name) or name
        return None if column in drops else renames.get(column, name)

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in map(new_name, names) if name is not None)

    builder.primary_key = renamed(builder.primary_key)
    unique_keys = (renamed_index(i, [new_name(name) for name in i.columns]) for i in builder.unique_keys)
    builder.unique_keys = [i for i in unique_keys if i.columns or i.prefixed]
    non_unique_indexes = []
    for key in builder.non_unique_indexes:
        parts = ((part, part if part is None else new_name(part)) for part in key.columns)
        names = tuple(new for part, new in parts if part is None or new is not None)
        if names:
            non_unique_indexes.append(replace(key, columns=names))
    builder.non_unique_indexes = non_unique_indexes


def _drop_keys(builder: _StructureBuilder, statement: AlterTable) -> None:
    renames = {folded_name(a.old): a.new for a in statement.actions if isinstance(a, RenameKey)}
    drops = [a for a in statement.actions if isinstance(a, DropKey)]
    for action in drops:
        folded = folded_name(action.name)
        if folded == "primary":
            builder.primary_key = ()
        builder.unique_keys = [i for i in builder.unique_keys if folded_name(i.name) != folded]
        if not action.constraint:
            builder.non_unique_indexes = [k for k in builder.non_unique_indexes if folded_name(k.name) != folded]
    builder.unique_keys = [replace(i, name=renames.get(folded_name(i.name), i.name)) for i in builder.unique_keys]
    builder.non_unique_indexes = [
        replace(k, name=renames[folded_name(k.name)], generated=False) if folded_name(k.name) in renames else k
        for k in builder.non_unique_indexes
    ]


def _add_keys(builder: _StructureBuilder, keys: list[KeySpec]) -> None:
    """Add keys in order; the server names those without a name after their first column."""
    _drop_generated_indexes(builder, [unprefixed_columns(k) for k in keys if k.kind is not DdlKeyKind.FOREIGN])
    for key in keys:
        names = tuple(None if p.column is None else builder.column(p.column).name for p in key.parts)
        if key.kind is DdlKeyKind.PRIMARY:
            builder.primary_key = tuple(n for n in names if n is not None)
            continue
        if key.kind is DdlKeyKind.FOREIGN:
            _drop_generated_indexes(builder, [names])
            if _is_covered(builder, keys, key, names):
                continue
        name = key.name or _unused_index_name(builder, names[0])
        if key.kind is DdlKeyKind.UNIQUE:
            builder.unique_keys.append(unique_index(name, key.parts, names))
        else:
            builder.non_unique_indexes.append(NonUniqueIndex(name, names, key.kind is DdlKeyKind.FOREIGN))


def _unused_index_name(builder: _StructureBuilder, first: str | None) -> str:
    base = first or "functional_index"
    used = (
        {folded_name(i.name) for i in builder.unique_keys}
        | {folded_name(k.name) for k in builder.non_unique_indexes}
        | {"primary"}
    )
    name, number = base, 1
    while folded_name(name) in used:
        number += 1
        name = f"{base}_{number}"
    return name


def _is_covered(builder: _StructureBuilder, keys: list[KeySpec], key: KeySpec, names: tuple[str | None, ...]) -> bool:
    """Return whether a foreign key needs no index of its own: another one begins with its columns."""
    existing = [
        builder.primary_key,
        *(i.columns for i in builder.unique_keys if not i.prefixed),
        *(k.columns for k in builder.non_unique_indexes),
    ]
    if any(covers(columns, names) for columns in existing):
        return True
    return any(covers(unprefixed_columns(k), names) for k in keys if k is not key and k.kind is not DdlKeyKind.FOREIGN)


def _drop_generated_indexes(builder: _StructureBuilder, new_indexes: list[tuple[str | None, ...]]) -> None:
    """Drop indexes that the server made for a foreign key and that a new index covers, also one that it makes."""
    builder.non_unique_indexes = [
        k for k in builder.non_unique_indexes if not (k.generated and any(covers(c, k.columns) for c in new_indexes))
    ]
