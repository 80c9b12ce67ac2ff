"""The edges: they translate between callers and the engine, and never decide."""
