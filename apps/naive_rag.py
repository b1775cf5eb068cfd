"""Naive RAG (paper, section 7.1): one search, one call for each passage, one over their answers.

documents ─▶ index ───────────╮
question ──▶ embed ─▶ search ◀╯
                        ╰─▶ generate (tree) ─▶ answer
"""

from teola import App, Embedding, Generate, Indexing, Search

index = Indexing()
embed = Embedding(inputs={"texts": "question"})
search = Search(top_k=3)
generate = Generate(mode="tree", inputs={"context": "hits"})

app = App(
    "naive-rag",
    template=index >> embed >> search >> generate,
    inputs={"question": "text", "documents": "documents"},
    outputs={"answer": "answer", "sources": "hits"},
    description="Search, an answer from each of the best passages, and a summary of those",
)
