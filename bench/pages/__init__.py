"""Pages and files that are made from the code."""
