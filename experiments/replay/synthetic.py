"""Traces made by seed: of a chat service (A), of an enterprise's API (B), and Preble's workloads.

What the papers tell of theirs is kept: shares, turns, what is common to calls, ratios of prompt to
output. What they do not tell is assumed, and marked so; lengths are tokens, blocks have 16.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from experiments.replay.calls import MOST_TURNS, TRACED, Recording, TracedCall
from experiments.replay.traces import PUBLIC_BLOCK
from teola.kv import Excerpt
from teola.runtime.values import Composite

ZIPF: Final = 1.1
"""How unequal tools, documents and the like are asked for."""


class Chat(NamedTuple):
    """A type of conversation of trace A. share: of the sessions. again: how likely another turn is.
    think_s: mean pause before it, and 2 s more. first, more: mean new blocks of the first prompt,
    beside the type's system prompt, and of each turn."""

    share: float
    again: float
    think_s: float
    first: float
    more: float


CHATS: Final[Mapping[str, Chat]] = {
    "text": Chat(0.60, 0.50, 90.0, 30.0, 30.0),
    "image": Chat(0.10, 0.35, 25.0, 60.0, 20.0),
    "search": Chat(0.15, 0.50, 160.0, 60.0, 40.0),
    "file": Chat(0.15, 0.50, 300.0, 150.0, 30.0),
}
SYSTEM_BLOCKS: Final = 4
CHAT_SESSIONS: Final = 3.0
"""A second."""
CHAT_OUTPUT: Final = 200.0
"""Mean tokens of an answer; assumed."""
USERS: Final = 1000
USERS_ZIPF: Final = 1.5
"""So that a few of an API's users make most of its hits; assumed."""
API_CALLS: Final = 12.0
"""A second; over ten, of the trace."""
API_SYSTEM: Final = (540, 640)
API_OWN: Final = 448.0
"""Tokens of a user's system prompt, and of what is new in a call, on average; assumed, for a prompt
of about a thousand and the trace's ideal hit ratio, 54 %."""
API_OUTPUT: Final = 120.0


def trace_a(seconds: float, *, rate: float = CHAT_SESSIONS, seed: int = 0) -> Recording:
    """A consumer service: `rate` new conversations a second, of four types, which share a system
    prompt each; a turn's prompt is the last one and what is new."""
    made = _Maker("trace-a", seed)
    chance, types = made.chance, list(CHATS)
    systems = {type: made.text(SYSTEM_BLOCKS * PUBLIC_BLOCK) for type in types}
    shares = [chat.share for chat in CHATS.values()]
    start, session = chance.expovariate(rate), 0
    while start < seconds:
        type, at, turn = chance.choices(types, shares)[0], start, 1
        chat = CHATS[type]
        prompt = Composite.made_of([systems[type]])
        more = chat.first
        while at < seconds:
            prompt = prompt.continued(int(prompt), made.text(made.about(more) * PUBLIC_BLOCK))
            category = f"{type}-{min(turn, MOST_TURNS)}"
            made.call(at, prompt, made.about(CHAT_OUTPUT), category, f"chat-{session}")
            if chance.random() >= chat.again:
                break
            at, turn, more = at + 2.0 + chance.expovariate(1 / chat.think_s), turn + 1, chat.more
        start, session = start + chance.expovariate(rate), session + 1
    return made.recording()


def trace_b(seconds: float, *, rate: float = API_CALLS, seed: int = 0) -> Recording:
    """An enterprise's API: single calls, `rate` a second, of users with a system prompt each."""
    made = _Maker("trace-b", seed)
    systems = [made.text(made.chance.randint(*API_SYSTEM)) for _ in range(USERS)]
    users = _Popular(USERS, USERS_ZIPF, made.chance)
    at = made.chance.expovariate(rate)
    while at < seconds:
        user = users.draw()
        prompt = Composite.made_of([systems[user], made.text(made.about(API_OWN))])
        made.call(at, prompt, made.about(API_OUTPUT), "api-1", f"user-{user}")
        at += made.chance.expovariate(rate)
    return made.recording()


def toolbench(count: int, *, rate: float, seed: int = 0, tools: int = 200) -> Recording:
    """Tool use: a system prompt for all, instructions of one of `tools` tools, a question."""
    made = _Maker("toolbench", seed)
    system = made.text(200)
    told = [made.text(made.chance.randint(500, 2000)) for _ in range(tools)]
    popular = _Popular(tools, ZIPF, made.chance)
    for at in made.poisson(count, rate):
        tool = popular.draw()
        prompt = Composite.made_of([system, told[tool], made.text(50)])
        made.call(at, prompt, made.chance.randint(16, 64), "toolbench-1", f"tool-{tool}")
    return made.recording()


