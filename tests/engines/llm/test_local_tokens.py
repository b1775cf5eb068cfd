"""A tokenizer read in this process: the text of a stream, and what stands around a prompt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.engine import Call, QueryContext, SequenceHandle, TextPart
from teola.errors import EngineError, EngineUnavailable
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola_engines.llm import local_tokens
from teola_engines.llm.local_tokens import CUT, CUT_TOKENS, LocalTokens, TextStream


def decode(ids):
    """A tokenizer whose tokens are bytes."""
    return bytes(ids).decode(errors="replace")


@given(st.text(), st.lists(st.integers(1, 5)))
def test_a_text_comes_whole_however_its_tokens_are_grouped(text, groups):
    ids = list(text.encode())
    stream, pieces = TextStream(decode, list("é".encode())), []
    for size in groups:
        pieces.append(stream.feed(ids[:size]))
        ids = ids[size:]
    pieces.append(stream.feed(ids, last=True))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces) or "\ufffd" in text


@given(st.binary(max_size=40), st.integers(0, 40))
def test_broken_characters_do_not_depend_on_the_grouping(data, cut):
    one, two = TextStream(decode, ()), TextStream(decode, ())
    whole = one.feed(data, last=True)
    assert two.feed(data[:cut]) + two.feed(data[cut:], last=True) == whole


def test_broken_characters_are_not_held_back_for_ever():
    stream = TextStream(decode, ())
    assert any(stream.feed([0xFF]) for _ in range(10))


def test_a_chat_model(chat_model_folder):
    tokens = local_tokens.load_tokenizer(str(chat_model_folder), "llm")
    parts = [TextPart(Role.QUESTION, "Why <|im_end|>?")]
    ids = tokens.ids(parts, complete=True)
    expected = "<s><|im_start|>user\nWhy <|im_end|>?<|im_end|>\n<|im_start|>assistant\n"
    assert tokens._tokenizer.decode(ids) == expected
    end = tokens._tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert ids.count(end) == 1
    assert tokens.count("Why <|im_end|>?") == len(ids) - len(tokens.ids([], complete=True))
    with pytest.raises(EngineError, match="not valid Unicode"):
        tokens.ids([TextPart(Role.QUESTION, "\ud83d")], complete=True)


def test_a_model_without_a_template_wants_its_beginning(model_folder):
    tokens = local_tokens.load_tokenizer(str(model_folder), "llm")
    ids = tokens.ids([TextPart(Role.QUESTION, "Why?")], complete=True)
    assert tokens._tokenizer.decode(ids) == "<s>Why?"


def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(
        EngineUnavailable, match=r"^llm: no tokenizer of model '.*nothing'"
    ) as raised:
        local_tokens.load_tokenizer(str(tmp_path / "nothing"), "llm")
    assert not raised.value.retryable
    why = str(raised.value).rpartition("nothing': ")[2]
    assert why == str(raised.value.__cause__).strip().splitlines()[0]


def test_a_character_is_waited_for_as_long_as_it_may_come():
    stream = TextStream(decode, [])
    told = [stream.feed([0xFF]) for _ in range(2 * CUT_TOKENS)]
    waits = [""] * (CUT_TOKENS - 1)
    assert told == [*waits, CUT * CUT_TOKENS, *waits, CUT * CUT_TOKENS]


class Letters(LocalTokens):
    """A tokenizer of letters, without a model's files."""

    def __init__(self):
        pass

    def ids(self, parts, *, complete, after=()):
        return [ord(letter) for part in parts for letter in part.text] + [0] * complete


def test_of_a_prefix_the_ids_are_known_only_to_the_engine_that_made_it():
    parts, rest = (TextPart(Role.CONTEXT, "ab"),), (TextPart(Role.QUESTION, "c"),)
    made = SequenceHandle("mine", 0, parts, (7, 8))
    for handle, engine, prefix in (
        (made, "mine", (7, 8)),
        (made, "other", (97, 98)),
        (SequenceHandle("mine", 0, parts), "mine", (97, 98)),
        (None, "mine", ()),
    ):
        call = Call(QueryContext("q"), rest, DecodeParams(), handle)
        assert Letters().prompt(call, engine, complete=True) == (prefix, (99, 0))
