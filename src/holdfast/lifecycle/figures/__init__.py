"""Figures: what is kept, what happened to it and what is to come, looked at as a whole."""
