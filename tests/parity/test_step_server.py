"""Engine and simulator: the same calls give the same hits, evictions and times.

The transformers engine's loop is stepped by hand over a model whose KV are token ids and which
answers by them; a simulated instance gets the same calls at the same steps. Texts are numbered, and
no two have a token in common, so that what is the same text is the same tokens, and the other way
round. Caches are small, so that much is evicted, and prefixes are held and released.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

import teola
from teola.engine import EngineKind
from teola.graph.ops import DecodeParams
from teola.instance import StepServer, TokenSequence
from teola.kv import Access, BlockCache, Excerpt, Policy, excerpt_keys, make_policy, token_keys
from teola.kv.policies.lru import Lru
from teola.policies.work import Slice
from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime.in_flight import Query
from teola.runtime.observe.trace import Trace
from teola.runtime.sim import Sim
from teola.runtime.sim.llm import Stepper
from teola.runtime.sim.outcome import Delivery, Planned
from teola.runtime.store import Store
from teola.runtime.values import Tokens, number_of
from teola.schedule.events import CallEnded, Dispatch, QueueEvent
from teola.schedule.graph_run import GraphRun
from teola.stops import Stops
from teola_engines.llm.local_tokens import TextStream
from teola_engines.llm.model_loop import ModelJob, ModelLoop
from teola_engines.llm.paged_model import BatchRow
from tests.planted import catches, edited
from tests.schedule.plans import call, plan

BLOCK, TEXT, TEXTS = 4, 32, 12
"""Tokens of a block, most tokens of a text, and how many texts there are to ask; each is answered
by another one."""
GENERATING, AHEAD = plan(*call("m")), plan(*call("m", ahead=True))


class Asked(NamedTuple):
    """A call. at: the step at which it enters. texts: of its prompt, with their lengths. output:
    0 for a prefix that is held from then on, until the step `release`."""

    number: int
    at: int
    texts: tuple[tuple[int, int], ...]
    output: int
    release: int

    @property
    def prompt(self) -> list[int]:
        return [text * TEXT + at for text, length in self.texts for at in range(length)]

    @property
    def answer(self) -> int:
        """The text that answers it."""
        return TEXTS + self.texts[-1][0]

    @property
    def ids(self) -> list[int]:
        """All its tokens, prompt and answer."""
        return [*self.prompt, *(self.answer * TEXT + at for at in range(self.output))]


@dataclass
class Trial:
    """What is the same for both."""

    calls: list[Asked]
    blocks: int
    budget: int
    sequences: int


class Told(NamedTuple):
    """What became of the calls. seen: what the eviction policy was told, by content."""

    cached: dict[int, int]
    ended: dict[int, int]
    seen: list[Any]


def drawn(seed: int) -> Trial:
    """Calls that begin with few different texts, go on from earlier answers, and come in bursts."""
    chance = random.Random(seed)
    calls: list[Asked] = []
    lengths = [chance.randint(1, TEXT) for _ in range(TEXTS)]
    at = 0
    for number in range(chance.randint(5, 25)):
        at += chance.choice([0, 0, 1, 3, 20])
        texts: tuple[tuple[int, int], ...] = ()
        generated = [asked for asked in calls if asked.output]
        if generated and chance.random() < 0.4:
            earlier = chance.choice(generated)
            texts = (*earlier.texts, (earlier.answer, earlier.output))
        for _ in range(chance.randint(1, 2)):
            text = chance.randrange(TEXTS)
            texts = (*texts, (text, lengths[text]))
        output = 0 if chance.random() < 0.3 else chance.randint(1, TEXT)
        calls.append(Asked(number, at, texts, output, at + chance.randint(0, 60)))
    most = max(-(-len(asked.ids) // BLOCK) for asked in calls)
    return Trial(calls, most + chance.randint(0, most), chance.choice([7, 20, 300]), 4)


class Newest(Lru):
    """The block whose last use ended last."""

    def evict(self, now: float) -> int:
        return self._offered.popitem(last=True)[0]


class Watching:
    """Another policy, and what it is told of keys: what they hold."""

    def __init__(self, policy: Policy, content: Mapping[Hashable, Any]) -> None:
        self.policy, self.content, self.seen = policy, content, list[Any]()
        self._keys: dict[int, Hashable] = {}
        self.offer, self.withdraw = policy.offer, policy.withdraw

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        self.policy.touch(blocks, keys, position, access, now)
        self._keys |= dict(zip(blocks, keys, strict=True))
        self.seen.append(("touch", position, [self.content[key] for key in keys]))

    def evict(self, now: float) -> int:
        block = self.policy.evict(now)
        self.seen.append(("evict", self.content[self._keys[block]]))
        return block


# --- the engine -------------------------------------------------------------------------------


class ById:
    """A model whose KV of a token is its id. The text `t` is answered by the text TEXTS + t."""

    asynchronous = False

    def __init__(self, blocks: int) -> None:
        self.pool = [-1] * (blocks * BLOCK)
        self.steps = 0

    def forward(self, rows: Sequence[BatchRow]) -> torch.Tensor:
        self.steps += 1
        logits = torch.zeros(len(rows), 2 * TEXTS * TEXT)
        for i, row in enumerate(rows):
            slots = [row.blocks[at // BLOCK] * BLOCK + at % BLOCK for at in range(row.length)]
            for slot, id in zip(slots[row.past :], row.ids, strict=True):
                self.pool[slot] = id
            logits[i, self.next([self.pool[slot] for slot in slots])] = 1.0
        return logits

    def next(self, ids: list[int]) -> int:
        """The token after all that was read from the KV, which has to make sense."""
        assert all(b == a + 1 or b % TEXT == 0 for a, b in pairwise(ids))
        text, at = divmod(ids[-1], TEXT)
        if text >= TEXTS:
            return text * TEXT + at + 1
        return (TEXTS + text) * TEXT


async def on_the_engine(trial: Trial, eviction: str) -> Told:
    content = {key: made for asked in trial.calls for key, made in _contents(asked, _by_ids)}
    policy = Watching(make_policy(eviction), content)
    cache = BlockCache(trial.blocks, BLOCK, policy)
    server = StepServer(trial.budget, trial.sequences, cache)
    model = ById(trial.blocks)
    loop = ModelLoop("parity", model, server, frozenset())  # type: ignore[arg-type]
    jobs: dict[int, ModelJob] = {}
    ended: dict[int, int] = {}
    for clock in range(10_000):
        for asked in trial.calls:
            if asked.at == clock:
                jobs[asked.number] = _job(asked)
                loop.submit(jobs[asked.number])
            if asked.release == clock and not asked.output:
                loop.release(asked.number)
        loop.catch_up()
        before, took = model.steps, False
        while not took and loop.step():
            loop.catch_up()
            await asyncio.sleep(0)
            took = model.steps > before
            for number, job in jobs.items():
                if number not in ended and _done(job):
                    ended[number] = clock + took
        if len(ended) == len(trial.calls):
            break
    for asked in trial.calls:
        assert jobs[asked.number].produced == asked.ids[len(asked.prompt) :]
    cache.check()
    return Told({n: job.sequence.cached for n, job in jobs.items()}, ended, policy.seen)


def _done(job: ModelJob) -> bool:
    while not job.queue.empty():
        outcome = job.queue.get_nowait()
        assert not isinstance(outcome, Exception), outcome
        if outcome.finish_reason is not None:
            return True
    return False


def _job(asked: Asked) -> ModelJob:
    ids = asked.prompt
    produced: list[int] = []
    sequence = TokenSequence(
        asked.number,
        prompt=len(ids),
        output=asked.output,
        keys=token_keys(ids, BLOCK),
        grown=lambda tokens: token_keys([*ids, *produced][:tokens], BLOCK),
        keep=not asked.output,
    )
    decode = DecodeParams(max_tokens=asked.output, ignore_eos=True) if asked.output else None
    text = TextStream(lambda ids: "x" * len(ids), ids)
    running = asyncio.get_running_loop()
    return ModelJob(
        asked.number, tuple(ids), decode, sequence, text, Stops(()), 0, running, produced=produced
    )


# --- the simulator ----------------------------------------------------------------------------


class Answers(Planned):
    """What each call generates, by its query's id."""

    def __init__(self, calls: Sequence[Asked]) -> None:
        super().__init__()
        self.calls = calls

    def call(self, query: Query, head: int) -> tuple[int, list[Delivery]]:
        asked = self.calls[int(query.id)]
        if not asked.output:
            return 0, []
        said = {"out": Tokens.of(asked.answer + 1, 0, asked.output)}
        (member,) = query.plan.members[head]
        return asked.output, [Delivery(member, asked.output, said)]


