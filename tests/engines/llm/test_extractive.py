"""The extractive reader on the packaged MiniLM: it quotes, and nothing else."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from teola.engine import Call, Delta, EngineKind, LanguageModel, QueryContext, TextPart
from teola.errors import EngineError, OutputError
from teola.graph import Primitive
from teola.graph.ops import DecodeParams, Op
from teola.graph.prompt import Role
from teola.runtime.hosts.call import Listener, run_call
from teola.runtime.hosts.parsers import make_parser
from teola_engines.llm import ExtractiveReader
from teola_engines.llm.extractive import NOTHING
from teola_engines.llm.quoting import choose
from tests.longest_turn import MOST_S, longest_turn
from tests.planted import catches, edited

TOWER = (
    "# The Eiffel Tower\n\nThe tower was finished in **1889** for the world's fair. It is made of "
    "wrought iron. About seven million people visit it each year. Tickets are sold online."
)
BREAD = (
    "Bread rises because yeast gives off carbon dioxide. The dough rests for an hour. "
    "Salt slows the yeast down. An oven of 230 degrees gives a good crust."
)
LICENSE = (Path(__file__).parents[3] / "LICENSE").read_text()
WHEN = "When was the Eiffel Tower finished?"


@pytest.fixture(scope="module")
def reader() -> Iterator[ExtractiveReader]:
    reader = ExtractiveReader(dtype="float32")
    reader.start()
    yield reader
    reader.close()


def call(
    question: str, *context: str, previous: str | None = None, decode: DecodeParams | None = None
) -> Call:
    parts = [TextPart(Role.INSTRUCTION, "Answer. Question: "), TextPart(Role.QUESTION, question)]
    parts += [TextPart(Role.CONTEXT, text) for text in context]
    if previous is not None:
        parts.append(TextPart(Role.ANSWER, previous))
    parts.append(TextPart(Role.INSTRUCTION, "The Eiffel Tower was finished by instruction.\n"))
    return Call(QueryContext("q"), tuple(parts), decode or DecodeParams())


async def stream(reader: ExtractiveReader, call: Call) -> list[Delta]:
    return [delta async for delta in reader.generate(call)]


async def answer(reader: ExtractiveReader, call: Call) -> str:
    return "".join(delta.text for delta in await stream(reader, call))


def quotes(text: str) -> list[str]:
    return re.findall(r"“([^“”]+)”", text)


@pytest.mark.parametrize(
    ("question", "part"),
    [
        (WHEN, "1889"),
        ("How many visitors does the tower have?", "seven million"),
        ("What makes bread rise?", "carbon dioxide"),
        ("How hot should the oven be?", "230 degrees"),
    ],
)
async def test_it_quotes_the_sentence_that_answers(
    reader: ExtractiveReader, question: str, part: str
) -> None:
    text = await answer(reader, call(question, BREAD, TOWER))
    found = quotes(text)
    assert 1 <= len(found) <= 3
    assert part in text
    source = f"{BREAD} {TOWER}".replace("**", "")
    assert all(quote in source for quote in found)
    assert (
        not text.replace("“", "")
        .replace("”", "")
        .replace(" ", "")
        .strip("".join(set("".join(found))))
    )


async def test_quotes_stand_in_the_order_of_the_context(reader: ExtractiveReader) -> None:
    low, high = "The small plan costs 9 euros.", "The large plan costs 30 euros."
    for text in (f"{low} Cars are fast. {high}", f"{high} Cars are fast. {low}"):
        found = quotes(await answer(reader, call("What do the plans cost?", text)))
        assert found == sorted((low, high), key=text.index)


@pytest.mark.parametrize("context", [(), ("",), ("The annual report of the bank is long.",)])
async def test_nothing_to_quote_is_said(reader: ExtractiveReader, context: tuple[str, ...]) -> None:
    assert await answer(reader, call("How hot is the oven?", *context)) == NOTHING


@pytest.mark.parametrize(
    ("question", "quoted"),
    [
        ("Who is liable for damages?", "liable to You for damages"),
        ("Can I use the trademarks?", "trademarks"),
        ("What happens if I sue over patents?", "patent litigation"),
        ("May I distribute modified copies?", "distribute copies"),
        ("Is there a warranty?", "Warranty"),
        ("What does photosynthesis produce?", ""),
        ("Who won the 2022 world cup?", ""),
        ("Who painted the Mona Lisa?", ""),
        ("How do I bake sourdough bread?", ""),
        ("zzyzx qwrt", ""),
    ],
)
async def test_a_question_that_the_text_does_not_answer_is_declined(
    reader: ExtractiveReader, question: str, quoted: str
) -> None:
    text = await answer(reader, call(question, LICENSE))
    assert quoted in text if quoted else text == NOTHING


@catches(
    "no-least-maxsim",
    "the reader quotes whatever is nearest to the question",
    edited(choose, ">= least", ">= -1"),
)
async def test_words_in_common_are_no_answer(reader: ExtractiveReader) -> None:
    for question, context in (
        ("Who is liable when a ship sinks?", LICENSE),
        ("What is the population of Paris?", TOWER),
    ):
        assert await answer(reader, call(question, context)) == NOTHING


async def test_how_near_a_quote_has_to_be_is_an_option() -> None:
    for least, declined in ((-1.0, False), (1.0, True)):
        reader = ExtractiveReader(dtype="float32", least_maxsim=least)
        reader.start()
        found = await answer(reader, call("Who is liable when a ship sinks?", LICENSE))
        reader.close()
        assert (found == NOTHING) is declined
    with pytest.raises(ValueError, match="least_maxsim must be between -1 and 1, not 2"):
        ExtractiveReader(least_maxsim=2)


async def test_refining_keeps_the_best(reader: ExtractiveReader) -> None:
    first = await answer(reader, call(WHEN, TOWER))
    assert "1889" in first
    assert quotes(await answer(reader, call(WHEN, BREAD, previous=first))) == quotes(first)
    worse = await answer(reader, call(WHEN, BREAD))
    better = await answer(reader, call(WHEN, TOWER, previous=worse))
    assert "1889" in better
    assert NOTHING not in better


async def test_merging_answers_of_its_own(reader: ExtractiveReader) -> None:
    drafts = f"{await answer(reader, call(WHEN, TOWER))}\n\n{NOTHING}\n\n“Bread is old.”"
    assert quotes(await answer(reader, call(WHEN, drafts))) == [
        "The tower was finished in 1889 for the world's fair."
    ]


async def test_the_answer_does_not_depend_on_other_calls(reader: ExtractiveReader) -> None:
    calls = [call(WHEN, TOWER, BREAD), call("What slows yeast down?", BREAD), call(WHEN, BREAD)]
    alone = [await answer(reader, one) for one in calls]
    together = await asyncio.gather(*(answer(reader, one) for one in calls * 3))
    assert list(together) == alone * 3


async def test_the_stream(reader: ExtractiveReader) -> None:
    deltas = await stream(reader, call(WHEN, TOWER))
    assert len(deltas) > 1
    assert [delta.finish_reason for delta in deltas] == [None] * (len(deltas) - 1) + ["stop"]
    usage = deltas[-1].usage
    assert usage is not None
    assert usage.prompt_tokens > len(TOWER) // 5
    assert usage.completion_tokens > 0
    assert usage.cached_tokens == 0


async def test_max_tokens(reader: ExtractiveReader) -> None:
    deltas = await stream(reader, call(WHEN, TOWER, decode=DecodeParams(max_tokens=6)))
    text = "".join(delta.text for delta in deltas)
    assert deltas[-1].finish_reason == "length"
    assert reader.count_tokens(text) <= 9
    assert text.startswith("“The tower")


@catches(
    "stops-unheeded",
    "the extractive reader writes on",
    edited(ExtractiveReader.generate, "_until(decode.stop, pieces)", "pieces, False"),
)
async def test_it_stops_before_a_string_that_ends_an_answer(reader: ExtractiveReader) -> None:
    whole = await answer(reader, call(WHEN, TOWER))
    asked = call(WHEN, TOWER, decode=DecodeParams(stop=("never", "in 1889")))
    deltas = await stream(reader, asked)
    assert "".join(delta.text for delta in deltas) == whole[: whole.index("in 1889")]
    assert deltas[-1].finish_reason == "stop"
    at_once = call(WHEN, TOWER, decode=DecodeParams(stop=("“",)))
    assert await answer(reader, at_once) == ""


@pytest.mark.parametrize("parser", ["lines", "numbered", "json_list"])
@pytest.mark.parametrize("items", [1, 3, 7])
async def test_expansion_is_what_the_parser_reads(
    reader: ExtractiveReader, parser: str, items: int
) -> None:
    question = 'How do I say "no" to a refund?'
    asked = call(question, decode=DecodeParams(items=items, parser=parser))
    deltas = await stream(reader, asked)
    assert len(deltas) == items
    assert deltas[-1].finish_reason == "stop"
    reading = make_parser(parser)
    found = [item for delta in deltas for item in reading.feed(delta.text)]
    found += reading.close()
    assert len(found) == len(set(found)) == items
    assert found[0] == question
    if parser == "json_list":
        assert json.loads("".join(delta.text for delta in deltas)) == found


async def test_what_it_cannot_do_is_said(reader: ExtractiveReader) -> None:
    for decode, reason in (
        (DecodeParams(schema='{"type": "object"}'), "cannot fill a JSON schema"),
        (DecodeParams(items=3, parser="yaml"), "lines, numbered, json_list"),
    ):
        with pytest.raises(OutputError, match=reason) as caught:
            await answer(reader, call(WHEN, TOWER, decode=decode))
        assert not caught.value.retryable
    with pytest.raises(OutputError, match="no question"):
        await answer(reader, call(" ", decode=DecodeParams(items=3)))


async def test_a_prefix_gives_the_same_answer(reader: ExtractiveReader) -> None:
    whole = call(WHEN, TOWER)
    beginning = Call(whole.context, whole.parts[:2], whole.decode)
    handle = await reader.prefill(beginning)
    rest = Call(whole.context, whole.parts[2:], whole.decode, prefix=handle)
    assert await answer(reader, rest) == await answer(reader, whole)


async def test_many_sentences_are_narrowed_to_the_promising_ones(reader: ExtractiveReader) -> None:
    noise = "\n\n".join(f"Record {i} of the archive holds letter {i * 7}." for i in range(400))
    assert "1889" in await answer(reader, call(WHEN, noise, TOWER))


def test_what_it_says_of_itself(reader: ExtractiveReader) -> None:
    engine: LanguageModel = reader
    assert engine.spec.kind is EngineKind.LLM
    assert {Op.PREFILLING, Op.DECODING} <= engine.spec.ops
    assert not engine.spec.prefix_reuse
    assert "generates nothing" in engine.spec.description


async def test_before_start_and_after_close_it_says_so() -> None:
    reader = ExtractiveReader(dtype="float32")
    with pytest.raises(EngineError, match="not started"):
        await answer(reader, call(WHEN, TOWER))
    reader.start()
    reader.close()
    reader.close()
    with pytest.raises(EngineError, match="not started"):
        await answer(reader, call(WHEN, TOWER))


async def test_a_long_question_holds_nobody_up(reader: ExtractiveReader) -> None:
    """Neither where it is put in other words nor where these are read."""
    decode = DecodeParams(parser="numbered", items=3)
    asked = call("word " * 200_000, decode=decode)
    lists: list[Any] = []
    member = Primitive("d", Op.DECODING, "reader", "llm", (), ("items",), decode)
    listener = Listener(lambda: None, lambda k, found: lists.append(found["items"]), None)
    with longest_turn() as turn:
        await run_call(reader, asked, [member], listener, text_wanted=False)
        await asyncio.sleep(0)
    assert len(lists[0]) == 3
    assert turn.seconds < MOST_S
