"""What was asked: inputs in one form, and the questions before that this one follows up."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from teola import TeolaError

RUNS: Final = ("auto", "ask", "sql")
LONGEST_QUESTION: Final = 8_000
LONGEST_SQL: Final = 10_000
MOST_TURNS: Final = 5
"""Earlier questions that a follow-up is read with."""
LONGEST_TURN: Final = 2_000
FEW_WORDS: Final = 4
"""A question this short says too little to stand alone."""
_TURN: Final = re.compile(r"^(User|Assistant|System): ", re.MULTILINE)
_BLOCK: Final = re.compile(r"```(?:sql)?\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_FOLLOWS: Final = re.compile(
    r"^\W*(?:and|but|or|also|only|instead|now|then|what about|how about|same|sort|order|group|"
    r"und|aber|nur|jetzt|et|mais|seulement|y|pero|solo)\b"
    # A possessive after "and" belongs to what stands before that.
    r"|(?<!\band )(?<!\bwith )\b(?:their|its)\b"
    r"|\b(?:it|they|them|theirs|these|this one|that one|the same|of which|ones|the above|instead|"
    r"davon|diese[rnms]?|dieselben|ihnen|ceux|celles|eux|esos|esas|ellos|ellas|"
    r"(?:the )?previous (?:one|question|answer|query|result)s?|before that)\b"
    # "boats that are longer" and "are there boats" refer to nothing before.
    r"|\b(?:of|in|for|from|about|show|is|was|does|did) (?:that|those)\b"
    r"(?! (?:who|whose|that|which|with|are|is)\b)"
    r"|^(?:\W*\w+){0,5}\W+(?:he|she|him|his|her)\b"
    r"|它|他们|她们|这些|那些|其中|それ|これら|そのうち",
    re.IGNORECASE,
)
_UNSPACED: Final = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]")
"""Letters of writing without blanks, of which a word has about two."""
_YES: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def begin(
    question: str,
    run: str,
    ask: Any,
    keep: Any,
    sql: str | None = None,
    history: Any = None,
) -> dict[str, Any]:
    """`wanted`: what was asked, in one form. search_text: what tables and values are looked for
    by. own_sql: the caller's own statement ("": none). keeps: whether it is kept as an example."""
    if run not in RUNS:
        raise TeolaError(f"run must be one of {', '.join(RUNS)}, not {run[:40]!r}")
    if len(question) > LONGEST_QUESTION:
        raise TeolaError(
            f"the question has {len(question):,} characters; {LONGEST_QUESTION:,} are taken"
        )
    keeps = _flag("keep", keep)
    own = (sql or "").strip()
    if keeps and not own:
        raise TeolaError("keep needs `sql`: the statement that answers the question")
    if len(own) > LONGEST_SQL:
        raise TeolaError(f"sql has {len(own):,} characters; {LONGEST_SQL:,} are taken")
    earlier = [] if stands_alone(question) else turns_of(history)[-MOST_TURNS:]
    wanted = {
        "question": question.strip(),
        "run": run,
        "ask": _flag("ask", ask),
        "keep": keeps,
        "earlier": earlier,
        "began": time.monotonic(),
    }
    search = "\n".join([*(turn["question"] for turn in earlier), wanted["question"]])
    return {"wanted": wanted, "search_text": search, "own_sql": own, "keeps": keeps}


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = _YES.get(str(value).strip().lower())
    if known is None:
        raise TeolaError(f"{name} must be true or false, not {str(value)[:40]!r}")
    return known


def stands_alone(question: str) -> bool:
    """Whether a question means something without those before it. Only words decide: a question
    that refers to nothing is never mixed with what was asked before."""
    unspaced = len(_UNSPACED.findall(question)) // 2
    if len(question.split()) + unspaced <= FEW_WORDS:
        return False
    return _FOLLOWS.search(question) is None


def turns_of(history: Any) -> list[dict[str, str]]:
    """Earlier questions with their SQL: from a list of {"question", "sql"}, the same as JSON, or
    a conversation as text. Rows are not among them."""
    if history is None or history == "":
        return []
    if isinstance(history, str):
        try:
            history = json.loads(history)
        except ValueError:
            return list(_conversation(history))
    if not isinstance(history, list):
        raise TeolaError('history is a list of {"question": ..., "sql": ...}, the last one last')
    return [_turn(one) for one in history[-MOST_TURNS:]]


def _turn(one: Any) -> dict[str, str]:
    if not isinstance(one, Mapping) or not isinstance(one.get("question"), str):
        raise TeolaError('history is a list of {"question": ..., "sql": ...}, the last one last')
    unknown = one.keys() - {"question", "sql"}
    if unknown:
        raise TeolaError(
            f"an earlier question has `question` and `sql`, not {sorted(map(str, unknown))[0]!r}: "
            "rows are not taken"
        )
    return {
        "question": one["question"][:LONGEST_TURN],
        "sql": str(one.get("sql") or "")[:LONGEST_TURN],
    }


def _conversation(text: str) -> Iterator[dict[str, str]]:
    pieces = _TURN.split(text)
    question = ""
    for speaker, said in zip(pieces[1::2], pieces[2::2], strict=True):
        if speaker == "User":
            if question:
                yield {"question": question, "sql": ""}
            question = said.strip()[:LONGEST_TURN]
        elif speaker == "Assistant" and question:
            block = _BLOCK.search(said)
            yield {"question": question, "sql": block[1].strip()[:LONGEST_TURN] if block else ""}
            question = ""
    if question:
        yield {"question": question, "sql": ""}