class Alone(Sim):
    """One instance that gets its calls by the step, whatever a scheduler would say. A step takes a
    second."""

    def __init__(self, trial: Trial, eviction: str) -> None:
        engine = EngineProfile(
            step=StepTime(base_s=1.0),
            max_batch=trial.budget,
            max_sequences=trial.sequences,
            prefix_reuse=True,
            keeps_prefixes=True,
            block_tokens=BLOCK,
            kv_blocks=trial.blocks,
        )
        content = {key: made for asked in trial.calls for key, made in _contents(asked, _by_texts)}
        self.policy = Watching(make_policy(eviction), content)
        profile = Profile("parity", {"llm": engine})
        with teola.register("eviction", "watching", lambda: self.policy):
            super().__init__(profile, eviction="watching", outcomes=Answers(trial.calls))
            self._add_engine("llm", EngineKind.LLM)
        self.trial, self.ended = trial, dict[int, int]()
        stepper = self.servers["llm", 0]
        assert isinstance(stepper, Stepper)
        self.stepper = stepper
        self.sequences: dict[int, TokenSequence] = {}

    def waits(self, engine: str, id: tuple[str, int]) -> bool:
        return True

    def handle(self, event: QueueEvent, now: float) -> None:
        if isinstance(event, CallEnded):
            assert isinstance(event.outcome, dict), event.outcome
            self.ended[int(event.run)] = round(now)

    def play(self) -> Told:
        for asked in self.trial.calls:
            self.at(asked.at, self._enter, asked)
            if not asked.output:
                self.at(asked.release, self._let_go, asked, 2)
        self.run()
        self.stepper.server.cache.check()
        cached = {number: sequence.cached for number, sequence in self.sequences.items()}
        return Told(cached, self.ended, self.policy.seen)

    def _enter(self, asked: Asked) -> None:
        id, made = str(asked.number), GENERATING if asked.output else AHEAD
        question = [Tokens.of(text + 1, 0, length) for text, length in asked.texts]
        run = GraphRun(id, made)
        query = Query(id, made, Store(made, {"question": question}), run, Trace(id, "", made, 0.0))
        self.queries[id] = query
        head = made.index["m.prefill" if asked.output else "m.ahead"]
        work: Any = SimpleNamespace(run=id, primitive=head, row_tokens=0)
        self.stepper.arrive(Dispatch("llm", 0, asked.number, (Slice(work, 0, 1),)))
        self.sequences[asked.number] = self.stepper.server.waiting[id, head]

    def _let_go(self, asked: Asked, later: int) -> None:
        """Release a prefix once all else has happened that happens now: between two steps."""
        if later:
            self.at(self.now, self._let_go, asked, later - 1)
        else:
            self.stepper.release((str(asked.number), AHEAD.index["m.ahead"]))