def embodied_agent(
    count: int, *, rate: float, seed: int = 0, tasks: int = 20, pause_s: float = 2.0
) -> Recording:
    """Agents in a household (ALFWorld): one of `tasks` kinds of task, told by examples; each step's
    prompt is the last one, what was done and what was seen then. Seven steps on average, with a
    pause (assumed) between them; `rate` counts steps."""
    made = _Maker("embodied-agent", seed)
    kinds = [made.text(made.chance.randint(1200, 2200)) for _ in range(tasks)]
    popular, steps = _Popular(tasks, ZIPF, made.chance), 7
    for agent, at in enumerate(made.poisson(count // (steps - 4) + 1, rate / steps)):
        kind = popular.draw()
        prompt = Composite.made_of([kinds[kind], made.text(made.chance.randint(40, 120))])
        for step in range(1, made.chance.randint(steps - 4, steps + 4) + 1):
            category = f"embodied-agent-{min(step, MOST_TURNS)}"
            made.call(at, prompt, made.chance.randint(8, 22), category, f"agent-{agent}")
            seen = made.text(made.chance.randint(60, 200))
            prompt = prompt.continued(int(prompt), seen)
            at += made.chance.expovariate(1 / pause_s)
    return made.recording().first(count)


def programs(
    count: int, *, rate: float, seed: int = 0, problems: int = 400, samples: int = 8
) -> Recording:
    """Program generation (APPS): a long system prompt for all, one of `problems` problems, and
    `samples` answers to it at once (how many is assumed)."""
    made = _Maker("programs", seed)
    system = made.text(3000)
    told = [made.text(made.chance.randint(300, 1400)) for _ in range(problems)]
    popular = _Popular(problems, ZIPF, made.chance)
    for at in made.poisson(-(-count // samples), rate / samples):
        problem = popular.draw()
        prompt = Composite.made_of([system, told[problem]])
        for _ in range(samples):
            made.call(at, prompt, made.about(190.0), "programs-1", f"problem-{problem}")
    return made.recording().first(count)


def video_questions(count: int, *, rate: float, seed: int = 0, videos: int = 300) -> Recording:
    """Questions with a choice of answers (NExT-QA) about one of `videos` videos."""
    shown = (4_000, 16_000)
    return _asked("video-questions", videos, shown, (40, 80), (2, 6), count, rate, seed)


def long_documents(count: int, *, rate: float, seed: int = 0, documents: int = 100) -> Recording:
    """Questions (LooGLE) about one of `documents` long documents."""
    read = (12_000, 35_000)
    return _asked("long-documents", documents, read, (20, 60), (6, 26), count, rate, seed)


def _asked(
    name: str,
    many: int,
    length: tuple[int, int],
    question: tuple[int, int],
    output: tuple[int, int],
    count: int,
    rate: float,
    seed: int,
) -> Recording:
    """Questions about things that are asked about again and again."""
    made = _Maker(name, seed)
    things = [made.text(made.chance.randint(*length)) for _ in range(many)]
    popular = _Popular(many, ZIPF, made.chance)
    for at in made.poisson(count, rate):
        thing = popular.draw()
        prompt = Composite.made_of([things[thing], made.text(made.chance.randint(*question))])
        made.call(at, prompt, made.chance.randint(*output), f"{name}-1", f"thing-{thing}")
    return made.recording()


PREBLE: Final[Mapping[str, Callable[..., Recording]]] = {
    "toolbench": toolbench,
    "embodied-agent": embodied_agent,
    "programs": programs,
    "video-questions": video_questions,
    "long-documents": long_documents,
}
"""The five workloads of Preble's, by name: (count, *, rate, seed) -> Recording."""


class _Maker:
    """Gathers the calls of one trace. chance: what everything is drawn from."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.chance = name, random.Random(f"{name}/{seed}")
        self._texts = TRACED
        self._calls: list[TracedCall] = []

    def text(self, tokens: int) -> Excerpt:
        """A text that was not there before."""
        self._texts += 1
        return Excerpt(self._texts, 0, tokens)

    def about(self, mean: float) -> int:
        """At least 1, exponential."""
        return max(1, round(self.chance.expovariate(1 / mean)))

    def poisson(self, count: int, rate: float) -> Iterable[float]:
        """So many arrival times, `rate` a second."""
        return accumulate(self.chance.expovariate(rate) for _ in range(count))

    def call(self, at: float, prompt: Composite, output: int, category: str, session: str) -> None:
        self._calls.append(TracedCall(at, prompt, output, category, session))

    def recording(self) -> Recording:
        """All of them, in order of arrival."""
        calls = sorted(self._calls, key=lambda call: call.at)
        return Recording(self.name, PUBLIC_BLOCK, tuple(calls))


class _Popular:
    """Draws one of `count` things, the first ones oftenest, as Zipf's law has it."""

    def __init__(self, count: int, exponent: float, chance: random.Random) -> None:
        self._sums = list(accumulate((k + 1) ** -exponent for k in range(count)))
        self._chance = chance

    def draw(self) -> int:
        return bisect(self._sums, self._chance.random() * self._sums[-1])
