"""LangGraph: its threads governed in place, and a store."""
