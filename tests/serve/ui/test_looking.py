"""Graphs, timeline, critical path, lists and engines in a browser."""

from __future__ import annotations

from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from teola.runtime.observe.trace import NOT_RUN
from tests.serve.ui.page import Page

pytestmark = pytest.mark.browser

QUESTION = "Who looks after the lamp?"
P, E = "figure:first-of-type", "figure:last-of-type"


@pytest.fixture
def answered(page: Page) -> str:
    """The id of a query that has ended, whose view is open."""
    id = page.ended("advanced-rag", QUESTION)
    page.open(f"/queries/{id}")
    page.one(f"{E} .node")
    return id


def ids(page: Page, css: str, name: str = "data-id") -> list[str]:
    return [str(one.get_dom_attribute(name)) for one in page.all(css)]


# --- graphs ---------------------------------------------------------------------------------


def test_both_graphs_stand_side_by_side(page: Page, answered: str) -> None:
    found = page.told(f"queries/{answered}/explanation")
    for css, graph in ((P, found["p_graph"]), (E, found["e_graph"])):
        assert ids(page, f"{css} .node") == [p["id"] for p in graph["primitives"]]
        assert len(page.all(f"{css} path.edge")) == len(graph["edges"])
    left, right = (page.one(f"{css} .scroll").rect for css in (P, E))
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    boxes = [one.rect for one in page.all(f"{E} .node .box")]
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            beside = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
            assert beside or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"]


def test_what_is_pointed_at_lights_up_in_the_other_graph(page: Page, answered: str) -> None:
    origins = page.told(f"queries/{answered}/explanation")["origins"]
    pieces = sorted(id for id, origin in origins.items() if origin == "expand.decode")
    assert len(pieces) > 1
    page.point(f"{P} [data-id='expand.decode'] .box")
    page.until(lambda: sorted(ids(page, f"{E} .node.lit")) == pieces)
    page.says("became", ".inspector")
    page.says(pieces[0], ".inspector")
    page.point(f"{E} [data-id='{pieces[0]}'] .box")
    page.until(lambda: ids(page, f"{P} .node.lit") == ["expand.decode"])
    page.says("on llm", ".inspector")
    page.says("ran from", ".inspector")
    page.until(lambda: ids(page, ".span.lit", "data-primitive") == [pieces[0]])


def test_what_is_held_is_in_the_link(page: Page, answered: str) -> None:
    page.click(f"{P} [data-id='expand.decode'] .box")
    page.until(lambda: page.fragment.endswith("?at=p%3Aexpand.decode"))
    page.open(page.fragment.removeprefix("#"))
    page.one(f"{P} [data-id='expand.decode'][aria-selected=true]")
    page.says("expand.decode", ".inspector")
    page.keys(Keys.ESCAPE)
    page.until(lambda: "at=" not in page.fragment)
    page.until(lambda: not page.all(".inspector"))


def test_the_passes_say_what_they_did_and_why(page: Page, answered: str) -> None:
    found = page.told(f"queries/{answered}/explanation")
    section = page.text("section[aria-labelledby=h-passes]")
    for rewrite in found["rewrites"]:
        assert rewrite["reason"] in section
    for name in found["passes"]:
        assert name.replace("_", " ") in section


def test_what_is_held_shows_what_it_read_and_gave(page: Page, answered: str) -> None:
    spans = page.told(f"queries/{answered}/timeline")["spans"]
    done = {span["op"]: span["primitive"] for span in spans if span["state"] == "done"}
    told = {op: page.told(f"queries/{answered}/primitives/{id}") for op, id in done.items()}
    for op, shown in (
        ("prefilling", told["prefilling"]["prompt"][-1]["text"].strip()[:60]),
        ("prefilling", "tokens in"),
        ("embedding", told["embedding"]["inputs"]["texts"][0][:30].partition("\n")[0]),
        ("searching", told["searching"]["outputs"]["hits"][0][0]["document"]),
    ):
        page.open(f"/queries/{answered}?at={done[op]}")
        page.says(shown, ".inspector .values")
    assert page.complaints() == []


# --- the timeline ---------------------------------------------------------------------------


def shown(spans: list[dict[str, Any]]) -> list[str]:
    return [span["primitive"] for span in spans if span["state"] not in NOT_RUN]


def test_every_span_is_in_the_lane_of_its_instance(page: Page, answered: str) -> None:
    found = page.told(f"queries/{answered}/timeline")
    assert sorted(ids(page, ".span", "data-primitive")) == sorted(shown(found["spans"]))
    lanes = page.one(".lane-names").get_attribute("aria-label") or ""
    for span in found["spans"]:
        if span["engine"]:
            assert f"{span['engine']} #{max(0, span['instance'])}" in lanes
    tops = {one.get_dom_attribute("data-primitive"): one.rect["y"] for one in page.all(".span")}
    there = [s for s in found["spans"] if s["state"] not in NOT_RUN]
    embedding = {tops[s["primitive"]] for s in there if s["engine"] == "embedding"}
    llm = {tops[s["primitive"]] for s in there if s["engine"] == "llm"}
    assert max(embedding) < min(llm) or max(llm) < min(embedding)


def test_the_critical_path_is_marked_and_summed_up(page: Page, answered: str) -> None:
    found = page.told(f"queries/{answered}/timeline")
    wanted = set(found["critical_spans"])
    assert wanted >= {s["span"] for s in found["critical_path"] if s["span"] is not None}
    marked = {int(i) for i in ids(page, ".span.critical", "data-span")}
    assert marked == wanted
    assert page.all(".link.critical")
    page.says("decoding", ".summary")
    widths = [float(w) for w in ids(page, ".share", "width")]
    assert sum(widths) == pytest.approx(1000, abs=1)


