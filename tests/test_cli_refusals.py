"""Bad input: one line that says what to do, the right exit code, and nothing left behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from teola.cli import call
from tests.command_line import CommandLine

ASK = ("run", "naive-rag", "-i", "question=How tall is it?", "-i")
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture
def tower(tmp_path: Path) -> Path:
    path = tmp_path / "tower.txt"
    path.write_text(f"The tower of {tmp_path.name} is 61 metres tall.")
    return path


def bad_documents(folder: Path) -> dict[str, Path]:
    made = {
        "empty": folder / "empty.txt",
        "binary": folder / "binary.txt",
        "broken": folder / "broken.pdf",
        "large": folder / "large.txt",
    }
    made["empty"].touch()
    made["binary"].write_bytes(bytes(range(256)) * 20)
    made["broken"].write_bytes(b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nstartxref\n9\n%%EOF")
    with made["large"].open("wb") as file:
        file.truncate(60_000_000)
    return made


@pytest.mark.parametrize(
    ("which", "told"),
    [
        ("empty", "empty; leave it out"),
        ("binary", "binary file; convert it"),
        ("broken", "broken; save it again"),
        ("large", "60 MB, more than the 50 MB allowed; split it"),
    ],
)
def test_a_document_that_cannot_be_read(
    teola: CommandLine, tower: Path, which: str, told: str
) -> None:
    """A good document beside it, claimed already, is given up with the query."""
    before = teola.state()
    bad = bad_documents(tower.parent)[which]
    line = teola(*ASK, f"documents={tower}", "-i", f"documents={bad}").refused(2)
    assert re.search(told, line), line
    assert bad.name in line
    assert teola.state() == before
    assert before["pending"] == before["open"] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("run", "advanced-rga"),
            "unknown application 'advanced-rga'; did you mean 'advanced-rag'",
        ),
        ((*ASK, "documents=missing.pdf"), "no such file: 'missing.pdf'; check the path"),
        ((*ASK, "document=x.pdf"), "unknown input 'document'.*did you mean 'documents'"),
        ((*ASK, "collection=nowhere"), "no collection 'nowhere'.*teola index PATH"),
        ((*ASK, "filters=[1]"), "filters must be a JSON object"),
        ((*ASK, "documents"), "'documents' must be NAME=VALUE"),
        ((*ASK, "question=Twice?"), "question was given 2 times; give it once"),
        (("run", "naive-rag", "-i", "question= ", "-i", "collection=x"), "'question' is empty"),
        (("run", "naive-rag", "-i", "collection=x"), "needs the input 'question'"),
        (("run", "naive-rag", "-i", "question=Why?"), "needs documents, a collection, or both"),
        ((*ASK, "collection=x", "-s", "serch.top_k=3"), "unknown component.*did you mean 'search'"),
        ((*ASK, "collection=x", "-s", "search.topk=3"), "unknown parameter.*did you mean 'top_k'"),
        ((*ASK, "collection=x", "-s", "search.top_k=0"), "top_k.*greater than or equal to 1"),
        ((*ASK, "collection=x", "-s", "search.top_k"), "must be COMPONENT.PARAMETER=VALUE"),
        ((*ASK, "collection=x", "--passes", "prun"), "unknown pass 'prun'.*prune_dependencies"),
        ((*ASK, "collection=x", "--batching", "lifo"), "unknown batching policy 'lifo'"),
        ((*ASK, "collection=x", "--profile", "paper-1b"), "unknown profile 'paper-1b'"),
        ((*ASK, "collection=x", "--deadline", "0"), "deadline_s must be positive"),
        ((*ASK, "collection=x", "--llm", "models/llama"), "no folder 'models/llama': give the f"),
        ((*ASK, "collection=x", "--llm", "~/llama"), "no folder '~/llama'.*or the URL of an"),
        ((*ASK, "collection=x", "--llm", "."), "'.' holds no model.*such as http://localhost:8000"),
        ((*ASK, "collection=x", "--llm", "llama"), "'llama' is neither a URL nor a folder: give"),
        ((*ASK, "collection=x", "--dtype", "float8"), "'float8' is not one of 'auto'"),
        (("run",), "missing argument.*see `teola run --help`"),
        (("runn",), "no such command 'runn'. Did you mean 'run'"),
        (("run", "naive-rag", "--question", "Why?"), "no such option: --question"),
        (("explain", "naive-rag", "--format", "svg"), "'svg' is not one of 'text'"),
        (("explain", "naive-rag", "-i", "questoin=Why?"), "unknown input 'questoin'"),
        (("index", "missing.pdf", "-c", "x"), "no such file: 'missing.pdf'"),
        (("index", ".", "-c", " "), "a collection needs a name"),
        (("collections", "nowhere"), "unknown collection 'nowhere'"),
        (("delete", "-c", "nowhere", "--yes"), "unknown collection 'nowhere'"),
    ],
)
def test_wrong_usage(teola: CommandLine, words: tuple[str, ...], told: str) -> None:
    before = teola.state()
    line = teola(*words).refused(2)
    assert re.search(told, line), line
    assert teola.state() == before


def test_an_llm_that_cannot_be_reached(teola: CommandLine, tower: Path) -> None:
    before = teola.state()
    line = teola(*ASK, f"documents={tower}", "--llm", NOWHERE).refused(1)
    assert NOWHERE in line
    assert teola.state() == before


@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        ("postgresql://nobody@127.0.0.1:9/x", "127.0.0.1:9/x is unavailable.*check the dsn"),
        ("host=a b", "not a connection string: write postgresql://"),
    ],
)
def test_a_wrong_dsn(teola: CommandLine, tower: Path, dsn: str, told: str) -> None:
    for words in ([*ASK, f"documents={tower}"], ["index", tower, "-c", "x"], ["collections"]):
        line = teola(*words, "--dsn", dsn).refused(1)
        assert re.search(told, line), line


def test_a_dsn_need_not_stand_on_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which everybody on the machine may read."""
    monkeypatch.setenv("TEOLA_DSN", "postgresql://nobody:secret@127.0.0.1:9/x")
    assert call(["collections"]) == 1
    told = capsys.readouterr().err
    assert "127.0.0.1:9/x is unavailable" in told
    assert "secret" not in told
    assert "list of processes" not in told


