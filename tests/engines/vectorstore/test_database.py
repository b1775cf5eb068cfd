"""What messages may show of a DSN, and what is added to one; without a server."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolTimeout

from teola.errors import EngineUnavailable, InputError
from teola_engines.vectorstore.database import _completed, _reason, _unavailable, place


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:hunter2@h:6/db", "h:6/db"),
        ("host=h hostaddr=10.0.0.1 dbname=db user=u", "h:5432/db"),
        ("hostaddr=10.0.0.1 user=u", "10.0.0.1:5432/u"),
        ("password=hunter2", "localhost:5432/"),
        ("host=/run/pg port=7", "/run/pg:7/"),
    ],
)
def test_a_place_is_told_without_a_password(dsn: str, shown: str) -> None:
    assert place(dsn) == shown


def test_what_a_dsn_leaves_open_is_completed_and_nothing_else() -> None:
    given = {"host": "h", "connect_timeout": "3"}
    found = conninfo_to_dict(_completed("host=h connect_timeout=3"))
    assert found == {**given, "application_name": "teola"}
    found = conninfo_to_dict(_completed("host=h application_name=mine"))
    assert found == {"host": "h", "application_name": "mine", "connect_timeout": "10"}


def test_a_reason_is_one_line_without_the_password() -> None:
    error = ValueError("for hunter2:\n\t no hunter2 ")
    assert _reason(error, "host=h password=hunter2") == "for ***: no ***"
    assert _reason(error, "host=h") == "for hunter2: no hunter2"


class TooMuch(psycopg.OperationalError):
    sqlstate = "54000"


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (psycopg.OperationalError("gone"), EngineUnavailable, "at h:5432/ is unavailable: gone;"),
        (psycopg.InterfaceError("closed"), EngineUnavailable, "is unavailable: closed;"),
        (PoolTimeout("late"), EngineUnavailable, "is unavailable: late;"),
        (TooMuch("index row size"), InputError, "it exceeds one of its limits"),
        (psycopg.DataError("bad"), psycopg.DataError, "bad"),
    ],
)  # fmt: skip
def test_errors_of_a_connection_are_told_from_those_of_the_data(
    error: Exception, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind) as caught, _unavailable("host=h password=hunter2"):
        raise error
    assert type(caught.value) is kind
    assert told in str(caught.value)
    assert "index row" not in str(caught.value)
