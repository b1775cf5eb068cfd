"""Which OS account runs the embedded PostgreSQL, and whether it can reach its files.

PostgreSQL refuses to run as root, so root lends it an account without rights. What that account
cannot enter is reported, never opened: no mode of a folder that is not ours is changed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teola.errors import EngineUnavailable

ACCOUNTS = ("pgserver", "postgres")
"""Accounts that root may lend, the first that exists; without any, the first is created."""


@dataclass(frozen=True, slots=True)
class Account:
    """The OS account of the server. `lent`: it is not ours, we are root."""

    uid: int
    gid: int
    lent: bool

    @property
    def subprocess_options(self) -> dict[str, Any]:
        """Arguments of `subprocess.run` that run a program as this account."""
        if not self.lent:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def may_enter(self, folder: Path) -> bool:
        """Whether the folder's mode lets this account pass through it."""
        status = folder.stat()
        if status.st_uid == self.uid:
            return bool(status.st_mode & 0o100)
        if status.st_gid == self.gid:
            return bool(status.st_mode & 0o010)
        return bool(status.st_mode & 0o001)

    def blocked_by(self, path: Path) -> Path | None:
        """The topmost folder on the way to `path` (itself included) that it cannot enter."""
        folders = [folder for folder in (*reversed(path.parents), path) if folder.is_dir()]
        return next((folder for folder in folders if not self.may_enter(folder)), None)

    def give(self, path: Path) -> None:
        """Make the account the owner of `path`, a file or folder of ours."""
        if self.lent:
            os.chown(path, self.uid, self.gid)


def account_for(pgdata: Path) -> Account:
    """The account of an existing data directory, else ourselves, else one that root lends.

    Raises EngineUnavailable if `pgdata` is another user's or root has no account to lend.
    """
    owner = pgdata.stat().st_uid if pgdata.exists() else None
    if os.geteuid() != 0:
        if owner is not None and owner != os.geteuid():
            raise EngineUnavailable(
                f"the data directory {pgdata.parent} belongs to another user: "
                "give one of your own (data_dir) or a server (dsn)",
                retryable=False,
            )
        return Account(os.geteuid(), os.getegid(), lent=False)
    if owner:
        return Account(owner, pgdata.stat().st_gid, lent=True)
    entry = _existing() or _created()
    return Account(entry.pw_uid, entry.pw_gid, lent=True)


def _existing() -> pwd.struct_passwd | None:
    entries = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next((entries[name] for name in ACCOUNTS if name in entries), None)


def _created() -> pwd.struct_passwd:
    """Add a system account without a home and without a login."""
    useradd = shutil.which("useradd")
    if useradd is not None:
        shell = "/usr/sbin/nologin"
        options = ["--system", "--user-group", "--no-create-home", "--shell", shell]
        done = subprocess.run([useradd, *options, ACCOUNTS[0]], capture_output=True, check=False)
        entry = _existing()
        if done.returncode == 0 and entry is not None:
            return entry
    raise EngineUnavailable(
        "PostgreSQL does not run as root and there is no account 'postgres' to run it: "
        "create one, start Teola as an ordinary user, or give a server (dsn)",
        retryable=False,
    )
