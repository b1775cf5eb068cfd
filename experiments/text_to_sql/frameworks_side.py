"""LangChain's SQL agent and LlamaIndex's NLSQLTableQueryEngine, in a Python that has them.

    python frameworks_side.py langchain|llama_index JOB OUT

It imports nothing of Teola's. JOB: {"url", "at", "seconds", "databases": {name: {"dialect",
"where"}}, "questions": [{"tag", "database", "text"}]}. OUT: a list of {"tag", "sql", "seconds"} in
the order of the questions.
"""

import asyncio
import json
import sqlite3
import sys
import time

from sqlalchemy import create_engine

SYSTEM = """You are an agent designed to interact with a SQL database. Given an input question,
create a syntactically correct {dialect} query to run, then look at the results of the query and
return the answer. Always look at the tables in the database first to see what you can query, then
query the schema of the most relevant tables. If you get an error while executing a query, rewrite
the query and try again. DO NOT make any DML statements (INSERT, UPDATE, DELETE, DROP etc.)."""


def engine_of(database, seconds):
    """SQLAlchemy's, whose statements end after so many seconds, as those of the others do."""
    if database["dialect"] == "postgres":
        where = database["where"].replace("postgresql://", "postgresql+psycopg://", 1)
        options = f"-c statement_timeout={int(1000 * seconds)}"
        return create_engine(where, connect_args={"options": options}, pool_size=32)

    def connect():
        class Limited(sqlite3.Connection):
            def cursor(self, *args, **more):
                until = time.monotonic() + seconds
                self.set_progress_handler(lambda: time.monotonic() > until, 10_000)
                return super().cursor(*args, **more)

        return sqlite3.connect(
            f"file:{database['where']}?mode=ro", uri=True, check_same_thread=False, factory=Limited
        )

    from sqlalchemy.pool import NullPool

    return create_engine("sqlite://", creator=connect, poolclass=NullPool)


def langchain(job):
    """An agent with the toolkit, as its documentation builds it, but for the query checker: it is
    one more call of the model for each statement, which the scripted model leaves out."""
    from langchain.agents import create_agent
    from langchain_community.agent_toolkits import SQLDatabaseToolkit
    from langchain_community.utilities import SQLDatabase
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="langchain",
        base_url=job["url"],
        api_key="none",
        temperature=0,
        max_retries=0,
        timeout=600.0,
    )
    agents = {}
    for name, database in job["databases"].items():
        opened = SQLDatabase(engine_of(database, job["seconds"]))
        tools = SQLDatabaseToolkit(db=opened, llm=model).get_tools()
        tools = [tool for tool in tools if tool.name != "sql_db_query_checker"]
        system = SYSTEM.format(dialect=database["dialect"])
        agents[name] = create_agent(model, tools, system_prompt=system)

    async def ask(question):
        asked = {"messages": [{"role": "user", "content": question["text"]}]}
        state = await agents[question["database"]].ainvoke(asked, {"recursion_limit": 60})
        queries = [
            call["args"]["query"]
            for message in state["messages"]
            for call in getattr(message, "tool_calls", None) or ()
            if call["name"] == "sql_db_query"
        ]
        return queries[-1] if queries else ""

    return ask


def llama_index(job):
    """The query engine over all tables of a database."""
    from llama_index.core import MockEmbedding, SQLDatabase
    from llama_index.core.query_engine import NLSQLTableQueryEngine
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(
        model="llama_index",
        api_base=job["url"],
        api_key="none",
        is_chat_model=True,
        context_window=32_000,
        max_retries=0,
        timeout=600.0,
    )
    engines, blank = {}, MockEmbedding(embed_dim=8)  # tables are all given, and none is retrieved
    for name, database in job["databases"].items():
        opened = SQLDatabase(engine_of(database, job["seconds"]))
        tables = list(opened.get_usable_table_names())
        engines[name] = NLSQLTableQueryEngine(opened, tables=tables, llm=model, embed_model=blank)

    async def ask(question):
        answer = await engines[question["database"]].aquery(question["text"])
        return (answer.metadata or {}).get("sql_query", "")

    return ask


async def run(job, ask):
    gate = asyncio.Semaphore(job["at"])

    async def one(question):
        async with gate:
            began = time.monotonic()
            try:
                sql = await ask(question)
            except Exception as error:  # noqa: BLE001 - one that fails has no statement
                print(f"{question['tag']}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
                sql = ""
            return {"tag": question["tag"], "sql": sql, "seconds": time.monotonic() - began}

    first = {question["database"]: question for question in job["questions"]}
    for question in first.values():
        await one(question)
    return await asyncio.gather(*map(one, job["questions"]))


def main(side, job, out):
    with open(job, encoding="utf-8") as file:
        asked = json.load(file)
    ask = {"langchain": langchain, "llama_index": llama_index}[side](asked)
    told = asyncio.run(run(asked, ask))
    with open(out, "w", encoding="utf-8") as file:
        json.dump(told, file)


if __name__ == "__main__":
    main(*sys.argv[1:4])
