"""A server of tools as a table of the configuration file: `[tools.NAME]`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from teola.tools.base import LEAST_BYTES, MOST_BYTES, MOST_CHARS
from teola.tools.mcp_messages import MESSAGE_BYTES
from teola.tools.mcp_server import (
    MOST_LIST_CHARS,
    MOST_SERVER_TOOLS,
    START_S,
    TIMEOUT_S,
    ToolServer,
    mcp_tools,
)
from teola.tools.mcp_transport import LEAST_MESSAGE_BYTES
from teola.tools.references import MOST_ARGUMENT_CHARS
from teola.tools.tool_result import LEAST_CHARS


class ToolTable(BaseModel):
    """One server of tools (MCP), by the name under which agents ask for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: list[str] | None = Field(
        default=None,
        description="Program that is run, with its arguments; it speaks by its standard streams.",
    )
    env: dict[str, str] | None = Field(
        default=None,
        description="Variables for the program, which of ours gets HOME, PATH and the like only.",
    )
    cwd: str | None = Field(default=None, description="Folder that the program runs in.")
    url: str | None = Field(
        default=None, description="Or the address of a server (streamable HTTP)."
    )
    headers: dict[str, str] | None = Field(default=None, description="Of each request to it.")
    pure: list[str] = Field(
        default_factory=list,
        description="Tools that change nothing; all others are effects, whatever the server says.",
    )
    only: list[str] | None = Field(default=None, description="Tools to offer; else all.")
    approval: bool | list[str] = Field(
        default=False, description="Tools to which a person has to agree; true: all."
    )
    timeout_s: float = Field(default=TIMEOUT_S, gt=0, description="Of one try of a call.")
    start_s: float = Field(
        default=START_S,
        gt=0,
        description="That the server may take to start, and to list its tools.",
    )
    retries: int | None = Field(
        default=None,
        ge=0,
        description="Further tries of a call of a pure tool after any failure; else 2, after those "
        "that another may mend.",
    )
    at_once: int | None = Field(
        default=None, ge=1, description="Calls of the server that run at once; else any number."
    )
    most_chars: int = Field(
        default=MOST_CHARS, ge=LEAST_CHARS, description="Characters of a result that a model reads."
    )
    most_tools: int = Field(
        default=MOST_SERVER_TOOLS,
        ge=1,
        description="Tools of the server's list; more are left out.",
    )
    most_list_chars: int = Field(
        default=MOST_LIST_CHARS,
        ge=1,
        description="Characters of their descriptions and schemas; more are left out.",
    )
    most_bytes: int = Field(
        default=MOST_BYTES,
        ge=LEAST_BYTES,
        description="Bytes of a result as JSON; what is more is left out, and the model told.",
    )
    most_argument_chars: int = Field(
        default=MOST_ARGUMENT_CHARS,
        ge=1,
        description="Characters of arguments as JSON, with results in the place of references.",
    )
    most_message_bytes: int = Field(
        default=MESSAGE_BYTES,
        ge=LEAST_MESSAGE_BYTES,
        description="Bytes of one message of the server; a program that writes a longer one is "
        "ended.",
    )

    def server(self, name: str) -> ToolServer:
        """What it declares. Raises InputError."""
        return mcp_tools(name=name, **dict(self))
