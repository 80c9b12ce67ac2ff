"""Conversations in a relational engine: sessions, what was said in them, and the windows that expire."""
