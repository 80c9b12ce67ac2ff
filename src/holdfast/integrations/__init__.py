"""Holdfast in other frameworks. Nothing of Holdfast imports these modules."""
