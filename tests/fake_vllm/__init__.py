"""As much of vLLM as its worker uses, for what a real one does not do when it is asked to: die,
hang, and end a call by itself. That it answers as the real one does, tests with that one show."""
