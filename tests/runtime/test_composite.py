"""Simulated texts made of parts of others: their keys are those of what they say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from teola.kv import Excerpt, excerpt_keys
from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime.sim import Sim
from teola.runtime.sim.content import prompt_of
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Composite, Tokens, tokens_of
from tests.planted import catches, edited
from tests.schedule.plans import call, plan

PARTS = st.lists(
    st.builds(Excerpt, st.integers(1, 3), st.integers(0, 6), st.integers(1, 9)), min_size=1
)


@catches(
    "keys-past-the-cut",
    "a text that goes on otherwise keeps the keys of the old end",
    edited(Composite.continued, "keys[: length // block_tokens]", "keys"),
)
@given(PARTS, st.integers(0, 40), PARTS, st.integers(1, 5), st.integers(0, 2))
def test_a_continued_text_has_the_keys_of_what_it_says(
    parts: list[Excerpt], length: int, more: list[Excerpt], block_tokens: int, salt: int
) -> None:
    text = Composite.made_of(parts)
    text.keys(block_tokens, salt)
    length = min(length, text)
    made = text.continued(length, *more)
    assert tokens_of(made) == length + sum(part.length for part in more)
    said = [(part.text, part.start + k) for part in made.excerpts for k in range(part.length)]
    before = [(part.text, part.start + k) for part in parts for k in range(part.length)]
    after = [(part.text, part.start + k) for part in more for k in range(part.length)]
    assert said == before[:length] + after
    assert made.keys(block_tokens, salt) == excerpt_keys(made.excerpts, block_tokens, salt)
    assert made.keys(block_tokens, salt + 1) == excerpt_keys(made.excerpts, block_tokens, salt + 1)


def latencies(*prompts: Tokens | list[Tokens]) -> list[float]:
    """Of prompts of 8 tokens, one after another, where a block has four and a token takes 1 s."""
    llm = EngineProfile(
        step=StepTime(per_token_s=1.0),
        max_batch=64,
        prefix_reuse=True,
        keeps_prefixes=True,
        block_tokens=4,
    )
    sim = Sim(Profile("small", {"llm": llm}), outcomes=Planned(answer_tokens=1))
    for k, prompt in enumerate(prompts):
        sim.submit(plan(*call("m")), {"question": prompt}, at=100.0 * k)
    return [result.latency_s for result in sim.run()]


@catches(
    "composites-unread",
    "a composite stands for one text of its own",
    edited(prompt_of.__globals__["_add"], "type(value) is Composite", "value is found"),
)
def test_equal_beginnings_are_found_whichever_way_they_are_given() -> None:
    begins, ends = Excerpt(7, 0, 4), Excerpt(8, 0, 4)
    text, other = Composite.made_of([begins, ends]), Composite.made_of([begins, Excerpt(9, 0, 4)])
    pieces = [Tokens.of(*begins), Tokens.of(*ends)]
    assert latencies(text, other, text, pieces) == [8.0, 4.0, 4.0, 4.0]
    assert latencies(pieces, text) == [8.0, 4.0]
    assert latencies([text], text, other) == [8.0, 4.0, 4.0]
