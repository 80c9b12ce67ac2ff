"""Recall: texts become vectors and terms, each scope has an in-process index, and a query is ranked over it."""
