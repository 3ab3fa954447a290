"""Background jobs of a shell ignore Ctrl-C, and their children inherit that: the tests of Ctrl-C undo it."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
