"""What a kernel spends its time on: counters, in-kernel traces and compiled code, and one diagnosis."""
