"""What servers say is left of their budgets, as the core hears it."""

from __future__ import annotations

import asyncio
from typing import Any

from teola.engine import LeftOfMinute
from teola.runtime.live.accounts import AccountWatch
from teola.schedule.events import LimitsTold
from tests.planted import catches, edited


@catches(
    "oldest-question",
    "of answers in one turn the one to the oldest question is believed",
    edited(AccountWatch._hear, "left.ago_s <= before.ago_s", "left.ago_s >= before.ago_s"),
)
@catches(
    "told-again",
    "the core is told again what it knows",
    edited(AccountWatch._pass_on, "!= same", "!= 0"),
)
async def test_of_one_turn_the_answer_to_the_newest_question_counts_and_only_news() -> None:
    told: list[Any] = []
    watch = AccountWatch(asyncio.get_running_loop(), told.append)
    for left, ago_s in ((9, 3.0), (7, 1.0), (8, 2.0)):
        watch._hear(("llm", 0), LeftOfMinute(left, None, 60.0, 0.0, ago_s))
    watch._hear(("llm", 1), LeftOfMinute(5, None, 60.0, 0.0, 4.0))
    assert told == []
    await asyncio.sleep(0)
    assert told == [
        LimitsTold("llm", 0, 7, None, 60.0, 0.0, 1.0),
        LimitsTold("llm", 1, 5, None, 60.0, 0.0, 4.0),
    ]
    watch._hear(("llm", 0), LeftOfMinute(7, None, 60.0, 0.0, 0.5))
    await asyncio.sleep(0)
    assert len(told) == 2
