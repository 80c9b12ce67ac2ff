"""Statements are asked for by name: what the stores name is there in every engine, and no engine has more than is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from databases import postgres_server
from holdfast import storage
from holdfast.core.records import Subject
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.relational.database import Database, statements
from holdfast.storage.sqlite.database import SqliteDatabase

STORAGE = Path(storage.__path__[0])
ENGINES = ["postgres", "sqlite"]
#: What a name that is put together as the program runs can come to.
COMPUTED = {
    'f"subjects.reword_{which}"': ["subjects.reword_job", "subjects.reword_run"],
    'f"subjects.{which}_words"': ["subjects.job_words", "subjects.run_words"],
    'f"coordination.{statement}"': [f"coordination.{name}" for name in ("claim", "reclaim", "finish", "note")],
    'f"subjects.{statement}"': [
        f"subjects.remove_{table}" for table in ("records", "history", "sessions", "short_windows", "facts", "changes")
    ]
    + ["subjects.remove_kept_out"],
    'f"registry.{statement}"': ["registry.own_records", "registry.own_sessions"],
    'f"registry.{statement}_{what}"': [
        f"registry.{of}_{what}" for of in ("own", "bundled") for what in ("records", "sessions")
    ],
    'f"registry.own_{what}"': ["registry.own_records", "registry.own_sessions"],
    'f"registry.staying_{what}"': ["registry.staying_records", "registry.staying_sessions"],
}


def texts_in(module: Path) -> Iterator[str]:
    """Every text that a module has: a plain one as it is, one that is put together as it is written."""
    text = module.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            yield ast.get_source_segment(text, node) or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def modules_of(folder: str) -> list[Path]:
    """The modules of an engine, or those of all engines; what brings rows back lies with what copies them."""
    shared = [STORAGE / "transfer" / "restore.py"] if folder == "relational" else []
    return [*STORAGE.glob(f"{folder}/*.py"), *shared]


def named_in(folder: str) -> set[str]:
    """The statements that the modules of a folder name, as in ``"records.subject_no"``: file and name."""
    files = "|".join(sorted({file.stem for file in STORAGE.glob("**/*.sql")}))
    found = set()
    for module in modules_of(folder):
        for text in texts_in(module):
            if re.fullmatch(rf"({files})\.[a-z]\w*(?<!_)", text):
                found.add(text)
            elif re.match(rf'f"({files})\.[\w{{]', text):
                assert text in COMPUTED, f"{module.name} asks for {text}; say in COMPUTED what that can be"
                found |= set(COMPUTED[text])
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
        assert tx.all(int, "records.subject_no", ("default/ann",)) == [number]
        with pytest.raises(TypeError, match=r"records\.subject_no gives no; Other has number"):
            tx.find(Other, "records.subject_no", ("default/ann",))


def test_there_are_engines_and_stores_to_compare() -> None:
    assert "sqlite" in ENGINES
    assert {"records.insert", "sessions.append", "dues.session_census"} <= named_in("relational")
    assert "records.new_subject" in named_in("sqlite")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_that_is_named_is_there_in_every_engine(engine: str) -> None:
    there = statements(f"holdfast.storage.{engine}")
    assert sorted((named_in("relational") | named_in(engine)) - there.keys()) == []
    assert [name for name, sql in there.items() if not sql] == [], "a name alone is no statement"


@pytest.mark.parametrize("engine", ENGINES)
def test_no_statement_is_there_that_nobody_uses(engine: str) -> None:
    there = statements(f"holdfast.storage.{engine}")
    assert sorted(there.keys() - named_in("relational") - named_in(engine)) == []


def test_what_names_are_put_together_with_is_as_it_is_listed() -> None:
    written = {text for module in modules_of("relational") for text in texts_in(module)}
    assert COMPUTED.keys() <= written, "nothing asks for these any more"
