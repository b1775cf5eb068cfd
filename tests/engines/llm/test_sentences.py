"""How text is cut into sentences that can be quoted."""

import time
from collections.abc import Sequence

import numpy as np
import pytest

from teola_engines.embedding.encoder import EncodedText
from teola_engines.llm.quoting import choose
from teola_engines.llm.sentences import _LONGEST, Sentence, sentences


def texts(text: str) -> list[str]:
    return [sentence.text for sentence in sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. The sun is out! Is it?", ["It rains. The sun is out!", "Is it?"]),
        (
            "Dr. Smith met J. R. Brown there. They talked, e.g. about whales.",
            ["Dr. Smith met J. R. Brown there.", "They talked, e.g. about whales."],
        ),
        (
            "The price is 3.5 euros, see a.b.c for it. Version 2.0 is out by now.",
            ["The price is 3.5 euros, see a.b.c for it.", "Version 2.0 is out by now."],
        ),
        (
            "The driver owns the clock and the I/O. Two of them exist by now.",
            ["The driver owns the clock and the I/O.", "Two of them exist by now."],
        ),
        ("这是第一句话。那是第二句话。", ["这是第一句话。", "那是第二句话。"]),
        ("wrapped over\ntwo lines of text.\n\nAnother one", None),
        ("", []),
        (" \n---\n***\n", []),
    ],
)
def test_prose(text: str, expected: list[str] | None) -> None:
    if expected is None:
        expected = ["wrapped over two lines of text.", "Another one"]
    assert texts(text) == expected


def test_markdown_marks_are_cleaned() -> None:
    text = (
        "> The **bold** *word* in `code` and [a link](http://x.y) but not `__init__` or 2 * 3 * 4."
    )
    assert texts(text) == ["The bold word in code and a link but not __init__ or 2 * 3 * 4."]


def test_inner_quotation_marks_cannot_be_taken_for_ours() -> None:
    assert texts("He said “no” to that.") == ["He said ‘no’ to that."]


def test_lists_are_sentences_but_no_tables_and_no_code() -> None:
    text = (
        "## Setup\n* first item\n  goes on\n* second item\n1. third item\n\n"
        "| name | value |\n|---|---|\n| depth | 7 |\n\n```\nrun --fast   now\n\nstop.  It\n```\n"
        "Key:    value\nname     unit     price\n## Costs\nHolm |  | 1950 | Mia\n"
    )
    assert sentences(text) == [
        Sentence(piece, "Setup")
        for piece in ("first item goes on", "second item", "third item", "Key: value")
    ]


def test_a_chunk_may_begin_in_a_table_or_in_code() -> None:
    assert texts("is kept; |\n| groups | 7\nProse.\n| cut") == ["Prose."]
    code = "x = 1\n```\nProse.\n```python\ny = 2\n```\nMore of it."
    assert texts(code) == ["Prose.", "More of it."]
    assert texts(code.partition("Prose.")[2]) == ["More of it."]


def test_headings_are_remembered_and_quoted_only_if_nothing_follows() -> None:
    text = "# One\nBelow the first one.\n\nTwo\n===\nBelow the second one.\n\n## Three\n"
    assert sentences(text) == [
        Sentence("Below the first one.", "One"),
        Sentence("Below the second one.", "Two"),
        Sentence("Three"),
    ]


def test_one_line_above_a_rule_is_a_heading_and_no_more_than_one() -> None:
    for rule in ("---", "==="):
        above = "Wrapped over\ntwo lines of text."
        assert sentences(f"{above}\n{rule}\nBelow it.") == [
            Sentence("Wrapped over two lines of text."),
            Sentence("Below it."),
        ]
        assert sentences(f"{above}\n\nTitle\n{rule}\nBelow it.") == [
            Sentence("Wrapped over two lines of text."),
            Sentence("Below it.", "Title"),
        ]


