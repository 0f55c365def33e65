"""Profiles and networks that tests of training modes share: round numbers, so that expected values are seen at once."""

from forerun.simulator.modes import GradientLayer, GradientProfile, NicNetwork

RATE = 1e9


def one_tensor(*, parameter_bytes: float = 100e6, update_s: float = 0.0, batch: float = 32) -> GradientProfile:
    """0.03 s forward, 0.06 s backward, one tensor."""
    layer = GradientLayer(name="all", parameter_bytes=parameter_bytes, forward_s=0.03, backward_s=0.06)
    return GradientProfile(name="one", layers=(layer,), batch=batch, update_s=update_s)


def ten_layers(*, update_s: float = 0.0, host_s: float = 0.0) -> GradientProfile:
    """1 to 10 MB per layer (55 MB), 0.1 s forward, 0.2 s backward."""
    layers = tuple(
        GradientLayer(name=f"layer {number}", parameter_bytes=(1 + number) * 1e6, forward_s=0.01, backward_s=0.02)
        for number in range(10)
    )
    return GradientProfile(name="ten", layers=layers, batch=32, update_s=update_s, host_s=host_s)


def nics(*, worker: float = RATE, server: float = RATE, latency_s: float = 0.0) -> NicNetwork:
    """NICs of 1 GB/s."""
    return NicNetwork(worker_bytes_per_s=worker, server_bytes_per_s=server, latency_s=latency_s)
