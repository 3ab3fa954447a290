"""A run's kernel as files that need neither the run nor this project: kernel, test, provenance."""
