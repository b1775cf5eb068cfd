"""Applications as models, for OpenAI's clients."""
