"""Advanced RAG, the paper's running example (figures 2 and 6).

documents ─▶ index ──────────────────────────╮
question ──▶ expand ─▶ embed ─▶ search ◀─────╯
                                  ╰─▶ rerank ─▶ generate (refine) ─▶ answer
"""

from teola import App, Embedding, Generate, Indexing, QueryExpansion, Rerank, Search

index = Indexing()
expand = QueryExpansion(n=3)
embed = Embedding(inputs={"texts": "queries"})
search = Search(mode="auto", top_k=16)
rerank = Rerank(top_k=3)
generate = Generate(mode="refine")

app = App(
    "advanced-rag",
    template=index >> expand >> embed >> search >> rerank >> generate,
    inputs={"question": "text", "documents": "documents"},
    outputs={"answer": "answer", "sources": "context"},
    description="Query expansion, search, reranking and an answer refined over the best passages",
)
