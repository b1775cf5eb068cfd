"""A local model behind `--llm PATH`, and `teola profile measure` of it and of the embedder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from experiments.common.tiny_model import make_model
from teola.graph import Op
from teola.profile import load_profile
from tests.command_line import CommandLine

QUESTION = "question=How tall is the lighthouse of Arrenholm?"
MEASURE = ("profile", "measure")
SHORT = ("-s", "generate.max_tokens=16")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "tiny"
    return make_model(folder, hidden=64, layers=2, heads=2, vocabulary=1024, chat_template=True)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "arrenholm.md"
    path.write_text("The lighthouse of Arrenholm is 61 metres tall.\n\n" * 8 + tmp_path.name)
    return path


# --- --llm PATH -------------------------------------------------------------------------------


def test_a_folder_with_a_model_answers(teola: CommandLine, model: Path, page: Path) -> None:
    words = ("run", "advanced-rag", "-i", QUESTION, "-i", f"documents={page}", *SHORT, "--json")
    ended = teola(*words, "-s", "expand.max_tokens=24", "--llm", model)
    assert (ended.code, ended.err) == (0, "")
    assert ended.json["state"] == "ok"
    plain = teola(*words, "-s", "expand.max_tokens=24", "--llm", model, "--passes", "none").json
    assert ended.json["outputs"]["answer"] == plain["outputs"]["answer"] != ""
    assert ended.json["primitives"] > plain["primitives"]


def test_the_program_says_nothing_while_a_model_loads(
    teola: CommandLine, model: Path, page: Path, data_dir: Path
) -> None:
    command = [sys.executable, "-m", "teola", "run", "naive-rag", "-i", QUESTION, *SHORT]
    command += ["-i", f"documents={page}", "--llm", model.name, "--data-dir", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=model.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("ok · ")


def test_a_model_that_cannot_be_run_is_told(teola: CommandLine, page: Path) -> None:
    (page.parent / "config.json").write_text('{"model_type": "llamma"}')
    words = ("run", "naive-rag", "-i", QUESTION, "-i", f"documents={page}")
    line = teola(*words, "--llm", page.parent).refused(1)
    assert line.startswith("llm: ")
    assert str(page.parent) in line


def estimate(explanation: str, primitive: str) -> float:
    """Seconds of a primitive of the p-graph, as an explanation tells them."""
    row = next(line.split() for line in explanation.splitlines() if f" {primitive} " in line)
    return float(row[5].rstrip("*"))


# --- teola profile measure --------------------------------------------------------------------


def test_the_profile_of_an_embedder_is_what_explain_reads(
    teola: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "here.json"
    ended = teola(*MEASURE, "embedding", "--limit", "4", "--repeats", "1", "--out", file)
    assert (ended.code, ended.err) == (0, "")
    heads, first, *_ = ended.out.splitlines()
    assert heads.split() == ["op", "items", "tokens", "seconds", "rate"]
    assert first.split()[:2] == ["embedding", "1"]
    assert first.split()[-1] == "items/s"
    assert re.search(rf"best batch (1 item|\d items); written to {file}$", ended.out.strip())

    measured = json.loads(file.read_text())["measured"]["embedding"]
    sizes = [point["items"] for point in measured]
    assert sizes == [1, 2, 4][: len(sizes)]
    assert len(sizes) > 1
    on = json.loads(file.read_text())["measured_on"]["embedding"]
    assert on["engine"] == "MiniLM"
    assert on["cores"] >= 1
    assert on["memory_gib"] > 0
    assert on["packages"]["torch"] == version("torch")
    profile = load_profile(str(file))
    assert profile.name == "here"
    found = profile.engines["embedding"]
    assert found.max_efficient in sizes
    for point in measured:
        fitted = found.cost(Op.EMBEDDING).seconds(point["items"], point["tokens"])
        assert fitted == pytest.approx(point["seconds"], rel=0.9)

    words = ("explain", "naive-rag", "--profile", file)
    before = teola(*words).out
    assert "naive-rag under profile here" in before
    seconds = estimate(before, "embed.embed")
    assert seconds > 0
    slow = json.loads(file.read_text())
    slow["engines"]["embedding"]["costs"]["embedding"]["base_s"] += 7.0
    file.write_text(json.dumps(slow))
    assert estimate(teola(*words).out, "embed.embed") == pytest.approx(seconds + 7, abs=0.01)


def test_the_profile_of_a_model_joins_the_others(
    teola: CommandLine, model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "here.json"
    other = {"max_batch": 7, "costs": {"reranking": {"per_item_s": 0.5}}}
    file.write_text(json.dumps({"version": 1, "name": "x", "engines": {"rerank": other}}))
    words = (*MEASURE, "llm", "--llm", model, "--repeats", "1", "--out", file)
    ended = teola(*words, "--limit", "256", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json == json.loads(file.read_text())
    assert ended.json["measured_on"]["llm"]["threads"] >= 1
    points = ended.json["measured"]["llm"]
    prompts = [point["tokens"] for point in points if point["op"] == "prefilling"]
    for size, tokens in zip((64, 128, 256), prompts, strict=True):
        assert size <= tokens < 2 * size
    widths = [point["items"] for point in points if point["op"] == "decoding"]
    assert widths == [1, 2, 4, 8, 16]
    profile = load_profile(str(file))
    assert profile.engines["rerank"].max_batch == 7
    assert profile.engines["llm"].prefix_reuse
    assert profile.engines["llm"].keeps_prefixes
    assert profile.engines["llm"].step.seconds(1) > 0
    assert profile.engines["llm"].seconds(Op.PREFILLING, 1, 2000) > 0
    lines = teola(*words, "--limit", "10").out.splitlines()
    assert len([line for line in lines if line.startswith("prefilling")]) == 1
    assert lines[-1].endswith(f"tokens; written to {file}")


def test_a_small_window_bounds_what_is_measured(
    teola: CommandLine, model: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    for file in model.iterdir():
        (small / file.name).symlink_to(file)
    config = json.loads((model / "config.json").read_text())
    (small / "config.json").unlink()
    (small / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 400}))
    words = (*MEASURE, "llm", "--llm", small, "--repeats", "1", "--out", tmp_path / "x.json")
    points = teola(*words, "--json").json["measured"]["llm"]
    assert [p["tokens"] < 400 for p in points if p["op"] == "prefilling"] == [True] * 3


def test_what_cannot_be_profiled_is_refused_before_it_is_measured(
    teola: CommandLine, tmp_path: Path
) -> None:
    nowhere = tmp_path / "missing" / "x.json"
    assert "there is no folder" in teola(*MEASURE, "embedding", "--out", nowhere).refused(2)
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    assert "broken.json" in teola(*MEASURE, "embedding", "--out", broken).refused(2)
    assert broken.read_text() == "{}"
    good = tmp_path / "good.json"
    assert "measured alone" in teola(*MEASURE, "documents", "--out", good).refused(2)
    assert "did you mean 'rerank'" in teola(*MEASURE, "rerenk", "--out", good).refused(2)
    assert not good.exists()
