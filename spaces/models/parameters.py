"""Parameter counts of a model, in total and by the degree that shards them."""

from dataclasses import dataclass

from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts, Model
from forerun.spaces.models.parts import Mixer, biases, matrices


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParameters:
    """The parameters of one layer (not multiplied by its count), by the degree that shards them."""

    mixer: int
    """Projections (self and cross) and the biases of column-parallel ones, sharded over tensor ranks."""
    mlp_dense: int
    """The dense MLP, or the shared experts that every token visits, sharded over tensor ranks."""
    experts_total: int
    """All routed experts with their biases, sharded over expert and expert-tensor ranks."""
    router: int
    """Matrix and bias of the router, replicated over tensor and expert ranks."""
    replicated: int
    """Parameters replicated over tensor ranks. Replicated are norms, biases of row-parallel projections, the gate of
    shared experts, and the down-projections of latent attention (``parallel_mode="duplicate"`` in Megatron-LM)."""

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        return self.mixer + self.mlp_dense + self.experts_total + self.router + self.replicated


def mixer_parameters(mixer: Mixer, hidden: int) -> tuple[int, int]:
    """Count matrices, biases and vectors of one mixer: (tensor-sharded, replicated)."""
    steps = mixer.steps(hidden)
    kinds = (matrices(steps), biases(steps), mixer.vectors(hidden))
    return sum(cut for cut, _ in kinds), sum(replicated for _, replicated in kinds)


def mlp_matrices(mlp: FeedForward, hidden: int) -> int:
    """Count elements of the matrices of a dense MLP: three if gated, otherwise two."""
    return (3 if mlp.gated else 2) * hidden * mlp.hidden


def expert_matrices(mixture: MixtureOfExperts, hidden: int) -> int:
    """Count elements of the matrices of one routed expert."""
    return (3 if mixture.gated else 2) * mixture.width(hidden) * mixture.expert_hidden


def _all_experts(mixture: MixtureOfExperts, hidden: int) -> int:
    """Count parameters of all routed experts, including those that other tokens visit."""
    other = (3 if mixture.gated else 2) * mixture.width(hidden) * mixture.unvisited
    return mixture.experts * _expert_parameters(mixture, hidden) + other


def shared_expert_matrices(mixture: MixtureOfExperts, hidden: int) -> int:
    """Count elements of the matrices of all shared experts of one layer."""
    return (3 if mixture.gated else 2) * hidden * mixture.shared_hidden


def _expert_parameters(mixture: MixtureOfExperts, hidden: int) -> int:
    bias = (2 if mixture.gated else 1) * mixture.expert_hidden + mixture.width(hidden) if mixture.expert_bias else 0
    return expert_matrices(mixture, hidden) + bias


def layer_parameters(layer: Layer, hidden: int) -> LayerParameters:
    """Count parameters of one ``layer`` of a model of width ``hidden``, by kind (not multiplied by ``layer.count``)."""
    hidden = layer.hidden or hidden
    if layer.shared_weights:
        return LayerParameters(mixer=0, mlp_dense=0, experts_total=0, router=0, replicated=layer.extra)
    mixer, replicated = 0, layer.norms * _norm(hidden, layer.norm_bias) + layer.extra
    if layer.attends:
        for one in (layer.mixer, layer.cross_attention):
            cut, copied = (0, 0) if one is None else mixer_parameters(one, hidden)
            mixer, replicated = mixer + cut, replicated + copied
    mlp = layer.mlp
    if mlp is None or not layer.feeds_forward:
        return LayerParameters(mixer=mixer, mlp_dense=0, experts_total=0, router=0, replicated=replicated)
    if isinstance(mlp, FeedForward):
        dense, bias = mlp_matrices(mlp, hidden), biases(mlp.steps(hidden))
        return LayerParameters(
            mixer=mixer, mlp_dense=dense + bias[0], experts_total=0, router=0, replicated=replicated + bias[1]
        )
    latent = matrices(mlp.latent_products(hidden))[1]
    return LayerParameters(
        mixer=mixer,
        mlp_dense=shared_expert_matrices(mlp, hidden),
        experts_total=_all_experts(mlp, hidden),
        router=router_parameters(mlp, hidden),
        replicated=replicated + latent + (hidden if mlp.shared_gate else 0),
    )


