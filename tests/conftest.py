"""Shells start background jobs with Ctrl-C ignored, and processes pass that on: the tests of Ctrl-C undo it."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
