"""LangGraph as the retrieval tutorials build it.

naive-rag     index, retrieve, generate
advanced-rag  index, rewrite, retrieve, rerank, generate
chat-rag      index, contextualise, rewrite, retrieve, rerank, generate

The prompts are those of LangChain's tutorials and of its MultiQueryRetriever, and the passages go
into a single call. LangGraph brings no adapters of its own; its nodes call the shared clients.
"""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from experiments.real_engines.calls import Engines
from experiments.real_engines.prompts import EXPANSION_TOKENS, expansion_text
from experiments.real_engines.recording import Log
from experiments.real_engines.steps import Steps
from experiments.real_engines.workload import Query

ANSWER = (
    "You are an assistant for question-answering tasks. Use the following pieces of retrieved "
    "context to answer the question. If you don't know the answer, just say that you don't know. "
    "Use three sentences maximum and keep the answer concise.\n"
    "{history}Question: {question} \nContext: {context} \nAnswer:"
)
CONTEXTUALISE = (
    "Given a chat history and the latest user question which might reference context in the chat "
    "history, formulate a standalone question which can be understood without the chat history. "
    "Do NOT answer the question, just reformulate it if needed and otherwise return it as is.\n"
    "{history}\n{question}"
)
MULTI_QUERY = (
    "You are an AI language model assistant. Your task is\n    to generate 3 different versions of "
    "the given user\n    question to retrieve relevant documents from a vector  database.\n    By "
    "generating multiple perspectives on the user question,\n    your goal is to help the user "
    "overcome some of the limitations\n    of distance-based similarity search. Provide these "
    "alternative\n    questions separated by newlines. Original question: {question}"
)


class State(TypedDict, total=False):
    """What nodes hand on."""

    steps: Steps
    standalone: str
    queries: list[str]
    found: Any
    hits: Any
    answer: str


async def index(state: State) -> State:
    await state["steps"].index()
    return {"queries": [state["steps"].query.question]}


async def contextualise(state: State) -> State:
    steps = state["steps"]
    prompt = CONTEXTUALISE.format(history=steps.query.history, question=steps.query.question)
    return {"standalone": await steps.complete(prompt)}


async def rewrite(state: State) -> State:
    steps = state["steps"]
    question = state.get("standalone", steps.query.question)
    text = await steps.complete(
        MULTI_QUERY.format(question=question),
        choice=expansion_text(steps.query.question),
        max_tokens=EXPANSION_TOKENS,
    )
    return {"queries": [line for line in text.splitlines() if line]}


async def retrieve(state: State) -> State:
    steps = state["steps"]
    vectors = await steps.embed(state["queries"])
    found = [await steps.search(vector) for vector in vectors]
    return {"found": found, "hits": found[0]}


async def rerank(state: State) -> State:
    return {"hits": await state["steps"].rerank(state["found"])}


async def generate(state: State) -> State:
    steps = state["steps"]
    prompt = ANSWER.format(
        history=f"{steps.query.history}\n" if steps.query.history else "",
        question=steps.query.question,
        context="\n\n".join(hit.text for hit in state["hits"]),
    )
    return {"answer": await steps.complete(prompt, final=True)}


NODES: dict[str, list[Any]] = {
    "naive-rag": [index, retrieve, generate],
    "advanced-rag": [index, rewrite, retrieve, rerank, generate],
    "chat-rag": [index, contextualise, rewrite, retrieve, rerank, generate],
}


class LangGraphDefault:
    """See the module."""

    name, style = "langgraph", "default"

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self.table = "langgraph_default"
        self._graphs = {app: _chain(nodes) for app, nodes in NODES.items()}

    async def answer(self, query: Query, log: Log) -> str:
        steps = Steps(self._engines, self.table, query, log)
        state = await self._graphs[query.app].ainvoke({"steps": steps})
        return str(state["answer"])


def _chain(nodes: list[Any]) -> Any:
    builder = StateGraph(State)
    builder.add_sequence(nodes)
    builder.add_edge(START, nodes[0].__name__)
    builder.add_edge(nodes[-1].__name__, END)
    return builder.compile()
