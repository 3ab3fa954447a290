"""The wiki as tools for coding agents: the Model Context Protocol over stdio or loopback HTTP."""
