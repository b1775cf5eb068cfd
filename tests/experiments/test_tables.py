"""The paper's queries over tables, in small: the tables, the model, and what the report says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.tables import __main__ as command
from experiments.tables import ablations, figures, groups, live, measure, paper, runs, squad
from experiments.tables.ablations import batches, filters
from experiments.tables.generated import STATISTICS, table
from experiments.tables.model import SimulatedModel, tokens_in
from experiments.tables.queries import QUERIES, answer_of
from experiments.tables.runs import SYSTEMS, measured, scored, text_of
from teola import tables
from teola.errors import UnknownName
from teola.runtime.rows import Row, RowAnswer, RowsCall, RowsEnd, RowsHandle
from teola.tables.retrieval_call import RetrievalCall
from tests.planted import catches, edited

FOLDER = Path(figures.__file__).parent
ROW = {
    "where", "query", "data", "system", "rows", "calls", "prompt_tokens", "hit_tokens", "hit_share",
    "seconds",
}  # fmt: skip
ABLATION = {"name", "data", "case", "rows", "calls", "hit_share", "seconds", "ratio"}
OVERHEAD = {"query", "data", "sql_share", "embedding_share", "plan_share"}
INFO = {"movies": ("movie_info", "review_content"), "products": ("description", "reviewText")}


@pytest.mark.parametrize("data", STATISTICS)
def test_tables_have_the_statistics_of_the_paper(data: str) -> None:
    known, made = STATISTICS[data], table(data, 3000)
    info, review = (made.column(name).to_pylist() for name in INFO[data])
    assert sum(map(len, info)) / 3000 == pytest.approx(known.item_length, rel=0.01)
    assert sum(map(len, review)) / 3000 == pytest.approx(known.review_length, rel=0.02)
    assert len(set(info)) == known.items
    assert len(set(review)) == pytest.approx(3000 * known.distinct / known.rows, abs=2)
    orders = {"movies": ["movie_info", "review_type", "review_content"],
              "products": ["description", "Format", "reviewText"]}  # fmt: skip
    assert scored(data, paper.COLUMNS[data], 3000, 0) == orders[data]
    assert made.equals(table.__wrapped__(data, 3000))
    with pytest.raises(UnknownName, match="movies"):
        table("films", 10)


@catches(
    "whole-rows",
    "a field's text is that of its whole row, so that no two rows share one",
    edited(SimulatedModel._rows, "number_of(line)", "number_of(row.text)"),
)
def test_a_row_finds_the_blocks_that_it_shares_with_the_one_before() -> None:
    found = (172 + tokens_in(f"movie_info: {'gull ' * 100}") + 1) // 16 * 16
    assert _asked_twice(cache=True) == found
    assert _asked_twice(cache=False) == 0


def _asked_twice(*, cache: bool) -> int:
    """Tokens that are found for two rows, one after the other."""
    asked = QUERIES["Q2", "movies"].calls[0]
    model = SimulatedModel({asked.question: asked}, 40, cache=cache)
    came: list[RowAnswer] = []
    call = RowsCall(asked.question)
    for at, words in enumerate(("one", "two")):  # the second one comes when the first has ended
        text = f"\nmovie_info: {'gull ' * 100}\nreview_content: {words}"
        model(call, iter([Row(at, text)]), came.extend)
    assert model.completion_tokens == 80
    assert model.seconds > 80 * 0.045
    assert [one.id for one in came] == [0, 1]
    return model.hit_tokens


@pytest.mark.parametrize("name", ["Q2", "Q4"])
def test_every_system_gives_the_same_rows(name: str) -> None:
    query, rows = QUERIES[name, "movies"], 80
    found = {}
    for system, how in SYSTEMS.items():
        asked_of = {query.calls[0].question: query.calls[0]}
        model = SimulatedModel(asked_of, 9, cache=how.cache, grouped=how.grouped)
        source = {"t": table("movies", rows)}
        asked = tables.sql(text_of(query, how, rows, 0), source, passes=how.passes, answers=False)
        done = asked.run(ask_rows=model)
        found[system] = sorted(done.rows)
        assert (model.calls < rows) is (name == "Q2" and how.passes not in ("none", "sort"))
    assert len({str(one) for one in found.values()}) == 1
    assert found["ours"]


def test_answers_do_not_depend_on_the_order_of_fields() -> None:
    asked = QUERIES["Q3", "products"].calls[0]
    lines = [f"review: {k}" for k in range(400)]
    said = [answer_of(asked, ["title: a", line]) for line in lines]
    assert said == [answer_of(asked, [line, "title: a"]) for line in lines]
    assert 0.4 < said.count("Negative") / 400 < 0.6
    assert {*said} == {"Negative", "Positive", "Neutral"}


def test_choices_end_sooner_and_a_cache_saves_time() -> None:
    none, fifo, psm, once, by_groups, ours = (
        measured("Q2", "movies", name, 120, 40, 0) for name in SYSTEMS
    )
    assert none.hit_tokens == 0
    assert none.seconds > 1.3 * fifo.seconds > 1.3 * psm.seconds > 1.3 * once.seconds
    assert once.calls == by_groups.calls == ours.calls
    assert by_groups.seconds < 1.1 * once.seconds
    assert once.seconds > 1.3 * ours.seconds
    assert psm.order == ("movie_info", "review_content")


def test_warming_the_instruction_does_not_wait_for_an_answer() -> None:
    """A text has 256 tokens here, which are 12 s."""
    once, ours = (measured("Q1", "products", name, 80, 256, 0) for name in SYSTEMS if name in
                  ("psm_dedup_sql", "ours"))  # fmt: skip
    assert ours.calls == once.calls >= 64
    assert ours.seconds < once.seconds + 1


@catches(
    "last-group",
    "the value with the least to share makes the first group",
    edited(groups._best, "score > found[0]", "score < found[0]"),
)
def test_groups_have_orders_of_their_own() -> None:
    """The example of the published planner: fields that repeat stand first where they do."""
    cells = [("long value", f"x{k}", "c") for k in range(3)]
    cells += [(f"y{k}", "other long value", "c") for k in range(4)]
    rows = [Row(at, "".join(f"\n{one}" for one in row)) for at, row in enumerate(cells)]
    found = groups.arranged(rows[::-1])
    assert [row.id for row in found] == [3, 4, 5, 6, 0, 1, 2]
    assert found[0].text == "\nother long value\nc\ny0"
    assert found[4].text == "\nlong value\nc\nx0"
    assert [row.opens for row in found] == [True, *[False] * 3, True, *[False] * 2]
    assert groups.arranged([]) == []


def test_nothing_is_found_within_a_batch() -> None:
    """The paper's example, planned with batch_aware and without."""
    together, apart, by_order, dealt = batches(100, 8, 0)
    assert (together["calls"], apart["calls"]) == (9, 3)
    assert apart["hit_share"] > together["hit_share"] + 0.3
    assert (by_order["calls"], by_order["ratio"]) == (dealt["calls"], 1.0)
    assert dealt["hit_share"] > by_order["hit_share"] + 0.1
    assert dealt["ratio"] > 1.1


