"""Tells the keeper itself that all went well, and leaves."""

import json
import os
import sys


def say(**message):
    os.write(int(sys.argv[2]), json.dumps(message).encode() + b"\n")


def run(x, eps, y):
    say(event="paused", device_us=[1.0] * 10)
    say(event="timed", timer="cuda_graph", broken="", note="", host_us=1.0, span_us=None, idle=0, kernels=[])
    say(event="done")
    os._exit(0)
