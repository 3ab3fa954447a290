"""Markdown to caches: embed, keep in SQLite and Chroma, stay in step with the files."""
