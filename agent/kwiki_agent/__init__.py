"""The agent: a LangGraph loop that tunes kernels with what the wiki knows."""

from importlib.metadata import version

__version__ = version("kernel-wiki")
