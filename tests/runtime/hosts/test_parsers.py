import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.engine import LONGEST_ITEM
from teola.errors import OutputError, UnknownName
from teola.runtime.hosts.json_list import MAX_DEPTH
from teola.runtime.hosts.parsers import PARSERS, make_parser


def parse(kind, pieces):
    """(items, whether the text was malformed)."""
    parser, items = make_parser(kind), []
    try:
        for piece in pieces:
            items += parser.feed(piece)
        items += parser.close()
    except OutputError:
        return items, True
    return items, False


def arrivals(kind, text):
    """For each item, how many characters had been fed when it came; the rest came at the end."""
    parser, out = make_parser(kind), []
    for at, character in enumerate(text, start=1):
        out += [(item, text[:at]) for item in parser.feed(character)]
    return out, parser.close()


def cut(text, borders):
    points = sorted({0, len(text), *(b % (len(text) + 1) for b in borders)})
    return [text[lo:hi] for lo, hi in pairwise(points)]


# --- every chunking gives the same ----------------------------------------------------------

FRAGMENTS = r"""
[ ] { } , : " \ \u \ud83d \ude00 "a" "q": 1 -2.5e3 true null 1. 2) 13. - * ``` 😀 word
[1] ["x","y"] {"queries":["x"]}
"""
SPACED = [" ", "\t", "\n", "\n\n", "1. ", "2) ", "- ", "```json\n"]
tokens = st.sampled_from([*FRAGMENTS.split(), *SPACED])
texts = st.lists(tokens, max_size=30).map("".join)
borders = st.lists(st.integers(0, 1000), max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(PARSERS)), texts, borders)
def test_any_text_parses_the_same_however_it_is_cut(kind, text, borders):
    whole = parse(kind, [text])
    assert parse(kind, cut(text, borders)) == whole
    assert parse(kind, list(text)) == whole


@given(st.lists(json_values, max_size=6), st.booleans(), st.sampled_from([None, 2]), borders)
def test_json_lists_come_back(values, ascii_only, indent, borders):
    text = json.dumps(values, ensure_ascii=ascii_only, indent=indent)
    assert parse("json_list", cut(text, borders)) == (values, False)
    wrapped = f'Sure!\n```json\n{{"why": {{"n": [0]}}, "queries": {text}, "n": 3}}\n```\nDone [1].'
    assert parse("json_list", cut(wrapped, borders)) == (values, False)


words = st.text(st.characters(categories=["L"]), min_size=1).filter(lambda w: w == w.strip())


@given(st.lists(words, min_size=1, max_size=9), st.sampled_from([".", ")"]), borders)
def test_numbered_items_come_back(items, mark, borders):
    text = "\n".join(f"{i}{mark} {item}" for i, item in enumerate(items, start=1))
    assert parse("numbered", cut(f"Here are 3 of them:\n{text}\n\nEnjoy!", borders)) == (
        items,
        False,
    )


@given(st.lists(words, max_size=9), st.sampled_from(["", "- ", "* "]), borders)
def test_lines_come_back(items, bullet, borders):
    text = "\n\n".join(bullet + item for item in items)
    assert parse("lines", cut(text, borders)) == (items, False)


# --- when items arrive ----------------------------------------------------------------------


def test_a_json_item_arrives_with_its_last_character():
    came, rest = arrivals("json_list", 'ok: ["a\\"]", 12, {"b": [1]}, null] and ["more"]')
    assert came == [
        ('a"]', 'ok: ["a\\"]"'),
        (12, 'ok: ["a\\"]", 12,'),
        ({"b": [1]}, 'ok: ["a\\"]", 12, {"b": [1]}'),
        (None, 'ok: ["a\\"]", 12, {"b": [1]}, null]'),
    ]
    assert rest == []


def test_a_numbered_item_arrives_with_the_next_number():
    came, rest = arrivals("numbered", "1. red\n   fox\n2) blue 3. x\n10.5 m\n3. last")
    assert came == [
        ("red fox", "1. red\n   fox\n2) "),
        ("blue 3. x 10.5 m", "1. red\n   fox\n2) blue 3. x\n10.5 m\n3. "),
    ]
    assert rest == ["last"]


def test_a_line_arrives_at_its_end():
    came, rest = arrivals("lines", "- a\r\n\n* b\nc")
    assert came == [("a", "- a\r\n"), ("b", "- a\r\n\n* b\n")]
    assert rest == ["c"]


# --- what counts as a list ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("[]", []),
        ('As [1] and [2, 3] say: ["x"]', ["x"]),
        ("The relevant ones: [4, 7]", [4, 7]),
        ("[4, 7] are relevant [1]", [4, 7]),
        ('- [ ] todo\n["x"]', ["x"]),
        ('[see below] {note} ["x"]', ["x"]),
        ('{"n": 1} then ["x"]', ["x"]),
        ('["\\ud83d\\ude00"]', ["😀"]),
        ('{"queries": []}', []),
        ('so {["x"]}', ["x"]),
        ("so [1, 2, 3]", [1, 2, 3]),
        ('so [1, 2, "x"]', [1, 2, "x"]),
        ('so [1, "x", 2]', [1, "x", 2]),
        ('so ["x", 1, 2]', ["x", 1, 2]),
        ('so [1, 2, [3]] and ["y"]', [1, 2, [3]]),
        ("so [1, 2, true, 3]", [1, 2, True, 3]),
        ("so [1, 2.5]", [1, 2.5]),
    ],
)
def test_json_amid_prose(text, items):
    assert parse("json_list", [text]) == (items, False)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("1. a\n\n   still a\n2. b\n\nHope this helps.", ["a still a", "b"]),
        ("1.\na\n2.\n3. c", ["a", "c"]),
        ("```\n1. a\n2. b\n```", ["a", "b"]),
        ("1. in\n2024 it rained\n2. x", ["in 2024 it rained", "x"]),
        ("9. x\n10. y\n11) z", ["x", "y", "z"]),
    ],
)
def test_numbered_shapes(text, items):
    assert parse("numbered", [text]) == (items, False)


