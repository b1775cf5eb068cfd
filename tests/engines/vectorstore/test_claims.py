"""What makes a document the same one, and what each place of a claim is told; no database."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from teola.engine import UNNAMED, Claim, DocumentKey
from teola.errors import InputError
from teola_engines.vectorstore.ownership import (
    WRITTEN_AT_ONCE,
    _Attempt,
    _by_tenant,
    _claimed,
    _ordered,
    _parts,
    document_key,
)

KEY = DocumentKey("sha", "v1", "a", {"year": 1, "tags": ["x", {"k": 1, "l": 2}]}, reading="html")
OTHERS = {
    "sha256": "sha2", "pipeline": "v2", "name": "b", "reading": "text", "metadata": {"year": 2},
}  # fmt: skip


def test_what_makes_a_document_another_one() -> None:
    same = document_key("t", "c", KEY)
    assert (len(same), same) == (32, document_key("t", "c", KEY))
    turned = {"tags": ["x", {"l": 2, "k": 1}], "year": 1}
    for alike in ({"origin": "/a"}, {"replace": True}, {"metadata": turned}):
        assert document_key("t", "c", replace(KEY, **alike)) == same
    others = {
        document_key("t", "c", replace(KEY, **{field: value}))  # type: ignore[arg-type]
        for field, value in OTHERS.items()
    }
    where = [document_key("u", "c", KEY), document_key("t", "d", KEY), document_key("tc", "", KEY)]
    assert len({same, *others, *where}) == 1 + len(OTHERS) + len(where)


def test_without_a_collection_only_bytes_and_how_they_are_read_count() -> None:
    same = document_key("t", UNNAMED, KEY)
    for field, value in OTHERS.items():
        other = document_key("t", UNNAMED, replace(KEY, **{field: value}))  # type: ignore[arg-type]
        assert (other == same) is (field not in ("sha256", "pipeline"))


def test_documents_are_claimed_in_order_of_their_keys_and_told_as_they_were_given() -> None:
    keys = [replace(KEY, name=name) for name in "cabca"]
    names, ordered = _ordered("t", "c", keys)
    assert names == [document_key("t", "c", key) for key in keys]
    assert list(ordered) == sorted(set(names))
    assert all(document_key("t", "c", key) == name for name, key in ordered.items())
    first, second = replace(KEY, origin="/1"), replace(KEY, origin="/2")
    (found,) = _ordered("t", UNNAMED, [first, second])[1].values()
    assert found.origin == "/1", "of equals the first"
    with pytest.raises(InputError, match=r"two documents are named 'a' \('/1' and '/2'\)"):
        _ordered("t", "c", [first, second])
    with pytest.raises(InputError, match=r"\('/1' and 'a text'\)"):
        _ordered("t", "c", [first, KEY])
    with pytest.raises(InputError, match="is not a name"):
        _ordered("t", UNNAMED, [replace(KEY, name="")])


def test_of_equal_documents_the_first_is_told_what_becomes_of_it() -> None:
    for owned, taken, replacing, first in product((True, False), repeat=4):
        done = _Attempt(ids={"k": "id"})
        for holds, named in ((owned, done.owned), (taken, done.taken), (replacing, done.replacing)):
            named |= {"k"} if holds else set()
        is_owned, is_taken = owned and first, taken and not owned and first
        told = Claim("id", is_owned, is_taken, replacing and (is_owned or is_taken))
        assert _claimed(done, "k", first) == told


def test_what_an_earlier_try_took_is_not_forgotten() -> None:
    before = _Attempt(owned={"o"}, taken={"a"}, replacing={"b"}, holder=3)
    attempt = _Attempt(taken={"c"}, replacing={"d"})
    attempt.include(before)
    assert (attempt.taken, attempt.replacing) == ({"a", "c"}, {"b", "d"})
    assert (attempt.owned, attempt.holder) == (set(), None)


def test_documents_of_a_tenant_go_together_and_many_in_parts() -> None:
    assert _by_tenant({"c": "t", "a": "u", "b": "t"}) == {"u": ["a"], "t": ["b", "c"]}
    for count in (0, 1, WRITTEN_AT_ONCE, WRITTEN_AT_ONCE + 1):
        names = [str(k) for k in range(count)]
        parts = list(_parts(names))
        assert [name for part in parts for name in part] == names
        assert len(parts) == -(-count // WRITTEN_AT_ONCE)
