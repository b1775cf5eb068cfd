"""How fast the engine `transformers` decodes, beside plain transformers."""
