"""Works on a stream of its own, which events on the current stream do not wait for."""

import torch


def run(x, eps, y):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        normalise(x, eps, y)
