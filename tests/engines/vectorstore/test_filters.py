"""Filters on metadata: what they find in PostgreSQL, and what is refused before it is asked."""

from __future__ import annotations

from typing import Any

import pytest

from teola.errors import InputError, UnknownName
from teola.filters import Comparison, comparisons
from teola.workflow.inputs import check_inputs, declared
from teola.workflow.kinds import Kind
from teola_engines.vectorstore import PgVector, filtering, searching
from tests.planted import catches, edited

from .conftest import Corner, key, vectors

DOCUMENTS: dict[str, dict[str, Any]] = {
    "a": {"year": 1999, "lang": "en", "tags": ["x", "y"], "author": {"name": "Ann", "age": 40}},
    "b": {"year": 2004, "lang": "de", "tags": ["y"], "draft": True, "seen": "2024-02-01"},
    "c": {"year": 2010.5, "lang": None, "tags": [], "draft": False, "seen": "2024-11-30"},
    "d": {"year": "2004", 'we"ird $.k': "it's %s {x}"},
}


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, "abcd"),
        ({"year": 2004}, "b"),
        ({"year": 2004.0}, "b"),
        ({"year": "2004"}, "d"),
        ({"lang": None}, "c"),
        ({"draft": True}, "b"),
        ({"draft": 1}, ""),
        ({"tags": "y"}, "ab"),
        ({"tags": {"$all": ["x", "y"]}}, "a"),
        ({"tags": {"$in": ["x", "z"]}}, "a"),
        ({"tags": {"$all": []}}, "abcd"),
        ({"year": {"$eq": 1999}}, "a"),
        ({"year": {"$ne": 2004}}, "acd"),
        ({"draft": {"$ne": True}}, "acd"),
        ({"year": {"$gt": 2004}}, "c"),
        ({"year": {"$gte": 2004}}, "bc"),
        ({"year": {"$lt": 2004}}, "a"),
        ({"year": {"$lte": 2004}}, "ab"),
        ({"year": {"$gte": 1999, "$lt": 2010}}, "ab"),
        ({"year": {"$gte": "2"}}, "d"),
        ({"seen": {"$gte": "2024-02-01", "$lt": "2024-10-01"}}, "b"),
        ({"year": {"$in": [1999, "2004", True]}}, "ad"),
        ({"year": {"$in": []}}, ""),
        ({"lang": {"$nin": ["en", None]}}, "bd"),
        ({"year": {"$nin": []}}, "abcd"),
        ({"lang": {"$exists": True}}, "abc"),
        ({"draft": {"$exists": False}}, "ad"),
        ({"author": {"name": "Ann", "age": {"$gt": 39}}}, "a"),
        ({"author": {"age": {"$gt": 40}}}, ""),
        ({"name": "b"}, "b"),
        ({"name": {"$in": ["a", "d"]}, "year": {"$lt": 2000}}, "a"),
        ({"name": {"$eq": "a", "$ne": "a"}}, ""),
        ({"name": {"$gt": "b"}}, "cd"),
        ({'we"ird $.k': "it's %s {x}"}, "d"),
        ({'we"ird $.k': "it's"}, ""),
    ],
)
async def test_what_filters_find(
    filters: dict[str, Any], found: str, store: PgVector, corner: Corner
) -> None:
    await hits_of(store, corner, filters, found)


async def hits_of(store: PgVector, corner: Corner, filters: Any, found: str) -> None:
    for name, metadata in DOCUMENTS.items():
        await corner.index(store, key(name, **metadata), vectors(2, seed=ord(name)))
    (result,) = await store.execute([corner.search(vectors(1), top_k=20, filters=filters)])
    assert not isinstance(result, Exception), result
    assert "".join(sorted({hit.document for hit in result["hits"][0]})) == found


@catches(
    "a-filter-s-not-is-lost",
    "$ne and $nin find what they are to leave out",
    edited(filtering._is_negated, "comparison.operator in _NEGATED", "False"),
)
@catches(
    "one-condition-for-all",
    "only the first condition on metadata holds",
    edited(searching.read, "comparison not in named[:1]", "comparison in filters[:1]"),
)
async def test_conditions_hold_together(store: PgVector, corner: Corner) -> None:
    await hits_of(store, corner, {"year": {"$ne": 2004}, "tags": {"$exists": True}}, "ac")


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ({"year": {"$gtee": 1}}, r"operator '\$gtee' in the filter 'year'; did you mean '\$gte'"),
        ({"year": {"$regex": "a"}}, r"'year'.*valid: \$all, \$eq, \$exists, \$gt, \$gte"),
        ({"$or": [{"year": 1}]}, r"'\$or' is alone: an operator stands below the field"),
        ({"year": {"$gte": 1, "x": 2}}, "the filter 'year' mixes operators and fields"),
        ({"a": {"b": {}}}, r"'a\.b' is no comparison: give a value, or an object of operators"),
        ({"tags": ["x"]}, r"'tags' is compared with a list: write .*\$in.*\$all"),
        ({"year": {"$in": 3}}, r"\$in of the filter 'year' must be a list, not a number"),
        ({"year": {"$in": [[3]]}}, r"\$in of the filter 'year' must be text, a number.*a list"),
        ({"year": {"$gte": None}}, r"\$gte of the filter 'year' must be a number or text.* null"),
        ({"year": {"$lt": True}}, r"\$lt of the filter 'year' must be .* not true"),
        ({"year": {"$exists": 1}}, r"\$exists of the filter 'year' must be true or false"),
        ({"year": {"$eq": float("nan")}}, "'year' is nan: give a finite number"),
        ({"year": 10**5000}, "too many digits"),
        ({"year": object()}, "'year' must be text, a number, .* not object"),
        ({"year": "a\0"}, "'year' holds a character that cannot be stored"),
        ({"k\ud800": 1}, "holds a character that cannot be stored"),
        ({"name": 7}, r"\$eq of the filter 'name' must be the name of a document, not a number"),
        ({"name": {"$exists": False, "$ne": ""}}, "name of a document, not empty text"),
        ({"name": {"first": "x"}}, "'name' is no comparison"),
        ({"year": {"$in": ["x" * 100] * 200}}, "more than the 16384 that are taken"),
        ({3: 1}, "a key of the filters is 3, not text"),
        ([1], "filters must be an object, not list"),
        ("x", "filters must be an object, not str"),
    ],
)
def test_what_is_refused(filters: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        comparisons(filters)


def test_a_query_s_filters_are_refused_before_anything_runs() -> None:
    inputs = declared({"documents": Kind.DOCUMENTS})
    with pytest.raises(UnknownName, match="unknown operator"):
        check_inputs({"collection": "c", "filters": {"year": {"$around": 3}}}, inputs, "app")
    check_inputs({"collection": "c", "filters": {"year": {"$gt": 3}}}, inputs, "app")


def test_objects_inside_objects_have_an_end() -> None:
    filters: dict[str, Any] = {"x": 1}
    for _ in range(5000):
        filters = {"x": filters}
    with pytest.raises(InputError, match="no comparison"):
        comparisons(filters)


def test_comparisons_in_their_order() -> None:
    assert comparisons({"a": {"b": {"$gt": 1, "$lt": 3}}, "c": "x"}) == (
        Comparison(("a", "b"), "$gt", 1),
        Comparison(("a", "b"), "$lt", 3),
        Comparison(("c",), "$eq", "x"),
    )
