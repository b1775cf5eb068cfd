"""Chat RAG: the advanced application in a conversation, whose turns so far go into its prompts.

    documents ─▶ index ──────────────────────────╮
    question ─┬▶ expand ─▶ embed ─▶ search ◀─────╯
    history  ─┤                       ╰─▶ rerank ─▶ generate (refine) ─▶ answer
              ╰──────────────────────────────────────────╯

The history stands before the question and is known from the start, so it is prefilled while the
documents are still being embedded. The first turn has none, and its prompts do not mention any.
"""

from teola import App, Embedding, Generate, Indexing, Input, QueryExpansion, Rerank, Search

index = Indexing()
expand = QueryExpansion(n=3)
embed = Embedding(inputs={"texts": "queries"})
search = Search(mode="auto", top_k=16)
rerank = Rerank(top_k=3)
generate = Generate(mode="refine")

app = App(
    "chat-rag",
    template=index >> expand >> embed >> search >> rerank >> generate,
    inputs={
        "question": "text",
        "history": Input("text", default=None),
        "documents": "documents",
    },
    outputs={"answer": "answer", "sources": "context"},
    description="Advanced RAG within a conversation: `history` is the turns so far, as one text",
)
