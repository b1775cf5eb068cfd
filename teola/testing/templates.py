"""Random templates: chains, forks, Conditions, Loops and Eachs in each other, over
every component but agents, people, judges, databases and the web.

A template is grown step by step; each step reads names that are visible there and gives new ones.
Functions answer with hashes of what they read, so whatever reaches an output can be traced there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from teola.engine import Chunk, Scope
from teola.errors import TemplateError
from teola.testing.choices import Choices, SeededChoices
from teola.testing.hash_engines import hash_number
from teola.workflow.build import Builder
from teola.workflow.component import Component, Template
from teola.workflow.components import (
    Aggregate,
    Condition,
    Each,
    Embedding,
    Function,
    Generate,
    Indexing,
    Loop,
    QueryExpansion,
    Rerank,
    Search,
)
from teola.workflow.kinds import Kind

Names = dict[str, str]
"""Visible names and whether they are text, texts, vectors or hits."""
DEEPEST = 2


@dataclass
class RandomTemplate:
    """A template with inputs to run it on. effects: filled by effectful functions as they run."""

    builder: Builder
    inputs: dict[str, Any]
    sizes: dict[str, int]
    effects: list[str] = field(default_factory=list)

    @property
    def upstream(self) -> dict[str, set[str]]:
        """For each effectful component, the effectful ones that come before it."""
        upstream = self.builder.wirer.upstream
        names = {c.name for c in self.builder.template.components if isinstance(c, Function)}
        loud = {n for n in names if self.builder.template.by_name[n].effect}
        return {name: upstream[name] & loud for name in loud}

    def wrong_effects(self) -> str:
        """What is wrong with the order of `effects`, if anything; they are forgotten. Each
        effectful function runs at most once, after those before it in the template."""
        ran = list(self.effects)
        self.effects.clear()
        if len(ran) > len(set(ran)):
            return f"an effect happened twice: {ran}"
        for name, before in self.upstream.items():
            late = [b for b in before if name in ran and b in ran[ran.index(name) :]]
            if late:
                return f"{late} ran after {name!r}"
        return ""


def grow(choices: Choices, *, large: bool = False) -> RandomTemplate | None:
    """A template over documents, a question and a list of notes, checked and wired; None if what
    was chosen is none, because something is replaced before anybody reads it. large: with lists
    of dozens of items."""
    effects: list[str] = []
    grower = _Grower(choices, effects, large)
    visible = {"question": "text", "notes": "texts"}
    template: Component | Template = grower.chain(visible, choices.whole(1, 4), 0)
    chunks = choices.whole(0, 40 if large else 11)
    indexing = choices.one(["never", "first", "last", "between"])
    if indexing == "first":
        template = Indexing() >> template
    elif indexing != "never":
        template = template >> grower.lookup(visible) >> Indexing()
        if indexing == "between":
            template = template >> grower.chain(visible, choices.whole(1, 2), 0)
    notes = choices.several("abcdef", 0, 20 if large else 6, unique=False)
    also = [name for name in grower.given if choices.flag()]
    kinds = {"question": Kind.TEXT, "notes": Kind.TEXTS, "documents": Kind.DOCUMENTS}
    outputs = {name: name for name in {**dict.fromkeys(grower.unread), **dict.fromkeys(also)}}
    try:
        builder = Builder("random", template, kinds, outputs or {"question": "question"})
        builder.build(builder.configure({}), {})  # bodies are checked when they are built
    except TemplateError as error:
        if "is unused" not in str(error):
            raise
        return None
    return RandomTemplate(
        builder,
        {
            "question": choices.one(["why?", "who?", "how many are there?"]),
            "notes": [f"note {note}" for note in notes],
            "chunks": _chunks(chunks),
            "scope": Scope("default", "c"),
        },
        {"notes": len(notes), "chunks": chunks},
        effects,
    )


def random_template(seed: int, *, large: bool = False) -> RandomTemplate:
    """The template of a seed; see `grow`."""
    choices = SeededChoices(seed)
    while (made := grow(choices, large=large)) is None:
        pass
    return made


def usual_template(seed: int) -> RandomTemplate:
    """Documents are indexed, searched and answered from, as most applications do: by the question
    or several in its place, with or without a reranker. The seed says which, and how long lists
    are."""
    choices = SeededChoices(seed)
    asked, name = Embedding(inputs={"texts": "question"}), "hits"
    template: Template = Indexing() >> asked
    if choices.flag():
        parser = choices.one(["lines", "numbered", "json_list"])
        expansion = QueryExpansion(n=choices.whole(2, 5), parser=parser)
        template = Indexing() >> expansion >> Embedding(inputs={"texts": "queries"})
    template = template >> Search(top_k=choices.whole(1, 20))
    if choices.flag():
        template, name = template >> Rerank(top_k=choices.whole(1, 5)), "context"
    mode = choices.one(["simple", "tree", "refine"])
    template = template >> Generate(mode=mode, inputs={"context": name})
    kinds = {"question": Kind.TEXT, "documents": Kind.DOCUMENTS}
    chunks = choices.whole(0, 60)
    builder = Builder("usual", template, kinds, {"answer": "answer"})
    return RandomTemplate(
        builder,
        {"question": "why?", "chunks": _chunks(chunks), "scope": Scope("default", "c")},
        {"chunks": chunks},
    )


def _chunks(count: int) -> list[Chunk]:
    return [Chunk("d", i, f"chunk {i}", "d") for i in range(count)]


class _Grower:
    def __init__(self, choices: Choices, effects: list[str], large: bool) -> None:
        self.choices, self.effects, self.large = choices, effects, large
        self.made = self.growing = 0
        self.read: set[str] = set()
        self.given: Names = {}
        self.unread: dict[str, None] = {}

    def chain(self, visible: Names, length: int, depth: int) -> Component | Template:
        """`length` steps in a row; the names they give become visible."""
        chain: Component | Template | None = None
        for _ in range(length):
            step = self._step(visible, depth)
            chain = step if chain is None else chain >> step
        assert chain is not None
        return chain

    def lookup(self, visible: Names) -> Template:
        """A search for some text."""
        return self._embed(visible, 0) >> self._search(visible, 0)

    def _step(self, visible: Names, depth: int) -> Component | Template:
        kinds = set(visible.values())
        steps: list[Callable[[Names, int], Component | Template]] = [
            self._say,
            self._effect,
            self._each,
            self._expand,
            self._embed,
            self._generate,
            self._aggregate,
        ]
        steps += [self._search, self._search] if "vectors" in kinds else []
        steps += [self._rerank, self._rerank] if "hits" in kinds else []
        steps += [self._fork, self._choose, self._choose] if depth < DEEPEST else []
        if depth < DEEPEST:
            steps += [self._loop] + ([self._map] if "texts" in kinds else [])
        if self.growing:
            steps.remove(self._effect)  # it would run once a part
        return self.choices.one(steps)(visible, depth)

    # --- names ----------------------------------------------------------------------------

    def _read(self, visible: Names, *kinds: str) -> str:
        names = [name for name, kind in visible.items() if not kinds or kind in kinds]
        name = self.choices.one(names)
        self.unread.pop(name, None)
        self.read.add(name)
        return name

    def _give(self, visible: Names, kind: str, name: str | None = None) -> str:
        self.made += 1
        name = name or f"{kind}{self.made}"
        visible[name] = self.given[name] = kind
        self.unread[name] = None
        return name

    def _name(self, what: str) -> str:
        self.made += 1
        return f"{what}_{self.made}"

    # --- steps ----------------------------------------------------------------------------

    def _say(self, visible: Names, depth: int, output: str | None = None) -> Component:
        inputs = {"x": self._read(visible)}
        name = self._name("say")

        async def say(x: Any) -> str:
            return f"{name}({hash_number(x) % 10**5})"

        async def say_both(x: Any, y: Any = None) -> str:
            return f"{name}({hash_number(x, y) % 10**5})"

        two = self.choices.flag()
        if two:
            inputs["y"] = self._read(visible)
        given = self._give(visible, "text", output)
        return Function(say_both if two else say, outputs=given, name=name, inputs=inputs)

    def _effect(self, visible: Names, depth: int) -> Component:
        inputs = {"x": self._read(visible)}
        name, effects = self._name("effect"), self.effects

        async def effect(x: Any) -> str:
            effects.append(name)
            return f"{name}({hash_number(x) % 10**5})"

        given = self._give(visible, "text")
        return Function(effect, outputs=given, name=name, inputs=inputs, effect=True)

    def _each(self, visible: Names, depth: int) -> Component:
        inputs = {"xs": self._read(visible, "texts", "hits", "vectors")}
        name = self._name("each")

        async def each(xs: list[Any]) -> list[Any]:
            return [f"{name}({hash_number(x) % 10**5})" for x in xs]

        given = self._give(visible, "texts")
        return Function(each, outputs=given, name=name, inputs=inputs, batched="xs", pure=True)

    def _expand(self, visible: Names, depth: int) -> Component:
        return QueryExpansion(
            self._name("expand"),
            n=self.choices.whole(1, 6),
            parser=self.choices.one(["lines", "numbered", "json_list"]),
            inputs={"question": self._read(visible, "text")},
            outputs={"queries": self._give(visible, "texts")},
        )

    def _embed(self, visible: Names, depth: int) -> Component:
        inputs = {"texts": self._read(visible, "text", "texts")}
        outputs = {"vectors": self._give(visible, "vectors")}
        return Embedding(self._name("embed"), inputs=inputs, outputs=outputs)

    def _search(self, visible: Names, depth: int) -> Component:
        inputs = {"vectors": self._read(visible, "vectors")}
        outputs = {"hits": self._give(visible, "hits")}
        top_k = self.choices.whole(1, 20 if self.large else 4)
        return Search(self._name("search"), inputs=inputs, outputs=outputs, top_k=top_k)

    def _rerank(self, visible: Names, depth: int) -> Component:
        inputs = {"hits": self._read(visible, "hits"), "question": self._read(visible, "text")}
        outputs = {"context": self._give(visible, "hits")}
        top_k = self.choices.whole(1, 3)
        return Rerank(self._name("rerank"), inputs=inputs, outputs=outputs, top_k=top_k)

    def _generate(self, visible: Names, depth: int) -> Component:
        mode = self.choices.one(["simple", "tree", "refine"])
        kinds = ("text", "texts", "hits") if mode == "simple" else ("texts", "hits")
        inputs = {
            "question": self._read(visible, "text"),
            "context": self._read(visible, *kinds),
            "history": self._read(visible, "text"),
        }
        return Generate(
            self._name("generate"),
            mode=mode,
            context_required=self.choices.flag(),
            fan_in=self.choices.one([None, 2, 3]),
            history_first=self.choices.flag(),
            inputs=inputs if self.choices.flag() else {**inputs, "history": "question"},
            outputs={"answer": self._give(visible, "text")},
        )

    def _aggregate(self, visible: Names, depth: int) -> Component:
        names = [name for name, kind in visible.items() if kind != "vectors"]
        reads = self.choices.several(names, 1, 3, unique=True)
        for name in reads:
            self.unread.pop(name, None)
            self.read.add(name)
        kinds = {visible[name] for name in reads}
        modes = ["concat", "union", *(["first", "last"] if len(kinds) == 1 else [])]
        mode = self.choices.one(modes)
        kind = "texts" if mode in ("concat", "union") else min(kinds)
        output = self._give(visible, "hits" if kinds == {"hits"} else kind)
        return Aggregate(reads, output=output, mode=mode, name=self._name("gather"))

    def _fork(self, visible: Names, depth: int) -> Template:
        sides = []
        seen = [dict(visible), dict(visible)]
        for names in seen:
            sides.append(self.chain(names, self.choices.whole(1, 2), depth + 1))
        for names in seen:
            visible |= names
        return Template.beside(sides)

    def _loop(self, visible: Names, depth: int) -> Component:
        carried = self._read(visible, "text")
        remainder, body, output = self._body(visible, carried, depth)
        given = self._give(visible, "text")
        return Loop(
            body,
            carry={carried: output},
            until=lambda text: hash_number(text) % 3 == remainder,
            reads=[output],
            gives=[output],
            at_most=self.choices.whole(1, 4),
            name=self._name("loop"),
            outputs={output: given},
        )

    def _map(self, visible: Names, depth: int) -> Component:
        over, item = self._read(visible, "texts"), self._name("item")
        _, body, output = self._body({**visible, item: "text"}, item, depth)
        return Each(
            body,
            over=over,
            item=item,
            gives={self._give(visible, "texts"): output},
            at_once=self.choices.one([1, 2, 64]),
            name=self._name("map"),
        )

    def _body(self, visible: Names, read: str, depth: int) -> tuple[int, Template, str]:
        """A chain that ends with a text made of all that it gives and of `read`; its name."""
        given, unread = self.given, self.unread
        self.given, self.unread = {}, {}
        self.growing += 1
        inner = dict(visible)
        body = Template.beside(self.chain(inner, self.choices.whole(1, 2), depth + 1))
        left = [name for name in self.unread if name in self.given] or [self._read(inner)]
        for name in left:
            body = body >> self._joined(read, name)
            (read,) = body.components[-1].outputs.values()
        self.growing -= 1
        self.given, self.unread = given, {name: None for name in unread if name not in self.read}
        return self.choices.whole(0, 2), body, read

    def _joined(self, x: str, y: str) -> Component:
        name = self._name("join")

        async def join(x: Any, y: Any = None) -> str:
            return f"{name}({hash_number(x, y) % 10**5})"

        inputs, outputs = {"x": x, "y": y}, [self._name("text")]
        return Function(join, outputs=outputs, name=name, inputs=inputs, pure=True)

    def _choose(self, visible: Names, depth: int) -> Component:
        """A Condition; what its branches give last has one name, and may replace an older one."""
        read, odd = self._read(visible), self.choices.whole(0, 1)
        older = [n for n, kind in visible.items() if kind == "text" and n not in self.unread]
        replaces = depth == 0 and older and self.choices.flag()
        name = self.choices.one(older) if replaces else self._give({}, "text")
        self.unread[name] = None
        branches = []
        seen = [dict(visible), dict(visible)]
        for names in seen[: self.choices.whole(1, 2)]:
            inner = self.chain(names, self.choices.whole(1, 2), depth + 1)
            branches.append(inner >> self._say(names, depth, name))
        for names in seen:
            visible |= names
        return Condition(
            lambda value: hash_number(value) % 2 == odd,
            reads=[read],
            then=branches[0],
            otherwise=branches[1] if len(branches) > 1 else None,
            name=self._name("choose"),
        )