def test_long_sentences_are_cut_between_semicolons() -> None:
    text = "; ".join(f"this is clause number {i} of a sentence without an end" for i in range(12))
    assert len(texts(text)) == 12
    assert " ".join(texts(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b.", []),
        ("a b c.", ["a b c."]),
        ("Fees. They are high.", ["Fees. They are high."]),
        ("One two three four. They are high.", ["One two three four. They are high."]),
        ("One two three four five. They are.", ["One two three four five.", "They are."]),
        ("Gebühren. Sie sind hoch.", ["Gebühren.", "Sie sind hoch."]),
        (
            "What is it then? Yes. Never. It ends… Fine, it ends.",
            ["What is it then? Yes.", "Never.", "It ends…", "Fine, it ends."],
        ),
        ("See the whole of Fig. 3 there. Now go.", ["See the whole of Fig. 3 there.", "Now go."]),
        ("It was all done by Mr. Smith. He left.", ["It was all done by Mr. Smith.", "He left."]),
        ('He said it all too often. "No more." (So he left.)',
         ["He said it all too often.", '"No more."', "(So he left.)"]),
    ],
)  # fmt: skip
def test_where_a_sentence_ends(text: str, expected: list[str]) -> None:
    """A few words in front stay with what follows; an abbreviation ends nothing."""
    assert texts(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("###### Six\nbelow it here", [Sentence("below it here", "Six")]),
        ("####### Seven\nbelow it", [Sentence("####### Seven below it")]),
        ("# A #\ntext here", [Sentence("text here", "A")]),
        ("# A\n# B\ntext here", [Sentence("A"), Sentence("text here", "B")]),
        ("# A\n\n# B", [Sentence("A"), Sentence("B")]),
        ("# A\n| x | y |\n# B\ntext here", [Sentence("text here", "B")]),
        ("# A\n..\n# B", [Sentence("A"), Sentence("B")]),
        ("One\n===\ntext here\nTwo\n---", [Sentence("text here Two", "One")]),
        ("---\ntext here", [Sentence("text here")]),
        ("before it\n- one item\ngoes on\n\nbehind it",
         [Sentence("before it"), Sentence("one item goes on"), Sentence("behind it")]),
        ("1) one item\n2. two item\n• three\n1234) no item", [
            Sentence("one item"), Sentence("two item"), Sentence("three 1234) no item"),
        ]),
        ("> quoted text\n> goes on", [Sentence("quoted text goes on")]),
        ("text | bar |\ntext here", [Sentence("text here")]),
        ("one    two    three\nunit:    price here", [Sentence("unit: price here")]),
        ("~~~\ncode here\n~~~~\ntext here", [Sentence("text here")]),
        ("text\n```py\ncode here\n\n```\nmore text", [Sentence("text"), Sentence("more text")]),
        ('![pic](x.png "t") and [link](u) ``code``', [Sentence("pic and link code")]),
        ("***all*** of **it** is *so* a*b*c", [Sentence("all of it is so a*b*c")]),
    ],
)  # fmt: skip
def test_what_stands_under_which_heading_and_what_is_none(
    text: str, expected: list[Sentence]
) -> None:
    assert sentences(text) == expected


def test_a_sentence_is_cut_at_semicolons_only_if_it_is_very_long() -> None:
    for length, pieces in ((_LONGEST, 1), (_LONGEST + 1, 2)):
        first = "x" * (length - len("; and more"))
        found = texts(f"{first}; and more")
        assert found == ([f"{first}; and more"] if pieces == 1 else [f"{first};", "and more"])


LENGTH = 20_000
TRAPS = {
    "a heading of spaces": "# a" + " " * LENGTH + "b",
    "a heading of marks": "# " + "#" * LENGTH + "b",
    "a heading of both": "# " + " #" * (LENGTH // 2) + "b",
    "a row of spaces": " " * LENGTH + "a",
    "emphasis that never ends": "**a " * (LENGTH // 4),
    "stars": "*a" * (LENGTH // 2),
    "ticks": "`" * LENGTH,
    "code that never ends": "`a``" * (LENGTH // 4),
    "brackets": "[" * LENGTH,
    "links that never end": "[a](" * (LENGTH // 4),
    "initials": "A. " * (LENGTH // 3),
    "points": ". " * (LENGTH // 2),
    "bars": "a | " * (LENGTH // 4) + "|",
    "a rule": "|-" * (LENGTH // 2) + "x",
    "an underline": "-" * LENGTH + "x",
    "quotation marks": ">" * LENGTH,
}


@pytest.mark.parametrize("name", TRAPS)
def test_no_text_takes_long(name: str) -> None:
    """Some took time in proportion to the cube of their length: hours."""
    began = time.process_time()
    sentences(TRAPS[name])
    assert time.process_time() - began < 5


def test_the_best_sentence_is_quoted_although_it_is_unlike_the_question() -> None:
    """Below zero, a share of the best score is more than the score itself."""
    vectors = {"why?": (1.0, 0.0), "No.": (-0.6, 0.8)}

    def embed(texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array(vectors[text], dtype=np.float32) for text in texts]

    def embed_tokens(texts: Sequence[str]) -> list[EncodedText]:
        rows = (np.array([vectors[text]], dtype=np.float32) for text in texts)
        return [EncodedText(np.zeros(1, dtype=np.int64), row) for row in rows]

    found = choose("why?", [Sentence("No.")], embed, embed_tokens, most=1, least=-1.0)
    assert [one.text for one in found] == ["No."]
    assert choose("why?", [Sentence("No.")], embed, embed_tokens, most=1, least=0.5) == []
