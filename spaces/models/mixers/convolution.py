"""Two-dimensional convolutions over an image (LeCun et al. 1998), as products over the positions of their output.

A convolution with a kernel of k x k positions is a product of k*k*inputs columns by outputs columns at every position
of its output (im2col); a depthwise convolution is a pass over memory. Normalisation and activation follow.
"""

from dataclasses import dataclass

from forerun.spaces.models.mixers.recurrences import elementwise
from forerun.spaces.models.parts import ElementwisePass, Kept, Product, Step, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One convolution: channels before and after, and positions of its kernel (``taps``).

    ``groups``: groups of channels that are convolved separately. ``norm``: vectors of the normalisation before the
    activation (2: scale and bias; 0: no normalisation or activation).
    """

    inputs: int
    outputs: int
    taps: int = 1
    groups: int = 1
    bias: bool = False
    norm: int = 2

    @property
    def depthwise(self) -> bool:
        """Whether every channel is convolved alone."""
        return self.groups == self.inputs == self.outputs > 1

    def steps(self) -> tuple[Step, ...]:
        """List the product, or a pass that reads and writes every channel, and the normalisation."""
        made = uncut(self.outputs)
        one: Step = Product(inputs=uncut(self.taps * self.inputs), outputs=(made,), bias=self.bias, blocks=self.groups)
        if self.depthwise:
            one = elementwise(channels=self.outputs, state=0, tensors=2)
        after = [ElementwisePass(form=form, widths=(made,)) for form in ("layernorm", "gelu") if self.norm]
        return (one, *after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutions:
    """Convolutions of one block with outputs of one resolution, in execution order, replicated over tensor ranks.

    ``extra``: further parameters (scales of layers, squeezed channels).
    """

    members: tuple[Convolution, ...]
    extra: int = 0
    name: str = "convolution"

    @property
    def heads(self) -> int:
        """Return 1: tensor parallelism does not shard it."""
        return 1

    @property
    def kv_heads(self) -> int:
        """Return 1: tensor parallelism does not shard it."""
        return 1

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List the convolutions in order."""
        return tuple(step for member in self.members for step in member.steps())

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count norms, and the kernels of depthwise convolutions."""
        replicated = self.extra
        for one in self.members:
            kernel = one.taps + (1 if one.bias else 0) if one.depthwise else 0
            replicated += one.outputs * (one.norm + kernel)
        return 0, replicated

    def kept(self, hidden: int) -> Kept:
        """List the input of the first convolution, and the output of each before and after its norm."""
        last = self.members[-1]
        inner = [uncut(one.outputs) for one in self.members for _ in range(2 if one.norm else 1)]
        return Kept(inner=(uncut(self.members[0].inputs), *inner), last=uncut(last.inputs))