@pytest.mark.parametrize(
    ("dsn", "warned"),
    [
        ("postgresql://nobody:secret@127.0.0.1:9/x", True),
        ("host=127.0.0.1 port=9 password = 'secret'", True),
        ("postgresql://nobody@127.0.0.1:9/x", False),
        ("postgresql://127.0.0.1:9/x?application_name=a:b@c", False),
    ],
)
def test_a_password_on_the_command_line_is_warned_of(
    capsys: pytest.CaptureFixture[str], dsn: str, warned: bool
) -> None:
    assert call(["collections", "--dsn", dsn]) == 1
    told = capsys.readouterr().err
    assert ("the environment variable TEOLA_DSN" in told) is warned
    assert "secret" not in told


def test_a_server_or_a_folder_but_not_both(teola: CommandLine, data_dir: Path) -> None:
    words = ("collections", "--dsn", "postgresql://localhost/x", "--data-dir", data_dir)
    assert "not both" in teola(*words).refused(2)


def test_a_query_that_fails_half_way(teola: CommandLine, tower: Path) -> None:
    """Its documents are given up unless they were stored completely."""
    before = teola.state()
    app = tower.parent / "failing.py"
    app.write_text(
        "from teola import App, Indexing, component\n"
        "@component\n"
        "def fail(question: str) -> str:\n"
        "    raise KeyError(question)\n"
        "app = App('failing', fail >> Indexing(), inputs={'question': 'text',\n"
        "          'documents': 'documents'}, outputs={'answer': 'fail'}, passes='none')\n"
    )
    words = ("run", f"{app}:app", "-i", "question=Why?", "-i", f"documents={tower}")
    assert "component 'fail'" in teola(*words).refused(1)
    assert teola.state() == before


def test_a_deadline_that_passes(teola: CommandLine, tower: Path) -> None:
    before = teola.state()
    line = teola(*ASK, f"documents={tower}", "--deadline", "0.000001").refused(1)
    assert "deadline" in line
    assert teola.state() == before


def test_debug_shows_where_an_error_comes_from(teola: CommandLine) -> None:
    ended = teola("run", "nothing", "--debug")
    assert ended.code == 2
    assert "Traceback" in ended.err
    assert ended.err.splitlines()[-1].startswith("teola: unknown application 'nothing'")
