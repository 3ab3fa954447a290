"""The write path: how a lesson enters the wiki. Code decides what is stored, never a model."""
