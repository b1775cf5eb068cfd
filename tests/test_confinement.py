"""What a process that reads strangers' files may take, and what it gets of our environment."""

from __future__ import annotations

import resource

import pytest

from teola.confinement import confine, environment

NONE = resource.RLIM_INFINITY
AS, DATA, FILES = resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE
CPU, CORE = resource.RLIMIT_CPU, resource.RLIMIT_CORE


def limits(
    monkeypatch: pytest.MonkeyPatch, old: tuple[int, int], **asked: int
) -> dict[int, object]:
    """What is set where each limit was `old` before."""
    new: dict[int, object] = {}
    monkeypatch.setattr(resource, "getrlimit", lambda what: old)
    monkeypatch.setattr(resource, "setrlimit", new.__setitem__)
    confine(**asked)
    return new


def test_each_limit_is_set_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"address_bytes": 1, "data_bytes": 2, "file_bytes": 3, "cpu_s": 4}
    every = {AS: (1, 1), DATA: (2, 2), FILES: (3, 3), CPU: (4, 6), CORE: (0, 0)}
    assert limits(monkeypatch, (NONE, NONE), **asked) == every
    assert limits(monkeypatch, (NONE, NONE)) == {CORE: (0, 0)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((NONE, NONE), (10, 12)),
        ((20, 20), (10, 12)),
        ((11, 11), (10, 11)),
        ((9, 9), (9, 9)),
        ((9, NONE), (9, 12)),
        ((11, NONE), (10, 12)),
        ((8, 9), (8, 9)),
    ],
)
def test_a_lower_limit_stays(
    monkeypatch: pytest.MonkeyPatch, old: tuple[int, int], new: tuple[int, int]
) -> None:
    assert limits(monkeypatch, old, cpu_s=10)[CPU] == new


def test_only_what_is_harmless_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "PYTHONPATH", "LC_ALL", "TIKTOKEN_CACHE_DIR"):
        monkeypatch.setenv(name, "known")
    for name in ("OPENAI_API_KEY", "PATH_TO_KEY", "MYHOME", "PYTHONSTARTUP", "home"):
        monkeypatch.setenv(name, "secret")
    passed = environment(HOME="/nowhere", MORE="x")
    assert (passed["HOME"], passed["MORE"], passed["PYTHONPATH"]) == ("/nowhere", "x", "known")
    assert passed["LC_ALL"] == passed["TIKTOKEN_CACHE_DIR"] == "known"
    assert "secret" not in passed.values()