# --- the comparison ---------------------------------------------------------------------------


def _contents(
    asked: Asked, keys: Callable[[Asked], Sequence[Hashable]]
) -> list[tuple[Hashable, tuple[int, ...]]]:
    """Each key of the call's blocks, and all tokens that it stands for."""
    found = enumerate(keys(asked), 1)
    return [(key, tuple(asked.ids[: k * BLOCK])) for k, key in found]


def _by_ids(asked: Asked) -> Sequence[Hashable]:
    return token_keys(asked.ids, BLOCK)


def _by_texts(asked: Asked) -> Sequence[Hashable]:
    said = [Excerpt(text + 1, 0, length) for text, length in asked.texts]
    answer = Excerpt(asked.answer + 1, 0, asked.output)
    return excerpt_keys([*said, answer], BLOCK, number_of("default"))


async def compare(seeds: range, eviction: str) -> tuple[int, int]:
    """Hits in tokens and evictions of all trials, which are equal on both sides."""
    hits = evictions = 0
    for seed in seeds:
        trial = drawn(seed)
        real, simulated = await on_the_engine(trial, eviction), Alone(trial, eviction).play()
        assert simulated.cached == real.cached, f"seed {seed}: other hits"
        assert simulated.seen == real.seen, f"seed {seed}: other accesses or evictions"
        assert simulated.ended == real.ended, f"seed {seed}: other ends"
        hits += sum(real.cached.values())
        evictions += sum(entry[0] == "evict" for entry in real.seen)
    return hits, evictions


@catches(
    "answers-by-length",
    "the simulator takes each answer for a text of its own",
    edited("teola.runtime.sim.content:answer_of", "== length", "== -1"),
)
@catches(
    "prefix-of-nobody",
    "a simulated prefix is not kept",
    edited(Stepper._begin, "sequence.keep = not deliveries", "sequence.keep = False"),
)
@catches(
    "room-unseen",
    "a simulated instance decodes on although a prefix was released for which others wait",
    edited(Stepper.release, "self._interrupt()", "pass"),
)
@catches(
    "always-lru",
    "a simulated cache evicts by lru, whatever is configured",
    edited(Sim._server, "_named(self._eviction, name, eviction_policies.DEFAULT)", '"lru"'),
)
@pytest.mark.parametrize("eviction", ["lru", "newest"])
async def test_200_random_traces_hit_evict_and_end_alike(eviction: str) -> None:
    with teola.register("eviction", "newest", Newest):
        hits, evictions = await compare(range(200), eviction)
    assert hits > 10_000
    assert evictions > 1000


@pytest.mark.parametrize("seed", range(3))
def test_the_traces_are_worth_comparing(seed: int) -> None:
    trial = drawn(seed)
    assert len({asked.texts for asked in trial.calls}) > 3
    assert any(not asked.output for seed in range(5) for asked in drawn(seed).calls)
