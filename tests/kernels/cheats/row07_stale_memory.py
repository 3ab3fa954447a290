"""Hands out memory that it never wrote, hoping that the reference's result was there."""

import torch


def run(x, eps):
    return torch.empty_like(x)
