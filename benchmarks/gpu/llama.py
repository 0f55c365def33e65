"""A Llama in plain PyTorch for the probes: grouped queries, rotary positions, RMSNorm, SwiGLU."""

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = {
    "1b": (16, 2048, 8192, 32, 8, 128256),
    "3b": (28, 3072, 8192, 24, 8, 128256),
    "8b": (32, 4096, 14336, 32, 8, 128256),
    "70b": (80, 8192, 28672, 64, 8, 128256),
    "405b": (126, 16384, 53248, 128, 8, 128256),
    "tiny": (2, 256, 512, 4, 2, 1024),
}
"""Layers, width, width of the feed-forward, heads, heads of keys, vocabulary."""


def rotation(seq: int, head_dim: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [seq, head_dim / 2] of the positions."""
    half = head_dim // 2
    steps = 10000.0 ** (-torch.arange(half, device=device).float() / half)
    angles = torch.arange(seq, device=device).float()[:, None] * steps[None]
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).type_as(x)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.head_dim = width // heads
        self.wq = nn.Linear(width, heads * self.head_dim, bias=False)
        self.wk = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(heads * self.head_dim, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, seq, _ = x.shape
        q, k, v = (w(x).view(batch, seq, -1, self.head_dim).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        scores = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(scores.transpose(1, 2).reshape(batch, seq, -1))


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(width, inner, bias=False)
        self.w3 = nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, width: int, inner: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(width), Attention(width, heads, kv_heads)
        self.ffn_norm, self.feed_forward = nn.RMSNorm(width), FeedForward(width, inner)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, layers: int, width: int, inner: int, heads: int, kv_heads: int, vocab: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Block(width, inner, heads, kv_heads) for _ in range(layers))
        self.norm, self.output = nn.RMSNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.output(self.norm(x))
