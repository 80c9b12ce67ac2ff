"""Adapters of systems, ours and others. None of them is imported unless it is asked for."""