def test_lines_keep_what_only_looks_like_a_bullet():
    assert parse("lines", ["```\n-5 degrees\n**bold**\n-\n \n```"]) == (
        ["-5 degrees", "**bold**"],
        False,
    )
    assert parse("lines", [""]) == ([], False)


@pytest.mark.parametrize(
    ("kind", "text", "items", "says"),
    [
        ("json_list", "I cannot do that.", [], "expected a JSON list, found none"),
        ("json_list", "", [], "found none"),
        ("json_list", '["a", "b', ["a"], "does not end (complete items: 1)"),
        ("json_list", '["a" "b"]', ["a"], "breaks off (complete items: 1)"),
        ("json_list", '["a",]', ["a"], "breaks off"),
        ("json_list", '["a", NaN]', ["a"], "breaks off"),
        ("json_list", '["a", "\\ud83d"]', ["a"], "breaks off"),
        ("json_list", '["a", ' + "[" * 200 + "]" * 200, ["a"], "breaks off"),
        ("json_list", '{"q": ["a"], "r": ["b"]}', ["a"], "one JSON list, the object holds several"),
        ("json_list", '{"q": ["a"]', ["a"], "does not end"),
        ("numbered", "no numbers here", [], "expected a numbered list"),
    ],
)
def test_malformed_output_is_refused_after_its_good_items(kind, text, items, says):
    assert parse(kind, [text]) == (items, True)
    parser = make_parser(kind)
    assert parser.feed(text) == items
    with pytest.raises(OutputError) as caught:
        parser.close()
    assert says in str(caught.value)
    assert repr(text[:80])[:-1] in str(caught.value)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_a_stream_can_be_stopped_at_once_when_it_breaks():
    parser = make_parser("json_list")
    assert parser.feed('["a" oops') == ["a"]
    for _ in range(2):
        with pytest.raises(OutputError, match="breaks off"):
            parser.feed(", more")


def test_an_unknown_parser_is_refused_with_the_valid_ones():
    with pytest.raises(UnknownName, match=r"did you mean 'json_list'.*json_list, lines, numbered"):
        make_parser("json-list")


@pytest.mark.parametrize("kind", sorted(PARSERS))
@pytest.mark.parametrize(
    "unit", ["[", '["', "{", '"', "\\", "1", "1. ", " ", "\n", "- ", '{"a":', "[1] "]
)
def test_cost_is_linear_in_the_length(kind, unit):
    def seconds(characters):
        text, parser = unit * (characters // len(unit)), make_parser(kind)
        start = time.process_time()
        try:
            for at in range(0, len(text), 4):
                parser.feed(text[at : at + 4])
            parser.close()
        except OutputError:
            pass
        return time.process_time() - start

    assert seconds(80_000) < 30 * max(seconds(8_000), 0.002)


@pytest.mark.parametrize("kind", sorted(PARSERS))
def test_a_list_of_which_no_item_ends_is_malformed(kind):
    begun = {"json_list": '["', "json_calls": '{"calls": ["', "numbered": "1. "}.get(kind, "")
    parser, piece = make_parser(kind), "a" * 2**14
    for _ in range(LONGEST_ITEM // len(piece) - 1):
        assert parser.feed(piece if begun is None else begun + piece[len(begun) :]) == []
        begun = None
    assert parser.feed(piece) == []
    with pytest.raises(OutputError, match="no item of the list ends within 1,048,576 characters"):
        parser.feed("a")


def test_what_follows_a_list_may_be_as_long_as_it_likes():
    parser, piece = make_parser("json_list"), "a" * 2**14
    assert parser.feed('["a"]') == ["a"]
    assert all(parser.feed(piece) == [] for _ in range(LONGEST_ITEM // len(piece) + 1))
    assert parser.close() == []


def test_a_list_may_be_longer_than_its_items():
    item, pieces = f'"{"a" * (LONGEST_ITEM // 2)}",', 4
    parser = make_parser("json_list")
    text = f"[{item * pieces} 1"
    items = [one for at in range(0, len(text), 2**14) for one in parser.feed(text[at : at + 2**14])]
    assert len(items) == pieces


def read(text: str) -> list[object]:
    parser = make_parser("json_list")
    return [*parser.feed(text), *parser.close()]


@pytest.mark.parametrize(("more", "whole"), [(0, True), (1, False)])
def test_an_item_nests_as_deeply_as_it_may(more: int, whole: bool) -> None:
    text = "[" + "[" * (MAX_DEPTH + more) + "]" * (MAX_DEPTH + more) + "]"
    if whole:
        (item,) = make_parser("json_list").feed(text)
        assert str(item).count("[") == MAX_DEPTH
        return
    with pytest.raises(OutputError, match=r"found none|breaks off|does not end"):
        read(text)


def test_an_items_number_has_four_digits_at_most() -> None:
    parser = make_parser("numbered")
    items = parser.feed("999. one\n1000) two\n10000. three\n") + parser.close()
    assert items == ["one", "two 10000. three"]
