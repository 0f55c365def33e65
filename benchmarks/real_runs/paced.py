"""Small models that really train, at the pace of a device that does not exist.

A model is a list of stages. Every stage's passes are computed (torch, one thread) and then waited for until a planned
time has gone by, a multiple of what they take here. So four processes on two cores get in each other's way no more than
four machines would, and the network sees what it would see: gradients of the right size at the right moments.
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

BATCH = 8
CLASSES = 10
WORDS, WIDTH, LENGTH = 512, 96, 16


class Block(nn.Module):
    """A transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def convolutional() -> tuple[list[nn.Module], Tensor, Tensor]:
    """Return stages, input and labels of a small network with most parameters at its end (1.0 MB), as VGG has."""
    stages: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()),
        nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(64 * 16, 176), nn.ReLU()),
        nn.Linear(176, CLASSES),
    ]
    return stages, torch.randn(BATCH, 3, 32, 32), torch.randint(CLASSES, (BATCH,))


def transformer() -> tuple[list[nn.Module], Tensor, Tensor]:
    """Return stages, input and labels of a small language model with even layers (2.2 MB)."""
    stages: list[nn.Module] = [nn.Embedding(WORDS, WIDTH), *(Block() for _ in range(4))]
    stages.append(nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS), nn.Flatten(0, 1)))
    return stages, torch.randint(WORDS, (BATCH, LENGTH)), torch.randint(WORDS, (BATCH * LENGTH,))


MODELS: dict[str, Callable[[], tuple[list[nn.Module], Tensor, Tensor]]] = {
    "cnn": convolutional,
    "transformer": transformer,
}


class PacedModel:
    """A model whose parameters and gradients of each stage lie in one piece of memory, to be sent and received."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.stages, self.input, self.labels = MODELS[name]()
        self.flat = [_flatten(stage) for stage in self.stages]
        self.gradient = [torch.zeros_like(flat) for flat in self.flat]
        for stage, gradient in zip(self.stages, self.gradient, strict=True):
            _bind(stage, gradient)
        self.plan: list[tuple[float, float]] = [(0.0, 0.0)] * len(self.stages)

    def measure(self, times: int) -> list[tuple[float, float]]:
        """Return the quickest forward and backward seconds of every stage, unpaced."""
        runs = [self.step()[:2] for _ in range(times)]
        count = range(len(self.stages))
        return [(min(run[0][i] for run in runs), min(run[1][i] for run in runs)) for i in count]

    def step(
        self,
        before: Callable[[int], None] = lambda stage: None,
        ready: Callable[[int], None] = lambda stage: None,
        slow: float = 1.0,
    ) -> tuple[list[float], list[float]]:
        """Do the passes of one step; return seconds of every forward and backward pass.

        ``before`` is called before a stage's forward pass, ``ready`` when its gradient is there.
        """
        forward_s: list[float] = []
        backward_s = [0.0] * len(self.stages)
        inputs: list[Tensor] = []
        outputs: list[Tensor] = []
        x = self.input
        for number, stage in enumerate(self.stages):
            before(number)
            start_s = time.perf_counter()
            x = x.detach()
            if x.is_floating_point():
                x.requires_grad_()
            inputs.append(x)
            x = stage(x)
            outputs.append(x)
            if number == len(self.stages) - 1:
                outputs.append(nn.functional.cross_entropy(x, self.labels))
            _wait_until(start_s + slow * self.plan[number][0])
            forward_s.append(time.perf_counter() - start_s)
        gradient = None
        loss = outputs.pop()
        for number in reversed(range(len(self.stages))):
            start_s = time.perf_counter()
            self.gradient[number].zero_()
            torch.autograd.backward(loss if gradient is None else outputs[number], gradient)
            gradient = inputs[number].grad
            _wait_until(start_s + slow * self.plan[number][1])
            backward_s[number] = time.perf_counter() - start_s
            ready(number)
        return forward_s, backward_s

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of every stage."""
        return [4 * flat.numel() for flat in self.flat]


def _flatten(stage: nn.Module) -> Tensor:
    parameters = list(stage.parameters())
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    place = 0
    for parameter in parameters:
        parameter.data = flat[place : place + parameter.numel()].view_as(parameter)
        place += parameter.numel()
    return flat


def _bind(stage: nn.Module, gradient: Tensor) -> None:
    place = 0
    for parameter in stage.parameters():
        parameter.grad = gradient[place : place + parameter.numel()].view_as(parameter)
        place += parameter.numel()


def _wait_until(due_s: float) -> None:
    left_s = due_s - time.perf_counter()
    if left_s > 0:
        time.sleep(left_s)
