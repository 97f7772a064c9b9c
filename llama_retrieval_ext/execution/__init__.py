"""Runs what retrievers ask for: one plan, a threaded and an asyncio driver."""
