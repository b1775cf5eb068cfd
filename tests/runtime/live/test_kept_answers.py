"""Answers that are kept for equal calls, against a list that is gone through from its beginning."""

from __future__ import annotations

from random import Random

import pytest

from teola.runtime.live.kept_answers import OVERHEAD, KeptAnswer, KeptAnswers


@pytest.mark.parametrize("seed", range(10))
def test_what_was_wanted_last_is_kept_within_bounds(seed: int) -> None:
    chance, most, most_bytes, now = Random(seed), 4, 4 * OVERHEAD + 300, 0.0
    answers = KeptAnswers("q", most, most_bytes)
    held: list[tuple[bytes, KeptAnswer, float, int]] = []
    for step in range(200):
        now += chance.choice([0.0, 1.0])
        same = b"%d" % chance.randrange(6)
        if chance.random() < 0.5:
            count = chance.choice([0, 1, 50, 100, most_bytes - OVERHEAD, most_bytes])
            text = chance.choice("aæ") * count
            size = OVERHEAD + (count if text.isascii() else 4 * count)
            until = chance.choice([float("inf"), now + 3.0])
            answer = KeptAnswer(text, str(step))
            answers.keep(same, answer, until)
            held = [one for one in held if one[0] != same]
            if size <= most_bytes:
                held.append((same, answer, until, size))
            while len(held) > most or sum(one[3] for one in held) > most_bytes:
                del held[0]
        else:
            known = [one for one in held if one[0] == same and one[2] > now]
            assert answers.find(same, now) == (known[0][1] if known else None)
            held = [one for one in held if one[0] != same] + known
        assert (len(answers), answers.held_bytes) == (len(held), sum(one[3] for one in held))
        assert [*answers._kept] == [one[0] for one in held]
