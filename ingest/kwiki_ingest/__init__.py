"""The Kernel-Wiki: pages, index, retrieval and the gated write path."""
