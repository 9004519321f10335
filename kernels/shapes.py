"""ModelShape: the geometry of a decoder, and the KV bytes, FLOPs and weight bytes that follow from it.

Plain Python, no torch: analysis uses the same formulas as the bench. Byte counts are payload (no allocator rounding),
a KiB is 1024 bytes, a FLOP is one multiply or one add.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

Layout = Literal["layer_split", "layer_joined", "cross_layer"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)

DTYPE_BYTES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
}


@dataclass(frozen=True)
class ModelShape:
    """Geometry of a dense decoder-only transformer.

    Attributes
    ----------
    name : str
        Key in `SHAPES`.
    layers, hidden, heads, kv_heads, head_dim, ffn, vocab : int
        Sizes as the model's `config.json` gives them; `kv_heads < heads` is grouped-query attention.
    mlp : {"gated", "plain"}
        Gated: three matrices and SiLU (Llama). Plain: two matrices and ReLU (OPT).
    norm : {"rms", "layer"}
        Normalisation before attention, before the MLP and before the LM head.
    positions : {"rotary", "learned"}
        Rotary turns q and k in each layer; learned adds a table to the embedding.
    biases : bool
        Every linear layer but the LM head has a bias.
    qk_norm : bool
        RMS norm over `head_dim` of q and k before the rotation (Qwen3).
    tied_head : bool
        The LM head is the embedding matrix.
    max_positions : int
        Longest sequence the model was made for, in tokens; see `can_compute`.
    swap_only : str
        Why no prefill of it can be computed here: the sizes are those of its KV cache only (`kernels.hf_config`).
    one_tensor : bool
        A layer keeps one tensor, not K and V apart (latent attention): `layer_split` is `layer_joined`.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    mlp: Literal["gated", "plain"] = "gated"
    norm: Literal["rms", "layer"] = "rms"
    positions: Literal["rotary", "learned"] = "rotary"
    biases: bool = False
    qk_norm: bool = False
    tied_head: bool = False
    max_positions: int = 8192
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5
    swap_only: str = ""
    one_tensor: bool = False

    def __post_init__(self) -> None:
        for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "max_positions"):
            if getattr(self, field) < 1:
                raise ValueError(f"{self.name}: {field} is {getattr(self, field)}; it must be 1 or more")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.name}: {self.heads} heads cannot share {self.kv_heads} KV heads evenly")

    @property
    def q_width(self) -> int:
        """Width of the query projection, elements a token."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of the key (or the value) projection, elements a token and layer."""
        return self.kv_heads * self.head_dim

    @property
    def mlp_matrices(self) -> int:
        """Matrices of size hidden x ffn in one MLP."""
        return 3 if self.mlp == "gated" else 2

    def can_compute(self, tokens: int) -> bool:
        """Whether a sequence of `tokens` tokens has positions.

        Learned ones end with their table. Rotary ones are computed for any place: beyond what it was made for a model
        writes nonsense, in the same time.
        """
        return self.positions != "learned" or tokens <= self.max_positions

    def with_layers(self, layers: int) -> ModelShape:
        """The same model cut to its first `layers` layers (0: all of them)."""
        if not 0 <= layers <= self.layers:
            raise ValueError(
                f"--layers {layers}: {self.name} has {self.layers} layers; use 1 to {self.layers}, or 0 for all"
            )
        return replace(self, layers=layers or self.layers)

    def shard(self, tp: int) -> ModelShape:
        """One rank's part under tensor parallelism of degree `tp`.

        Heads, MLP and vocabulary are divided; KV heads are divided and, once there are fewer than ranks, replicated
        (vLLM `get_num_kv_heads`: max(1, kv_heads // tp)).

        Raises
        ------
        ValueError
            If heads, KV heads, ffn or vocab cannot be divided evenly over `tp` ranks.
        """
        if tp < 1:
            raise ValueError(f"tensor parallel degree {tp}; it must be 1 or more")
        for field in ("heads", "ffn", "vocab"):
            if getattr(self, field) % tp:
                raise ValueError(f"{self.name}: {field} {getattr(self, field)} does not divide over {tp} ranks")
        if self.kv_heads % tp and tp % self.kv_heads:
            raise ValueError(f"{self.name}: {self.kv_heads} KV heads neither divide over nor repeat over {tp} ranks")
        return replace(
            self,
            name=self.name if tp == 1 else f"{self.name}-tp{tp}",
            heads=self.heads // tp,
            kv_heads=max(1, self.kv_heads // tp),
            ffn=self.ffn // tp,
            vocab=self.vocab // tp,
        )

    def kv_bytes_per_token(self, dtype: str) -> int:
        """KV bytes a token over all layers: 2 (K and V) x layers x kv_heads x head_dim x element size.

        Source: Kwon et al., SOSP 2023, section 3 (800 KB a token for OPT-13B in FP16).
        """
        return 2 * self.layers * self.kv_width * dtype_bytes(dtype)

    def fragments_per_block(self, layout: Layout) -> int:
        """Contiguous pieces one block consists of: 2 x layers (K and V apart), layers (K beside V), or 1."""
        check_layout(layout)
        split = self.layers if self.one_tensor else 2 * self.layers
        return {"layer_split": split, "layer_joined": self.layers, "cross_layer": 1}[layout]

    def fragment_bytes(self, layout: Layout, block_size: int, dtype: str) -> int:
        """Bytes of one contiguous piece of a block of `block_size` tokens.

        vLLM V0 to 0.11 allocates K and V apart for each layer (`csrc/cache_kernels.cu: swap_blocks`), FlashInfer
        K beside V, vLLM 0.12 and later all layers of a block together (vLLM PR #27743).
        """
        if block_size < 1:
            raise ValueError(f"block_size {block_size}; it must be 1 token or more")
        return self.kv_bytes_per_token(dtype) * block_size // self.fragments_per_block(layout)

    @property
    def layer_parameters(self) -> int:
        """Matrix elements of one layer: Q, K, V and output projections, and the MLP. Norms and biases are left out."""
        attention = self.hidden * (2 * self.q_width + 2 * self.kv_width)
        return attention + self.mlp_matrices * self.hidden * self.ffn

    def linear_flops(self, tokens: int) -> int:
        """FLOPs of the layers' matrix products: 2 a parameter and token (Kaplan et al., 2020, section 2.1)."""
        return 2 * self.layers * self.layer_parameters * tokens

    def attention_flops(self, tokens: int, cached: int = 0) -> int:
        """FLOPs of causal attention: Q K^T and P V over the pairs the mask keeps.

        A full square costs 4 x tokens^2 x q_width a layer and the causal half of it is counted, as FlashAttention's own
        benchmark does (Dao, 2023, section 4.1). `cached` tokens before the new ones are seen by every new token.
        """
        return self.layers * self.q_width * (2 * tokens * tokens + 4 * tokens * cached)

    def head_flops(self, positions: int = 1) -> int:
        """FLOPs of the LM head for `positions` tokens: a serving engine needs the last one only."""
        return 2 * self.vocab * self.hidden * positions

    def prefill_flops(self, tokens: int, cached: int = 0) -> int:
        """FLOPs of a prefill of `tokens` new tokens: linear layers, causal attention, LM head on the last token."""
        return self.linear_flops(tokens) + self.attention_flops(tokens, cached) + self.head_flops()

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of the matrices that a prefill reads: layers and LM head.

        The embedding table is left out (a few of its rows are read), and so are norms, biases and learned positions
        (under 0.1 % of the sum).
        """
        return (self.layers * self.layer_parameters + self.vocab * self.hidden) * dtype_bytes(dtype)

    def prefill_memory_bytes(self, tokens: int, dtype: str) -> int:
        """Bytes that a prefill moves at least between memory and chip: weights read once, K and V written and read.

        Activations are left out: a chip with large caches and fused kernels need not write them.
        """
        return self.weight_bytes(dtype) + 2 * tokens * self.kv_bytes_per_token(dtype)

    def flops_per_kv_byte(self, dtype: str) -> float:
        """Linear FLOPs spent to produce one byte of KV cache: what a link must beat. Depends on no machine."""
        return self.linear_flops(1) / self.kv_bytes_per_token(dtype)


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element; ValueError names the known dtypes."""
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


def check_layout(layout: str) -> None:
    """ValueError naming the known layouts unless `layout` is one of them."""
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}; known: {', '.join(LAYOUTS)}")


