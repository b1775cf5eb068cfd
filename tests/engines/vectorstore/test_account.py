"""Which account runs the embedded server, what it may enter, and what its own mark tells."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from teola.errors import EngineUnavailable
from teola_engines.vectorstore import cluster as clusters
from teola_engines.vectorstore.account import Account, account_for
from teola_engines.vectorstore.cluster import SOCKET, Cluster

ME, MINE = os.geteuid(), os.getegid()
OTHER = 54_321


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "may"),
    [
        (ME, OTHER, 0o100, True),
        (ME, MINE, 0o677, False),
        (OTHER, MINE, 0o010, True),
        (OTHER, MINE, 0o767, False),
        (OTHER, OTHER, 0o001, True),
        (OTHER, OTHER, 0o776, False),
    ],
)
def test_a_folder_is_entered_by_the_mode_that_holds_for_the_account(
    uid: int, gid: int, mode: int, may: bool, tmp_path: Path
) -> None:
    """The owner's holds for the owner, though the group's may say more."""
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    assert Account(uid, gid, lent=False).may_enter(folder) is may
    folder.chmod(0o700)


@pytest.mark.parametrize(
    ("closed", "blocked"), [("", None), ("c", "a/b/c"), ("bc", "a/b"), ("ac", "a"), ("d", None)]
)
def test_the_topmost_folder_that_is_closed_is_named(
    closed: str, blocked: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no folder, or not there, closes nothing."""
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    (inner / "d").touch()
    monkeypatch.setattr(Account, "may_enter", lambda _, folder: folder.name not in [*closed])
    account = Account(OTHER, OTHER, lent=True)
    for path in (inner, inner / "d", inner / "e"):
        assert account.blocked_by(path) == (None if blocked is None else tmp_path / blocked)


def entry(name: str, uid: int) -> SimpleNamespace:
    return SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=uid + 1)


def as_user(monkeypatch: pytest.MonkeyPatch, uid: int, *entries: SimpleNamespace) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(pwd, "getpwall", lambda: list(entries))


def owned(monkeypatch: pytest.MonkeyPatch, pgdata: Path, uid: int) -> None:
    """As if the folder were that user's."""
    pgdata.mkdir()
    status = SimpleNamespace(st_uid=uid, st_gid=uid + 1)
    monkeypatch.setattr(Path, "stat", lambda path, **_: status)
    monkeypatch.setattr(Path, "exists", lambda path: True)


def test_a_user_runs_it_by_himself_and_not_in_another_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_user(monkeypatch, 1000)
    assert account_for(tmp_path / "pgdata") == Account(1000, os.getegid(), lent=False)
    assert Account(1000, 1000, lent=False).subprocess_options == {}
    owned(monkeypatch, tmp_path / "pgdata", 1000)
    assert account_for(tmp_path / "pgdata").uid == 1000
    status = SimpleNamespace(st_uid=1001, st_gid=1001)
    monkeypatch.setattr(Path, "stat", lambda path, **_: status)
    with pytest.raises(EngineUnavailable, match=f"{tmp_path} belongs to another user"):
        account_for(tmp_path / "pgdata")


def test_root_lends_an_account_and_stays_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres, pgserver = entry("postgres", 70), entry("pgserver", 80)
    as_user(monkeypatch, 0, postgres, pgserver)
    assert account_for(tmp_path / "pgdata") == Account(80, 81, lent=True)
    as_user(monkeypatch, 0, entry("nobody", 9), postgres)
    found = account_for(tmp_path / "pgdata")
    assert found == Account(70, 71, lent=True)
    assert found.subprocess_options == {"user": 70, "group": 71, "extra_groups": []}
    owned(monkeypatch, tmp_path / "pgdata", 90)
    assert account_for(tmp_path / "pgdata") == Account(90, 91, lent=True)


@pytest.mark.parametrize("works", [True, False])
def test_root_without_an_account_to_lend_makes_one(
    works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_user(monkeypatch, 0)
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        asked.append(command)
        if works:
            as_user(monkeypatch, 0, entry("pgserver", 80))
        return SimpleNamespace(returncode=0 if works else 1)

    monkeypatch.setattr(shutil, "which", lambda name: f"/sbin/{name}")
    monkeypatch.setattr(subprocess, "run", run)
    if works:
        assert account_for(tmp_path / "pgdata") == Account(80, 81, lent=True)
    else:
        with pytest.raises(EngineUnavailable, match="there is no account 'postgres' to run it"):
            account_for(tmp_path / "pgdata")
    assert [(one[0], one[-1]) for one in asked] == [("/sbin/useradd", "pgserver")]


# --- a cluster's folder -------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Cluster]:
    """Makes one that we run ourselves."""
    monkeypatch.setattr(clusters, "account_for", lambda pgdata: Account(ME, MINE, lent=False))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return Cluster


@pytest.mark.parametrize(
    ("lines", "pid", "where"),
    [
        (["17", "x", "0", "5432", " /run/pg ", "y"], 17, "/run/pg"),
        (["17", "x", "0", "5432", "/run/pg"], 17, "/run/pg"),
        (["17", "x", "0", "5432", ""], 17, None),
        (["17", "x", "0", "5432"], 17, None),
        (["-17"], 0, None),
        (["x"], 0, None),
        ([], 0, None),
    ],
)
def test_a_mark_may_be_cut_short(
    lines: list[str],
    pid: int,
    where: str | None,
    cluster: Callable[[Path], Cluster],
    tmp_path: Path,
) -> None:
    made = cluster(tmp_path)
    assert made._postmaster() is None
    made.pgdata.mkdir()
    (made.pgdata / "postmaster.pid").write_text("\n".join(lines))
    assert made._postmaster() == (pid, Path(where) if where else made.pgdata)


def test_a_socket_lies_in_the_cluster_if_its_path_is_not_too_long(
    cluster: Callable[[Path], Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bytes."""
    exact, longer, wide = (cluster(tmp_path / name) for name in ("xx", "xxx", "xä"))
    longest = len(os.fsencode(exact.pgdata / SOCKET))
    monkeypatch.setattr(clusters, "SOCKET_PATH_BYTES", longest)
    assert exact._socket_dir() == exact.pgdata
    folders = [longer._socket_dir(), wide._socket_dir()]
    assert [folder.parent for folder in folders] == [tmp_path / "tmp"] * 2
    assert folders[0] != folders[1]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 2
    assert longer._socket_dir() == folders[0], "the same one again"
    folders[0].chmod(0o710)
    with pytest.raises(EngineUnavailable, match="is not a private folder of this user"):
        longer._socket_dir()
    folders[0].rmdir()
    folders[0].symlink_to(folders[1])
    with pytest.raises(EngineUnavailable, match="is not a private folder of this user"):
        longer._socket_dir()


def test_a_failure_is_told_by_the_end_of_what_a_program_says(
    cluster: Callable[[Path], Cluster], tmp_path: Path
) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        cluster(tmp_path)._fail("initdb", "x" * 400 + " no space left")
    assert f"failed (initdb): {'x' * 286} no space left; give another data_dir" in str(caught.value)
