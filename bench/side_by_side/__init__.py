"""Holdfast and its peers on the same data with the same vectors, each in a process of its own."""
