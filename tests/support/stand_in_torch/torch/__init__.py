"""A stand-in for the few calls of PyTorch that recording makes: tests need no PyTorch, and steps that take no time."""

from torch import optim, profiler

__all__ = ["cuda", "optim", "profiler"]


class cuda:  # PyTorch's own name
    @staticmethod
    def is_available() -> bool:
        return False
