"""The command line on the real defaults: answers, shapes of the JSON, collections, and the end."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import CommandLine

QUESTION = "question=How tall is the lighthouse of Arrenholm?"
STATEMENT = "The lighthouse of Arrenholm is 61 metres tall."
HEAVY = ("torch", "openai", "llama_index", "psycopg", "networkx", "teola.app")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "arrenholm.md"
    path.write_text(
        f"# Arrenholm\n\nA harbour town, {tmp_path.name}.\n\n{STATEMENT}\n\n"
        "A ferry connects the town with the islands twice a day.\n"
    )
    return path


# --- run --------------------------------------------------------------------------------------


def test_run_prints_json(teola: CommandLine, page: Path) -> None:
    ended = teola("run", "advanced-rag", "-i", QUESTION, "-i", f"documents={page}", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = ended.json
    fields = {"app", "query_id", "state", "outputs", "latency_s", "primitives", "notices", "usage"}
    assert set(found) == fields
    assert (found["app"], found["state"]) == ("advanced-rag", "ok")
    assert STATEMENT in found["outputs"]["answer"]
    assert set(found["outputs"]) == {"answer", "sources"}
    source = found["outputs"]["sources"][0]
    assert set(source) == {"document", "text", "score", "metadata", "citation"}
    assert source["document"] == "arrenholm.md"
    assert STATEMENT in source["text"]
    assert found["latency_s"] > 0
    assert found["primitives"] > 5


def test_run_prints_answer_sources_and_how_it_went(teola: CommandLine, page: Path) -> None:
    ended = teola("run", "naive-rag", "-i", QUESTION, "-i", f"documents={page}")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.index(STATEMENT) < ended.out.index("Sources") < ended.out.index("  1  arren")
    assert ended.out.splitlines()[-1].startswith("ok · ")
    assert ended.out.splitlines()[-2].startswith("quoted, not generated: the extractive reader")


def test_overrides_reach_the_components(teola: CommandLine, page: Path) -> None:
    base = ("run", "naive-rag", "-i", QUESTION, "-i", f"documents={page}", "--json")
    settings = ("-s", "index.chunk_size=16", "-s", "index.overlap=0", "-s", "search.top_k=1")
    assert len(teola(*base, *settings[:4]).json["outputs"]["sources"]) == 3
    assert len(teola(*base, *settings).json["outputs"]["sources"]) == 1


def test_passes_and_policies_change_how_and_not_what(teola: CommandLine, page: Path) -> None:
    base = ("run", "advanced-rag", "-i", QUESTION, "-i", f"documents={page}", "--json")
    with_all = teola(*base, "--batching", "topology").json
    without = teola(*base, "--passes", "none", "--batching", "fifo", "--debug").json
    assert with_all["outputs"]["answer"] == without["outputs"]["answer"]
    assert with_all["primitives"] > without["primitives"]


def test_stream_writes_the_answer_once(teola: CommandLine, page: Path) -> None:
    ended = teola("run", "naive-rag", "-i", QUESTION, "-i", f"documents={page}", "--stream")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.partition("Sources")[0].count(STATEMENT) == 1


def test_stream_writes_events_for_programs(teola: CommandLine, page: Path) -> None:
    words = ("run", "naive-rag", "-i", QUESTION, "-i", f"documents={page}", "--stream", "--json")
    events = [json.loads(line) for line in teola(*words).out.splitlines()]
    result = events.pop()
    assert result.pop("event") == "result"
    text = "".join(event["text"] for event in events if event["event"] == "token")
    assert text == result["outputs"]["answer"]
    progress = [event for event in events if event["event"] == "progress"]
    assert {"started", "writing", "finished"} == {event["state"] for event in progress}
    assert "searching" in {event["op"] for event in progress}


def test_an_app_of_a_file(teola: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("LOUD = str.upper\n")
    file = tmp_path / "mine.py"
    file.write_text(
        "from beside import LOUD\n"
        "from teola import App, component\n"
        "@component\n"
        "def shout(words: str) -> str:\n"
        "    return LOUD(words)\n"
        "app = App('shouting', shout, inputs={'words': 'text'}, outputs={'answer': 'shout'})\n"
    )
    for where in (f"{file}:app", str(file)):
        assert teola("run", where, "-i", "words=hello", "--json").json["outputs"] == {
            "answer": "HELLO"
        }
    (shown,) = teola("apps", str(file), "--json").json["components"].values()
    assert shown["parameters"]["function"].endswith(":shout")
    assert "shout.function" not in teola("apps", str(file)).out, "nobody can set it"
    assert "unknown variable 'ap'" in teola("run", f"{file}:ap").refused(2)
    file.write_text("import nothing_of_this_name\n")
    assert "ModuleNotFoundError" in teola("run", f"{file}:app").refused(2)
    assert "no such file" in teola("run", f"{tmp_path}/other.py:app").refused(2)


def test_the_first_turn_of_a_conversation_can_be_asked(teola: CommandLine, page: Path) -> None:
    words = ("run", "chat-rag", "-i", QUESTION, "-i", f"documents={page}", "--json")
    for turn in ((), ("-i", "history="), ("-i", "history=User: hello")):
        assert STATEMENT in teola(*words, *turn).json["outputs"]["answer"]
    listed = teola("apps", "chat-rag", "--json").json
    assert (listed["inputs"]["history"], listed["defaults"]) == ("text", {"history": None})
    assert "history" in teola("apps", "chat-rag").out


# --- explain ----------------------------------------------------------------------------------


def test_explain_prints_json(teola: CommandLine) -> None:
    found = teola("explain", "advanced-rag", "--profile", "paper-13b", "--format", "json").json
    assert {"p_graph", "e_graph", "rewrites", "critical_path_s"} <= set(found)
    for graph in (found["p_graph"], found["e_graph"]):
        assert set(graph) == {"primitives", "edges"}
        fields = {"id", "op", "engine", "component", "items", "depth"}
        assert {frozenset(primitive) for primitive in graph["primitives"]} == {frozenset(fields)}
        assert {frozenset(edge) for edge in graph["edges"]} == {frozenset({"from", "to", "kind"})}
        assert {edge["kind"] for edge in graph["edges"]} <= {"data", "order", "guard"}
    assert {frozenset(rewrite) for rewrite in found["rewrites"]} == {
        frozenset({"pass", "primitive", "applied", "reason"})
    }
    seconds = found["critical_path_s"]
    assert 0 < seconds["e_graph"] < seconds["p_graph"]
    assert found == teola("explain", "advanced-rag", "--profile", "paper-13b", "--json").json


@pytest.mark.parametrize(
    ("form", "start"),
    [("text", "advanced-rag under profile"), ("mermaid", "flowchart"), ("dot", "digraph")],
)
def test_explain_draws(teola: CommandLine, form: str, start: str) -> None:
    ended = teola("explain", "advanced-rag", "--format", form)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(start)
    if form != "mermaid":
        assert max(map(len, ended.out.splitlines())) > 80, "lines of a pipe are not folded"


def test_explain_measures(teola: CommandLine, page: Path) -> None:
    words = ("explain", "naive-rag", "--analyze", "-i", QUESTION, "-i", f"documents={page}")
    measured = teola(*words, "--json").json["measured"]
    assert measured["state"] == "ok"
    assert measured["primitives"]["search.search"]["ran_s"] > 0
    assert "ran s" in teola(*words).out


# --- apps, engines ----------------------------------------------------------------------------


def test_apps_are_listed(teola: CommandLine) -> None:
    found = {app["name"]: app for app in teola("apps", "--json").json}
    naive = found["naive-rag"]
    assert naive["inputs"] == {"question": "text", "documents": "documents"}
    assert naive["outputs"] == ["answer", "sources"]
    assert naive["source"] == "teola_apps.naive_rag:app"
    assert naive["components"]["search"]["parameters"]["top_k"] == 3
    table = teola("apps").out
    assert "advanced-rag" in table
    assert naive["description"] in table
    assert "search.top_k" in teola("apps", "naive-rag").out


def test_engines_are_listed(teola: CommandLine) -> None:
    found = {engine["name"]: engine for engine in teola("engines", "--json").json}
    assert found["vectorstore"]["kind"] == "vectorstore"
    assert found["vectorstore"]["ops"] == ["ingestion", "searching"]
    assert found["extractive"]["default"] is True
    assert found["openai"]["default"] is False
    assert found["openai"]["needs"] == ["url"]
    assert "PostgreSQL with pgvector" in teola("engines").out


def test_a_broken_package_harms_nobody_else(
    teola: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[teola.apps]\nbroken = broken_app:app\nno-app = json:dumps\n"
        "[teola.engines]\nbroken = broken_app:Engine\n"
    )
    (tmp_path / "broken_app.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {app["name"]: app for app in teola("apps", "--json").json}
    assert "ZeroDivisionError" in found["broken"]["error"]
    assert "is no teola.App" in found["no-app"]["error"]
    assert "error" not in found["naive-rag"]
    assert "ZeroDivisionError" in teola("run", "broken").refused(2)
    engines = {engine["name"]: engine for engine in teola("engines", "--json").json}
    assert "ZeroDivisionError" in engines["broken"]["error"]


# --- collections ------------------------------------------------------------------------------


def test_the_life_of_a_collection(
    teola: CommandLine, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"life-{page.parent.name}"
    other = page.with_name("other.txt")
    other.write_text(f"Nothing of interest happens here, {page.parent.name}.")
    page.with_name("a.zip").write_bytes(b"zip")
    first = teola("index", page.parent, "-c", name, "--json").json
    assert first == {
        "collection": name, "documents": 2, "new": 2, "known": 0, "chunks": 2, "failed": [],
        "hidden": 0, "passed_over": {".zip": 1}, "replaced": [], "taken": 0, "deleted": 0,
    }  # fmt: skip
    again = teola("index", page.parent, "-c", name)
    assert (again.code, again.out) == (
        0,
        f"{name}: 0 indexed (0 chunks), 2 known already\n1 file passed over: .zip 1\n",
    )

    listed = {entry["name"]: entry for entry in teola("collections", "--json").json}
    assert listed[name] == {"name": name, "documents": 2, "chunks": 2}
    assert name in teola("collections").out
    documents = teola("collections", name, "--json").json
    arrenholm, nothing = (f"{page.parent.name}/{file}" for file in ("arrenholm.md", "other.txt"))
    assert {d["name"]: d["origin"] for d in documents} == {
        arrenholm: str(page),
        nothing: str(other),
    }
    assert set(documents[0]) == {"id", "name", "chunks", "created_at", "metadata", "origin"}
    assert nothing in teola("collections", name).out

    answer = teola("run", "naive-rag", "-i", QUESTION, "-i", f"collection={name}", "--json").json
    assert STATEMENT in answer["outputs"]["answer"]

    monkeypatch.setattr("sys.stdin", io.StringIO())  # nobody answers
    asked = teola("delete", "-c", name)
    assert asked.code == 130
    assert "Delete all 2 documents" in asked.err
    missing = teola("delete", "-c", name, "-d", f"{nothing}x", "-y").refused(2)
    assert f"did you mean {nothing!r}" in missing
    gone = teola("delete", "-c", name, "-d", nothing, "-y", "--json").json
    assert gone == {"collection": name, "deleted": 1}
    assert teola("delete", "-c", name, "--yes").out == f"{name}: 1 document deleted\n"
    assert "unknown collection" in teola("collections", name).refused(2)


def test_what_cannot_be_read_is_told_and_the_rest_indexed(teola: CommandLine, page: Path) -> None:
    page.with_name("empty.md").touch()
    name = f"partly-{page.parent.name}"
    ended = teola("index", page.parent, "-c", name)
    assert ended.code == 1
    assert ended.out == f"{name}: 1 indexed (1 chunk), 1 failed\n"
    (line,) = ended.err.splitlines()
    assert line.startswith(f"teola: {page.parent.name}/empty.md: cannot read")


# --- the program ------------------------------------------------------------------------------


def program(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "teola", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_help_needs_nothing_heavy() -> None:
    probe = (
        "import sys; from teola.cli import call; code = call(['--help'])\n"
        f"print([name for name in {HEAVY} if name in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[] 0", done
    assert all(name in done.stdout for name in ("run", "explain", "apps", "engines", "index"))


def test_every_command_explains_itself(teola: CommandLine) -> None:
    for command in (
        "run",
        "explain",
        "apps",
        "engines",
        "index",
        "collections",
        "collections show",
        "collections tidy",
        "collections reindex",
        "delete",
        "queries",
        "waiting",
        "answer",
        "profile fit",
        "profile measure",
        "profile show",
    ):
        assert f"$ teola {command}" in teola(*command.split(), "--help").out


def test_the_program_says_nothing_but_the_answer(
    teola: CommandLine, data_dir: Path, page: Path
) -> None:
    done = program(
        *("run", "naive-rag", "-i", QUESTION, "-i", f"documents={page}", "--json"),
        *("--data-dir", data_dir),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert STATEMENT in json.loads(done.stdout)["outputs"]["answer"]


def test_the_program_tells_its_version() -> None:
    done = program("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("teola 0.")


def test_an_interrupted_program_leaves_nothing(
    teola: CommandLine, data_dir: Path, tmp_path: Path
) -> None:
    """Interrupted while a long document is being stored, stage by stage."""
    name = tmp_path.name
    long = tmp_path / "long.txt"
    long.write_text("".join(f"Sentence {i} of {name} says nothing new.\n" for i in range(3_000)))
    before = teola.state()
    command = [sys.executable, "-m", "teola", "run", "naive-rag", "-i", QUESTION]
    command += ["-i", f"documents={long}", "--data-dir", str(data_dir), "--stream", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        for line in p.stdout:
            event = json.loads(line)
            if (event["op"], event["state"]) == ("ingestion", "finished"):
                break
        assert teola.state()["pending"] == 1
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
    assert (p.returncode, err) == (130, "teola: cancelled\n")
    assert teola.state() == before


def test_a_terminated_program_ends_its_query(tmp_path: Path) -> None:
    file = tmp_path / "endless.py"
    file.write_text(
        "import asyncio\n"
        "from teola import App, component\n"
        "@component\n"
        "async def wait(question: str) -> str:\n"
        "    try:\n"
        "        await asyncio.Event().wait()\n"
        "    finally:\n"
        "        print('unwound', flush=True)\n"
        "app = App('endless', wait, inputs={'question': 'text'}, outputs={'answer': 'wait'})\n"
    )
    command = [sys.executable, "-m", "teola", "run", str(file), "-i", "question=Why?"]
    command += ["--stream", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        assert json.loads(p.stdout.readline())["state"] == "started"
        p.terminate()
        out, err = p.communicate(timeout=60)
    assert (p.returncode, out, err) == (143, "unwound\n", "")
