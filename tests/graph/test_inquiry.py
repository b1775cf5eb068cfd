"""What a person is asked, as JSON."""

from __future__ import annotations

from teola.graph.inquiry import Inquiry


def test_a_question_is_told_without_its_query_and_with_what_it_is_about() -> None:
    schema = {"type": "boolean"}
    told = {"ask": "c/1", "kind": "approve", "component": "c", "question": "Go?", "schema": schema}
    assert Inquiry("c/1", "q", "approve", "c", "Go?", schema).to_json() == told
    about = Inquiry("c/1", "q", "approve", "c", "Go?", schema, {}).to_json()
    assert about == {**told, "about": {}}, "nothing is not None"
