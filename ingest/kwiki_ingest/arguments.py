"""How arguments of the command line are read."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number above 0; raises what argparse turns into wrong usage."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)
