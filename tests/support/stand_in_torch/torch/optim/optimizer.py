from collections.abc import Callable
from typing import Any

_HOOKS: list[Callable[..., Any]] = []


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> None:
    _HOOKS.append(hook)


class Optimizer:
    def step(self) -> None:
        for hook in _HOOKS:
            hook(self, (), {})