def find(name: str) -> ModelShape:
    """The shape called `name`; ValueError lists the known ones."""
    if name not in SHAPES:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(SHAPES)}")
    return SHAPES[name]


def register(shape: ModelShape) -> str:
    """Make a shape known under its name for this process, and return the name.

    Raises
    ------
    ValueError
        If the name belongs to another shape: two models under one name would be joined in result files.
    """
    known = SHAPES.setdefault(shape.name, shape)
    if known != shape:
        raise ValueError(f"{shape.name} is the name of another model; rename the file or its folder")
    return shape.name


# Sources: the config.json that each model's publisher ships (meta-llama/Meta-Llama-3-8B and -70B, facebook/opt-13b,
# Qwen/Qwen3-8B, mistralai/Mistral-7B-v0.3).
SHAPES: dict[str, ModelShape] = {
    shape.name: shape
    for shape in (
        ModelShape("llama-3-8b", layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256),
        ModelShape("llama-3-70b", layers=80, hidden=8192, heads=64, kv_heads=8, head_dim=128, ffn=28672, vocab=128256),
        ModelShape(
            "opt-13b",
            layers=40,
            hidden=5120,
            heads=40,
            kv_heads=40,
            head_dim=128,
            ffn=20480,
            vocab=50272,
            mlp="plain",
            norm="layer",
            positions="learned",
            biases=True,
            tied_head=True,
            max_positions=2048,
        ),
        ModelShape(
            "qwen3-8b",
            layers=36,
            hidden=4096,
            heads=32,
            kv_heads=8,
            head_dim=128,
            ffn=12288,
            vocab=151936,
            qk_norm=True,
            max_positions=40960,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
        ),
        ModelShape(
            "mistral-7b",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            head_dim=128,
            ffn=14336,
            vocab=32768,
            max_positions=32768,
            rope_theta=1_000_000.0,
        ),
    )
}
