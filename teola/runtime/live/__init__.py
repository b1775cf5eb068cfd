"""The live driver: the core on an asyncio loop, and what runs beside it there."""
