"""Subjects in a relational engine: how they are erased, and all that is kept of one."""