def test_questions_share_contexts_in_order_and_embedding_is_little() -> None:
    fifo, psm, ours = (measured("Q5", "squad", name, 120, 8, 0) for name in ("fifo", "psm", "ours"))
    assert 0 < fifo.hit_share < psm.hit_share - 0.1
    assert psm.hit_share < ours.hit_share
    embedding_s = ours.embedding_s
    assert embedding_s is not None
    assert 0 < embedding_s < paper.EMBEDDING_SHARE * ours.seconds
    questions, paragraphs = squad.collection(200)
    assert sum(map(len, paragraphs)) / len(paragraphs) == pytest.approx(squad.LENGTH, rel=0.1)
    search = squad.Search(200, 0)
    nearest = search(RetrievalCall("squad", 3), questions, 1.0)
    right = [
        all(word in one[0] for word in text.split())
        for text, one in zip(questions, nearest, strict=True)
    ]
    assert sum(right) > 190
    assert all(len({*one}) == 3 for one in nearest)


class Scripted:
    """In place of a runtime: answers at once with what no script says. tenants: who asked."""

    def __init__(self) -> None:
        self.tenants: list[str] = []

    def ask_rows(
        self, call: RowsCall, rows: Iterator[Row], on_answers: Any, **limits: Any
    ) -> RowsHandle:
        self.tenants.append(limits["tenant"])
        on_answers([RowAnswer(row.id, "gibberish", None, 20, 16, 3) for row in rows])
        done: Future[RowsEnd] = Future()
        count = call.decode.max_tokens
        done.set_result(RowsEnd("ok", count, 0, count, 20, 16, 3, 0.5))
        return RowsHandle(done, lambda: None)


@pytest.mark.parametrize("grouped", [False, True])
def test_what_a_random_model_says_is_replaced_by_the_script(grouped: bool) -> None:
    asked = QUERIES["Q2", "movies"].calls[0]
    model = live.LiveModel(Scripted(), {asked.question: asked}, grouped=grouped)  # type: ignore[arg-type]
    came: list[RowAnswer] = []
    rows = [Row(k, f"\nmovie_info: m{k % 3}\nreview_content: r{k}") for k in range(9)]
    model(RowsCall(asked.question), iter(rows), came.extend)
    said = {one.id: one.text for one in came}
    told = {row.id: answer_of(asked, row.text.split("\n")[1:]) for row in rows}
    assert said == {id: f"Sure! Of these I would say {text}." for id, text in told.items()}
    assert (model.calls, model.seconds) == (live.OUTPUT, 0.5)  # so long an answer is asked for


