"""ResNet-50 as ParaDL's ``.net`` file describes it: 226 x 226 images, strides in the first convolution of a stage, no
projections, a norm and an activation behind every convolution. Its sums are the published ones."""

SAMPLES = 1_280_000
SECONDS_PER_SAMPLE = 3.119502e-3


def resnet50_net() -> str:
    """Return the text of the file."""
    lines = [f"ImageNet {SAMPLES}", "1x3x226x226", "ResNet-50"]

    def extents(*shape: int) -> str:
        return "(" + ",".join(map(str, shape)) + ")"

    def convolution(name: str, channels: int, filters: int, window: int, before: int, behind: int) -> None:
        weight, output = extents(channels, filters, window, window), extents(filters, behind, behind)
        lines.append(f"CONV{name}, {extents(channels, before, before)}, {weight}, {output}")
        lines.extend(f"{kind}{name}, {output}, {output}" for kind in ("BNORM", "RELU"))

    convolution("1", 3, 64, 7, 226, 113)
    lines.append("MPOOL1, (64,113,113), (64,64,3,3), (64,56,56)")
    channels, extent = 64, 56
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            before, extent = extent, extent // 2 if stage and not block else extent
            name = f"{stage + 2}_{block}"
            convolution(f"{name}a", channels, width, 1, before, extent)
            convolution(f"{name}b", width, width, 3, extent, extent)
            convolution(f"{name}c", width, 4 * width, 1, extent, extent)
            channels = 4 * width
            shape = extents(channels, extent, extent)
            lines.append(f"ADD{name}, {shape}, {shape}")
    lines.append("APOOL1, (2048,7,7), (2048,2048,7,7), (2048,1,1)")
    lines.append("FC1, (2048,1,1), (2048,1000,1,1), (1000,1,1)")
    return "\n".join(lines) + "\n"
