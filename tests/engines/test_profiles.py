"""The measured profiles that come with the repository: they load, and say where they are from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from teola.graph import Op
from teola.passes import estimate
from teola.profile import load_profile
from teola_apps.naive_rag import app
from tests.architecture.tree import ROOT

FOLDER = ROOT / "engines" / "profiles"
FILES = sorted(FOLDER.glob("*.json"))


def test_there_are_some_and_the_page_lists_them() -> None:
    page = (FOLDER / "README.md").read_text()
    assert FILES
    assert all(f"| `{file.name}` |" in page for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_profile_fits_what_was_measured(file: Path) -> None:
    profile, data = load_profile(str(file)), json.loads(file.read_text())
    assert profile.name == file.stem
    assert set(profile.engines) == set(data["measured"]) == set(data["measured_on"])
    for name, points in data["measured"].items():
        engine = profile.engines[name]
        for point in points:
            if point["op"] == "decoding":
                fitted = engine.step.seconds(point["items"])
            else:
                fitted = engine.cost(Op(point["op"])).seconds(point["items"], point["tokens"])
            assert fitted == pytest.approx(point["seconds"], rel=0.5)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_profile_names_machine_and_versions(file: Path) -> None:
    for on in json.loads(file.read_text())["measured_on"].values():
        assert on["cpu"]
        assert on["cores"] >= 1
        assert {"teola", "torch", "transformers"} <= set(on["packages"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_profile_is_what_explain_goes_by(file: Path) -> None:
    plan = app.explain(question="Why?", profile=str(file))
    (embed,) = [p for p in plan.optimised.p_graph.primitives if p.id == "embed.embed"]
    seconds = load_profile(str(file)).engines["embedding"].seconds(Op.EMBEDDING, 1, 256)
    assert embed.op is Op.EMBEDDING
    assert estimate.seconds(plan.optimised.p_graph, embed, plan.profile) < 2 * seconds
