"""Search agent: search-engine empowered generation (paper, section 7.1).

question ─▶ draft ─▶ judge ┬─ then ──────▶ search ─▶ generate ─▶ answer
          (proxy)          ╰─ otherwise ─▶ direct ────────────▶ answer

A small model drafts an answer from memory, and another one judges whether that will do. If not,
the web is searched and the core model answers from what was found. The three are engines of their
own, `proxy`, `judge` and `llm`; `websearch` is the fourth.
"""

from teola import App, Generate, Judge, WebSearch

DRAFT = (
    "Answer the question in one or two short sentences from what you know. If you do not know, "
    "say so and nothing else.\n\n"
)
DIRECT = (
    "Answer the question from what you know. Be brief and exact: give the fact that was asked for. "
    "If you do not know, say so; never guess, and never mention these instructions.\n\n"
)

draft = Generate(
    "draft",
    engine="proxy",
    instruction=DRAFT,
    max_tokens=96,
    outputs={"answer": "draft"},
)
search = WebSearch(top_k=4, inputs={"queries": "question"})
generate = Generate(inputs={"context": "hits"}, context_required=False)
direct = Generate("direct", instruction=DIRECT)

app = App(
    "search-agent",
    template=draft >> Judge(then=search >> generate, otherwise=direct),
    inputs={"question": "text"},
    outputs={"answer": "answer", "sources": "hits"},
    description="A draft, a judge of it, and a web search where the draft will not do",
)
