"""A store of the memory engine alone (schema version 1) becomes one with a lifecycle, and nothing of it is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

import raw
from conformance.samples import MODEL, NOW, Follower, Person, entry, fact, message, move, set_rule
from retain.core.content import pack, to_json
from retain.core.records import Message, Outcome, Record
from retain.core.rules import BIN, DEFAULTS, HISTORY, Terms, resolve
from retain.core.times import DAY
from retain.core.types import DURABLE, LIVE, TYPES, Kind, MemoryType, State
from retain.storage.relational.audit import SqlAudit
from retain.storage.relational.conversations import SqlHistory, SqlShortTerm
from retain.storage.relational.dues import SqlDues
from retain.storage.relational.facts import SqlFacts
from retain.storage.relational.feed import SqlFeed
from retain.storage.relational.records import SqlRecords
from retain.storage.relational.rules import SqlRules
from retain.storage.relational.schemas import SqlSchemas
from retain.storage.relational.statements import migrations
from retain.storage.sqlite import database as database_module
from retain.storage.sqlite.database import Database

PACKAGE = "retain.storage.sqlite"
LONG = "a long text that is stored compressed " * 100
PEOPLE = [Person("default", "ann"), Person("default", "b/o/b"), Person("acme", "ann"), Person("acme0", "ann")]
DURABLE_KINDS = [TYPES[name] for name in DURABLE]
MOVED_AT = NOW - 3 * DAY


class Old:
    """A store as schema version 1 had it, written by hand, and what was put into it."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.before: dict[str, list[dict[str, Any]]] = {}
        self.records: list[Record] = []
        self.messages: dict[tuple[Person, str | None], list[Message]] = {}
        self._models()
        for number, who in enumerate(PEOPLE, 1):
            self.connection.execute("INSERT INTO subjects (no, subject) VALUES (?, ?)", (number, who.subject))
            for kind in DURABLE_KINDS:
                self._scope(number, who, kind)
            for session_id in ("sess_1", None):
                self._conversation(number, who, session_id)
            self._rest(number, who)

    def _models(self) -> None:
        for code, name in ((1, MODEL), (2, "another")):
            self.connection.execute("INSERT INTO models VALUES (?, ?, ?)", (code, name, code == 1))

    def _scope(self, number: int, who: Person, kind: Kind) -> None:
        """A record of each state, and the row that counts them."""
        scope = number << 3 | kind.code
        made = [*self._made(who, kind)]
        for count, record in enumerate(made):
            self._record(scope << 29 | count, number, record)
        live = [record for record in made if record.state in LIVE]
        size = sum(_size(record) for record in live)
        self.connection.execute(
            "INSERT INTO scopes VALUES (?, ?, ?, ?, ?, ?)", (scope, 7, 2, len(made), len(live), size)
        )
        self.connection.execute("INSERT INTO changes VALUES (?, ?, ?)", (scope, 5, made[0].id))
        self.records += made

    def _made(self, who: Person, kind: Kind) -> Iterator[Record]:
        for n, state in enumerate(State):
            yield entry(
                who,
                LONG if n % 2 else f"{who.subject} {kind.name} {state}",
                kind=kind.name,
                agent_id=f"agent_{n % 2}",
                session_id="sess_1" if n % 2 else None,
                name=f"name {n}",
                metadata={"n": n, "näme": ["ß"]},
                body={"steps": [n]} if kind.name is MemoryType.EPISODIC else None,
                at=NOW - n * DAY,
                dated_at=NOW - n * DAY - 5,
                updated_at=NOW - n,
                state=state,
                version=n + 1,
                previous=None if state is State.ACTIVE else State.ACTIVE,
                moved_at=None if state is State.ACTIVE else MOVED_AT,
                reason=None if state is State.ACTIVE else "deleted by the user",
            ).record

    def _record(self, key: int, number: int, record: Record) -> None:
        body = None if record.body is None else pack(to_json(record.body))
        self.connection.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                key,
                number,
                TYPES[record.kind].code,
                record.id,
                record.state,
                record.previous,
                record.version,
                record.scope.agent_id,
                record.scope.session_id,
                record.name,
                record.created_at,
                record.updated_at,
                record.dated_at,
                record.moved_at,
                record.reason,
                None,
                _size(record),
                1,
                b"\x00\x3c\x00\x00",
                record.id.encode(),
                to_json(record.metadata),
                pack(record.content),
                body,
            ),
        )

    def _conversation(self, number: int, who: Person, session_id: str | None) -> None:
        said = [message(text, at=NOW - 9 + n, n=n) for n, text in enumerate(("Grüße", LONG, "123"))]
        ((session,),) = self.connection.execute(
            "INSERT INTO sessions (subject, agent_id, session_id, created_at, updated_at, messages) "
            "VALUES (?, 'agent', ?, ?, ?, 3) RETURNING no",
            (number, session_id or "", NOW - 9, NOW - 7),
        )
        for n, turn in enumerate(said):
            row = (session << 24 | n, turn.id, turn.role, turn.created_at, to_json(turn.metadata), pack(turn.content))
            self.connection.execute("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?)", row)
        self.messages[who, session_id] = said

    def _rest(self, number: int, who: Person) -> None:
        for statement, row in (
            ("INSERT INTO quotas VALUES (?, ?, 3, 77, -1)", (who.tenant, who.user_id)),
            ("INSERT INTO short_windows VALUES (?, ?, 'agent', 'sess_1', ?)", (number, number, NOW + 99)),
            ("INSERT INTO short_messages VALUES (?, 'm', 'user', ?, '{}', 'hi')", (number, NOW)),
            ("INSERT INTO facts VALUES (?, 'f', 'ann', 'city', NULL, '\"Rome\"', ?, NULL, ?)", (number, NOW, NOW)),
            ("INSERT OR IGNORE INTO schemas VALUES (?, 'trips', '{\"type\": \"object\"}')", (who.tenant,)),
        ):
            self.connection.execute(statement, row)


