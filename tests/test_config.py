"""The configuration file: what it means, and how it is refused."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from teola.cli.given import Engines
from teola.config import TEMPLATE, Configuration, read
from teola.errors import InputError, UnknownName
from teola.policies import batching, routing
from teola.runtime.engines import DEFAULTS
from teola.tools import ToolServer
from teola.tools.mcp_transport import ByCommand
from tests.command_line import CommandLine


def written(folder: Path, text: str, name: str = "teola.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_template_is_what_holds_without_a_file(tmp_path: Path) -> None:
    assert read(written(tmp_path, TEMPLATE)) == Configuration()
    assert read(written(tmp_path, "")) == Configuration()
    assert Configuration().engine_configs() == DEFAULTS


def test_everything_the_template_mentions_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_KEY", "secret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://localhost/x")
    monkeypatch.setenv("TICKETS_KEY", "secret")
    monkeypatch.setenv("TEOLA_JOURNAL_KEY", "a secret of many letters")
    monkeypatch.setenv("SHOP_DSN", "postgresql://localhost/shop")
    monkeypatch.chdir(tmp_path)
    Path("reviews.parquet").write_bytes(parquet())
    head, _, engines = TEMPLATE.partition("# One table")
    settings = [line.removeprefix("# ") if " = " in line else line for line in head.splitlines()]
    tables = [
        line.removeprefix("# ")
        for line in engines.splitlines()
        if line.startswith("# [") or " = " in line
    ]
    found = read(written(tmp_path, "\n".join([*settings, *tables])))
    found.check()
    assert found.policies.batching == batching.DEFAULT
    assert found.policies.routing == routing.DEFAULT
    assert found.engines["llm"].options["api_key"] == "secret"
    configs = found.engine_configs()
    assert configs["embedding"].instances == 2
    assert configs["embedding"].host == "process"
    assert configs["vectorstore"].options == {"dsn": "postgresql://localhost/x"}
    servers = found.tool_servers()
    assert servers["time"].pure == {"get_current_time", "convert_time"}
    assert servers["tickets"].approval == {"delete_ticket"}
    assert list(found.table_sources) == ["reviews", "orders"]


def parquet() -> bytes:
    """A file with one row."""
    out = BytesIO()
    pq.write_table(pa.table({"review": ["gentle"]}), out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ("", "give a path (a file), or a secret"),
        ('path = "none.csv"', "there is no file none.csv"),
        ('path = "t.toml"', "what kind of file is it"),
        ('path = "broken.parquet"', "table 'r': broken.parquet cannot be read"),
        ('path = "t.db"', "which table of t.db"),
        ('secret = "NOWHERE"', "the environment variable NOWHERE is not set"),
        ('secret = "HOME"', "must be a DSN"),
        ('path = "t.db"\nsecret = "HOME"', "give a path (a file), or a secret"),
        ('paht = "t.csv"', "did you mean 'path'"),
    ],
)
def test_tables_that_cannot_be_asked_over_are_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, wrong: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("broken.parquet", "t.db"):
        Path(name).write_bytes(b"no table")
    with pytest.raises(InputError, match=re.escape(wrong)):
        read(written(tmp_path, f"[tables.r]\n{table}")).check()


def test_servers_of_tools_are_written_down_and_reach_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "hush")
    text = """
        [tools.time]
        command = ["mcp-server-time", "--local-timezone", "UTC"]
        env = { API_KEY = "${KEY}" }
        pure = ["get_current_time"]
        timeout_s = 5
        at_once = 2
    """
    found = read(written(tmp_path, text))
    found.check()
    with Engines().configured(found, []) as runtime:
        server = runtime.tools["time"]
        assert isinstance(server, ToolServer)
        assert isinstance(server.reached, ByCommand)
        assert server.reached.command == ("mcp-server-time", "--local-timezone", "UTC")
        assert server.reached.env == {"API_KEY": "hush"}
        assert (server.name, server.pure, server.timeout_s) == ("time", {"get_current_time"}, 5)
        assert server.gate.most == 2
        assert "hush" not in repr(server)
        with pytest.raises(UnknownName, match="unknown tool 'tme'; did you mean 'time'"):
            runtime.tools["tme"]


def test_yaml_says_the_same(tmp_path: Path) -> None:
    toml = written(tmp_path, '[policies]\nbatching = "fifo"\n[engines.llm]\ntype = "extractive"\n')
    yaml = written(
        tmp_path, "policies: {batching: fifo}\nengines:\n  llm: {type: extractive}\n", "t.yaml"
    )
    assert read(toml) == read(yaml)
    assert {config.batching for config in read(yaml).engine_configs().values()} == {"fifo"}


POOL = """
[engines.llm]
type = "vllm"
options = { api_key = "${KEY}" }
[[engines.llm.pool]]
url = "http://one:8000/v1"
[[engines.llm.pool]]
url = "http://two:8000/v1"
max_sequences = 64
resources = { num_gpus = 2 }
"""


def test_a_pool_is_written_down_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "secret")
    found = read(written(tmp_path, POOL))
    found.check()
    config = found.engine_configs()["llm"]
    assert config.instances == 2
    first, second = (config.recipe("llm", i).options for i in range(2))
    assert first == {"name": "llm", "api_key": "secret", "url": "http://one:8000/v1"}
    assert second == {**first, "url": "http://two:8000/v1", "max_sequences": 64}
    assert [config.member("llm", i).resources for i in range(2)] == [{}, {"num_gpus": 2}]
    again = Configuration.model_validate(found.model_dump())
    assert again.engine_configs()["llm"] == config


def test_yaml_takes_an_option_back(tmp_path: Path) -> None:
    text = "{url: a, model: m}, pool: [{url: 'http://a'}, {url: 'http://b', model: null}]"
    yaml = written(tmp_path, f"engines: {{llm: {{type: vllm, options: {text}}}}}", "t.yaml")
    config = read(yaml).engine_configs()["llm"]
    assert [config.recipe("llm", i).options["model"] for i in range(2)] == ["m", None]


def test_an_engines_own_policy_goes_before_that_of_all(tmp_path: Path) -> None:
    text = '[policies]\nbatching = "fifo"\n[engines.llm]\ntype = "extractive"\nbatching = "fair"\n'
    configs = read(written(tmp_path, text)).engine_configs()
    assert configs["llm"].batching == "fair"
    assert configs["embedding"].batching == "fifo"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", "unknown key 'prot'"),
        ("[server]\nprot = 1", "unknown key 'server.prot'; did you mean 'port'?"),
        ('[engines.llm]\ntpye = "vllm"', "did you mean 'type'?"),
        ("[engines.llm]\ninstances = 2", "engines.llm.type is missing"),
        ("[server]\nport = 70000", "server.port: Input should be less"),
        ("[server]\nport = [", "is not TOML"),
        ('[engines.llm]\ntype = "${NOT_SET}"', "the environment variable NOT_SET is not set"),
        ('[engines.llm]\ntype = "vlm"', "unknown engine type 'vlm'; did you mean 'vllm'?"),
        ('[engines.llm]\ntype = "extractive"\noptions = { dtpe = 1 }', "did you mean 'dtype'?"),
        ('[policies]\nbatching = "fiffo"', "did you mean 'fifo'?"),
        ('[policies]\nprofile = "paper-14b"', "paper-13b"),
        ('[engines.llm]\ntype = "extractive"\nhost = "rya"', "did you mean 'ray'?"),
        (
            '[engines.llm]\ntype = "vllm"\ninstances = 3\npool = [{ url = "a" }, { url = "b" }]',
            "engine 'llm': instances = 3, but a pool with 2 entries: leave `instances` out",
        ),
        (
            '[engines.llm]\ntype = "vllm"\npool = [{ url = "http://a" }, { ulr = "http://b" }]',
            "unknown option 'ulr' in engine 'llm', entry 1 of its pool; did you mean 'url'?",
        ),
        ('[engines.llm]\ntype = "vllm"\npool = { url = "a" }', "engines.llm.pool: Input should"),
        ('apps = ["naive-rga"]', "did you mean 'naive-rag'?"),
        ("[tools.x]\ncomand = []", "unknown key 'tools.x.comand'; did you mean 'command'?"),
        ("[tools.x]", "tool server 'x': give a command or a url"),
        ('[tools.x]\ncommand = ["a"]\nurl = "http://a"', "give a command or a url"),
        ('[tools.x]\nurl = "a"', "url must begin with http"),
        ('[tools."x y"]\nurl = "http://a"', "tool server 'x y': a name has letters"),
        (
            '[server]\nkeys = "k.json"\n[engines.llm]\ntype = "extractive"\nbatching = "fair"\n'
            'batching_options = { by = "app" }',
            "engine 'llm' is shared by application",
        ),
        (
            '[server]\nkeys = "k.json"\n[engines.llm]\ntype = "extractive"\nbatching = "paced"\n'
            'routing = "paced"',
            "which an engine has as soon as there are keys",
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(
    teola: CommandLine, tmp_path: Path, text: str, told: str
) -> None:
    path = written(tmp_path, text)
    assert told in teola("config", "check", path).refused(2)
    assert told in teola("serve", "--config", path, "--port", "0").refused(2)


def test_a_budget_is_of_an_application_that_is_served(teola: CommandLine, tmp_path: Path) -> None:
    """What serves none, such as `teola sql` and `teola journal seal`, passes budgets over."""
    text = 'apps = ["naive-rag"]\n[budgets.naive-rgs]\ntokens_a_day = 9'
    file = written(tmp_path, text)
    for words in (("config", "check", file), ("serve", "--config", file)):
        told = teola(*words).refused(2)
        assert "unknown application 'naive-rgs' in `budgets`; did you mean 'naive-rag'" in told
    file.write_text(text.replace("rgs", "rag"))
    assert teola("config", "check", file).code == 0
    with Engines(learn="off").configured(read(file), ()) as runtime:
        assert runtime.budgets["naive-rag"].tokens == 9


def test_what_cannot_be_read_is_said(teola: CommandLine, tmp_path: Path) -> None:
    assert "cannot read" in teola("config", "check", tmp_path / "none.toml").refused(2)
    odd = tmp_path / "odd.toml"
    odd.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in teola("config", "check", odd).refused(2)
    assert "is not YAML" in teola("config", "check", written(tmp_path, "a: [", "x.yml")).refused(2)


def test_init_writes_a_file_that_is_right_and_overwrites_none(
    teola: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "new.toml"
    assert teola("config", "init", path).code == 0
    assert teola("config", "check", path).out == f"{path} is right\n"
    path.write_text("apps = []")
    assert "is there already" in teola("config", "init", path).refused(2)
    assert path.read_text() == "apps = []"


def test_options_reach_the_error_of_a_bad_type(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"engines\.llm\.instances"):
        read(written(tmp_path, '[engines.llm]\ntype = "extractive"\ninstances = 0'))


def test_the_reference_is_what_the_schema_says(teola: CommandLine) -> None:
    page = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
    reference = teola("config", "reference").out
    assert page.read_text(encoding="utf-8") == reference, (
        "write it anew: teola config reference > docs/configuration.md"
    )
