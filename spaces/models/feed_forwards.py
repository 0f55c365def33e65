"""Feed-forwards: dense, and mixtures of routed experts with shared, null and latent ones."""

from dataclasses import dataclass

from forerun.spaces.models.parts import ElementwisePass, Product, Step, Width, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """A dense MLP, gated (Shazeer, arXiv 2002.05202) or not."""

    hidden: int
    """Inner width."""
    gated: bool
    """Whether it has three matrices in place of two."""
    bias: bool = False

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List the products up (and gate), the activation and the product down; ``hidden``: the model's width."""
        inner, wide = Width(count=self.hidden), uncut(hidden)
        return (
            Product(inputs=wide, outputs=(inner, inner) if self.gated else (inner,), bias=self.bias),
            ElementwisePass(form="swiglu" if self.gated else "gelu", widths=(inner,)),
            Product(inputs=inner, outputs=(wide,), bias=self.bias),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """A mixture of feed-forward networks; each token visits some of them (Shazeer et al., arXiv 1701.06538)."""

    experts: int
    """Number of experts."""
    top_k: int
    """Number of experts that a token visits."""
    expert_hidden: int
    """Inner width of each expert."""
    gated: bool
    """Whether each has three matrices in place of two."""
    shared_hidden: int = 0
    """Total inner width of the experts that every token visits (0: none)."""
    shared_gate: bool = False
    """Whether a sigmoid gate scales their output (Qwen2-MoE)."""
    router_bias: bool = False
    """Whether the router has one bias per expert."""
    expert_bias: bool = False
    """Whether the experts' products have biases."""
    groups: int = 1
    """Number of equally large groups of experts."""
    top_groups: int = 1
    """Number of groups from which a token's experts are chosen. Source: group-limited routing (DeepSeek-V3, arXiv
    2412.19437, section 2.1.2)."""
    null_experts: int = 0
    """Number of the router's choices that compute nothing and return their token. Source: LongCat-Flash (arXiv
    2509.01322, section 2.1)."""
    latent: int = 0
    """Width of the experts' input and output if not the model's; two products for every token (Nemotron 3; 0: none)."""
    router_extra: int = 0
    """Further router parameters."""
    unvisited: int = 0
    """Total inner width of the experts for tokens of another kind (images, ERNIE 4.5 VL)."""

    @property
    def routed_copies(self) -> float:
        """Copies of a token that reach an expert with weights: null experts take an even share of the choices."""
        return self.top_k * self.experts / (self.experts + self.null_experts)

    def width(self, hidden: int) -> int:
        """Return the columns that an expert reads and writes."""
        return self.latent or hidden

    @property
    def shared(self) -> FeedForward | None:
        """The shared experts as one dense network; None for a mixture without any."""
        return FeedForward(hidden=self.shared_hidden, gated=self.gated) if self.shared_hidden else None

    def latent_products(self, hidden: int) -> tuple[Product, ...]:
        """List products to and from the latent width; every tensor rank runs them on its tokens."""
        if not self.latent:
            return ()
        wide, narrow = uncut(hidden), uncut(self.latent)
        return (
            Product(inputs=wide, outputs=(narrow,), own_tokens=True),
            Product(inputs=narrow, outputs=(wide,), own_tokens=True),
        )
