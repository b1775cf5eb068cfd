"""How an agent goes on: which turn and which calls follow from what was written and called.

Long because a run is one state, and whatever happens to it one method over that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any, Final

from teola.errors import EngineError, InputError, OutputError, TeolaError
from teola.graph import Grow, KeepsRoom, Remarks
from teola.tools.decision import PlannedCall
from teola.tools.references import substituted
from teola.tools.tool_result import ToolResult
from teola.workflow.build import Builder
from teola.workflow.components.agency import Agency
from teola.workflow.components.agent_tools import Box
from teola.workflow.components.room import (
    ABOUT,
    LEAST_TOKENS,
    TOLD_TOKENS,
    Counting,
    Spending,
    recent_entries,
    recent_lines,
    sampled,
)
from teola.workflow.components.transcript import HEADER, entry, in_one_line, thought

TURN, LAST, CALL, PURE, APPROVAL, OFFER = PARTS = (
    "turn",
    "last",
    "call",
    "pure",
    "approve",
    "offer",
)
OVER: Final = "over"
"""And a part for each agent that this one may hand over to: `over-NAME`."""
READ: Final = ("question", "history", "instructions")
"""What each turn reads of what the agent does."""
NOTHING: Final = frozenset[str]()
SHOWN_CHARS: Final = 20_000
"""Of arguments that a step shows with results in them."""
OVER_TOLD: Final = "handed over"
"""Result of the step by which another agent takes over."""
BROKEN: Final = 2
"""Streams of one turn that may break off after a call of it was read."""
BUDGET: Final = "the budget of its query is spent or reserved"
LAST_ANSWER: Final = 256
"""Tokens of a last answer for which room is kept, at most."""
MOST_OFF: Final = (0.1, 10.0)
"""What an engine counts for each token that was estimated, at least and at most."""
AGAIN: Final = "Your last reply could not be read: {told}. Reply again, as you were told to."


@dataclass
class Acting:
    """One run of an Agent. box: what it may call, none but its own tools unless others were asked
    for. writing: a turn is being written. calls: by number, all that were read. begun: of them.
    asked: about which of them a person was asked, answered or not. rejected: by a person. number:
    of the last one. known: how many calls there were when this turn began. before: how many of
    them are of an exchange with the client. aside: calls that are not made
    here, but handed over or to the client. given_out: calls that the client is to make, by
    number. over: the call by which another agent took over. edited:
    calls that a person has changed. thoughts: what the model wrote beside its calls, by the
    number of the first of them. again: what is wrong with a reply that has to be written again, for
    the next turn. repaired: whether there was one. broken: streams of this turn that broke off
    among its calls. spending, counting: of tokens. purse: of its query's budget. about, scale:
    estimated tokens of the last prompt, and what its engine counted for each of them. lasting: the
    last answer is being written. cut: why it had to answer, if its query's budget is the reason.
    """

    agent: Agency
    inputs: Mapping[str, Any]
    box: Box = field(init=False)
    turn: int = 0
    writing: bool = False
    number: int = 0
    known: int = 0
    before: int = 0
    calls: dict[int, PlannedCall] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    results: dict[int, ToolResult] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    aside: list[int] = field(default_factory=list)
    over: int | None = None
    edited: set[int] = field(default_factory=set)
    thoughts: dict[int, str] = field(default_factory=dict)
    entries: list[Any] = field(default_factory=list)
    shown: int = 0
    answer: Any = None
    again: str = ""
    repaired: bool = False
    broken: int = 0
    more: tuple[Any, ...] = ()
    given_out: dict[int, dict[str, Any]] = field(default_factory=dict)
    forced: str = ""
    counting: Counting = ABOUT
    purse: KeepsRoom | None = None
    about: int = 0
    scale: float = 1.0
    lasting: bool = False
    cut: str = ""
    history: str | None = None
    spending: Spending = field(init=False)

    def __post_init__(self) -> None:
        self.box = Box(self.agent.toolbox)
        self.spending = Spending(self.agent.config.bound)

    @property
    def _streams(self) -> bool:
        config = self.agent.config
        return config.mode == "plan" and config.streamed

    def begin(self) -> Sequence[Grow]:
        if self.agent.maker.asks:
            return (Grow(OFFER, OFFER, {}),)
        return self._open(None)

    def _open(self, offered: Any) -> Sequence[Grow]:
        """The first turn, with what may be called in it."""
        client = self.inputs.get("client_tools")
        self.box = self.agent.maker.box(offered, client)
        for item in client.get("exchange", ()) if client else ():
            self._take_up(item)
        self.before, self.shown = self.number, len(self.results)
        if history := self.inputs.get("history"):
            most = self.agent.config.history_tokens
            self.history = recent_lines(history, most, self.counting.tokens)
        return (self._turn(),)

    def _take_up(self, item: Mapping[str, Any]) -> None:
        """Something of an exchange with the client, which its model is to see: a thought, a call
        that was made here, with its whole result, or one of the client's, with a text."""
        if (text := item.get("thought")) is not None:
            self.entries.append(thought(text))
            return
        self.number += 1
        gave = item["result"]
        result = ToolResult(gave, gave) if isinstance(gave, str) else ToolResult(**gave)
        call = PlannedCall(self.number, item["tool"], item["args"], literal=True)
        self.calls[self.number], self.results[self.number] = call, result
        self.begun.add(self.number)
        self.entries.append(entry(call, result, edited=bool(item.get("edited"))))

    def told(self, key: str, port: str, item: Any) -> Sequence[Grow]:
        self._read(item)
        return self._due()

    def counts(self, tokens: Callable[[str], int], window: int | None) -> None:
        """Count tokens so from now on; a prompt and its answer may have `window`."""
        self.counting = Counting(sampled(tokens), window)

    def spent(self, key: str, prompt_tokens: int, generated_tokens: int) -> None:
        """What calls of LLMs have taken for a part that has ended."""
        self.spending.ended(key, prompt_tokens, generated_tokens)
        if self.purse is not None and key.startswith(TURN) and self.about and prompt_tokens:
            self.scale = max(MOST_OFF[0], min(MOST_OFF[1], prompt_tokens / self.about))

    def within(self, outer: Acting, key: str) -> None:
        """This run is a part of another agent's, or of what that calls: their bounds hold, too."""
        self.spending.around = outer.spending, key
        self.spending.returns = not key.startswith(OVER)

    def ended(self, key: str, outputs: Mapping[str, Any]) -> Sequence[Grow]:
        what, _, number = key.partition("/")
        if what == OFFER:
            return self._open(outputs["offered"])
        if what == OVER:
            self.answer, self.more = outputs["answer"], tuple(outputs["steps"] or ())
            return ()
        if what == CALL:
            self.results[int(number)] = ToolResult(**outputs["result"])
            return self._next()
        if what == APPROVAL:
            return [*self._decided(int(number), outputs["answer"]), *self._next()]
        self.writing, self.broken = False, 0
        if not self._streams:
            for item in outputs["calls"] or ():
                self._read(item)
        decision = outputs["decision"]
        if decision is None and self.purse is not None and not self.cut:
            self.cut = self.forced = BUDGET
        if isinstance(decision, Mapping) and "answer" in decision:
            self.answer = decision["answer"]
        elif isinstance(decision, Mapping) and (text := decision.get("thought", "").strip()):
            if first := [*self.calls][self.known :][:1]:
                self.thoughts[first[0]] = text
            self.entries.append(thought(text))
        return self._next()

    def failed(self, key: str, error: Exception) -> Sequence[Grow]:
        cause = error.__cause__ if error.__cause__ is not None else error
        if key.startswith(f"{TURN}/") and self._broke_off(cause):
            return self._next()
        unread = isinstance(cause, OutputError) and key.startswith(f"{TURN}/")
        if not unread or self.repaired or self.turn >= self.agent.config.at_most:
            raise error
        self.writing, self.repaired, self.again = False, True, AGAIN.format(told=cause)
        return self._next()

    def _broke_off(self, cause: BaseException) -> bool:
        """Whether a turn may be written again whose stream broke off among its calls. Those that
        have begun stay, and the model sees what they gave; those that have not are forgotten. Once
        one with an effect has begun, or a person has been asked about one, the query fails: another
        list could hold the same call. (Before the first call the engine tries again itself.)"""
        written = [*self.calls][self.known :]
        again = isinstance(cause, TeolaError) and cause.retryable and self.broken < BROKEN
        begun = self.begun.intersection(written)
        if not again or not written or begun & self.asked or any(map(self._changes, begun)):
            return False
        for number in written:
            if number not in self.begun:
                del self.calls[number]
        self.aside = [number for number in self.aside if number in self.calls]
        self.number = max(self.calls, default=0)
        self.writing, self.turn, self.broken = False, self.turn - 1, self.broken + 1
        return True

    def result(self) -> Mapping[str, Any]:
        numbers = sorted(n for n in self.results if n > self.before)
        steps = [*map(self._step, numbers), *self._taken_over(), *self.more]
        calls = [*self.given_out.values()] or None
        answer = "" if calls and isinstance(self.answer, (str, type(None))) else self.answer
        exchange = self._exchange() if calls else None
        return {"answer": answer, "steps": steps, "tool_calls": calls, "exchange": exchange}

    def _exchange(self) -> list[dict[str, Any]]:
        """What this run has done, in order, for the run that goes on with what the client's calls
        gave: its thoughts, its calls with their results, and where the client's calls belong. Each
        of these has its place in `tool_calls`; what it gave takes the place of that."""
        places = {number: place for place, number in enumerate(self.given_out)}
        exchange: list[dict[str, Any]] = []
        for number in sorted(n for n in self.calls if n > self.before):
            if text := self.thoughts.get(number):
                exchange.append({"thought": text})
            if number in places:
                exchange.append({"place": places[number]})
            elif number in self.results:
                exchange.append(self._made_here(number))
        return exchange

    def _made_here(self, number: int) -> dict[str, Any]:
        call = self.calls[number]
        return {
            "tool": call.tool,
            "args": self._sent(call),
            "result": self.results[number].to_json(),
            "effect": self._changes(number) and number not in self.rejected,
            "edited": number in self.edited,
        }

    def _changes(self, number: int) -> bool:
        """Whether a call, once it is made here, may change the world."""
        call = self.calls[number]
        is_made = not call.problem and call.tool not in self.box.client
        return is_made and not self.box.toolbox[call.tool].pure

    def remarks(self) -> Remarks:
        """Whether it had to answer, and whether it did."""
        notices = []
        if self.forced and not self.cut:
            notices.append(f"it had to answer: {self.forced}")
        if isinstance(self.answer, str) and not self.answer.strip() and not self.given_out:
            notices.append("its answer is empty")
        cut = f"it had to answer before it was done: {self.cut}" if self.cut else ""
        if self.cut and self.answer is None and not self.given_out:
            cut = f"it could not answer any more: {self.cut}"
        return Remarks(tuple(notices), cut=cut)

    def _step(self, number: int) -> dict[str, Any]:
        call, result = self.calls[number], self.results[number]
        return {
            "tool": call.tool,
            "args": self._sent(call),
            "result": result.text,
            "failed": result.failed,
            "seconds": round(result.seconds, 6),
            **self._beside(number),
        }

    def _beside(self, number: int) -> dict[str, Any]:
        """What a step says only where there is something to say."""
        fields: dict[str, Any] = {"edited": True} if number in self.edited else {}
        text = self.thoughts.get(number)
        return {**fields, "thought": text} if text else fields

    def _taken_over(self) -> list[dict[str, Any]]:
        """The step of handing over, if it did; those of the other agent follow it."""
        if self.over is None:
            return []
        call = self.calls[self.over]
        step = {"tool": call.tool, "args": dict(call.arguments), "result": OVER_TOLD}
        return [step | {"failed": False, "seconds": 0.0, **self._beside(call.number)}]

    def _read(self, item: Any) -> None:
        """A call that the model has written."""
        self.number += 1
        plans = self.agent.config.mode == "plan"
        call = self.box.toolbox.read_call(item, self.number, self.calls, references=plans)
        self.calls[call.number] = call
        self.number = max(self.number, call.number)
        if not call.problem and self._elsewhere(call.tool):
            self.aside.append(call.number)

    def _elsewhere(self, tool: str) -> bool:
        return tool in self.box.client or tool in self.agent.maker.colleagues

    def _due(self) -> list[Grow]:
        """Calls that can begin: all that they refer to is there."""
        parts: list[Grow] = []
        in_turn = self.agent.config.mode == "react"
        for number, call in self.calls.items():
            if in_turn and len(self.begun) > len(self.results):
                break
            ready = number not in self.begun and number not in self.aside
            if ready and all(n in self.results for n in call.reads):
                self.begun.add(number)
                parts.append(self._begun(number, call))
        return parts

    def _begun(self, number: int, call: PlannedCall) -> Grow:
        literal = self._to_approve(call)
        if literal is not None:
            self.asked.add(number)
            inputs = {"call": literal, "earlier": {}}
            template = self._own(APPROVAL)
            return Grow(APPROVAL, f"{APPROVAL}/{number}", inputs, made=template)
        return self._made(number, call)

    def _own(self, what: str) -> Builder | None:
        """The template of a part, where this run has tools of its own."""
        return self.agent.maker.part(what, self.box) if self.box.digest else None

    def _to_approve(self, call: PlannedCall) -> PlannedCall | None:
        return self.box.toolbox.to_approve(call, self.results)

    def _decided(self, number: int, answer: Mapping[str, Any]) -> list[Grow]:
        """A person has decided on a call: it is made, as it was or with other arguments, or its
        model is told why it is not."""
        call = self.calls[number]
        if answer["do"] == "reject":
            self.rejected.add(number)
            reason = answer.get("reason") or "no reason was given"
            text = f"{call.tool} was not called: a person rejected it: {reason}"
            self.results[number] = ToolResult(text, failed=True)
            return []
        if "arguments" in answer:  # an answer kept by an older version may have none
            call = replace(call, arguments=answer["arguments"], reads=(), literal=True)
            if answer.get("edited", True):
                self.calls[number] = call
                self.edited.add(number)
        return [self._made(number, call)]

    def _made(self, number: int, call: PlannedCall) -> Grow:
        toolbox = self.box.toolbox
        pure = call.tool in toolbox and toolbox[call.tool].pure
        earlier = {n: self.results[n] for n in call.reads}
        inputs = {"call": call, "earlier": earlier}
        if "context" in self.inputs:
            inputs["context"] = self.inputs["context"]
        step = self._shown_as(self.calls[number])
        return Grow(PURE if pure else CALL, f"{CALL}/{number}", inputs, step=step)

    def _shown_as(self, call: PlannedCall) -> Mapping[str, Any] | None:
        if not self.agent.shows:
            return None
        return {"tool": call.tool, "args": self._sent(call)}

    def _sent(self, call: PlannedCall) -> dict[str, Any]:
        """Arguments as the tool gets them; as the model wrote them where that would be long, or
        cannot be."""
        if call.literal or not call.reads:
            return dict(call.arguments)
        try:
            return dict(substituted(call.arguments, self.results, SHOWN_CHARS))
        except InputError:
            return dict(call.arguments)

    def _next(self) -> Sequence[Grow]:
        """The calls that can begin; when all have ended and nothing is being written, the next
        turn, if there is no answer yet, or what is not done here."""
        ready = self._due()
        if ready or self.writing or len(self.begun) > len(self.results):
            return ready
        if self.answer is not None or (self.lasting and self.cut):
            return ()
        if self.aside and (handed := self._handed()) is not None:
            return handed
        if self.turn >= self.agent.config.at_most:
            raise EngineError(f"it has not answered in {self.turn} turns")
        return (self._turn(),)

    def _handed(self) -> Sequence[Grow] | None:
        """What was set aside goes to another agent, or to the client; None if it cannot."""
        calls = [self.calls[number] for number in self.aside]
        over = next(
            (candidate for candidate in calls if candidate.tool in self.agent.maker.colleagues),
            None,
        )
        if over is not None:
            self.begun.add(over.number)
            self.over = over.number
            return (self._over(over),)
        out: dict[int, dict[str, Any]] = {}
        for call in calls:
            missing = [n for n in call.reads if n not in self.results]
            if missing:  # the client's own results are known in its next request
                continue
            problem = ""
            try:
                call = self.box.toolbox.literal(call, self.results)
                problem = "; ".join(self.box.toolbox[call.tool].problems(call.arguments))
            except InputError as error:
                problem = str(error)
            if problem:
                text = f"{call.tool} was not called: {problem}"
                self.results[call.number] = ToolResult(text, failed=True)
                self.begun.add(call.number)
                continue
            name, args = self.box.client[call.tool], dict(call.arguments)
            out[call.number] = {"tool": name, "args": args}
        self.aside.clear()
        client = self.inputs["client_tools"]
        if client.get("parallel_tool_calls") is False:
            out = dict([*out.items()][:1])
        self.given_out = out
        return () if out else None

    def _over(self, call: PlannedCall) -> Grow:
        """The rest is done by another agent, which is told what was said and found so far."""
        if self.purse is not None:
            self.purse.give_back()  # who takes over keeps its own
        self._note()
        why = call.arguments.get("why")
        lines = [self.history, *self._transcript(self.agent.config.results_tokens)]
        lines.append(f"(handed over to {call.tool}{f': {why}' if why else ''})")
        names = ("question", "instructions", "context")
        inputs = {name: self.inputs[name] for name in names if name in self.inputs}
        inputs["history"] = "\n".join(text for text in lines if text)
        key = f"{OVER}/{call.number}"
        step = self._shown_as(call)
        self.more = ()
        return Grow(f"{OVER}-{call.tool}", key, inputs, answers=True, step=step)

    def _turn(self) -> Grow:
        config = self.agent.config
        self.turn += 1
        key = f"{TURN}/{self.turn}" + (f"-{self.broken}" if self.broken else "")
        self.writing, self.known = True, len(self.calls)
        last = self.turn == config.at_most or self.spending.has_to_answer()
        if last and config.at_most > 1:
            bound = f"at_most={config.at_most}"
            self.forced = f"{bound} turns" if self.turn == config.at_most else "its budget"
        self._note()
        inputs = {name: self.inputs[name] for name in READ if name in self.inputs}
        if self.history is not None:
            inputs["history"] = self.history
        if self.purse is not None and not last and not self._keeps_room(inputs):
            last, self.cut, self.forced = True, BUDGET, BUDGET
        self.lasting = last
        if self.entries:
            inputs["transcript"] = self._transcript(self._room(inputs))
        must = self.box.must if self.number == self.before else ()
        template = None
        if not last and (self.box.digest or must):
            template = self.agent.maker.part(TURN, self.box, must)
        tells = frozenset({"calls"}) if self._streams and not last else NOTHING
        body = LAST if last else TURN
        return Grow(body, key, inputs, tells, answers=True, made=template, last=last)

    def _keeps_room(self, inputs: Mapping[str, Any]) -> bool:
        """Keep room of the query's budget for a last answer, after this turn and what its calls may
        give. Whether there is room for both."""
        purse, config = self.purse, self.agent.config
        assert purse is not None
        written = self._transcript(config.results_tokens)
        entries = sum(self.counting.tokens(entry) for entry in written if isinstance(entry, str))
        self.about = self._told(inputs) + entries
        prompt = ceil(self.about * self.scale)
        answer = min(config.max_tokens, LAST_ANSWER)
        grown = prompt + config.max_tokens + LEAST_TOKENS
        if not purse.keep(grown, answer) and not purse.keep(prompt, LEAST_TOKENS):
            return False
        return purse.may(prompt, min(config.max_tokens, LEAST_TOKENS))

    def _told(self, inputs: Mapping[str, Any]) -> int:
        texts = [self.box.toolbox.text, *(v for v in inputs.values() if isinstance(v, str))]
        return sum(map(self.counting.tokens, texts))

    def _room(self, inputs: Mapping[str, Any]) -> int:
        """Tokens for calls and results, so that the prompt and what is written after it fit."""
        config, window = self.agent.config, self.counting.window
        most = config.results_tokens
        if self.lasting and self.purse is not None and self.purse.kept_tokens < inf:
            kept = self.purse.kept_tokens / self.scale - self._told(inputs)
            most = max(LEAST_TOKENS, min(most, int(kept)))
        if window is None:
            return most
        taken = self._told(inputs) + TOLD_TOKENS + config.max_tokens
        return max(LEAST_TOKENS, min(most, window - taken))

    def _note(self) -> None:
        """What the model is to see of the calls since its last turn."""
        for number in sorted([*self.results][self.shown :]):
            edited = number in self.edited
            self.entries.append(entry(self.calls[number], self.results[number], edited=edited))
        self.shown = len(self.results)
        if self.again:
            self.entries.append(in_one_line(self.again))
            self.again = ""

    def _transcript(self, most: int) -> list[Any]:
        """The entries, the oldest of which are left out where they are too long in all."""
        if not self.entries:
            return []
        return [HEADER, *recent_entries(self.entries, most, self.counting.tokens)]
