"""Small requests that several tests build on."""

from forerun.spaces.clusters.cluster import Cluster, Level
from forerun.spaces.clusters.device import Device
from forerun.spaces.frameworks import load_framework
from forerun.spaces.models.model import Attention, FeedForward, Layer, MixtureOfExperts, Model
from forerun.spaces.strategies import COLUMNS, Context, parse_strategy, table_of, violations
from forerun.spaces.workload import Workload


def small_device(**changes: object) -> Device:
    """Return an H100-like device."""
    facts: dict[str, object] = {
        "name": "h100-sxm",
        "title": "test device",
        "vendor": "NVIDIA",
        "architecture": "hopper",
        "memory_bytes": 80e9,
        "memory_bytes_per_s": 3.35e12,
        "peak_flops_per_s": {"bf16": 989e12, "fp16": 989e12},
        "compute_units": 132,
        "matmul_ceiling": {"bf16": 0.8},
        "memory_efficiency": 0.8,
        "watts": 700.0,
        "usd_per_hour": None,
        "source": "test",
    }
    return Device(**(facts | changes))  # type: ignore[arg-type]


def small_cluster(device: Device | None = None, *, scale_up: float = 450e9, network: float = 50e9) -> Cluster:
    """Return nodes of eight devices on a full-bisection network."""
    inside = Level(
        name="node", size=8, kind="nvswitch", bytes_per_s=scale_up, port_bytes_per_s=scale_up, latency_s=1e-6
    )
    across = Level(
        name="net", size=4096, kind="infiniband", bytes_per_s=network, port_bytes_per_s=network, latency_s=5e-6
    )
    return Cluster(
        name="test",
        title="test cluster",
        device=device or small_device(),
        devices_per_node=8,
        max_devices=4096,
        levels=(inside, across),
        host={},
        source="test",
    )


def dense_model(*, layers: int = 24, heads: int = 16, kv_heads: int = 8, tied: bool = False) -> Model:
    """Return a small Llama-like model."""
    attention = Attention(heads=heads, kv_heads=kv_heads, head_dim=64, value_head_dim=64)
    layer = Layer(name="decoder", count=layers, mixer=attention, mlp=FeedForward(hidden=heads * 256, gated=True))
    return Model(name="small", source="test", hidden=heads * 64, vocab=32000, layers=(layer,), tied_embeddings=tied)


def moe_model(*, layers: int = 24, experts: int = 16) -> Model:
    """Return a small mixture with two dense layers first."""
    attention = Attention(heads=16, kv_heads=16, head_dim=64, value_head_dim=64)
    dense = Layer(name="dense", count=2, mixer=attention, mlp=FeedForward(hidden=4096, gated=True))
    mixture = MixtureOfExperts(experts=experts, top_k=2, expert_hidden=1024, gated=True, shared_hidden=1024)
    return Model(
        name="small-moe",
        source="test",
        hidden=1024,
        vocab=32000,
        layers=(dense, Layer(name="moe", count=layers - 2, mixer=attention, mlp=mixture)),
    )


def request(
    model: Model | None = None,
    *,
    framework: str = "megatron-lm",
    global_batch: int = 64,
    seq_len: int = 2048,
    cluster: Cluster | None = None,
) -> Context:
    """Return a whole request."""
    return Context(
        model=model or dense_model(),
        cluster=cluster or small_cluster(),
        workload=Workload(global_batch=global_batch, seq_len=seq_len),
        framework=load_framework(framework),
    )


def broken_laws(context: Context, text: str) -> dict[str, str]:
    """Return the messages of the laws that a strategy breaks, by code; a last word ``gpus=N`` replaces its devices."""
    text, _, gpus = text.partition(" gpus=")
    table = table_of([parse_strategy(text)])
    values = {axis: int(table.column(axis)[0]) for axis in COLUMNS}
    return dict(violations(values | ({"gpus": int(gpus)} if gpus else {}), context))
