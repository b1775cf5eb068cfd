"""Which journal a configuration asks for, and how its database is reached."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from teola import Runtime
from teola.errors import EngineUnavailable
from teola.query.journal.database import JournalDatabase, _completed
from teola.query.journal.journal import Given, Journal, journal_of
from teola.query.journal.lost import AWAY, JournalLost
from teola_engines.vectorstore import PgVector

KEY = "a key that nobody guesses"


@pytest.mark.parametrize("key", [None, KEY])
def test_a_journal_is_where_it_was_asked_for_sealed_if_there_is_a_key(
    key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Days are told, seconds are kept."""
    stores = {"vectorstore": lambda: PgVector(dsn="host=there")}
    with Runtime(stores) as runtime:
        assert journal_of(runtime, False, 7, key) is None
        for where, dsn in ((True, "host=there"), ("host=elsewhere", "host=elsewhere")):
            made = journal_of(runtime, where, 0.5, key)
            assert made is not None
            assert (made._server.start(), made._keep_s) == (dsn, 43_200.0)
            assert made.seal.has_key == made.to_be_sealed == (key is not None)
            assert (made.away, made.closed) == (True, False)
            assert made.token != Journal(Given(""), 1.0).token
    assert not caplog.records


def test_an_engine_without_postgresql_has_no_journal_and_it_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Runtime({"vectorstore": "documents"}) as runtime:
        assert journal_of(runtime, True, 7, KEY) is None
    (record,) = caplog.records
    assert (record.levelname, record.event) == ("WARNING", "no_journal")  # type: ignore[attr-defined]
    assert record.getMessage() == (
        "engine vectorstore has no PostgreSQL: background queries end with the server"
    )
    assert record.fields == {"engine": "vectorstore"}  # type: ignore[attr-defined]


async def test_a_journal_that_was_not_opened_is_away_and_can_be_closed() -> None:
    class Server(Given):
        closed = 0

        def close(self) -> None:
            Server.closed += 1

    journal = Journal(Server("host=there"), 1.0)
    with pytest.raises(JournalLost) as raised:
        _ = journal.database
    assert str(raised.value) == AWAY
    await journal.close()
    assert (journal.closed, Server.closed) == (True, 1)


# --- its database ---------------------------------------------------------------------------


def test_a_connection_string_keeps_what_it_says_and_gets_what_it_does_not_say() -> None:
    settings = {
        "application_name": "teola-journal",
        "connect_timeout": "5",
        "tcp_user_timeout": "10000",
        "keepalives_idle": "5",
        "keepalives_interval": "2",
        "keepalives_count": "3",
    }
    of = {"user": "u", "password": "p", "host": "h", "port": "5", "dbname": "db"}
    assert conninfo_to_dict(_completed("postgresql://u:p@h:5/db")) == {**settings, **of}
    own = _completed("host=h application_name=mine keepalives_idle=60")
    own_settings = {"application_name": "mine", "keepalives_idle": "60", "host": "h"}
    assert conninfo_to_dict(own) == {**settings, **own_settings}
    assert _completed(own) == own


@pytest.mark.parametrize("dsn", ["nonsense://hunter2", "host=h hunter2=1", "hunter2"])
async def test_what_is_no_connection_string_is_refused_without_quoting_it(dsn: str) -> None:
    with pytest.raises(EngineUnavailable) as raised:
        _completed(dsn)
    why = (
        "the dsn of the journal is not a connection string: write "
        "postgresql://user@host:5432/database"
    )
    assert (str(raised.value), raised.value.retryable) == (why, False)
    with pytest.raises(JournalLost) as lost:
        await JournalDatabase(Given(dsn)).open()
    assert str(lost.value) == why


async def test_why_a_database_cannot_be_reached_is_one_line_without_the_password() -> None:
    database = JournalDatabase(Given("postgresql://u:hunter2@127.0.0.1:1/db"))
    with pytest.raises(JournalLost) as raised:
        await database.open()
    assert "connection failed" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert database._reason(ValueError("for  hunter2,\n\thunter2 of u")) == "for ***, *** of u"
    await database.close()
    open_to_all = JournalDatabase(Given("host=127.0.0.1 port=1"))
    with pytest.raises(JournalLost):
        await open_to_all.open()
    assert open_to_all._reason(ValueError("None  of it")) == "None of it"
