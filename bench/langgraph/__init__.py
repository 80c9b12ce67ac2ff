"""Measures and tests what Holdfast does for LangGraph, beside LangGraph itself."""
