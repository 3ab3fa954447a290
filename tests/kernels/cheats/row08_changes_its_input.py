"""Normalises in place, so that its next call finds the work done."""


def run(x, eps, y):
    normalise(x, eps, y)
    normalise(x, eps, x)
