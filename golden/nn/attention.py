"""Multi-head attention in the arithmetic of a policy."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfulp.golden.check import check_dense

from .layers import Computed
from .matmul import bmm, linear


class MultiheadAttention(Computed, nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with matrix products in the arithmetic of a policy; parameters as for `Computed`.

    The projections of queries, keys, values and result are computed as in `Linear`, with their parts of
    ``in_proj_bias``. The products of queries and keys, and of attention weights and values, are computed as in `Bmm`;
    queries are scaled before. Masks, softmax and dropout are those of torch, and so are the names of parameters.

    A query whose scores are all minus infinity, because a mask excludes all keys, has weights of 0 without
    ``need_weights``, and of NaN with it, as in torch. torch's fast path in evaluation, which gives NaN without
    ``need_weights`` too, is not used.
    """

    products = (False, False, False, True, True, False)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return result and attention weights; arguments as for `torch.nn.MultiheadAttention`."""
        if self._plain:
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        for name, x in (("query", query), ("key", key), ("value", value)):
            check_dense(name, x)
        if is_causal and attn_mask is None:
            raise ValueError("is_causal needs attn_mask: it is only a hint about that mask")
        batched = query.dim() == 3
        # The batch is the first dimension from here on.
        q, k, v = self._batches(query, key, value)
        # Like torch, which then ignores the mask.
        hinted = is_causal and key_padding_mask is None and not need_weights
        mask = None if hinted else self._mask(attn_mask, key_padding_mask, q, k, batched)
        q, k, v = self._projected(q, k, v)
        q, k, v, mask = self._by_head(q, k, v, mask)
        if hinted:
            shape = (q.shape[-2], k.shape[-2])
            mask = _additive("is_causal", torch.ones(shape, dtype=torch.bool, device=q.device).triu(1), q.dtype)
        scores = bmm(q * math.sqrt(1.0 / self.head_dim), k.mT, self.use(q, 3))
        scores = scores if mask is None else scores + mask
        weights = F.softmax(scores, dim=-1) if need_weights else _softmax_or_zeros(scores)
        dropped = F.dropout(weights, self.dropout) if self.training and self.dropout else weights
        heads = bmm(dropped, v, self.use(v, 4))
        sums = linear(heads.transpose(1, 2).flatten(2), self.out_proj.weight, self.out_proj.bias, self.use(heads, 5))
        result = sums.transpose(0, 1) if batched and not self.batch_first else sums if batched else sums.squeeze(0)
        if not need_weights:
            return result, None
        shown = dropped.mean(1) if average_attn_weights else dropped
        return result, shown if batched else shown.squeeze(0)

    def _batches(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Rearrange tensors to (batch, position, feature); ValueError if their shapes do not fit."""
        given, batched = (query, key, value), query.dim() == 3
        for x in given:
            if x.dim() != (3 if batched else 2):
                raise ValueError(
                    f"query, key and value must all have 3 dimensions, or all 2 without batches; one has {x.dim()}"
                )
        q, k, v = (x.unsqueeze(0) if not batched else x if self.batch_first else x.transpose(0, 1) for x in given)
        if not len(q) == len(k) == len(v) or k.shape[1] != v.shape[1]:
            raise ValueError(
                "query, key and value must have one batch size, and key and value one length; they have shapes "
                f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
            )
        return [q, k, v]

    def _by_head(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Append the layer's ``bias_k``, ``bias_v`` and zeros to keys and values, and split tensors by head."""
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (torch.cat([x, bias.expand(len(x), 1, -1)], 1) for x, bias in ((k, self.bias_k), (v, self.bias_v)))
            mask = None if mask is None else F.pad(mask, (0, 1))
        q, k, v = (x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for x in (q, k, v))
        if self.add_zero_attn:
            k, v = (F.pad(x, (0, 0, 0, 1)) for x in (k, v))
            mask = None if mask is None else F.pad(mask, (0, 1))
        return q, k, v, mask

    def _projected(self, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        if self.in_proj_weight is not None:
            parts = list(self.in_proj_weight.chunk(3))
        else:
            parts = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        biases = [None] * 3 if self.in_proj_bias is None else list(self.in_proj_bias.chunk(3))
        return [
            linear(x, weight, bias, self.use(x, number))
            for number, (x, weight, bias) in enumerate(zip((q, k, v), parts, biases, strict=True))
        ]

    def _mask(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, q: Tensor, k: Tensor, batched: bool
    ) -> Tensor | None:
        """Return the sum of the masks, to be added to the scores, in a shape that broadcasts to theirs."""
        added = None
        if attn_mask is not None:
            added = _additive("attn_mask", attn_mask, q.dtype)
            shape = (q.shape[1], k.shape[1])
            _check_mask("attn_mask", added, shape, (len(q) * self.num_heads, *shape))
            if added.dim() == 3:
                added = added.reshape(len(q), self.num_heads, *shape)
        if key_padding_mask is not None:
            _check_mask("key_padding_mask", key_padding_mask, (len(k), k.shape[1]) if batched else (k.shape[1],))
            ignored = _additive("key_padding_mask", key_padding_mask, q.dtype).reshape(len(k), 1, 1, k.shape[1])
            added = ignored if added is None else added + ignored
        return added


def _check_mask(name: str, mask: Tensor, *shapes: tuple[int, ...]) -> None:
    if mask.shape not in shapes:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}: expected {' or '.join(map(str, shapes))}")


def _additive(name: str, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a mask to numbers: minus infinity where a mask of bools is True."""
    if mask.is_floating_point():
        return mask.to(dtype)
    if mask.dtype != torch.bool:
        raise TypeError(f"{name} has dtype {mask.dtype}: expected bool or a type of real numbers")
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


def _softmax_or_zeros(scores: Tensor) -> Tensor:
    """Return the softmax of rows, and zeros with zero gradients for rows of minus infinity only."""
    excluded = (scores == -math.inf).all(-1, keepdim=True)
    return F.softmax(scores.masked_fill(excluded, 0), dim=-1).masked_fill(excluded, 0)
