"""The chunked form of linear recurrences, used by Mamba-2, the delta rule and linear attention."""

from forerun.spaces.models.parts import Contraction, Scan, Width


def chunked(
    *, heads: int, key_heads: int, key_dim: int, value_dim: int, chunk: int, delta: bool = False, state_passes: int = 2
) -> Scan:
    """Return the scan of ``heads`` recurrences with states of ``key_dim x value_dim``.

    Per chunk of C tokens (arXiv 2405.21060, section 6): scores ``[C, C]`` of queries and keys (once per key head, of
    which there are ``key_heads``), their product with the values, the chunk's contribution to the state, and the read
    of the preceding state. The delta rule (arXiv 2412.06464, section 3) adds products of keys with keys, and products
    with the inverse of this triangular matrix for its two corrected operands.

    ``state_passes``: number of reads and writes of the states of chunks, in 16-bit values (2: one write and one read).
    """
    head, shared, each = Width(count=heads), Width(count=key_heads), 1.0 / chunk
    products = [
        Contraction(units=shared, per_token=each, m=chunk, n=chunk, k=key_dim),
        Contraction(units=head, per_token=each, m=chunk, n=value_dim, k=chunk),
        Contraction(units=head, per_token=each, m=key_dim, n=value_dim, k=chunk),
        Contraction(units=head, per_token=each, m=chunk, n=value_dim, k=key_dim),
    ]
    if delta:
        products += [
            Contraction(units=shared, per_token=each, m=chunk, n=chunk, k=key_dim),
            Contraction(units=head, per_token=each, m=chunk, n=key_dim + value_dim, k=chunk),
            Contraction(units=head, per_token=each, m=chunk, n=value_dim, k=key_dim),
        ]
    state = key_dim * value_dim
    moved = 2 * value_dim + 2 * max(key_dim * key_heads // heads, 1) + state_passes * state // chunk
    return Scan(
        contractions=tuple(products),
        traffic=Width(count=heads, each=moved * (2 if delta else 1)),
        state=Width(count=heads, each=state),
    )