def _size(record: Record) -> int:
    return len(record.content.encode()) + (0 if record.body is None else len(to_json(record.body).encode()))


def tables(connection: apsw.Connection) -> dict[str, list[dict[str, Any]]]:
    """Everything that is stored, by table."""
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {}
    for name in names:
        columns = [row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))]
        every = connection.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - names of our own tables
        found[name] = [dict(zip(columns, row, strict=True)) for row in every]
    return found


@pytest.fixture
def old(path: Path, monkeypatch: pytest.MonkeyPatch) -> Old:
    """A full store of schema version 1, closed."""
    with monkeypatch.context() as patched:
        steps = migrations(PACKAGE)
        patched.setattr(database_module, "migrations", lambda package: steps[:1])
        Database(path).close()
    made = Old(path)
    full = {name: held for name, held in tables(made.connection).items() if not name.startswith("sqlite_")}
    assert all(full.values()), "there is something in every table"
    assert int(made.connection.pragma("user_version")) == 1
    made.before = tables(made.connection)
    made.connection.close()
    return made


@pytest.fixture
def migrated(old: Old, path: Path) -> Iterator[Database]:
    opened = Database(path)
    assert opened.check() == []
    yield opened
    opened.close()


def test_no_row_and_no_value_is_lost(old: Old, migrated: Database) -> None:
    before = old.before
    with migrated.read() as tx:
        after = tables(tx.connection)

    assert set(before) <= set(after)
    for name, old_rows in before.items():
        if name.startswith("sqlite_") or name == "changes":
            continue
        kept = [row for row in old_rows if row.get("state") != "deleted"]
        assert len(after[name]) == len(kept), name
        for old_row, new_row in zip(kept, after[name], strict=True):
            # hidden_from is computed now; a list of changes in another form begins anew, and indexes read their scopes
            dropped = {"records": {"hidden_from"}, "scopes": {"floor"}, "changes": {"id"}}.get(name, set())
            assert {column: new_row.get(column) for column in set(old_row) - dropped} == {
                column: value for column, value in old_row.items() if column not in dropped
            }, name


