"""Web search engines: a local corpus, and services on the web, behind one interface."""

from .corpus import Corpus
from .google import Google
from .searxng import SearXNG
from .tavily import Tavily

__all__ = ["Corpus", "Google", "SearXNG", "Tavily"]