def router_parameters(mixture: MixtureOfExperts, hidden: int) -> int:
    """Count parameters of the router, including its choices of null experts."""
    choices = mixture.experts + mixture.null_experts
    return choices * hidden + (choices if mixture.router_bias else 0) + mixture.router_extra


def mtp_block_parameters(model: Model) -> LayerParameters:
    """Count parameters of one multi-token-prediction block.

    The block is a layer like the last one, with a ``2*hidden -> hidden`` projection (in ``mlp_dense``) and three norms
    (DeepSeek-V3, arXiv 2412.19437, section 2.2); embedding and head are shared.
    """
    last, hidden = model.layers[-1], model.hidden
    layer = layer_parameters(last, hidden)
    return LayerParameters(
        mixer=layer.mixer,
        mlp_dense=layer.mlp_dense + 2 * hidden * hidden,
        experts_total=layer.experts_total,
        router=layer.router,
        replicated=layer.replicated + 3 * _norm(hidden, last.norm_bias),
    )


def embedding_parameters(model: Model) -> int:
    """Count parameters before the first layer: token, position and type tables, their norm, the patch projection.

    The token table has ``model.vocab * model.table_width`` of them; tensor ranks shard it and replicate the rest.
    """
    width = model.table_width
    rows = model.vocab + model.learned_positions + model.token_types
    projection = 0 if model.embedding_width is None else (width + 1) * model.hidden
    patch = (model.patch_inputs + 1) * model.hidden if model.patch_inputs else 0
    norm = _norm(width, model.layers[0].norm_bias) if model.embedding_norm else 0
    return rows * width + projection + patch + norm + model.embedding_extra


def head_parameters(model: Model) -> int:
    """Count parameters after the last layer: final norm, head transform, vocabulary projection, classifier with bias.

    A tied vocabulary projection counts 0, since it is the embedding. (The last pipeline stage has a copy.)
    """
    hidden = model.hidden
    count = _norm(hidden, model.final_norm_bias) if model.final_norm else 0
    if model.head_transform:
        # A dense layer with bias and a norm like those of the layers (BERT, arXiv 1810.04805, released code).
        width = model.table_width
        count += hidden * width + width + _norm(width, model.layers[-1].norm_bias)
    if not model.tied_embeddings:
        count += model.vocab * hidden
    if model.lm_head_bias:
        count += model.vocab
    if model.classes:
        count += model.classes * (hidden + 1)
    return count


def parameter_count(model: Model, *, mtp: bool = True) -> int:
    """Count all parameters of ``model``; ``mtp=False`` omits multi-token-prediction blocks.

    Published counts omit these blocks (DeepSeek-V3: 671 B without, 682.5 B with the unique parameters of its block; the
    685 B of its checkpoint include a copy of embedding and head).
    """
    layers = sum(layer.count * layer_parameters(layer, model.hidden).total for layer in model.layers)
    blocks = model.mtp_layers * mtp_block_parameters(model).total if mtp else 0
    return embedding_parameters(model) + layers + blocks + head_parameters(model) + model.extra_parameters


def active_parameters(model: Model, *, mtp: bool = True) -> int:
    """Count parameters that one token visits: ``top_k`` of the experts, and all others including the embedding.

    This is the convention of "37 B active" (DeepSeek-V3, without its MTP block) and "12.9 B" (Mixtral 8x7B).
    """
    idle = sum(layer.count * _idle_parameters(layer, model.hidden) for layer in model.layers)
    if mtp and model.mtp_layers:
        idle += model.mtp_layers * _idle_parameters(model.layers[-1], model.hidden)
    return parameter_count(model, mtp=mtp) - idle


def _idle_parameters(layer: Layer, hidden: int) -> int:
    if not isinstance(layer.mlp, MixtureOfExperts) or not layer.feeds_forward:
        return 0
    hidden = layer.hidden or hidden
    return (layer.mlp.experts - layer.mlp.top_k) * _expert_parameters(layer.mlp, hidden)


def _norm(hidden: int, bias: bool) -> int:
    return 2 * hidden if bias else hidden