def test_pointing_at_a_span_says_whom_it_waited_for(page: Page, answered: str) -> None:
    spans = page.told(f"queries/{answered}/timeline")["spans"]
    i = max(k for k, s in enumerate(spans) if s["waited_for"] is not None and s["engine"] == "llm")
    page.point(f".span[data-span='{i}'] .bar")
    page.says(f"became ready with {spans[spans[i]['waited_for']]['primitive']}", ".inspector")
    page.one(".link.before")
    assert "became ready with" in str(page.one(f"[data-span='{i}']").get_attribute("aria-label"))


def test_zooming_in_scrolls_within_the_timeline(page: Page, answered: str) -> None:
    whole = page.one("svg.lanes").rect["width"]
    page.click("[aria-label=Closer]")
    page.until(lambda: page.one("svg.lanes").rect["width"] > 1.5 * whole)
    page.js("document.querySelector('[data-span=\"0\"]').focus()")
    page.keys("+", "+")
    page.until(lambda: page.one("svg.lanes").rect["width"] > 3 * whole)
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")
    page.keys("0")
    page.until(lambda: page.one("svg.lanes").rect["width"] == whole)


def test_the_timeline_grows_while_the_query_runs(page: Page) -> None:
    page.open(f"/queries/{page.ask('echo', 'please wait', mode='background')}")
    page.one(".span.is-running")

    def seconds() -> float:
        label = str(page.one(".span.is-running").get_attribute("aria-label"))
        amount, unit = label.split(" for ")[1].split(" ")[:2]
        return float(amount) / (1000 if unit.startswith("ms") else 1)

    before = seconds()
    page.until(lambda: seconds() > before)
    page.one(".node.is-running")
    page.click("button.danger")
    page.state("cancelled")
    page.one(".span.is-cancelled")


def test_nothing_moves_while_the_pointer_does(page: Page, answered: str) -> None:
    place = "return [...document.querySelectorAll('section')].map(e => e.offsetTop)"
    before = page.js(place)
    page.point(f"{E} .node .box")
    page.one(".inspector .what")
    spans = page.told(f"queries/{answered}/timeline")["spans"]
    longest = max(range(len(spans)), key=lambda i: spans[i]["end"] - spans[i]["start"])
    page.point(f".span[data-span='{longest}'] .bar")
    page.one(".inspector .what")
    assert page.js(place) == before


# --- lists ----------------------------------------------------------------------------------


def test_filters_are_in_the_link(page: Page) -> None:
    fine, bad = page.ask("echo", "hello"), page.ask("echo", "fail")
    page.open("/queries?app=echo&state=failed")
    page.one(f"a[href$='{bad}']")
    assert page.all(f"a[href$='{fine}']") == []
    page.click(".filters label:nth-of-type(2) option[value='']")
    page.one(f"a[href$='{fine}']")
    assert page.fragment == "#/queries?app=echo"
    page.type(".filters input", fine[3:13])
    page.until(lambda: len(page.all(".queries tbody tr")) == 1)
    link = page.fragment
    assert link == f"#/queries?app=echo&text={fine[3:13]}"
    page.open(link.removeprefix("#"))
    page.until(lambda: len(page.all(".queries tbody tr")) == 1)
    assert page.one(".filters input").get_attribute("value") == fine[3:13]
    page.click(".queries a")
    assert page.query_id() == fine


def test_queries_are_told_apart_by_their_questions(page: Page) -> None:
    odd = "who keeps <b>the</b> \u202elamp? " + "because " * 40
    plain, strange = page.ask("echo", "Where is Arrenholm?"), page.ask("echo", odd)
    page.open("/queries?text=arrenholm")
    assert page.one(f"td.about-query a[href$='{plain}']").text == "Where is Arrenholm?"
    page.open("/queries")
    link = page.one(f"td.about-query a[href$='{strange}']")
    assert link.text.startswith("who keeps <b>the</b> \ufffdlamp? because")
    assert page.all("td.about-query b") == []
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")
    row = "return arguments[0].closest('tr').getBoundingClientRect().height"
    assert page.driver.execute_script(row, link) < 70  # one line, with the id below


def test_an_empty_list_teaches(page: Page) -> None:
    page.open("/queries?text=nothing-is-called-this")
    page.says("No query is like this")
    page.click("main a[href='#/queries']")
    page.until(lambda: page.fragment == "#/queries")


def test_new_queries_appear_by_themselves(page: Page) -> None:
    page.open("/queries")
    page.one(".head h1")
    id = page.ask("echo", "late")
    page.one(f"a[href$='{id}']")


def test_engines_show_queues_batches_and_instances(page: Page, answered: str) -> None:
    page.go("/engines")
    names = [one["name"] for one in page.told("engines")["engines"]]
    page.until(lambda: len(page.all(".engine")) == len(names))
    assert [h.text.split("\n")[0].split(" ")[0] for h in page.all(".engine h2")] == names
    page.one("#engine-embedding")
    label = page.one(".bars[aria-label^='batch sizes']").get_attribute("aria-label")
    assert "mean" in str(label)
    page.says("up", ".instances")
    page.says("not told", ".instances .dim")


def test_a_query_that_is_not_there_says_so(page: Page) -> None:
    page.open("/queries/0123456789abcdef")
    page.says("This query is not here")
    page.one("main a[href='#/queries']")
