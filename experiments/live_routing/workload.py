"""The workload: questions about manuals, of which two servers together keep about all, and one
does not.

    manual of its group, told as `instructions` | question of its own | answer of a fixed length

A call's group is drawn by Zipf's law. Nothing knows of groups: calls are lone queries of one
application, and whoever wants to know that two begin alike has to look at their prompts.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Final

from experiments.common.arrivals import arrivals
from experiments.replay.calls import Recording, TracedCall, prompt_of_blocks
from teola import App, Generate, Runtime
from teola.engine import Keys

NAME: Final = "manuals"
GROUPS: Final = 24
ZIPF: Final = 1.1
MANUAL_CHARACTERS: Final = 3200
"""Some 750 tokens of the random model's."""
ANSWER_TOKENS: Final = 24
QUESTIONS: Final = (
    "How does the interpreter look up a name?",
    "When is an exception handler left?",
    "Which methods make an object callable?",
    "How are keyword arguments matched with parameters?",
    "What does the with statement guarantee?",
)


def app(runtime: Runtime | None = None) -> App:
    """The application: one LLM call."""
    generate = Generate(
        instruction="Answer from the manual. ", max_tokens=ANSWER_TOKENS, ignore_eos=True
    )
    return App(
        NAME,
        generate,
        inputs={"instructions": "text", "question": "text"},
        outputs={"answer": "answer"},
        runtime=runtime,
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """One call. at: seconds after the first could come."""

    number: int
    group: int
    at: float
    question: str

    def given(self) -> Mapping[str, Any]:
        """Its inputs."""
        return {"instructions": manual(self.group), "question": self.question}


def asked(count: int, rate: float, seed: int) -> list[Asked]:
    """So many calls, `rate` a second by a Poisson process. Another seed's find the same manuals,
    other ones of which are popular, and ask other questions."""
    draw = random.Random(f"{NAME}/{seed}")
    ranked = draw.sample(range(GROUPS), GROUPS)
    sums = list(accumulate((rank + 1) ** -ZIPF for rank in range(GROUPS)))
    found = []
    for number, at in enumerate(arrivals(rate, count, seed=seed)):
        group = ranked[bisect(sums, draw.random() * sums[-1])]
        question = f"Request {number} of series {seed}. {draw.choice(QUESTIONS)}"
        found.append(Asked(number, group, at, question))
    return found


@cache
def manual(group: int) -> str:
    """What calls of a group begin with: a part of Python's language reference."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    start = group * MANUAL_CHARACTERS
    return f"Manual {group}.\n\n{text[start : start + MANUAL_CHARACTERS]}"


def recording(calls: Sequence[Asked], sizes: Sequence[Keys], block_tokens: int) -> Recording:
    """The same calls as the simulator replays them: when they come, how long they are, and which
    blocks of their prompts are equal, by the keys that the engine has for them."""
    numbers: dict[Any, int] = {}
    found = []
    for call, (tokens, keys) in zip(calls, sizes, strict=True):
        blocks = [numbers.setdefault(key, len(numbers)) for key in keys]
        if tokens % block_tokens:
            blocks.append(numbers.setdefault(("the rest of", call.number), len(numbers)))
        prompt = prompt_of_blocks(blocks, block_tokens, tokens)
        found.append(TracedCall(call.at, prompt, ANSWER_TOKENS, NAME))
    return Recording(NAME, block_tokens, tuple(found))
