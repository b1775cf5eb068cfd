"""The model that answers: whose runtime it is in, and by what its folder is known."""

from __future__ import annotations

from itertools import combinations_with_replacement, permutations, product
from pathlib import Path
from typing import Any

import pytest

from teola import Runtime
from teola.errors import InputError
from teola.runtime.engines import EngineConfig
from teola.tables import model_identity
from teola.tables.model_identity import named_identity, opened_runtime
from teola.testing import ScriptedModel


@pytest.mark.parametrize(
    ("lent", "llm", "needed", "others"), [*product((False, True), repeat=4)]
)  # fmt: skip
def test_which_runtime_has_the_model(lent: bool, llm: bool, needed: bool, others: bool) -> None:
    """One that is given is used and stays open, and nothing is given besides; else one is made
    where something needs it, with the model that is given."""
    model = ScriptedModel({})
    given: Any = model if llm else None
    with Runtime({"llm": model}) as runtime:
        opened = opened_runtime(given, runtime if lent else None, needed, others)
        if (lent and llm) or (needed and not lent and not llm):
            with pytest.raises(InputError, match="not both" if lent else "no language model"):
                opened.__enter__()
            return
        with opened as found:
            if lent:
                assert found is runtime
            elif llm or others:
                assert found is not None
                assert found is not runtime
                assert (found.configs["llm"].factory is model) == llm
            else:
                assert found is None
        assert not runtime.closed
        assert found in (runtime, None) or found.closed


def test_a_folder_is_known_by_samples_of_each_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a small file by all of it, of a large one by pieces from its beginning on."""
    monkeypatch.setattr(model_identity, "SAMPLES", 4)
    monkeypatch.setattr(model_identity, "SAMPLE_BYTES", 8)

    def name() -> str:
        return named_identity(EngineConfig("vllm", {"model": str(tmp_path)})).name

    (tmp_path / "config.json").write_bytes(b"{}")
    files = {"a.json": 7, "b.json": 8, "c.bin": 9, "large.bin": 80}
    for file, size in files.items():
        (tmp_path / file).write_bytes(bytes(size))
    (tmp_path / "folder").mkdir()
    names = {before := name()}
    for file, size in {**files, "config.json": 2}.items():
        path = tmp_path / file
        was = path.read_bytes()
        looked_at = (0, size - 1) if size < 80 else (0, 7, 20, 27, 60, 67)
        for at in looked_at:
            path.write_bytes(was[:at] + b"x" + was[at + 1 :])
            names.add(name())
        for other in (was + b"\0", was[:-1]):
            path.write_bytes(other)
            names.add(name())
        path.write_bytes(was)
    (tmp_path / "c.bin").rename(tmp_path / "d.bin")
    names.add(name())
    assert len(names) == 1 + 2 * 4 + 6 + 2 * 5 + 1
    (tmp_path / "d.bin").rename(tmp_path / "c.bin")
    assert name() == before


def test_a_pool_is_known_by_each_of_its_models(tmp_path: Path) -> None:
    """In any order, and each once; and in doubt where one of them is, which no folder is."""
    (tmp_path / "config.json").write_bytes(b"{}")
    own: dict[str, Any] = {"model": str(tmp_path), "url": None}
    members = [own, *({"url": f"http://{host}/v1"} for host in ("a", "b", "c"))]
    known: dict[str, frozenset[int]] = {}
    for count in (1, 2, 3):
        for chosen in combinations_with_replacement(range(len(members)), count):
            for order in permutations(chosen):
                pool = tuple(members[k] for k in order)
                identity = named_identity(EngineConfig("openai", {"model": "m"}, pool=pool))
                assert known.setdefault(identity.name, frozenset(order)) == frozenset(order)
                assert bool(identity.doubt) == any(order)
    assert len(known) == 4 + 6 + 4
