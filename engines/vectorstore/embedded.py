"""The PostgreSQL that comes with Teola: one per user, shared by that user's processes.

Who uses it is told by two locks on one file, `lock`, beside the cluster. Byte 0 is the mutex of
starting and stopping. On byte 1 every using process holds a shared lock, which the system itself
takes away when the process ends, however it ends: there is no list of pids to prune. Whoever
leaves and can turn that lock into an exclusive one was the last, and stops the server. After a
SIGKILL of the last one the server is left behind; the next start takes it over.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from teola.data_folder import named_folder, xdg_folder
from teola.errors import EngineUnavailable

from .cluster import PGDATA, SUPERUSER, Cluster

MUTEX, USERS = 0, 1
ROOT_DATA_DIR = Path("/var/lib/teola")
"""For root: its home is closed to the account that runs PostgreSQL for it."""


@dataclass(slots=True)
class _Use:
    """This process's use of one data directory: its lock file, and by how many objects."""

    descriptor: int
    programs: Path | None
    count: int = 0


_uses: dict[Path, _Use] = {}
_guard = threading.RLock()


def default_data_dir() -> Path:
    """The folder for the embedded server where no option names one: as the environment says, else
    this user's own."""
    import platformdirs

    if named := named_folder():
        return named
    if os.geteuid() != 0:
        return platformdirs.user_data_path("teola")
    xdg = xdg_folder()
    if xdg is None:
        return ROOT_DATA_DIR
    # Root's data lay in ROOT_DATA_DIR once, whatever XDG_DATA_HOME said: they stay in use.
    stays = (ROOT_DATA_DIR / PGDATA).exists() and not (xdg / PGDATA).exists()
    return ROOT_DATA_DIR if stays else xdg


class EmbeddedPostgres:
    """A use of the embedded server in `data_dir` (by default the user's own).

    Thread-safe. `programs`: folder of PostgreSQL's programs, if not the packaged ones.
    """

    def __init__(
        self, data_dir: str | Path | None = None, *, programs: str | Path | None = None
    ) -> None:
        self.data_dir = Path(data_dir or default_data_dir()).expanduser().absolute().resolve()
        self._programs = Path(programs) if programs else None
        self._started = False

    def again(self) -> EmbeddedPostgres:
        """Another use of the same server."""
        return EmbeddedPostgres(self.data_dir, programs=self._programs)

    def start(self) -> tuple[str, str]:
        """Make sure that the server runs. DSNs of the superuser and of the role for queries.

        Calling it again heals a server that was lost. Raises EngineUnavailable.
        """
        with _guard:
            _make_folder(self.data_dir)
            use = _uses.get(self.data_dir) or _Use(_open_lock(self.data_dir), self._programs)
            try:
                with _mutex(use.descriptor):
                    socket_dir = Cluster(self.data_dir, self._programs).ensure_running()
                    dsns = _prepare(socket_dir)
                    fcntl.lockf(use.descriptor, fcntl.LOCK_SH, 1, USERS)
            except BaseException:
                if not use.count:
                    os.close(use.descriptor)
                raise
            if not self._started:
                use.count += 1
                self._started = True
            _uses[self.data_dir] = use
            return dsns

    def close(self) -> None:
        """End this use; the last use of the last process stops the server. May be repeated."""
        with _guard:
            use = _uses.get(self.data_dir)
            if not self._started or use is None:
                return
            self._started = False
            use.count -= 1
            if not use.count:
                _leave(self.data_dir)

    def pid(self) -> int | None:
        """Process id of the running server, for diagnosis."""
        return Cluster(self.data_dir, self._programs).pid()


def _make_folder(folder: Path) -> None:
    """Make what is missing. For root, the server's account must pass through what we make."""
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            path.chmod(mode)
        ours = folder in missing or not any(folder.iterdir())
        if ours and os.geteuid() == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    except OSError as error:
        raise EngineUnavailable(
            f"cannot use {folder} for the embedded PostgreSQL ({error.strerror}): "
            "give another data_dir or a server (dsn)",
            retryable=False,
        ) from error


def _open_lock(folder: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(folder / "lock", flags, 0o600)
    except OSError as error:
        raise EngineUnavailable(
            f"cannot lock {folder} ({error.strerror}): it may be another user's; "
            "give a data_dir of your own or a server (dsn)",
            retryable=False,
        ) from error


@contextlib.contextmanager
def _mutex(descriptor: int) -> Iterator[None]:
    fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, MUTEX)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, MUTEX)


def _prepare(socket_dir: Path) -> tuple[str, str]:
    """Log in (a server that only looks alive fails here) and make the role for queries."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    from .schema import QUERY_ROLE, ensure_query_role

    # `options` is given so that PGOPTIONS of the environment does not reach our server.
    here = make_conninfo(host=str(socket_dir), port=5432, dbname="postgres", options="")
    admin = make_conninfo(here, user=SUPERUSER)
    try:
        with psycopg.connect(admin, autocommit=True, connect_timeout=10) as connection:
            ensure_query_role(connection)
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise EngineUnavailable(
            f"the embedded PostgreSQL does not take logins: {reason}"
        ) from error
    return admin, make_conninfo(here, user=QUERY_ROLE)


def _leave(folder: Path) -> None:
    use = _uses.pop(folder)
    try:
        with _mutex(use.descriptor):
            try:
                fcntl.lockf(use.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, USERS)
            except OSError:
                return  # another process still uses it
            Cluster(folder, use.programs).stop()
    finally:
        os.close(use.descriptor)


def _at_exit() -> None:
    with _guard:
        for folder in list(_uses):
            _leave(folder)


def _after_fork() -> None:
    """A forked child holds none of its parent's locks, so it uses nothing yet."""
    global _guard
    _guard = threading.RLock()
    for use in _uses.values():
        os.close(use.descriptor)
    _uses.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