@pytest.mark.parametrize("state", [state for state in State if state is not State.DELETED])
def test_records_are_read_as_they_were_in_every_state(old: Old, migrated: Database, state: State) -> None:
    records = SqlRecords(migrated)
    for record in old.records:
        if record.state is state:
            found = records.get(record.scope.subject, record.id)
            assert found is not None
            purge_at = {State.RECYCLED: MOVED_AT + BIN, State.DELETING: MOVED_AT}.get(state)
            assert (found, found.purge_at) == (replace(record, purge_at=purge_at), purge_at)
            encoding = records.entries(record.scope.subject, [record.id])[record.id].encoding
            assert encoding == (MODEL, b"\x00\x3c\x00\x00", record.id.encode())


def test_what_was_deleted_is_gone(old: Old, migrated: Database) -> None:
    """A deleted record used to leave its row; now it leaves none."""
    records = SqlRecords(migrated)
    deleted = [record for record in old.records if record.state is State.DELETED]
    assert len(deleted) == len(PEOPLE) * len(DURABLE_KINDS)
    assert [records.get(record.scope.subject, record.id) for record in deleted] == [None] * len(deleted)


def test_profiles_are_what_the_defaults_come_to(migrated: Database) -> None:
    found = raw.rows(migrated, "SELECT tenant, kind, rules, archive_after, delete_after, keep_for FROM profiles")
    kinds = [*DURABLE, HISTORY]
    expected = {(who.tenant, str(kind), "[]", *resolve(kind, ())[:3]) for who in PEOPLE for kind in kinds}
    assert set(found) == expected
    assert len(found) == len(expected)
    for _, kind, _, *terms in found:
        assert tuple(terms) == DEFAULTS[kind], "by default nothing keeps what a default removes"


def test_records_and_sessions_have_the_profile_of_their_tenant_and_kind(migrated: Database) -> None:
    codes = {kind.code: str(kind.name) for kind in DURABLE_KINDS}
    records = raw.rows(
        migrated,
        "SELECT subjects.subject, records.kind, tenant, profiles.kind, aged_from - dated_at FROM records "
        "JOIN subjects ON subjects.no = records.subject JOIN profiles ON profiles.no = profile",
    )
    sessions = raw.rows(
        migrated,
        "SELECT subjects.subject, tenant, profiles.kind, aged_from - updated_at FROM sessions "
        "JOIN subjects ON subjects.no = sessions.subject JOIN profiles ON profiles.no = profile",
    )
    assert len(records) == len(PEOPLE) * len(DURABLE_KINDS) * (len(State) - 1)
    for subject, code, tenant, kind, younger in records:
        assert (tenant, kind, younger) == (subject.split("/")[0], codes[code], 0)
    assert len(sessions) == len(PEOPLE) * 2
    for subject, tenant, kind, younger in sessions:
        assert (tenant, kind, younger) == (subject.split("/")[0], HISTORY, 0)


def test_the_bin_empties_fifteen_days_after_each_record_came_into_it(old: Old, migrated: Database) -> None:
    dues = SqlDues(migrated)
    for tenant in {who.tenant for who in PEOPLE}:
        mine = [record for record in old.records if record.scope.tenant == tenant]
        claimed = {record.id for record in mine if record.state is State.DELETING}
        recycled = {record.id for record in mine if record.state is State.RECYCLED}
        for now, due in ((MOVED_AT + BIN - 1, claimed), (MOVED_AT + BIN, claimed | recycled)):
            page = dues.binned(tenant, now, limit=999, tags=False)
            assert {standing.id for standing in page.standings} == due, "what was being deleted is finished at once"


def test_subjects_have_pseudonyms_of_their_own(migrated: Database) -> None:
    aliases = [row[0] for row in raw.rows(migrated, "SELECT alias FROM subjects")]
    assert len(set(aliases)) == len(PEOPLE)
    assert {len(alias) for alias in aliases} == {16}


