"""SQL over registered tables, with calls of language models, as queries of a server."""
