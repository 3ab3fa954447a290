"""Claims against the installed DSL: API names, code snippets, and the rules that pages keep."""
