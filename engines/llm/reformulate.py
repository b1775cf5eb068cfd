"""Query expansion by rules: the same question in other words, without a model.

Each reformulation looks for something else: the question as it stands, its clauses, its key words,
the statement that would answer it, synonyms. They are always the same for the same question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a about all am an and any are as at be been being but by can could did do does doing for
        from get give had has have having he her here his how i if in into is it its just know let
        like many me more most much my need no not of on one or our please s she should so some such
        t tell than that the their them then there these they this those to too up us use using very
        want was we were what when where which while who whom whose why will with would you your""",
    )
)
_SYNONYMS = {
    "advantages": "benefits", "allow": "permit", "answer": "reply", "begin": "start",
    "big": "large", "build": "create", "buy": "purchase", "cancel": "stop", "change": "modify",
    "check": "verify", "choose": "select", "configure": "set up", "cost": "price",
    "create": "make", "delete": "remove", "difference": "comparison", "document": "file",
    "error": "failure", "fail": "break", "fast": "quick", "faster": "quicker", "find": "locate",
    "fix": "repair", "goal": "purpose", "happens": "occurs", "help": "assistance",
    "important": "essential", "improve": "increase", "install": "set up", "kind": "type",
    "limit": "maximum", "method": "approach", "obtain": "get", "option": "setting",
    "performance": "speed", "problem": "issue", "purpose": "aim", "reason": "cause",
    "reduce": "decrease", "remove": "delete", "requirements": "prerequisites", "result": "outcome",
    "run": "execute", "show": "display", "slow": "delayed", "start": "begin", "stop": "end",
    "store": "keep", "supported": "available", "train": "fit", "work": "operate",
    "works": "operates", "write": "create",
}  # fmt: skip
_STATEMENTS = (
    (r"what (?:is|are|was|were) (?:the |an? )?(.+)", ("{0} is", "definition of {0}")),
    (r"(?:who|what) (?:does|do|did) (.+)", ("{0}",)),
    (r"who (\w+.*)", ("the person who {0}", "name of who {0}")),
    (r"why (?:is|are|was|were|does|do|did|can|should) (.+)", ("reason why {0}", "{0} because")),
    (r"how (?:do|does|did|can|should) (?:i|we|you|one) (.+)", ("steps to {0}", "how to {0}")),
    (r"how (?:do|does|did|can|is|are|was|were) (.+)", ("the way {0}", "{0} by")),
    (r"how (?:many|much) (.+)", ("number of {0}", "amount of {0}")),
    (r"when (?:is|are|was|were|does|do|did|will) (.+)", ("date of {0}", "{0} in the year")),
    (r"where (?:is|are|was|were|does|do|did|can) (.+)", ("location of {0}", "{0} in")),
    (r"which (.+)", ("the {0}", "list of {0}")),
    (r"(?:is|are|was|were|can|could|does|do|did|will|should|has|have) (.+)", ("{0}",)),
)
_FRAMES = (
    "explanation of {0}", "{0} overview", "details about {0}", "{0} example", "facts on {0}",
    "background of {0}", "{0} summary", "meaning of {0}", "{0} description", "introduction to {0}",
    "{0} in practice", "main points of {0}", "information on {0}", "notes on {0}", "{0} reference",
)  # fmt: skip
_POINTS_BACK = re.compile(r"\b(?:it|its|they|them|their|this|that|these|those)\b", re.IGNORECASE)


def reformulate(question: str, count: int) -> list[str]:
    """`count` different searches for `question`, the question itself first. At least one."""
    found: dict[str, str] = {}
    for candidate in _candidates(" ".join(question.split())):
        found.setdefault(_normal(candidate), candidate)
        if len(found) >= max(1, count):
            break
    return list(found.values())


def key_words(text: str) -> list[str]:
    """The words of `text` that carry meaning, in order, without repetitions."""
    words = re.findall(r"\w+(?:[-'’.]\w+)*", text)
    kept = [word for word in words if word.lower() not in STOP_WORDS]
    return list(dict.fromkeys(kept or words))


def _candidates(question: str) -> Iterator[str]:
    yield question
    bare = question.rstrip(" ?!.") or question
    words = " ".join(key_words(bare)) or question
    clauses = re.split(r"\s*[;?]\s+|,?\s+and\s+(?=(?:what|who|why|how|when|where|which)\b)", bare)
    if len(clauses) > 1:
        yield from (clause for clause in clauses if not _POINTS_BACK.search(clause))
    yield words
    for clause in clauses:
        yield from _statements(clause)
    yield _with_synonyms(words)
    yield _with_synonyms(bare)
    for frame in _FRAMES:
        yield frame.format(words)
    number = 1
    while True:  # more than anybody asks for: still different, if no longer helpful
        number += 1
        yield f"{words} part {number}"


def _statements(question: str) -> Iterator[str]:
    for pattern, frames in _STATEMENTS:
        if match := re.fullmatch(pattern, question, re.IGNORECASE):
            for frame in frames:
                yield frame.format(match[1])
            return


def _with_synonyms(text: str) -> str:
    return re.sub(r"[A-Za-z]+", lambda word: _SYNONYMS.get(word[0].lower(), word[0]), text)


def _normal(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower())) or text
