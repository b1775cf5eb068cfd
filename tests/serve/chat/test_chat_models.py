"""Conversations with a language model behind: what it is sent, and what clients get.

The model is a server that remembers what it was sent; what is between it and the clients is real.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.serve.chat.talking import BEGIN, FORM, GOOD, TALK, Keeper, Model, talking, user
from tests.serve.conftest import Served, soon


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        yield client


# --- what the model is sent ------------------------------------------------------------------


def test_a_question_by_itself_is_sent_as_ever(client: openai.OpenAI, model: Model) -> None:
    found = client.chat.completions.create(model="plain", messages=[user("Since when?")])
    assert found.choices[0].message.content == "Since 1987."
    assert model.prompts == ["Be exact.\n\nQuestion: Since when?\n\nAnswer: "]


def test_a_conversation_stands_between_the_instruction_and_the_question(
    client: openai.OpenAI, model: Model
) -> None:
    found = client.chat.completions.create(model="plain", messages=TALK)
    assert found.choices[0].message.content == "Since 1987."
    (body,) = model.sent
    assert body["messages"] == [
        {"role": "system", "content": BEGIN},
        {
            "role": "user",
            "content": "Answer in French.\n\nBe kind.\n\nConversation so far:\n"
            "User: Who keeps the lamp?\nAssistant: Mara.\n\nQuestion: Since when?\n\nAnswer: ",
        },
    ]


def test_every_turn_begins_as_the_one_before(client: openai.OpenAI, model: Model) -> None:
    """So that a prefix cache finds all of it but the last question."""
    talk = [TALK[0]]
    for question in ("Who?", "Since when?", "Why?"):
        talk.append(user(question))
        said = client.chat.completions.create(model="plain", messages=talk)
        talk.append({"role": "assistant", "content": said.choices[0].message.content})
    _, second, third = model.prompts
    assert third.startswith(second.partition("\n\nQuestion: ")[0])
    assert "User: Since when?\nAssistant: Since 1987.\n\nQuestion: Why?" in third


def test_plans_of_conversations_are_made_once(
    client: openai.OpenAI, model: Model, served: Served
) -> None:
    for _ in range(3):
        client.chat.completions.create(model="plain", messages=TALK)
    used = {entry.job.app for entry in served.board.past.values()}
    counts = [
        (optimiser.hits, optimiser.misses)
        for app in used
        if "instructions" in app.inputs and "history" in app.inputs
        for optimiser in app.optimisers[served.runtime].values()
    ]
    assert len(counts) == 1
    assert counts[0][1] == 1
    assert counts[0][0] >= 2


def test_metrics_count_the_plans_of_conversations_too(
    client: openai.OpenAI, model: Model, served: Served
) -> None:
    def plans() -> float:
        text = httpx.get(f"{served.url}/metrics").text
        found = re.findall(r'teola_plan_cache_(?:hits|misses)_total{app="plain"} (\S+)', text)
        assert len(found) == 2
        return sum(map(float, found))

    before = plans()
    for messages in (TALK, TALK, [user("Since when?")]):
        client.chat.completions.create(model="plain", messages=messages)
    assert plans() == before + 3


def test_a_rewriting_knows_the_conversation(client: openai.OpenAI, model: Model) -> None:
    model.says["Rewritings:"] = "since when Mara\nfrom what year"
    client.chat.completions.create(model="searched", messages=TALK)
    rewriting, answering = sorted(model.prompts, key=lambda text: "Rewritings" not in text)
    assert "Conversation so far:\nUser: Who keeps the lamp?" in rewriting
    assert "Answer in French" not in rewriting
    assert "searched for since when Mara and from what year" in answering
    assert "Answer in French" in answering


def test_of_a_long_conversation_the_oldest_goes_first() -> None:
    with (
        talking(history_characters=60) as (served, model),
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none") as client,
    ):
        talk = [user(f"question {i}") for i in range(9)]
        client.chat.completions.create(model="plain", messages=talk)
        (prompt,) = model.prompts
        assert "User: question 7\n\nQuestion: question 8" in prompt
        assert "question 0" not in prompt


# --- how it is to answer ---------------------------------------------------------------------


def test_parameters_reach_the_model(client: openai.OpenAI, model: Model) -> None:
    found = client.chat.completions.create(
        model="plain",
        messages=[user("x")],
        max_completion_tokens=1,
        temperature=0.5,
        seed=7,
        stop=["1988"],
    )
    assert found.choices[0].finish_reason == "length"
    assert found.choices[0].message.content == "Since"
    assert found.usage is not None
    assert found.usage.completion_tokens == 1
    (body,) = model.sent
    sent = {key: body[key] for key in ("max_tokens", "temperature", "seed", "stop")}
    assert sent == {"max_tokens": 1, "temperature": 0.5, "seed": 7, "stop": ["1988"]}


def test_a_stream_that_is_cut_says_so(client: openai.OpenAI, model: Model) -> None:
    for most, reason in ((1, "length"), (50, "stop")):
        stream = client.chat.completions.create(
            model="plain",
            messages=[user("x")],
            max_tokens=most,
            stream=True,
            stream_options={"include_usage": True},
        )
        *pieces, end, usage = list(stream)
        assert end.choices[0].finish_reason == reason
        assert usage.usage is not None
        assert usage.usage.completion_tokens == min(most, 2)
        assert all(piece.usage is None for piece in pieces)


def test_a_stop_ends_the_answer(client: openai.OpenAI, model: Model) -> None:
    found = client.chat.completions.create(model="plain", messages=[user("x")], stop="1987")
    assert found.choices[0].message.content == "Since"
    assert found.choices[0].finish_reason == "stop"


def test_a_seed_without_chance_makes_no_plan_of_its_own(
    client: openai.OpenAI, model: Model
) -> None:
    client.chat.completions.create(model="plain", messages=[user("x")], seed=7)
    assert "seed" not in model.sent[0]


@pytest.mark.parametrize("stream", [False, True])
def test_json_is_sent_as_it_fits(client: openai.OpenAI, model: Model, stream: bool) -> None:
    model.says["Question"] = f"Here you are:\n```json\n{GOOD}\n```"
    found: Any = client.chat.completions.create(
        model="plain", messages=[user("who?")], response_format=FORM, stream=stream
    )
    text = (
        "".join(piece.choices[0].delta.content or "" for piece in found)
        if stream
        else found.choices[0].message.content
    )
    assert json.loads(text) == {"name": "Mara", "since": 1987}
    (body,) = model.sent
    assert body["response_format"]["json_schema"]["schema"] == Keeper.model_json_schema()


def test_json_that_does_not_fit_is_asked_for_once_more(client: openai.OpenAI, model: Model) -> None:
    model.says |= {"An earlier answer did not fit": GOOD, "Question": '{"name": "Mara"}'}
    found = client.chat.completions.create(model="plain", messages=TALK, response_format=FORM)
    assert json.loads(found.choices[0].message.content or "") == json.loads(GOOD)
    first, second = model.prompts
    assert "An earlier" not in first
    assert "'since' is a required property" in second
    assert second.startswith(f"{BEGIN}Answer in French.")


def test_json_that_never_fits_is_an_error(
    client: openai.OpenAI, model: Model, served: Served
) -> None:
    model.says["Question"] = "I would rather not."
    with pytest.raises(openai.InternalServerError, match="expected JSON, found none") as caught:
        client.chat.completions.create(
            model="plain", messages=[user("who?")], response_format={"type": "json_object"}
        )
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(model.sent) == 2
    assert not served.board.running


def test_the_clients_own_parsing_works(client: openai.OpenAI, model: Model) -> None:
    model.says["Question"] = GOOD
    found = client.chat.completions.parse(
        model="plain", messages=[user("who?")], response_format=Keeper
    )
    assert found.choices[0].message.parsed == Keeper(name="Mara", since=1987)


def test_a_client_that_leaves_in_the_middle_ends_the_call(
    client: openai.OpenAI, model: Model, served: Served
) -> None:
    model.says["Question"] = "word " * 2000
    model.server.token_delay_s = 0.01
    try:
        stream = client.chat.completions.create(
            model="plain", messages=[user("x")], max_tokens=3000, stream=True
        )
        next(piece for piece in stream if piece.choices[0].delta.content)
        stream.close()
        soon(lambda: not served.board.running)
        soon(lambda: model.server.calls[0].disconnected)
    finally:
        model.server.token_delay_s = 0.0
