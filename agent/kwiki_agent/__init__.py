"""The agent: a LangGraph loop that tunes kernels with what the wiki knows."""
