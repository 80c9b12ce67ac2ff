"""Exports: everything that is kept of a user, in a form that people and programs can read."""
