"""Workloads: drawn by seed, as long as stated, and read from data sets where there are any."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import pytest

from experiments.common import datasets, workloads
from experiments.common.arrivals import arrivals
from experiments.common.testbed import Values
from experiments.common.workloads import APPS
from teola.errors import InputError
from teola.graph import Prompt
from teola.runtime.values import tokens_of

VALUES = Values()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with two questions of each kind and two short traces."""
    (tmp_path / "truthfulqa.csv").write_text(
        f"\ufeffType,Question,Best Answer\nA,{'q' * 42},{'a' * 84}\nB,Why?,So\n",
        encoding="utf-8",
    )
    rows = [{"question": "q" * 21, "answer": "yes"}, {"question": "q" * 63, "answer": "a" * 21}]
    (tmp_path / "hotpotqa_dev_simplified.json").write_text(json.dumps(rows))
    (tmp_path / "azure_llm_conv_2023.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:48.6805900,1,1\n"
        "2023-11-16 18:15:47.6805900,1,1\n"
    )
    times = [0, 0, 3000, 6000]
    lines = [json.dumps({"timestamp": at, "input_length": 1}) for at in times]
    (tmp_path / "mooncake_conversation_trace.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_same_seed_draws_the_same_queries_however_many() -> None:
    for app in APPS:
        few = workloads.draw(app, 5, VALUES, seed=3)
        assert workloads.draw(app, 50, VALUES, seed=3)[:5] == few
        assert workloads.draw(app, 5, VALUES, seed=4) != few


def test_documents_are_as_long_as_stated() -> None:
    chunks = [query.chunks for query in workloads.draw("naive-rag", 2000, VALUES)]
    assert median(chunks) == pytest.approx(48, abs=3)
    assert min(chunks) >= 8
    assert max(chunks) <= 192
    wide = workloads.draw("naive-rag", 2000, replace(VALUES, chunks_sigma=2.0))
    assert {8, 192} <= {query.chunks for query in wide}


def test_seven_of_ten_questions_are_searched_for() -> None:
    queries = workloads.draw("search-agent", 2000, VALUES)
    assert fmean(query.searches for query in queries) == pytest.approx(0.7, abs=0.03)


def literal_tokens(app: str, primitive: str) -> int:
    """Tokens of the literal text of a prompt, as the simulator counts them."""
    builder = workloads.find_app(app).builder
    configs = builder.configure(workloads.overrides(app, VALUES))
    graph = builder.build(configs, {"chunks": 48} if app != "search-agent" else {})
    prompt = graph[primitive].input("prompt")
    assert isinstance(prompt, Prompt)
    return sum(tokens_of(p.content) for p in prompt.parts if isinstance(p.content, str))


@pytest.mark.parametrize(
    ("app", "primitive", "tokens"),
    [
        ("naive-rag", "generate.1.prefill", 60),
        ("naive-rag", "generate.merge.prefill", 72),
        ("advanced-rag", "expand.prefill", 80),
        ("advanced-rag", "generate.1.prefill", 60),
        ("advanced-rag", "generate.2.prefill", 70),
        ("search-agent", "draft.prefill", 60),
        ("search-agent", "judge.prefill", 98),  # and the question of 22 on average
        ("search-agent", "generate.prefill", 60),
        ("search-agent", "direct.prefill", 60),
    ],
)
def test_prompts_are_as_long_as_stated(app: str, primitive: str, tokens: int) -> None:
    assert literal_tokens(app, primitive) == tokens


def test_lengths_come_from_the_data_sets(data: Path) -> None:
    assert datasets.pairs("truthfulqa", data) == ((10, 20), (1, 1))
    assert datasets.pairs("hotpotqa", data) == ((5, 1), (15, 5))
    drawn = workloads.draw("search-agent", 30, VALUES, data=data)
    assert {(query.question, query.answer) for query in drawn} == {(5, 1), (15, 5)}


def test_without_a_folder_lengths_are_drawn_with_the_means_of_the_sets() -> None:
    for app, name in workloads.DATASET.items():
        queries = workloads.draw(app, 4000, VALUES)
        question, answer = datasets.MEANS[name]
        assert fmean(query.question for query in queries) == pytest.approx(question, rel=0.05)
        assert fmean(query.answer for query in queries) == pytest.approx(answer, rel=0.09)
        assert len({query.answer for query in queries}) > 7


def test_a_missing_or_wrong_file_is_one_line(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no truthfulqa\.csv; .*README"):
        datasets.pairs("truthfulqa", tmp_path / "nowhere")
    (data / "hotpotqa_dev_simplified.json").write_text('[{"q": 1}]')
    with pytest.raises(InputError, match="not the expected hotpotqa file"):
        datasets.pairs("hotpotqa", data)
    with pytest.raises(InputError, match="need a data folder"):
        arrivals(1.0, 3, kind="mooncake")


def test_arrivals_keep_their_pattern_and_have_the_rate() -> None:
    slow, fast = arrivals(0.5, 4000), arrivals(5.0, 4000)
    assert slow[-1] == pytest.approx(4000 / 0.5, rel=0.05)
    assert [at / 10 for at in slow] == pytest.approx(fast)
    assert arrivals(1.0, 9, seed=1) != arrivals(1.0, 9, seed=2)


def test_traces_are_scaled_to_the_rate_and_start_anew(data: Path) -> None:
    assert datasets.trace("azure-conv", data) == pytest.approx((0.0, 1.0, 2.0))
    times = arrivals(2.0, 7, kind="azure-conv", data=data)
    assert times == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    bursts = arrivals(1.0, 8, kind="mooncake", data=data)
    assert bursts[0] == bursts[1] == 0.0
    assert bursts[-1] == pytest.approx(7.0)
    assert all(a <= b for a, b in pairwise(bursts))