def test_queries_in_this_process_find_nothing_of_one_another() -> None:
    asked, runtime = QUERIES["Q2", "movies"].calls[0], Scripted()
    engine = live.Local(Path("model"), cache=True)
    for _ in range(2):
        model = live.LiveModel(runtime, {asked.question: asked}, grouped=False)  # type: ignore[arg-type]
        ask = partial(model, RowsCall(asked.question), iter([Row(1, "\nmovie_info: m")]), [].extend)
        one = engine.measure(model, ask)  # type: ignore[arg-type]
        assert (one.prompt, one.hits, one.written, one.seconds) == (20, 16, 3, 0.5)
    first, second = runtime.tenants
    assert first
    assert first != second


def test_ours_is_held_to_a_factor_or_to_what_is_computed_and_written() -> None:
    sizes = [(1000, 40), (400, 40), (300, 10)]
    runs = [
        live.Measured(10, computed + 50, 50, written, computed * 1e-3 + written * 0.01, 9.0)
        for computed, written in sizes
    ]
    assert live.least_s(live.learned(runs), 200, 20) == pytest.approx(0.4)
    systems = {"no_cache": 30.0, "fifo": 20.0, "psm": 12.0, "psm_dedup_sql": 9.0, "groups": 9.0}
    rows = [
        {"where": "live", "query": "Q2", "data": "movies", "system": name, "rows": 10,
         "seconds": seconds, "hit_share": 0.5}
        for name, seconds in {**systems, "ours": 15.0}.items()
    ]  # fmt: skip
    bound = {"where": "live", "query": "Q2", "data": "movies", "bound_s": 14.0, "seconds": 15.0}
    hits = {"data": "movies", "rows": 500, "prompt_tokens": 9, "cached_tokens": 100,
            "engine_hit_tokens": 103, "explained_cached_tokens": 108}  # fmt: skip
    report = {"rows": rows, "ablations": [], "overheads": [], "bounds": [bound], "hits": [hits]}
    near, counted, explained = (one[-1] for one in figures.goals(report))
    assert (near, counted, explained) == ("met", "missed", "met")
    bound["bound_s"] = 10.0
    assert figures.goals(report)[0][-1] == "missed"
    assert figures.live_lines(report)[0][-4:-2] == ["2.00", "3.00"]
    shown = StringIO()
    figures.show(report, Console(width=200, file=shown))
    assert "of 3 goals are met" in shown.getvalue()


def test_a_cheap_condition_first_spares_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablations, "SELECTIVITIES", ())
    late, soon = filters("products", 150, 20, 0)
    assert (late["calls"], late["ratio"]) == (150, 1.0)
    assert soon["calls"] < 40
    assert soon["ratio"] > 2


def test_the_report_has_the_keys_that_are_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = {cell: QUERIES[cell] for cell in (("Q2", "movies"), ("Q1", "products"))}
    monkeypatch.setattr(measure, "QUERIES", cells)
    monkeypatch.setattr(ablations, "measure", lambda *_: batches(40, 2, 0))
    monkeypatch.setattr(measure, "FIT_ROWS", 30)
    monkeypatch.setattr(runs, "OUTPUTS", (2, 4))
    command.main(["--rows", "40", "--workers", "1", "--json", "--out", str(tmp_path)])
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert found.keys() == {"rows", "ablations", "overheads"}
    assert len(found["rows"]) == 2 * len(SYSTEMS)
    assert all(row.keys() == ROW for row in found["rows"])
    assert all(row.keys() == ABLATION for row in found["ablations"])
    assert all(row.keys() == OVERHEAD for row in found["overheads"])
    assert "Q2 on movies: answers of" in told.err
    report = json.loads((tmp_path / "report.json").read_text())
    assert all(one["output_tokens"] in (2, 4) for one in report["fitted"])
    shown = StringIO()
    figures.show(report, Console(width=200, file=shown))
    assert "Times as fast" in shown.getvalue()
    assert "goals are met" in figures.section(report, Path("images/x.svg"))


def test_unknown_parts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--parts", "simulated,dead"])
    assert "none of simulated, ablations, overheads, live, local, hits" in capsys.readouterr().err


def test_the_prose_says_what_the_report_says() -> None:
    report = json.loads((FOLDER / "report.json").read_text())
    prose = (FOLDER / "README.md").read_text()
    for line in (*figures.lines(report), *figures.hit_lines(report)):
        assert f"| {' | '.join(line)} |" in prose
    for one in figures.goals(report):
        assert (one[-1] == figures.MISSED) is (f"| {' | '.join(one[:-1])} |" in prose)
    assert figures.counted(report) in prose
    assert figures.fitted(report) in prose
