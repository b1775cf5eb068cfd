"""How well steps of five terms predict a published run of vLLM."""
