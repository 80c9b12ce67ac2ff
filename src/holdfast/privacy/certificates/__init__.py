"""Certificates: signed statements of what was erased."""