def test_conversations_go_on_where_they_were(old: Old, migrated: Database) -> None:
    history = SqlHistory(migrated)
    for (who, session_id), said in old.messages.items():
        scope = who.scope("agent", session_id)
        session = history.find(scope, now=NOW)
        assert session is not None
        assert history.messages(scope, now=NOW) == said
        assert (session.created_at, session.updated_at, session.aged_from) == (NOW - 9, NOW - 7, NOW - 7)
        assert (session.messages, session.state) == (3, State.ACTIVE)
        assert history.messages(scope, now=NOW - 7 + 30 * DAY) == [], "idle for thirty days"
        again = who.scope("agent", f"{session_id}, said again")
        history.append(again, said, now=NOW, summarize=lambda summary, new: summary)
        fresh = history.find(again, now=NOW)
        assert fresh is not None
        assert session.size == fresh.size, "counted as it is counted now"
        history.append(scope, [message("more", at=NOW)], now=NOW, summarize=lambda summary, new: summary)
        assert [turn.content for turn in history.messages(scope, now=NOW)] == [*(turn.content for turn in said), "more"]
    ids = [session.session_id for session in history.sessions("default/ann", now=NOW)]
    assert set(ids) == {None, "sess_1", "None, said again", "sess_1, said again"}


def test_the_rest_is_as_it_was(old: Old, migrated: Database) -> None:
    records, short_term = SqlRecords(migrated), SqlShortTerm(migrated)
    for who in PEOPLE:
        usage = records.usage(who.subject, TYPES[MemoryType.LONG_TERM])
        live = [r for r in old.records if r.scope.subject == who.subject and r.kind == "long_term" and r.state in LIVE]
        assert (usage.memories, usage.bytes) == (len(live), sum(map(_size, live)))
        assert (usage.max_memories, usage.max_bytes) == (77, None)
        assert [turn.content for turn in short_term.window(who.scope("agent", "sess_1"), now=NOW)] == ["hi"]
        (known,) = SqlFacts(migrated).facts(who.subject, ["ann"])
        assert known == fact("city", "Rome", id="f")
        assert json.loads(SqlSchemas(migrated).get(who.tenant, "trips") or "") == {"type": "object"}
    assert SqlFeed(migrated).is_current(MODEL)


@pytest.mark.parametrize("kind", DURABLE_KINDS, ids=lambda kind: str(kind.name))
def test_life_goes_on(old: Old, migrated: Database, kind: Kind) -> None:
    """Followers, inserts, moves, names and rules treat old records as they treat new ones."""
    records, feed = SqlRecords(migrated), SqlFeed(migrated)
    who = PEOPLE[2]
    mine = {r.state: r for r in old.records if r.scope.subject == who.subject and r.kind is kind.name}
    live = {mine[state].id for state in LIVE}
    followers = [Follower(feed, who.scope(agent), kind) for agent in ("agent_0", "agent_1")]
    assert {record_id for follower in followers for record_id in follower.look()} == live
    new = entry(who, "new", kind=kind.name, agent_id="agent_0")
    records.insert(who.subject, kind, [new], prune=False, now=NOW)
    assert records.get(who.subject, new.record.id) == new.record

    back = move(mine[State.RECYCLED], State.ACTIVE)
    gone = move(mine[State.DELETING], State.DELETED)
    assert records.transition(who.subject, [back, gone], now=NOW) == [Outcome.DONE, Outcome.DONE]
    assert {record_id for follower in followers for record_id in follower.look()} == {
        *live,
        new.record.id,
        mine[State.RECYCLED].id,
    }
    assert len(SqlAudit(migrated).of_item(who.subject, mine[State.RECYCLED].id)) == 1
    set_rule(SqlRules(migrated), who.tenant, kind.name, Terms(delete_after=400 * DAY), agent_id="agent_0")
    first = records.get(who.subject, mine[State.ACTIVE].id)
    assert first is not None
    expected = mine[State.ACTIVE].dated_at + 400 * DAY
    assert first.hidden_from == expected
    profiles = raw.rows(migrated, "SELECT count(*) FROM profiles WHERE tenant = 'acme'")
    assert profiles == [(len(DURABLE) + 1 + 1,)], "one for each kind and history, and one for the rule"
