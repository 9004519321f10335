"""What attention layers keep of a token, layer by layer: KV bytes of models whose layers are not all alike.

Plain Python, no torch. `shapes.ModelShape` is the model our prefill computes; `KvModel` is any model whose KV cache has
a size: grouped, multi-query and latent attention, sliding windows, and hybrids with layers that keep no KV at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernels.shapes import Layout, ModelShape, check_layout, dtype_bytes

# One token and layer of vLLM's `fp8_ds_mla` cache: 512 latent elements in FP8, 4 scales in float32, and 64 rotary
# elements in bfloat16 (vLLM, csrc/cache_kernels.cu: concat_and_cache_ds_mla). It exists for this width only.
FP8_DS_MLA = "fp8_ds_mla"
FP8_DS_MLA_WIDTH, FP8_DS_MLA_BYTES = 576, 512 + 4 * 4 + 64 * 2


class ConfigError(ValueError):
    """A model whose KV cache cannot be told from its config; one line that names the field."""


@dataclass(frozen=True)
class KvLayer:
    """What one attention layer keeps of a token.

    Attributes
    ----------
    kv_heads : int
        Heads of K (and of V); 1 for a latent.
    width : int
        Elements a head: `head_dim`, or a latent's rank and its rotary part together.
    window : int or None
        Tokens after which the layer keeps no more; None if it grows with the sequence.
    latent : bool
        One tensor that all heads share (MLA), not K and V.
    side_bytes : int
        Further bytes a token, whatever the element type: keys of a sparse indexer.
    """

    kv_heads: int
    width: int
    window: int | None = None
    latent: bool = False
    side_bytes: int = 0

    @property
    def tensors(self) -> int:
        """K and V, or the one latent."""
        return 1 if self.latent else 2

    def bytes_per_token(self, dtype: str, tp: int = 1) -> int:
        """Bytes a token on one of `tp` ranks; a latent is whole on each of them.

        Raises
        ------
        ValueError
            For an unknown dtype, or heads that neither divide over the ranks nor repeat on them.
        """
        heads = self.heads_of_rank(tp)
        if dtype != FP8_DS_MLA:
            return self.tensors * heads * self.width * dtype_bytes(dtype) + self.side_bytes
        if not self.latent or self.width != FP8_DS_MLA_WIDTH:
            raise ValueError(f"{FP8_DS_MLA} is a cache of latents of {FP8_DS_MLA_WIDTH} elements only")
        return FP8_DS_MLA_BYTES + self.side_bytes

    def heads_of_rank(self, tp: int) -> int:
        """KV heads of one rank: divided, and replicated where there are fewer than ranks (vLLM `get_num_kv_heads`).

        A latent is one head: every rank has the whole of it.
        """
        if tp < 1:
            raise ValueError(f"tensor parallel degree {tp}; it must be 1 or more")
        if self.kv_heads % tp and tp % self.kv_heads:
            raise ValueError(f"{self.kv_heads} KV heads neither divide over nor repeat over {tp} ranks")
        return max(1, self.kv_heads // tp)


@dataclass(frozen=True)
class KvModel:
    """The KV cache of a model, and the shape to compute it with where that can be done here.

    Attributes
    ----------
    kv : tuple of KvLayer
        Attention layers that hold KV, in order. Layers of linear attention and layers that read
        another's KV are not here.
    dtype : str or None
        Element type of the weights, as the config says; None if it does not.
    kv_dtype : str or None
        Element type of the KV cache: what a scheme for the cache says, else `dtype`. The quantization of weights says
        nothing of it.
    draft_layers : int
        Further layers that predict tokens ahead (MTP); they hold KV only where an engine runs them.
    shape : ModelShape or None
        What `kernels.transformer` can compute.
    cannot_compute : str
        Why `shape` is None.
    notes : tuple of str
        What the figures leave out or assume.
    """

    name: str
    kv: tuple[KvLayer, ...]
    dtype: str | None = None
    kv_dtype: str | None = None
    draft_layers: int = 0
    shape: ModelShape | None = None
    cannot_compute: str = ""
    notes: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        """Attention layers that hold KV."""
        return len(self.kv)

    @property
    def is_uniform(self) -> bool:
        """All layers keep the same number of bytes in the same number of pieces; windows may differ."""
        return len({(layer.kv_heads, layer.width, layer.latent, layer.side_bytes) for layer in self.kv}) == 1

    def kv_bytes_per_token(self, dtype: str, tp: int = 1, draft: bool = False) -> int:
        """Bytes a token that an engine allocates on one of `tp` ranks: all layers, windowed ones too.

        vLLM gives every layer of gpt-oss the same blocks (hf-mem#60). `draft` adds the layers that predict ahead, each
        like the last layer.
        """
        return self._sum(self.kv + (self.kv[-1:] * self.draft_layers if draft else ()), dtype, tp)

    def kv_bytes_per_token_growing(self, dtype: str, tp: int = 1) -> int:
        """Bytes a token by which the cache still grows once every window is full."""
        return self._sum((layer for layer in self.kv if layer.window is None), dtype, tp)

    def fragments_per_block(self, layout: Layout) -> int:
        """Contiguous pieces one block consists of; a latent is one piece, where K and V are two."""
        check_layout(layout)
        pieces = {"layer_split": sum(layer.tensors for layer in self.kv), "layer_joined": self.layers}
        return pieces.get(layout, 1)

    def fragment_bytes(self, layout: Layout, block_size: int, dtype: str, tp: int = 1) -> int | None:
        """Bytes of one contiguous piece of a block; None where pieces differ from layer to layer."""
        if block_size < 1:
            raise ValueError(f"block_size {block_size}; it must be 1 token or more")
        whole, pieces = self.kv_bytes_per_token(dtype, tp) * block_size, self.fragments_per_block(layout)
        alike = self.is_uniform and not self.kv[0].side_bytes
        return whole // pieces if alike or layout == "cross_layer" else None

    def swap_shape(self) -> ModelShape:
        """A shape whose blocks can be copied: `shape`, else one with the same bytes and pieces and no weights.

        A latent becomes a K and a V of half its width that only lie side by side (`ModelShape.one_tensor`).

        Raises
        ------
        ConfigError
            If layers differ in what they keep, so that no uniform pool is like them.
        """
        if self.shape:
            return self.shape
        first = self.kv[0]
        if not self.is_uniform or first.side_bytes or (first.latent and first.width % 2):
            raise ConfigError(f"{self.name}: cannot be swapped here: what a layer keeps is not K and V of one size")
        return ModelShape(
            self.name,
            layers=self.layers,
            hidden=1,
            heads=first.kv_heads,
            kv_heads=first.kv_heads,
            head_dim=first.width * first.tensors // 2,
            ffn=1,
            vocab=1,
            swap_only=self.cannot_compute,
            one_tensor=first.latent,
        )

    def _sum(self, layers: Iterable[KvLayer], dtype: str, tp: int) -> int:
        try:
            return sum(layer.bytes_per_token(dtype, tp) for layer in layers)
        except ValueError as error:
            raise ConfigError(f"{self.name}: {error}") from error
