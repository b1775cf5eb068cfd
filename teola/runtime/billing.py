"""Billing: what a query with a budget reserves for its calls of LLMs, and what they took of it.

     a call is ready ──admitted──▶ queued ──begins──▶ a try ──settled──▶ done, or another try
            │
            └─▶ waits: calls that are under way may give something back, or it is refused

A call reserves before it is queued, so it never holds a place at an engine while it waits for
money. Its prompt is counted by the engine's tokenizer where that is at hand; an estimate is
reserved with a margin, which is learned from what the engine says that prompts have. What a
template adds is learned from short prompts, where it is most of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from threading import RLock
from typing import Final

from teola.errors import InputError
from teola.graph import DecodeParams
from teola.policies.ledger import GUARD, BudgetAccount, Ledger, Reservation
from teola.policies.work import Size, WorkKey, WorkSpec
from teola.price import FREE, Price
from teola.schedule.events import Cause, Sized

GUARD.lock = RLock()  # each runtime has a thread of its own
UNKNOWN_RATIO: Final = 1.5
"""Tokens of a prompt for each that was estimated, before the engine has told of one."""
MARGIN, EXTRA_TOKENS = 1.02, 8
"""More than any ratio seen so far; and what a template adds to a prompt, before short ones told."""
SHORT: Final = 64
"""A prompt that is estimated at fewer tokens tells what a template adds, and no ratio."""
MOST_EXTRA: Final = 3 * SHORT
"""What a template is believed to add at most: the text of a short prompt may be dense, too."""
FADING: Final = 0.999
"""What is left of the largest ratio after each prompt that has a smaller one."""
PLENTY: Final = 2
"""Times the tokens that a component usually writes: a call that may write so much need not wait."""


@dataclass(slots=True, eq=False)
class Billed:
    """A call that is to be paid for.

    key, spec: of the primitive that leads it.
    size: as its queue is told it.
    ledger: what it is paid from. price: of its model (None: not known).
    prompt_tokens: of its whole prompt, perhaps estimated. exact: counted by the engine's tokenizer.
    decode: what it may write.
    kept: room that was kept for it.
    """

    key: WorkKey
    spec: WorkSpec
    size: Size
    ledger: Ledger
    price: Price | None
    prompt_tokens: int
    exact: bool
    decode: DecodeParams
    kept: Reservation | None = None


def _in_place(then: Callable[[], None]) -> bool:
    return False


class Billing:
    """Of one driver. tell: takes what becomes of a call that had to wait. passes_on: leaves what it
    is given to the driver's own thread, if it is called in another one (that of a runtime whose
    query gave something back); whether it did."""

    def __init__(
        self,
        tell: Callable[[Sized], None],
        passes_on: Callable[[Callable[[], None]], bool] = _in_place,
    ) -> None:
        self._tell, self._passes_on = tell, passes_on
        self._reserved: dict[WorkKey, Reservation] = {}
        """For calls that have not begun."""
        self._waiting: dict[WorkKey, Billed] = {}
        self._ratios: dict[str, float] = {}
        self._extra: dict[str, int] = {}
        """Tokens that templates add, by engine."""

    @property
    def idle(self) -> bool:
        """No call has something reserved or waits for it."""
        return not self._reserved and not self._waiting

    def waits(self, run: str, i: int) -> bool:
        """Whether a call waits until something is given back, or is about to be refused."""
        return (run, i) in self._waiting

    # --- before a call is queued ----------------------------------------------------------

    def admitted(self, call: Billed) -> bool:
        """Reserve for a call that is ready. Whether it can be queued; else it waits, and `parked`
        has to follow."""
        with GUARD:
            free = call.kept is not None or not any(one.waiting for one in call.ledger.accounts)
            if free and self._payable(call) and self._reserves(call):
                return True
        self._waiting[call.key] = call
        return False

    def parked(self, run: str, i: int) -> None:
        """The queue holds a call that was not admitted."""
        call = self._waiting[run, i]
        if call.price is None and call.ledger.counts_money:
            engine = call.spec.engine
            message = (
                f"most_cost needs the price of the model of engine {engine!r}: add it to `prices` "
                "of the configuration or the Runtime"
            )
            self._ended(call, Cause(InputError(message)))
            return
        with GUARD:
            queue = next((account for account in call.ledger.accounts if account.waiting), None)
            if queue is not None:  # nobody overtakes those who wait
                queue.waiting.append(partial(self._tries, call, queue))
            elif self._reserves(call):  # something came back since it was not admitted
                self._ended(call, None)
            else:
                self._park(call, None)

    @staticmethod
    def _payable(call: Billed) -> bool:
        return call.price is not None or not call.ledger.counts_money

    def _reserves(self, call: Billed) -> bool:
        made = self._reservation(call)
        if made is None:
            return False
        self._reserved[call.key] = made
        return True

    def _reservation(self, call: Billed, *, waits: bool = True) -> Reservation | None:
        """waits: rather than with a short answer it begins later."""
        prompt, most, price = self._prompt(call), call.decode.max_tokens, call.price or FREE
        reserved_before, call.kept = call.kept, None
        with GUARD:
            if reserved_before is not None:
                return call.ledger.reserve(prompt, most, price, kept=reserved_before)
            if waits and (room := call.ledger.answer(prompt, price)) < most:
                usual = PLENTY * call.spec.expected_output or most
                if room < min(most, usual) and call.ledger.blocking(prompt, price).open:
                    return None
            return call.ledger.reserve(prompt, most, price)

    def _prompt(self, call: Billed) -> int:
        """Tokens to reserve for its prompt."""
        if call.exact:
            return call.prompt_tokens
        engine = call.spec.engine
        ratio = self._ratios.get(engine, UNKNOWN_RATIO)
        return ceil(call.prompt_tokens * ratio * MARGIN) + self._extra.get(engine, EXTRA_TOKENS)

    def _park(self, call: Billed, at: BudgetAccount | None) -> bool:
        """It waits where there is the least room, or is refused if nothing can come back there.
        Whether that is `at`, where it waits already."""
        prompt, price = self._prompt(call), call.price or FREE
        account = call.ledger.blocking(prompt, price)
        if not account.open:
            why = call.ledger.spent(prompt, price)
            self._ended(call, Cause(why))
            return False
        if account is at:
            return True
        account.waiting.append(partial(self._tries, call, account))
        return False

    def _tries(self, call: Billed, account: BudgetAccount) -> bool:
        """Something came back where a call waits. Whether it does not wait there any more."""
        if self._waiting.get(call.key) is not call:
            return True
        if self._passes_on(account.came_back):
            return False
        if self._reserves(call):
            self._ended(call, None)
            return True
        return not self._park(call, account)

    def _ended(self, call: Billed, cause: Cause | None) -> None:
        del self._waiting[call.key]
        run, i = call.key
        size = call.size
        if self.lowered(run, i, call.decode.max_tokens):
            size = size._replace(same=None)
        self._tell(Sized(call.spec.engine, run, i, size, cause))

    # --- tries ----------------------------------------------------------------------------

    def begins(self, call: Billed) -> Reservation:
        """A try of a call begins. What it may take. Raises BudgetSpent where a further try has no
        room any more."""
        made = self._reserved.pop(call.key, None)
        if made is None:
            made = self._reservation(call, waits=False)
        if made is None:
            raise call.ledger.spent(self._prompt(call), call.price or FREE)
        return made

    def counted(self, engine: str, estimated: int, prompt_tokens: int) -> None:
        """A prompt that was estimated has so many tokens, as its engine counted them."""
        if estimated <= 0 or prompt_tokens <= 0:
            return
        extra = self._extra.get(engine, EXTRA_TOKENS)
        if estimated < SHORT:
            self._extra[engine] = max(extra, min(MOST_EXTRA, prompt_tokens - estimated))
            return
        seen = max(0, prompt_tokens - extra) / estimated
        largest = self._ratios.get(engine)
        self._ratios[engine] = seen if largest is None else max(seen, largest * FADING)

    def lowered(self, run: str, i: int, most: int) -> bool:
        """Whether a call that has not begun may write less than `most` tokens, so that its answer
        is nobody else's."""
        made = self._reserved.get((run, i))
        return made is not None and made.answer_tokens < most

    def dropped(self, run: str, i: int) -> None:
        """A primitive is not done after all."""
        self._waiting.pop((run, i), None)
        if (made := self._reserved.pop((run, i), None)) is not None:
            made.give_back()

    def over(self, run: str, primitives: int) -> None:
        """A run has ended: what its calls have reserved that did not begin is there again."""
        if not self.idle:
            for i in range(primitives):
                self.dropped(run, i)
