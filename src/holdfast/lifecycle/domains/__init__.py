"""Domains: a caller's own resources, sorted into states by policies."""
