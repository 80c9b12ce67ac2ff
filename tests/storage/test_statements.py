"""Statements are asked for by name: what the stores name is there in every engine, and no engine has more than is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from databases import postgres_server
from holdfast import storage
from holdfast.core.records import Subject
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.relational.database import Database, Names, statements
from holdfast.storage.sqlite.database import Database as SqliteDatabase

STORAGE = Path(storage.__path__[0])
ENGINES = ["postgres", "sqlite"]
#: What a name that is put together as the program runs can come to, by the module and the words it is put together with.
COMPUTED = {
    ("facts", "statement"): ["of_source", "of_target"],
    ("coordination", "statement"): ["claim", "reclaim", "finish", "note"],
    ("erasure", "statement"): [
        "remove_records",
        "remove_history",
        "remove_sessions",
        "remove_short_windows",
        "remove_facts",
        "remove_changes",
    ],
    ("registry", "statement"): ["own_records", "own_sessions"],
    ("registry", 'f"{statement}_{what}"'): ["own_records", "own_sessions", "bundled_records", "bundled_sessions"],
    ("registry", 'f"own_{what}"'): ["own_records", "own_sessions"],
    ("registry", 'f"staying_{what}"'): ["staying_records", "staying_sessions"],
}


def asked_in(module: Path) -> Iterator[tuple[Names, ast.expr, str]]:
    """Each place where a module of the stores names a statement: of which file, and the name, parsed and as written."""
    name = ".".join(module.relative_to(STORAGE.parent).with_suffix("").parts)
    known = vars(import_module(f"holdfast.{name}"))
    text = module.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            names = known.get(node.value.id)
            if isinstance(names, Names):
                yield names, node.slice, ast.get_source_segment(text, node.slice) or ""


def values(module: str, name: ast.expr, written: str) -> list[str]:
    """What a name can be."""
    match name:
        case ast.Constant(value=str(value)):
            return [value]
        case ast.IfExp(body=ast.Constant(value=str(one)), orelse=ast.Constant(value=str(other))):
            return [one, other]
        case _:
            assert (module, written) in COMPUTED, f"{module}.py asks for [{written}]; say in COMPUTED what that can be"
            return COMPUTED[module, written]


def named_by_the_stores() -> set[str]:
    """What the stores, which know no engine, ask for."""
    return {
        names[value]
        for module in STORAGE.glob("relational/**/*.py")
        for names, name, written in asked_in(module)
        for value in values(module.stem, name, written)
    }


def named_by_the_engine(engine: str) -> set[str]:
    """What an engine asks for itself, in full (``"records.subject_no"``): it may have statements for its own use."""
    files = {file.stem for file in STORAGE.glob("**/*.sql")}
    found = set()
    for module in STORAGE.glob(f"{engine}/*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = re.fullmatch(r"(\w+)\.\w+", node.value)
                found |= {node.value} if name and name[1] in files else set()
    return found


def is_position(index: ast.expr) -> bool:
    """Whether an index is a number that is written there, or a range of such."""
    if isinstance(index, ast.Slice):
        return any(part is not None for part in (index.lower, index.upper))
    if isinstance(index, ast.UnaryOp):
        index = index.operand
    return isinstance(index, ast.Constant) and isinstance(index.value, int)


def rows_by_position(module: Path) -> Iterator[str]:
    """Where a module takes a row apart by the positions of its columns: ``row[7]``, ``found[-1][0]``."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript) and is_position(node.slice):
            of = node.value
            nested = isinstance(of, ast.Subscript) and is_position(of.slice)
            if nested or (isinstance(of, ast.Name) and of.id == "row"):
                yield f"{module.relative_to(STORAGE)}:{node.lineno}: {ast.unparse(node)}"


def test_rows_are_read_by_the_names_of_their_columns() -> None:
    found = [place for module in STORAGE.glob("**/*.py") for place in rows_by_position(module)]
    assert found == []


class Other(NamedTuple):
    """A row that is none of the statement's."""

    number: int


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_that_has_not_the_columns_of_a_statement_is_refused(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    database: Database
    if engine == "sqlite":
        database = SqliteDatabase(tmp_path_factory.mktemp("rows") / "holdfast.db")
    else:
        database = PostgresDatabase(postgres_server().new_database(), pool_size=1)
    with closing(database), database.write() as tx:
        number = tx.number_for(Subject("default", "ann"))
        assert tx.values("records.subject_no", ("default/ann",)) == [number]
        with pytest.raises(TypeError, match=r"records\.subject_no gives no; Other has number"):
            tx.find(Other, "records.subject_no", ("default/ann",))


def test_there_are_engines_and_stores_to_compare() -> None:
    assert "sqlite" in ENGINES
    assert {"records.insert", "conversations.append", "dues.session_census"} <= named_by_the_stores()
    assert "records.new_subject" in named_by_the_engine("sqlite")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_that_is_named_is_there_in_every_engine(engine: str) -> None:
    there = statements(f"holdfast.storage.{engine}")
    assert sorted((named_by_the_stores() | named_by_the_engine(engine)) - there.keys()) == []
    assert [name for name, sql in there.items() if not sql] == [], "a name alone is no statement"


@pytest.mark.parametrize("engine", ENGINES)
def test_no_statement_is_there_that_nobody_uses(engine: str) -> None:
    there = statements(f"holdfast.storage.{engine}")
    assert sorted(there.keys() - named_by_the_stores() - named_by_the_engine(engine)) == []


def test_what_names_are_put_together_with_is_as_it_is_listed() -> None:
    written = {(module.stem, what) for module in STORAGE.glob("relational/**/*.py") for _, _, what in asked_in(module)}
    assert COMPUTED.keys() <= written, "nothing asks for these any more"
