"""Our statements for the tables of LangGraph."""
